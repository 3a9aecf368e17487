//! Gates in readable form: `breaker: closed`.

use super::output::{or_dash, table};
use crate::model::{Gate, Pace};

/// A gate on one line, with the state of the upstream's breaker, if known, and what an adaptive pace has learned.
pub(super) fn gate(gate: &Gate, breaker: Option<&str>, pace: Option<&Pace>) -> String {
    let learned = pace.filter(|pace| pace.adaptive && gate.reason == "pace").map(learned).unwrap_or_default();
    let until = gate.until.as_ref().map(|until| format!(" until {until}")).unwrap_or_default();
    let (name, state) = words(gate, breaker);
    format!("{name}: {state}{learned}{until}")
}

/// Calls per second, and the lowest latency.
fn learned(pace: &Pace) -> String {
    let floor = pace.floor_latency_ms.map(|ms| format!(", floor {ms} ms")).unwrap_or_default();
    format!(" ({:.2}/s{floor})", pace.rate)
}

/// Gates of a job as a table, with their owners.
pub(super) fn gates(gates: &[Gate]) -> String {
    let row = |gate: &Gate| {
        let (name, state) = words(gate, None);
        vec![owner(gate), name, state, or_dash(gate.until.as_deref())]
    };
    table(&["OF", "GATE", "STATE", "UNTIL"], gates.iter().map(row).collect())
}

/// Whose gate it is: `fal`, `lane`, `tenant acme`, `fal PER_PAYER 9f…`.
fn owner(gate: &Gate) -> String {
    let Gate { upstream, tenant, policy, scope, .. } = gate;
    match (tenant, upstream) {
        (Some(tenant), _) => format!("tenant {tenant}"),
        (None, None) => "lane".to_owned(),
        (None, Some(upstream)) => {
            let words =
                [Some(upstream), policy.as_ref(), scope.as_ref().filter(|scope| *scope != "upstream")];
            words.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(" ")
        }
    }
}

/// The state of a gate.
pub(super) fn state(gate: &Gate, breaker: Option<&str>) -> String {
    words(gate, breaker).1
}

/// The name of a gate and its state.
fn words(gate: &Gate, breaker: Option<&str>) -> (String, String) {
    let Gate { level, limit, open, .. } = gate;
    let of = limit.map_or_else(|| level.to_string(), |limit| format!("{level}/{limit}"));
    let full = if *open { "" } else { ", full" };
    let (name, state) = match gate.reason.as_str() {
        "circuit_open" => ("breaker", breaker_words(gate, breaker)),
        "cooldown" if !open => ("cooldown", format!("pausing after {}", errors(*level))),
        "cooldown" if *level > 0 => ("cooldown", format!("none, {}", errors(*level))),
        "cooldown" => ("cooldown", "none".to_owned()),
        "concurrency" => ("slots", format!("{of} in use{full}")),
        "window" => ("window", format!("{of} in the last minute{full}")),
        "rate_limit" => ("bucket", format!("{of} tokens{}", if *open { "" } else { ", too few" })),
        "pace" => ("pace", format!("one call every {level} ms{}", if *open { "" } else { ", waiting" })),
        "upstream_retry_after" => ("Retry-After", "closed".to_owned()),
        other => (other, format!("{of}{}", if *open { "" } else { ", closed" })),
    };
    (name.to_owned(), state)
}

/// The state of a breaker; a closed one lets calls through. Without `known`, it is derived from the gate, which looks the same
/// while a breaker is open and while a probe is running.
fn breaker_words(gate: &Gate, known: Option<&str>) -> String {
    if known == Some("half_open") {
        return if gate.open { "half-open" } else { "half-open, a probe is running" }.to_owned();
    }
    match (gate.open, &gate.until, gate.level, gate.limit) {
        (true, _, 0, _) => "closed".to_owned(),
        (true, _, failures, Some(limit)) if failures >= limit => "half-open".to_owned(),
        (true, _, failures, Some(limit)) => format!("closed, {failures}/{limit} failures"),
        (true, _, failures, None) => format!("closed, {failures} failures"),
        (false, Some(_), ..) => "open".to_owned(),
        (false, None, ..) => "half-open, a probe is running".to_owned(),
    }
}

fn errors(count: i64) -> String {
    format!("{count} error{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(reason: &str, open: bool, until: Option<&str>, level: i64, limit: Option<i64>) -> Gate {
        let (reason, until) = (reason.into(), until.map(ToOwned::to_owned));
        Gate { reason, open, until, level, limit, ..Gate::default() }
    }

    #[test]
    fn gates_have_readable_names_and_states() {
        let until = Some("12:00");
        for (gate, expected) in [
            (view("circuit_open", true, None, 0, Some(5)), "breaker: closed"),
            (view("circuit_open", true, None, 2, Some(5)), "breaker: closed, 2/5 failures"),
            (view("circuit_open", true, None, 5, Some(5)), "breaker: half-open"),
            (view("circuit_open", false, until, 5, Some(5)), "breaker: open until 12:00"),
            (view("circuit_open", false, None, 5, Some(5)), "breaker: half-open, a probe is running"),
            (view("cooldown", true, None, 0, None), "cooldown: none"),
            (view("cooldown", true, None, 1, None), "cooldown: none, 1 error"),
            (view("cooldown", false, until, 2, None), "cooldown: pausing after 2 errors until 12:00"),
            (view("concurrency", true, None, 3, Some(10)), "slots: 3/10 in use"),
            (view("concurrency", false, None, 10, Some(10)), "slots: 10/10 in use, full"),
            (
                view("window", false, until, 60, Some(60)),
                "window: 60/60 in the last minute, full until 12:00",
            ),
            (view("rate_limit", true, None, 7, Some(10)), "bucket: 7/10 tokens"),
            (view("pace", true, None, 250, None), "pace: one call every 250 ms"),
            (view("upstream_retry_after", false, until, 0, None), "Retry-After: closed until 12:00"),
        ] {
            assert_eq!(super::gate(&gate, None, None), expected);
        }
    }

    #[test]
    fn gates_of_a_job_say_whose_they_are() {
        let text = |text: &str| Some(text.to_owned());
        let plain = view("rate_limit", true, None, 7, Some(10));
        let up = Gate { upstream: text("up"), ..plain.clone() };
        let scoped = Gate { policy: text("PER_PAYER"), scope: text("9f"), ..up.clone() };
        let shared = Gate { scope: text("upstream"), ..scoped.clone() };
        let tenant = Gate { tenant: text("acme"), ..plain.clone() };
        let owners = [plain, tenant, up, scoped, shared].map(|gate| owner(&gate));
        assert_eq!(owners, ["lane", "tenant acme", "up", "up PER_PAYER 9f", "up PER_PAYER"]);
    }

    #[test]
    fn a_probe_that_runs_is_not_an_open_breaker() {
        let probing = view("circuit_open", false, Some("12:00"), 5, Some(5));
        let until = "until 12:00";
        assert_eq!(
            gate(&probing, Some("half_open"), None),
            format!("breaker: half-open, a probe is running {until}")
        );
        assert_eq!(gate(&probing, Some("open"), None), format!("breaker: open {until}"));
        let waiting = view("circuit_open", true, None, 5, Some(5));
        assert_eq!(gate(&waiting, Some("half_open"), None), "breaker: half-open");
    }
}
