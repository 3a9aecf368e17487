//! `GET /v1/jobs/{id}/events`: a job's history as it happens, by server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use eclusa_core::{JobId, JobView, Store, StoreError, Wait};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use http::{HeaderMap, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::auth::{Caller, Right};
use super::extract::{Path, Query};
use super::find::{OfLane, by_given_id, may_see, no_such_job};
use super::model::JobEvent;
use super::problem::{Kind, Problem};
use super::store_problem::unavailable;
use crate::intake::Fault;
use crate::life::Life;
use crate::store::AnyStore;

/// Streams that one process holds open. Each also holds two questions to the store.
const MAX_STREAMS: usize = 1_000;
/// An idle stream gets a comment this often, so that proxies do not close it.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// A stream ends after this long; the client reconnects with `Last-Event-ID`.
const MAX_LENGTH: Duration = Duration::from_hours(1);
/// Pause before a store that did not answer is asked again.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// How long to wait for the end of a job that the store no longer knows.
const LATE: Duration = Duration::from_secs(2);

/// Limits the number of open streams.
pub(crate) struct Streams(Arc<Semaphore>);

impl Streams {
    fn open(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.0.clone().try_acquire_owned().map_err(|_| {
            let detail = format!("{MAX_STREAMS} streams are open; try again, or use /v1/jobs/ID/wait");
            Problem::new(Kind::TooManyStreams, detail).retry_after(5)
        })
    }
}

impl Default for Streams {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_STREAMS)))
    }
}

/// Follow a job
///
/// Server-sent events, one per entry of the job's timeline: `id` is the number of the entry, `event` its name, `data`
/// the entry as JSON with the status after it. The last event contains the job without request and params, and ends the
/// stream. A client that sends `Last-Event-ID` receives the events after that one.
#[utoipa::path(get, path = "/v1/jobs/{id}/events", tag = "jobs",
    params(
        ("id" = String, Path, description = "The job's id, or the id given by its caller"),
        OfLane,
        ("Last-Event-ID" = Option<u64>, Header, description = "The id of the last event received"),
    ),
    responses((status = 200, body = String, content_type = "text/event-stream",
            description = "Events, each with a `JobEvent` as `data`"),
        (status = 204, description = "The job has ended, and there is no event after `Last-Event-ID`"),
        (status = 503, description = "Too many streams are open")))]
pub(super) async fn follow(
    State(store): State<Arc<AnyStore>>,
    State(streams): State<Arc<Streams>>,
    State(life): State<Arc<Life>>,
    caller: Caller,
    Path(id): Path<String>,
    Query(of): Query<OfLane>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.may(Right::SeeJob)?;
    let seen = last_event_id(&headers)?;
    let lane = of.lane.as_deref();
    let begin = async |job: JobId| -> Result<Option<(Follower, JobView)>, Problem> {
        let permit = streams.open()?;
        let mut follower = Follower::new(store.clone(), life.clone(), job, seen, permit);
        let now = follower.poll_job(Duration::ZERO).await.map_err(|error| unavailable(&error))?;
        Ok(now.and_then(|job| may_see(&caller, job, lane)).map(|now| (follower, now)))
    };
    let own = match id.parse() {
        Ok(own) => begin(own).await?,
        Err(_) => None,
    };
    let begun = match own {
        Some(begun) => Some(begun),
        None => begin(by_given_id(&store, &caller, &id, lane).await?.id).await?,
    };
    let (mut follower, now) = begun.ok_or_else(no_such_job)?;
    let begun = follower.new_events(&now);
    if begun.is_empty() && follower.over {
        // Browsers reconnect after every end except this one.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(Sse::new(stream::iter(begun).chain(follower.rest()).map(Ok::<_, Infallible>)).into_response())
}

fn last_event_id(headers: &HeaderMap) -> Result<u64, Problem> {
    let Some(value) = headers.get("last-event-id") else { return Ok(0) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| {
        Problem::invalid(&[Fault::new("Last-Event-ID", "must be the id of an event of this stream")])
    })
}

/// Resolves to the job when it has ended.
type End = BoxFuture<'static, Result<Option<JobView>, StoreError>>;

fn end_of(store: &Arc<AnyStore>, job: JobId) -> End {
    let store = store.clone();
    async move { store.wait(Wait::for_end(job, MAX_LENGTH.into())).await }.boxed()
}

/// A client that follows a job.
struct Follower {
    store: Arc<AnyStore>,
    life: Arc<Life>,
    job: JobId,
    /// The number of the last timeline entry sent.
    seen: u64,
    /// Asked first: a lane may forget a job as soon as it ends, and only a wait that is already held sees the end.
    end: End,
    /// The ended job, once known.
    ended: Option<JobView>,
    over: bool,
    until: Instant,
    _permit: OwnedSemaphorePermit,
}

impl Follower {
    fn new(
        store: Arc<AnyStore>,
        life: Arc<Life>,
        job: JobId,
        seen: u64,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let end = end_of(&store, job);
        let until = Instant::now() + MAX_LENGTH;
        Self { store, life, job, seen, end, ended: None, over: false, until, _permit: permit }
    }

    /// The job when there is something new, or after `timeout`; `None` if the store no longer knows it.
    async fn poll_job(&mut self, timeout: Duration) -> Result<Option<JobView>, StoreError> {
        if let Some(ended) = &self.ended {
            return Ok(Some(ended.clone()));
        }
        let ask = Wait { seen: Some(self.seen), ..Wait::for_end(self.job, timeout.into()) };
        let end = tokio::select! {
            biased;
            end = &mut self.end => end,
            job = self.store.wait(ask) => match job {
                // Its end may still be on the way.
                Ok(None) => timeout_at(Instant::now() + LATE, &mut self.end).await.unwrap_or(Ok(None)),
                job => return job,
            },
        };
        self.end = end_of(&self.store, self.job);
        self.ended = end?.filter(|job| job.status.is_final());
        Ok(self.ended.clone())
    }

    /// The events for what is new about the job.
    fn new_events(&mut self, job: &JobView) -> Vec<Event> {
        self.over = job.status.is_final();
        let new = JobEvent::after(self.seen, job);
        self.seen = new.last().map_or(self.seen, |(number, _)| *number);
        new.into_iter().map(|(number, entry)| event(number, &entry)).collect()
    }

    /// All remaining events.
    fn rest(self) -> impl Stream<Item = Event> {
        let steps = stream::unfold(self, async |mut follower| {
            let events = follower.next().await?;
            Some((stream::iter(events), follower))
        });
        steps.flatten()
    }

    /// The next events, or a comment if there were none for a while; `None` at the end.
    async fn next(&mut self) -> Option<Vec<Event>> {
        if self.over || Instant::now() >= self.until {
            return None;
        }
        let life = self.life.clone();
        let looked = tokio::select! {
            biased;
            looked = self.poll_job(HEARTBEAT) => looked,
            // The client reconnects to another process, or to this one after a restart.
            () = life.stopping.cancelled() => return None,
        };
        match looked {
            Ok(Some(job)) => {
                let events = self.new_events(&job);
                Some(if events.is_empty() { vec![Event::default().comment("")] } else { events })
            }
            Err(error) if error.is_transient() => {
                tokio::time::sleep(STORE_PAUSE).await;
                Some(vec![Event::default().comment("the store does not answer")])
            }
            // The job ended and was forgotten during an outage, or the store is gone permanently.
            Ok(None) | Err(_) => None,
        }
    }
}

fn event(number: u64, entry: &JobEvent) -> Event {
    let event = Event::default().id(number.to_string()).event(&entry.entry.event);
    // JSON written by serde contains no line breaks.
    event.data(serde_json::to_string(entry).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use axum::extract::FromRef;
    use eclusa_core::{Name, NewJob};

    use super::*;
    use crate::api::Api;
    use crate::clock::SystemClock;
    use crate::config::Config;
    use crate::decide::Decider;
    use crate::peers::ProcessRole;
    use crate::process;

    /// A follower of a job in a lane that forgets jobs when they end.
    async fn follower() -> (Follower, Arc<Decider>) {
        let text = "[store]\nurl = \"memory:\"\n[lanes.mail]\nchain = [\"up\"]\nkeep = { max = 0 }\n\
                    [upstreams.up]\nurl = \"http://up\"\n";
        let config = Config::parse("test.toml", text, &|_| None).unwrap();
        let Api(parts) = &process::open(config, ProcessRole::All, Arc::new(SystemClock)).unwrap().api;
        let id = parts.ids.job();
        let job = NewJob::new(id, Name::new("mail").unwrap(), "acme", []);
        parts.store.enqueue(vec![job]).await.unwrap();
        let permit = parts.streams.0.clone().try_acquire_owned().unwrap();
        let mut follower = Follower::new(parts.store.clone(), parts.life.clone(), id, 0, permit);
        let job = follower.poll_job(Duration::ZERO).await.unwrap().unwrap();
        assert_eq!(follower.new_events(&job).len(), 1, "accepted");
        (follower, Arc::from_ref(&Api(parts.clone())))
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_stream_is_kept_open_by_comments_until_its_maximum_length() {
        let (mut follower, _) = follower().await;
        let began = Instant::now();
        let mut comments = 0;
        while let Some(events) = follower.next().await {
            assert_eq!(events.len(), 1);
            comments += 1;
        }
        let silences = MAX_LENGTH.as_secs() / HEARTBEAT.as_secs();
        assert!((silences - 1..=silences).contains(&comments), "{comments}");
        assert_eq!(began.elapsed(), MAX_LENGTH);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_job_forgotten_between_two_polls_is_sent() {
        let (mut follower, decider) = follower().await;
        decider.cancel(follower.job).await.unwrap();
        assert_eq!(follower.next().await.map(|events| events.len()), Some(1));
        assert_eq!((follower.seen, follower.over), (2, true));
        assert!(follower.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_when_the_process_stops() {
        let (mut follower, _) = follower().await;
        follower.life.stopping.cancel();
        assert!(follower.next().await.is_none());
    }
}
