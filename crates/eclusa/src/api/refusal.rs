//! The headers `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers), and 429 responses.

use eclusa_core::gate::{GateView, Quota, QuotaOf, Reason};
use eclusa_core::{BucketId, Name, Span, Time, Tokens};
use http::{HeaderName, HeaderValue};

use super::headers::header;
use super::problem::{Kind, Problem};
use crate::decide::PermitDenied;
use crate::words::counted;

/// The headers that report what is left of a limit at `now`. `t` is the time until there is enough for such a call or,
/// if there is enough, until the limit is full again. If the upstream asked to stop sending, nothing is left for that
/// long.
pub(super) fn left(quota: &Quota, closed: Option<Span>, now: Time) -> Vec<(HeaderName, HeaderValue)> {
    let policy = policy_of(quota);
    // A place in a window may be held until the lease of its call ends, which is soon.
    let until = if quota.enough_at > now { quota.enough_at.min(quota.full_at) } else { quota.full_at };
    let (remaining, seconds) = match closed {
        Some(wait) => (0, whole_seconds(wait)),
        None => (whole(quota.remaining).max(0), until.since(now).as_millis().div_ceil(1_000)),
    };
    let headers = [
        header("ratelimit", &format!("\"{policy}\";r={remaining};t={seconds}")),
        header("ratelimit-policy", &format!("\"{policy}\";{}", allows(quota))),
    ];
    headers.into_iter().flatten().collect()
}

/// The name of a limit, without its scope value.
fn policy_of(quota: &Quota) -> String {
    match &quota.of {
        QuotaOf::Lane(name) | QuotaOf::Upstream(name) => policy_at(name, quota.reason),
        QuotaOf::Tenant(name) => format!("{name}-tenant-{}", quota.reason.as_str()),
        QuotaOf::Bucket(key) => BucketId::parse(key).map_or_else(String::new, |id| id.policy.to_string()),
    }
}

fn policy_at(name: &Name, reason: Reason) -> String {
    format!("{name}-{}", reason.as_str())
}

/// What a limit allows, as policy parameters: the quota, and the time an empty one takes to fill.
fn allows(quota: &Quota) -> String {
    let (limit, refill) = (quota.limit.as_micro(), quota.refill.as_micro().max(1));
    let period = i128::from(quota.period.as_millis());
    let window = i128::from(limit) * period / i128::from(refill) / 1_000;
    format!("q={};w={}", whole(quota.limit), window.max(1))
}

const fn whole(tokens: Tokens) -> i64 {
    tokens.as_micro() / Tokens::ONE.as_micro()
}

/// 429: which limit of the lane or upstream `at` denied the call, what it allows, and when to try again. The policy is
/// named, its scope value is not.
pub(super) fn not_now(at: &Name, denied: &PermitDenied) -> Problem {
    let PermitDenied { denial, gate, now, .. } = denied;
    let seconds = match denial.at {
        Time::NEVER => 1,
        at => whole_seconds(at.since(*now)),
    };
    let (quota, reason) = (denied.used_up(), denial.reason.as_str());
    let scoped = quota.filter(|quota| quota.bucket().is_some());
    let bucket = scoped.and_then(|quota| BucketId::parse(quota.bucket()?));
    let (policy, detail) = match bucket {
        Some(BucketId { upstream, policy, .. }) => {
            let detail = format!("Policy `{policy}` of `{upstream}` has too few tokens for this call now");
            (policy.to_string(), detail)
        }
        None => (policy_at(at, denial.reason), format!("`{at}` accepts no more calls now ({reason})")),
    };
    let quota = quota.filter(|quota| scoped.is_some() || quota.reason == denial.reason);
    let remaining = quota.map_or(0, |quota| whole(quota.remaining).max(0));
    let allows = quota.map_or_else(|| gate_allows(gate.as_ref(), denial.reason), allows);
    let problem = Problem::new(Kind::QuotaExceeded, detail)
        .with("reason", reason)
        .with("violated-policies", vec![policy.clone()])
        .retry_after(seconds);
    let headers = [
        header("ratelimit", &format!("\"{policy}\";r={remaining};t={seconds}")),
        header("ratelimit-policy", &format!("\"{policy}\";{allows}")),
    ];
    headers.into_iter().flatten().fold(problem, |problem, (name, value)| problem.header(name, value))
}

/// Rounded up to at least one second.
fn whole_seconds(wait: Span) -> u64 {
    wait.as_millis().div_ceil(1_000).max(1)
}

/// What a gate without a quota allows; one call if it does not count calls.
fn gate_allows(gate: Option<&GateView>, reason: Reason) -> String {
    let limit = gate.and_then(|gate| Some(counted(gate, gate.limit?))).unwrap_or(1);
    match reason {
        Reason::Concurrency => format!("q={limit};qu=\"concurrent-requests\""),
        Reason::Window => format!("q={limit};w=60"),
        Reason::RateLimit => format!("q={limit}"),
        // The level of a pace is the interval between two calls in milliseconds.
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
    use eclusa_core::gate::NotUntil;

    use super::*;

    fn now() -> Time {
        Time::from_millis(1_000_000)
    }

    fn name() -> Name {
        Name::new("up").unwrap()
    }

    fn quota(limit: u32, left: u32, refill: u32, enough: u64, full: u64) -> Quota {
        Quota {
            of: QuotaOf::Upstream(name()),
            reason: Reason::RateLimit,
            limit: Tokens::whole(limit),
            remaining: Tokens::whole(left),
            refill: Tokens::whole(refill),
            period: Span::from_secs(60),
            enough_at: now() + Span::from_millis(enough),
            full_at: now() + Span::from_millis(full),
        }
    }

    #[test]
    fn every_gate_reports_its_limit_and_when_to_retry() {
        let now = now();
        let gate = |reason, level, limit| Some(GateView { reason, denies_until: None, level, limit });
        let window = Quota { reason: Reason::Window, ..quota(3, 0, 3, 1, 60_000) };
        let rows = [
            (Reason::Window, Some(1), 1, Some(window.clone()), None, "q=3;w=60"),
            (Reason::Window, Some(59_001), 60, Some(window), None, "q=3;w=60"),
            (Reason::RateLimit, Some(2_000), 2, Some(quota(20, 0, 10, 2_000, 120_000)), None, "q=20;w=120"),
            (
                Reason::Concurrency,
                None,
                1,
                Some(quota(20, 4, 10, 0, 96_000)),
                gate(Reason::Concurrency, 5, Some(5)),
                "q=5;qu=\"concurrent-requests\"",
            ),
            (Reason::Pace, Some(1_001), 2, None, gate(Reason::Pace, 1_500, None), "q=1;w=2"),
            (Reason::CircuitOpen, Some(30_000), 30, None, gate(Reason::CircuitOpen, 5, Some(5)), "q=1"),
            (Reason::UpstreamRetryAfter, Some(0), 1, None, None, "q=1"),
        ];
        for (reason, wait, seconds, quota, gate, allows) in rows {
            let at = wait.map_or(Time::NEVER, |wait| now + Span::from_millis(wait));
            let denial = NotUntil { reason, at };
            let denied = PermitDenied { denial, quota, gate, sooner: false, now };
            let response = not_now(&name(), &denied).into_response();
            let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
            let policy = format!("\"up-{}\"", reason.as_str());
            assert_eq!(response.status(), 429);
            assert_eq!(header("retry-after"), seconds.to_string());
            assert_eq!(header("ratelimit"), format!("{policy};r=0;t={seconds}"));
            assert_eq!(header("ratelimit-policy"), format!("{policy};{allows}"));
        }
    }

    #[test]
    fn the_remaining_quota_is_reported_with_its_time() {
        let of = QuotaOf::Bucket("dict/USER/PF/18d4956485ad7666b6a267f418061e86".into());
        let scoped = Quota { of, ..quota(100, 80, 2, 0, 600_001) };
        let debt = Quota { remaining: Tokens::from_micro(-1_500_000), ..quota(10, 0, 1, 90_000, 690_000) };
        let lane = Quota { of: QuotaOf::Lane(name()), reason: Reason::Window, ..quota(5, 5, 5, 0, 0) };
        let window = Quota { reason: Reason::Window, ..quota(2, 0, 2, 660_000, 60_000) };
        let rows = [
            (&window, None, "\"up-window\";r=0;t=60", "\"up-window\";q=2;w=60"),
            (&scoped, None, "\"USER\";r=80;t=601", "\"USER\";q=100;w=3000"),
            (&scoped, Some(Span::from_millis(299_001)), "\"USER\";r=0;t=300", "\"USER\";q=100;w=3000"),
            (&debt, None, "\"up-rate_limit\";r=0;t=90", "\"up-rate_limit\";q=10;w=600"),
            (&lane, None, "\"up-window\";r=5;t=0", "\"up-window\";q=5;w=60"),
        ];
        for (quota, closed, limit, policy) in rows {
            let headers = left(quota, closed, now());
            let headers: Vec<_> = headers.iter().map(|(_, value)| value.to_str().unwrap()).collect();
            assert_eq!(headers, [limit, policy]);
        }
    }
}
