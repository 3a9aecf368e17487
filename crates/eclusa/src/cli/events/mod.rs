//! Follows `GET /v1/events` for `tail` and `top`: reads the stream, reconnects where it was, and keeps what it says.

#[cfg(test)]
pub(super) mod fixtures;
mod happening;
mod sse;
mod state;

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::{Stream, stream};
use tokio::time::{sleep, timeout};

pub(super) use self::happening::{Happening, Tone, clock_time, time};
pub(super) use self::sse::Event;
use self::sse::Parser;
pub(super) use self::state::State;
use super::Exit;
use super::client::{Client, LongAnswer};

/// The pause before the first attempt to reconnect; it doubles with every attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A server that has missed events says so at once. After this time without an event, none were missed.
const QUIET: Duration = Duration::from_secs(1);

/// What a listener reports.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// An event of the stream.
    Event(Event),
    /// The server does not answer, and why. The listener keeps trying.
    Lost(String),
    /// The server answers again.
    Back {
        /// Whether events were missed meanwhile.
        missed: bool,
    },
}

/// Listens to the stream at one path.
pub(super) struct Listener<'a> {
    client: &'a Client,
    path: String,
    stream: Option<EventStream<'a>>,
    /// The id of the last event.
    cursor: Option<String>,
    /// Attempts without an event since the last one.
    attempts: u32,
    /// Whether [`News::Lost`] was reported.
    lost: bool,
    ready: VecDeque<News>,
}

impl<'a> Listener<'a> {
    /// Connects for the first time.
    pub(super) async fn open(client: &'a Client, path: String) -> Result<Self, Exit> {
        let stream = Some(EventStream::open(client, &path, None).await?);
        Ok(Self { client, path, stream, cursor: None, attempts: 0, lost: false, ready: VecDeque::new() })
    }

    /// All news; ends after an error that trying again does not cure.
    pub(super) fn news(self) -> impl Stream<Item = Result<News, Exit>> {
        stream::unfold(Some(self), async |listener| {
            let mut listener = listener?;
            match listener.next().await {
                Ok(news) => Some((Ok(news), Some(listener))),
                Err(error) => Some((Err(error), None)),
            }
        })
    }

    async fn next(&mut self) -> Result<News, Exit> {
        loop {
            if let Some(news) = self.ready.pop_front() {
                return Ok(news);
            }
            match &mut self.stream {
                Some(stream) => match stream.next().await {
                    Ok(Some(event)) => self.take(event),
                    Ok(None) | Err(Exit::Unreachable(_)) => self.stream = None,
                    Err(other) => return Err(other),
                },
                None => self.reconnect().await?,
            }
        }
    }

    fn take(&mut self, event: Event) {
        self.attempts = 0;
        if event.id.is_some() {
            self.cursor.clone_from(&event.id);
        }
        self.ready.push_back(News::Event(event));
    }

    /// Tries once to reconnect.
    async fn reconnect(&mut self) -> Result<(), Exit> {
        sleep(pause(self.attempts)).await;
        self.attempts += 1;
        let (stream, first) = match self.attempt().await {
            Ok(opened) => opened,
            Err(error @ (Exit::Auth(_) | Exit::NotFound(_))) => return Err(error),
            Err(error) => {
                self.lose(&error.text());
                return Ok(());
            }
        };
        self.stream = Some(stream);
        if std::mem::take(&mut self.lost) {
            let gap = first.as_ref().is_some_and(|event| event.name == "gap");
            self.ready.push_back(News::Back { missed: gap || self.cursor.is_none() });
        }
        first.into_iter().for_each(|event| self.take(event));
        Ok(())
    }

    /// A new stream, and its first event if one comes soon. A stream that ends at once is that of a server that is stopping.
    async fn attempt(&self) -> Result<(EventStream<'a>, Option<Event>), Exit> {
        let mut stream = EventStream::open(self.client, &self.path, self.cursor.as_deref()).await?;
        match timeout(QUIET, stream.next()).await {
            Ok(Ok(None)) => Err(Exit::Unreachable("the server is stopping".into())),
            Ok(first) => Ok((stream, first?)),
            Err(_) => Ok((stream, None)),
        }
    }

    /// Reports the loss once. Of an error with help, only the cause is reported.
    fn lose(&mut self, why: &str) {
        let cause = why.rsplit_once("cause: ").map_or(why, |(_, cause)| cause);
        if !std::mem::replace(&mut self.lost, true) {
            self.ready.push_back(News::Lost(cause.lines().next().unwrap_or_default().to_owned()));
        }
    }
}

fn pause(attempts: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << attempts.min(10)).min(LONGEST_PAUSE)
}

/// One connection.
struct EventStream<'a> {
    answer: LongAnswer<'a>,
    parser: Parser,
    ready: VecDeque<Event>,
}

impl<'a> EventStream<'a> {
    async fn open(client: &'a Client, path: &str, cursor: Option<&str>) -> Result<Self, Exit> {
        let answer = client.events(path, cursor).await?;
        Ok(Self { answer, parser: Parser::default(), ready: VecDeque::new() })
    }

    /// The next event; `None` at the end. Safe to drop while it waits.
    async fn next(&mut self) -> Result<Option<Event>, Exit> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let Some(piece) = self.answer.next().await? else { return Ok(None) };
            let read = self.parser.feed(&piece, &mut self.ready);
            read.map_err(|error| Exit::Error(error.to_string()))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let millis: Vec<u128> = [0, 1, 2, 3, 4, u32::MAX].map(|n| pause(n).as_millis()).into();
        assert_eq!(millis, [250, 500, 1_000, 2_000, 2_000, 2_000]);
    }
}
