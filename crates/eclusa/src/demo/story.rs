//! The demo's story: a limit is reached, a breaker opens, a fallback helps, a job becomes a dead letter and is replayed.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use eclusa_core::{Clock, Time};
use tokio::time::{Instant, sleep_until};

use super::client::TenantClient;

/// The story starts over after this many seconds. Its second minute is calm, so that the bureau's queue empties.
const LENGTH_SECS: u64 = 120;
/// When the moody upstream is down, in seconds of the story.
const MOODY_DOWN: Range<u64> = 20..35;
/// When the ledger rejects everything, in seconds of the story.
const LEDGER_REJECTS: Range<u64> = 38..48;
/// Scores that a tenant asks for at once.
const BURST: u64 = 55;

/// Something that happens at a second of the story.
struct Scene {
    second: u64,
    line: &'static str,
    action: Action,
}

enum Action {
    Burst,
    Invoice,
    Replay,
    /// It happens at an upstream, or by itself.
    None,
}

const SCENES: [Scene; 6] = [
    Scene {
        second: 5,
        line: "globex asks for 55 scores at once. bureau allows 60 a minute: the rest waits.",
        action: Action::Burst,
    },
    Scene {
        second: MOODY_DOWN.start,
        line: "moody goes down. Its breaker opens, and flaky renders instead.",
        action: Action::None,
    },
    Scene {
        second: MOODY_DOWN.end,
        line: "moody is back. A probe will close its breaker.",
        action: Action::None,
    },
    Scene {
        second: 40,
        line: "initech sends an invoice, which ledger rejects: a dead letter.",
        action: Action::Invoice,
    },
    Scene { second: 50, line: "ledger is fixed, and the dead letter is replayed.", action: Action::Replay },
    Scene {
        second: 65,
        line: "The requests of the burst are a minute old: what waited for bureau starts.",
        action: Action::None,
    },
];

/// When the story began.
#[derive(Debug, Clone, Copy)]
pub(super) struct Story {
    began: Time,
}

impl Story {
    pub(super) fn beginning(now: Time) -> Self {
        Self { began: now }
    }

    fn second(self, at: Time) -> u64 {
        at.since(self.began).as_millis() / 1_000 % LENGTH_SECS
    }

    pub(super) fn moody_is_down(self, at: Time) -> bool {
        MOODY_DOWN.contains(&self.second(at))
    }

    pub(super) fn ledger_rejects(self, at: Time) -> bool {
        LEDGER_REJECTS.contains(&self.second(at))
    }
}

/// Plays the story over and over, from now on, and prints each scene.
pub(super) async fn play(address: SocketAddr, clock: Arc<dyn Clock>, print: impl Fn(&str)) {
    let began = Instant::now();
    let client = |tenant| TenantClient::new(address, tenant, &clock);
    let (Some(globex), Some(initech)) = (client("globex"), client("initech")) else { return };
    for round in 0_u64.. {
        for Scene { second, line, action } in &SCENES {
            let passed = round * LENGTH_SECS + second;
            sleep_until(began + Duration::from_secs(passed)).await;
            print(&format!("{}:{:02}  {line}", passed / 60, passed % 60));
            match action {
                Action::Burst => {
                    for number in 0..BURST {
                        globex.get("/proxy/score", &format!("person=g{round}.{number}")).await;
                    }
                }
                Action::Invoice => {
                    initech.post("/proxy/invoice/issue", &format!(r#"{{"number":{round}}}"#)).await;
                }
                Action::Replay => {
                    initech.operate("/v1/dead-letters/replay", r#"{"filter":{"lane":"invoice"}}"#).await;
                }
                Action::None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use eclusa_core::Span;

    use super::*;

    #[test]
    fn upstreams_fail_for_a_while_in_each_round() {
        let story = Story::beginning(Time::from_millis(1_000));
        let failing = |second| {
            let at = Time::from_millis(1_000) + Span::from_secs(second);
            (story.moody_is_down(at), story.ledger_rejects(at))
        };
        assert_eq!([0, 19, 20, 34, 35].map(|second| failing(second).0), [false, false, true, true, false]);
        assert_eq!([37, 38, 47, 48].map(|second| failing(second).1), [false, true, true, false]);
        assert_eq!((failing(140).0, failing(158).1), (true, true), "the second round");
    }

    #[test]
    fn scenes_are_in_order_and_what_is_sent_meets_the_upstream_it_is_meant_for() {
        assert!(SCENES.is_sorted_by_key(|scene| scene.second));
        assert!(SCENES.iter().all(|scene| scene.second < LENGTH_SECS));
        let second = |wanted: fn(&Action) -> bool| {
            SCENES.iter().find(|scene| wanted(&scene.action)).map(|scene| scene.second)
        };
        let invoice = second(|action| matches!(action, Action::Invoice));
        assert!(invoice.is_some_and(|second| LEDGER_REJECTS.contains(&second)));
        let replay = second(|action| matches!(action, Action::Replay));
        assert!(replay.is_some_and(|second| second >= LEDGER_REJECTS.end));
    }
}
