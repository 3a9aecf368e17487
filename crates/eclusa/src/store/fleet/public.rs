//! The keys that other programs read: the state of breakers and limiters. They are a view: changing them has no effect.

use eclusa_core::gate::PublicGates;
use eclusa_core::{PublicChange, Span, Time, Tokens};

use crate::store::journal::redis::{Keys, PublicWrite};
use crate::store::stage::Stage;
use crate::words::iso;

/// The lifetime of keys that do not change.
const IDLE: Span = Span::from_secs(300);

/// The writes that bring the public keys up to date with what changed since the last call.
pub(super) fn public_writes(stage: &Stage, keys: &Keys) -> Vec<PublicWrite> {
    let (changes, now) = stage.public_changes();
    changes.iter().flat_map(|change| writes(keys, change, now)).collect()
}

fn writes(
    keys: &Keys,
    PublicChange { upstream, before, after }: &PublicChange,
    now: Time,
) -> Vec<PublicWrite> {
    let open = after.degraded_until.map(|until| until.since(now)).filter(|left| !left.is_zero());
    let mut writes = Vec::new();
    // Absent keys say the same as those of a breaker without failures, so they need not be kept alive.
    let is_healthy = |gates: &PublicGates| (gates.failures, gates.degraded_until) == (0, None);
    if before.is_none() && is_healthy(after) {
        writes.extend([delete(keys.breaker_failures(upstream)), delete(keys.breaker_until(upstream))]);
    } else if !(is_healthy(after) && before.as_ref().is_some_and(is_healthy)) {
        let lives = open.map_or(IDLE, |open| open.max(IDLE));
        writes.push(set(keys.breaker_failures(upstream), after.failures.to_string(), lives));
        writes.push(match (after.degraded_until, open) {
            (Some(until), Some(open)) => {
                set(keys.breaker_until(upstream), iso(until).unwrap_or_default(), open)
            }
            _ => delete(keys.breaker_until(upstream)),
        });
    }
    if let Some((tokens, last_refill)) = after.tokens {
        let args = ["hash".to_owned(), decimal(tokens), seconds(last_refill), IDLE.as_millis().to_string()];
        writes.push(PublicWrite { key: keys.rate_limiter(upstream), args });
    }
    writes
}

fn set(key: String, value: String, lives: Span) -> PublicWrite {
    PublicWrite { key, args: ["set".to_owned(), value, String::new(), lives.as_millis().max(1).to_string()] }
}

fn delete(key: String) -> PublicWrite {
    PublicWrite { key, args: ["del".to_owned(), String::new(), String::new(), String::new()] }
}

fn decimal(tokens: Tokens) -> String {
    let micro = tokens.as_micro();
    let sign = if micro < 0 { "-" } else { "" };
    let micro = micro.unsigned_abs();
    format!("{sign}{}.{:06}", micro / 1_000_000, micro % 1_000_000)
}

fn seconds(time: Time) -> String {
    format!("{}.{:03}", time.as_millis() / 1_000, time.as_millis() % 1_000)
}

#[cfg(test)]
mod tests {
    use eclusa_core::Name;

    use super::*;

    #[test]
    fn keys_show_the_gates_and_are_deleted_when_there_is_nothing_to_show() {
        let (keys, pncp) = (Keys::new("", "main", 0), Name::new("pncp").unwrap());
        let now = Time::from_millis(1_768_000_000_250);
        let until = now + Span::from_secs(400);
        let tokens = Some((Tokens::from_micro(-1_500_000), now));
        let open = PublicGates { failures: 5, degraded_until: Some(until), tokens };
        let unused = PublicGates::default();
        let written = |before, after| {
            let change = PublicChange { upstream: pncp.clone(), before, after };
            let writes = writes(&keys, &change, now).into_iter();
            writes.map(|write| format!("{} {}", write.key, write.args.join(" "))).collect::<Vec<_>>()
        };
        let bucket = "rate_limiter:pncp hash -1.500000 1768000000.250 300000";
        let opened = [
            "circuit_breaker:pncp:failures set 5  400000",
            "circuit_breaker:pncp:degraded_until set 2026-01-09T23:13:20.250Z  400000",
            bucket,
        ];
        for before in [None, Some(unused), Some(open)] {
            assert_eq!(written(before, open), opened, "writes them, or keeps them alive");
        }
        let closed =
            ["circuit_breaker:pncp:failures set 0  300000", "circuit_breaker:pncp:degraded_until del   "];
        assert_eq!(written(Some(open), unused), closed);
        let none = ["circuit_breaker:pncp:failures del   ", "circuit_breaker:pncp:degraded_until del   "];
        assert_eq!(written(None, unused), none, "older ones may exist");
        assert_eq!(
            written(Some(unused), PublicGates { tokens, ..unused }),
            [bucket],
            "there is no failure to show"
        );
    }
}
