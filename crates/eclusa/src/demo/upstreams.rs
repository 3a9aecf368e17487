//! The demo's fake upstreams: one rate-limited, one flaky, one down now and then, one that rejects requests now and then.

use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use eclusa_core::Span;

use super::story::Story;
use crate::fake::{Answer, Behaviour, FakeUpstream, ReceivedRequest};

/// The requests per minute that the rate-limited one allows.
const PER_MINUTE: usize = 60;
/// The flaky one fails one call in this many.
const FAILS_EVERY: u64 = 3;

/// The demo's fake upstreams.
pub(super) struct DemoUpstreams {
    bureau: FakeUpstream,
    flaky: FakeUpstream,
    moody: FakeUpstream,
    ledger: FakeUpstream,
}

impl DemoUpstreams {
    pub(super) async fn start(story: Story) -> io::Result<Self> {
        Ok(Self {
            bureau: FakeUpstream::start(metered()).await?,
            flaky: FakeUpstream::start(flaky()).await?,
            moody: FakeUpstream::start(moody(story)).await?,
            ledger: FakeUpstream::start(ledger(story)).await?,
        })
    }

    /// The URL for a variable of the demo's config.
    pub(super) fn url(&self, variable: &str) -> Option<String> {
        match variable {
            "BUREAU_URL" => Some(self.bureau.url()),
            "FLAKY_URL" => Some(self.flaky.url()),
            "MOODY_URL" => Some(self.moody.url()),
            "LEDGER_URL" => Some(self.ledger.url()),
            _ => None,
        }
    }
}

/// Answers 429 above its rate limit.
fn metered() -> Behaviour {
    let starts = Mutex::new(VecDeque::new());
    Behaviour::by(move |seen: &ReceivedRequest| {
        let Ok(mut starts) = starts.lock() else { return Answer::status(500) };
        while starts.front().is_some_and(|start| seen.at.since(*start) > Span::from_secs(60)) {
            starts.pop_front();
        }
        if starts.len() >= PER_MINUTE {
            return Answer::status(429).header("retry-after", "5").body("too many requests\n");
        }
        starts.push_back(seen.at);
        let score = 300 + seen.query.as_deref().unwrap_or_default().bytes().map(u64::from).sum::<u64>() % 700;
        json(&format!("{{\"score\":{score}}}\n")).delay(Duration::from_millis(80))
    })
}

fn flaky() -> Behaviour {
    let calls = AtomicU64::new(0);
    Behaviour::by(move |_: &ReceivedRequest| match calls.fetch_add(1, Ordering::Relaxed) % FAILS_EVERY {
        0 => Answer::status(503).body("out of order\n"),
        _ => json("{\"rendered\":true,\"by\":\"flaky\"}\n").delay(Duration::from_millis(60)),
    })
}

fn moody(story: Story) -> Behaviour {
    Behaviour::by(move |seen: &ReceivedRequest| {
        if story.moody_is_down(seen.at) {
            Answer::reset()
        } else {
            json("{\"rendered\":true,\"by\":\"moody\"}\n").delay(Duration::from_millis(30))
        }
    })
}

fn ledger(story: Story) -> Behaviour {
    Behaviour::by(move |seen: &ReceivedRequest| {
        if story.ledger_rejects(seen.at) {
            Answer::status(422).body("unknown tax code\n")
        } else {
            json("{\"issued\":true}\n").delay(Duration::from_millis(40))
        }
    })
}

fn json(body: &str) -> Answer {
    Answer::status(200).header("content-type", "application/json").body(body.to_owned())
}
