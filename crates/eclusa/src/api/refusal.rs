//! 429: which gate said no, what it allows, and when to come again.

use eclusa_core::gate::{GateView, NotUntil, Reason};
use eclusa_core::{Name, Time};

use super::problem::{Kind, Problem};
use super::submit::header;
use crate::words::counted;

/// One of the `gates` of `at`, a lane or an upstream, says no; `now` is the store's time, as the denial's is.
pub(super) fn not_now(at: &Name, denial: NotUntil, gates: &[GateView], now: Time) -> Problem {
    let seconds = match denial.at {
        Time::NEVER => 1,
        at => at.since(now).as_millis().div_ceil(1_000).max(1),
    };
    let policy = format!("\"{at}-{}\"", denial.reason.as_str());
    let unit = match denial.reason {
        Reason::Concurrency => ";qu=\"concurrent-requests\"",
        Reason::Window => ";w=60",
        _ => "",
    };
    let problem =
        Problem::new(Kind::QuotaExceeded, format!("`{at}` takes no more now ({})", denial.reason.as_str()));
    let problem = problem
        .with("reason", denial.reason.as_str())
        .with("violated-policies", vec![policy.trim_matches('"').to_owned()])
        .retry_after(seconds);
    let quota = quota(gates, denial.reason);
    let headers = [
        header("ratelimit", &format!("{policy};r=0;t={seconds}")),
        header("ratelimit-policy", &format!("{policy};q={quota}{unit}")),
    ];
    headers.into_iter().flatten().fold(problem, |problem, (name, value)| problem.header(name, value))
}

/// What the gate that said no allows; 1 where it counts nothing.
fn quota(gates: &[GateView], reason: Reason) -> i64 {
    let gate = gates.iter().find(|gate| gate.reason == reason);
    gate.and_then(|gate| Some(counted(gate, gate.limit?))).unwrap_or(1)
}
