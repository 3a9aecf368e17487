//! 429: which gate said no, what it allows, and when to come again.

use eclusa_core::gate::{GateView, NotUntil, Quota, Reason};
use eclusa_core::{BucketId, Name, Time, Tokens};

use super::problem::{Kind, Problem};
use super::submit::header;
use crate::words::counted;

/// A scoped bucket says no. Its policy is named, and not whose bucket it is.
pub(super) fn not_now_under(quota: &Quota, denial: NotUntil, now: Time) -> Option<Problem> {
    let bucket = BucketId::parse(quota.bucket.as_deref()?).filter(|_| quota.enough_at > now)?;
    let seconds = seconds_until(denial.at, now);
    let policy = &bucket.policy;
    let whole = |tokens: Tokens| tokens.as_micro() / Tokens::ONE.as_micro();
    let (limit, refill) = (quota.limit.as_micro(), quota.refill.as_micro().max(1));
    // As long as an empty bucket takes to fill.
    let period = i128::from(quota.period.as_millis());
    let window = (i128::from(limit) * period / i128::from(refill) / 1_000).max(1);
    let detail = format!("Policy `{policy}` of `{}` has no tokens for this now", bucket.upstream);
    let problem = Problem::new(Kind::QuotaExceeded, detail)
        .with("reason", denial.reason.as_str())
        .with("violated-policies", vec![policy.to_string()])
        .retry_after(seconds);
    let headers = [
        header("ratelimit", &format!("\"{policy}\";r={};t={seconds}", whole(quota.remaining).max(0))),
        header("ratelimit-policy", &format!("\"{policy}\";q={};w={window}", whole(quota.limit))),
    ];
    Some(headers.into_iter().flatten().fold(problem, |problem, (name, value)| problem.header(name, value)))
}

/// Whole seconds, rounded up.
fn seconds_until(at: Time, now: Time) -> u64 {
    match at {
        Time::NEVER => 1,
        at => at.since(now).as_millis().div_ceil(1_000).max(1),
    }
}

/// One of the `gates` of `at`, a lane or an upstream, says no; `now` is the store's time, as the denial's is.
pub(super) fn not_now(at: &Name, denial: NotUntil, gates: &[GateView], now: Time) -> Problem {
    let seconds = seconds_until(denial.at, now);
    let policy = format!("\"{at}-{}\"", denial.reason.as_str());
    let problem =
        Problem::new(Kind::QuotaExceeded, format!("`{at}` takes no more now ({})", denial.reason.as_str()));
    let problem = problem
        .with("reason", denial.reason.as_str())
        .with("violated-policies", vec![policy.trim_matches('"').to_owned()])
        .retry_after(seconds);
    let headers = [
        header("ratelimit", &format!("{policy};r=0;t={seconds}")),
        header("ratelimit-policy", &format!("{policy};{}", quota(gates, denial.reason))),
    ];
    headers.into_iter().flatten().fold(problem, |problem, (name, value)| problem.header(name, value))
}

/// What the gate that said no allows, as parameters of a policy; one call where it does not count calls.
fn quota(gates: &[GateView], reason: Reason) -> String {
    let gate = gates.iter().find(|gate| gate.reason == reason);
    let limit = gate.and_then(|gate| Some(counted(gate, gate.limit?))).unwrap_or(1);
    match reason {
        Reason::Concurrency => format!("q={limit};qu=\"concurrent-requests\""),
        Reason::Window => format!("q={limit};w=60"),
        Reason::RateLimit => format!("q={limit}"),
        // Its level is the interval between two calls in ms.
        Reason::Pace => {
            let interval = gate.map_or(0, |gate| gate.level.max(0).unsigned_abs());
            format!("q=1;w={}", interval.div_ceil(1_000).max(1))
        }
        _ => "q=1".into(),
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use eclusa_core::Span;

    use super::*;

    #[test]
    fn every_gate_says_what_it_allows_and_when_to_come_again() {
        let now = Time::from_millis(1_000_000);
        let gate = |reason, level, limit| GateView { reason, denies_until: None, level, limit };
        let gates = [
            gate(Reason::Window, 3, Some(3)),
            gate(Reason::RateLimit, 400_000, Some(20_000_000)),
            gate(Reason::Concurrency, 5, Some(5)),
            gate(Reason::Pace, 1_500, None),
            gate(Reason::CircuitOpen, 5, Some(5)),
        ];
        let rows = [
            (Reason::Window, Some(1), 1, "q=3;w=60"),
            (Reason::Window, Some(59_001), 60, "q=3;w=60"),
            (Reason::RateLimit, Some(2_000), 2, "q=20"),
            (Reason::Concurrency, None, 1, "q=5;qu=\"concurrent-requests\""),
            (Reason::Pace, Some(1_001), 2, "q=1;w=2"),
            (Reason::CircuitOpen, Some(30_000), 30, "q=1"),
            (Reason::UpstreamRetryAfter, Some(0), 1, "q=1"),
        ];
        for (reason, wait, seconds, quota) in rows {
            let at = wait.map_or(Time::NEVER, |wait| now + Span::from_millis(wait));
            let denial = NotUntil { reason, at };
            let response = not_now(&Name::new("up").unwrap(), denial, &gates, now).into_response();
            let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
            let policy = format!("\"up-{}\"", reason.as_str());
            assert_eq!(response.status(), 429);
            assert_eq!(header("retry-after"), seconds.to_string());
            assert_eq!(header("ratelimit"), format!("{policy};r=0;t={seconds}"));
            assert_eq!(header("ratelimit-policy"), format!("{policy};{quota}"));
        }
    }
}
