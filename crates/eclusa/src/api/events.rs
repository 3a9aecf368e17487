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
use super::submit::unavailable;
use crate::intake::Fault;
use crate::life::Life;
use crate::store::AnyStore;

/// Streams that one process holds open; each also holds two questions to the store.
const MAX_STREAMS: usize = 1_000;
/// A silent stream gets a comment this often, so that nothing between takes it for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// A stream ends after this long; whoever follows goes on by `Last-Event-ID`.
const MAX_LENGTH: Duration = Duration::from_hours(1);
/// How long to wait before asking a store again that did not answer.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// How long the end of a job that is not known any more may take to be told.
const LATE: Duration = Duration::from_secs(2);

/// How many streams may still be opened.
pub(crate) struct Streams(Arc<Semaphore>);

impl Streams {
    fn open(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.0.clone().try_acquire_owned().map_err(|_| {
            let detail = format!("{MAX_STREAMS} streams are open here; ask again, or use /v1/jobs/ID/wait");
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
/// Server-sent events, one for each line of the job's timeline: `id` is the number of the line, `event` its name, `data` the
/// line as JSON with the status after it; the last event has the job without request and params, and the stream ends after it. A client that
/// sends `Last-Event-ID` gets what came after that.
#[utoipa::path(get, path = "/v1/jobs/{id}/events", tag = "jobs",
    params(
        ("id" = String, Path, description = "The job: its own id, or the one that its caller gave"),
        OfLane,
        ("Last-Event-ID" = Option<u64>, Header, description = "The id of the last event that was received"),
    ),
    responses((status = 200, body = String, content_type = "text/event-stream",
            description = "Events; the `data` of each is a `JobEvent`"),
        (status = 204, description = "It has ended, and nothing came after `Last-Event-ID`"),
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
        // Browsers that follow come back after every end but this one.
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

/// A job when it has ended.
type End = BoxFuture<'static, Result<Option<JobView>, StoreError>>;

fn end_of(store: &Arc<AnyStore>, job: JobId) -> End {
    let store = store.clone();
    async move { store.wait(Wait::for_end(job, MAX_LENGTH.into())).await }.boxed()
}

/// One who follows a job.
struct Follower {
    store: Arc<AnyStore>,
    life: Arc<Life>,
    job: JobId,
    /// The number of the last line that was told.
    seen: u64,
    /// Asked before anything else: a lane may forget a job as it ends, and only who waits by then is told.
    end: End,
    /// The end, once it was heard of.
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

    /// The job when there is more to tell, or after `timeout`; `None` if it is not known any more.
    async fn poll_job(&mut self, timeout: Duration) -> Result<Option<JobView>, StoreError> {
        if let Some(ended) = &self.ended {
            return Ok(Some(ended.clone()));
        }
        let ask = Wait { seen: Some(self.seen), ..Wait::for_end(self.job, timeout.into()) };
        let end = tokio::select! {
            biased;
            end = &mut self.end => end,
            job = self.store.wait(ask) => match job {
                // Its end may be on its way still.
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
        new.into_iter().map(|(number, told)| event(number, &told)).collect()
    }

    /// All events that are still to come.
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
            // The client comes back to another process, or to this one when it is up again.
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
            // It ended and was forgotten while nobody decided, or the store is gone for good.
            Ok(None) | Err(_) => None,
        }
    }
}

fn event(number: u64, told: &JobEvent) -> Event {
    let event = Event::default().id(number.to_string()).event(&told.entry.event);
    // Text without line breaks, as all JSON that is written here.
    event.data(serde_json::to_string(told).unwrap_or_default())
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

    /// Who follows a job of a lane that forgets jobs as they end.
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
        assert_eq!(follower.new_events(&job).len(), 1, "it was accepted");
        (follower, Arc::from_ref(&Api(parts.clone())))
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_is_kept_open_by_comments_up_to_its_longest() {
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
    async fn the_end_of_a_job_that_is_forgotten_between_two_looks_is_told() {
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
