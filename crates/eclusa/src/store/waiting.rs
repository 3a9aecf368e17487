//! Questions that are held until something happens: a dispatch until a job may start, a wait until a job has ended or
//! its timeline has grown.

use std::pin::pin;
use std::time::Duration;

use eclusa_core::layout::{Question, Reply};
use eclusa_core::{Dispatch, Dispatched, JobView, Observe, Observed, StoreError, Time, Wait};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::group::Ticket;
use super::stage::Stage;
use super::verbs::{apply, ends, may_wait, payload_bytes, undo_question};

/// A waiting dispatch looks again after this long at the latest, in case a wake-up was missed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How often a held observer looks whether anything happened to jobs.
const LOOK_AT_JOBS: Duration = Duration::from_millis(100);
/// It looks at everything else only each time it has looked at jobs this often.
const JOBS_PER_STATE: u32 = 5;

/// A reply that may leave once it is durable.
pub(super) type Staged<T> = (T, Option<Ticket>);

/// A reply on its way to its caller. Dropping it releases what it grants.
struct Undelivered<'a> {
    stage: &'a Stage,
    reply: Option<Reply>,
}

impl Drop for Undelivered<'_> {
    fn drop(&mut self) {
        if let Some(question) = self.reply.take().as_ref().and_then(undo_question) {
            // A stage that has stopped grants nothing.
            let _ = self.stage.run(|engine, now| apply(engine, question, now));
        }
    }
}

impl Stage {
    /// Answers a question and waits until the answer is durable.
    pub(super) async fn ask(&self, question: Question) -> Result<Reply, StoreError> {
        let _room = self.room_for(payload_bytes(&question)).await;
        // Only questions that wait need a large future.
        let (reply, ticket) = if may_wait(&question) {
            Box::pin(self.hold(question)).await?
        } else {
            self.answer_at_once(question)?
        };
        let mut undelivered = Undelivered { stage: self, reply: Some(reply) };
        self.durable(ticket).await?;
        undelivered
            .reply
            .take()
            .ok_or_else(|| StoreError::Unavailable { cause: "the answer was taken back".into() })
    }

    /// Answers a question without waiting until the answer is durable.
    pub(super) fn ask_now(&self, question: Question) -> Result<Reply, StoreError> {
        let reply = self.post(|engine, now| self.withheld.apply(engine, question, now))?;
        self.wakes.notify_ended(ends(&reply));
        Ok(reply)
    }

    /// Answers a question that may wait; it is held as long as it allows.
    pub(super) async fn hold(&self, question: Question) -> Result<Staged<Reply>, StoreError> {
        match question {
            Question::Dispatch(ask) => {
                let (answer, durable) = self.dispatch_when_possible(ask).await?;
                Ok((Reply::Dispatched(answer), durable))
            }
            Question::Wait(ask) => {
                let (job, durable) = self.wait_for_job(ask).await?;
                Ok((Reply::Job(job), durable))
            }
            Question::Observe(ask) => {
                let (observed, durable) = self.observe_changes(ask).await?;
                Ok((Reply::Observed(Box::new(observed)), durable))
            }
            question => self.answer_at_once(question),
        }
    }

    fn answer_at_once(&self, question: Question) -> Result<Staged<Reply>, StoreError> {
        let bytes = payload_bytes(&question);
        let (reply, durable) =
            self.run_with(bytes, |engine, now| self.withheld.apply(engine, question, now))?;
        self.wakes.notify_ended(ends(&reply));
        Ok((reply, durable))
    }

    async fn dispatch_when_possible(&self, ask: Dispatch) -> Result<Staged<Dispatched>, StoreError> {
        let asked = Instant::now();
        let deadline = asked + Duration::from_millis(ask.wait.as_millis());
        let bell = self.wakes.bell(&ask.lane);
        loop {
            let held = asked.elapsed().into();
            let (mut answer, durable) = self.run(|engine, now| self.withheld.dispatch(engine, &ask, now))?;
            answer.held = held;
            self.wakes.notify_ended(&answer.ended);
            let something =
                !answer.grants.is_empty() || !answer.ended.is_empty() || !answer.recovered.is_empty();
            if something || answer.denied != ask.denied || Instant::now() >= deadline {
                if answer.grants.len() >= ask.max {
                    // There may be more for other waiting dispatches.
                    bell.ring();
                }
                return Ok((answer, durable));
            }
            let again = Instant::now() + until(answer.next, answer.now);
            let _ = timeout_at(again.min(deadline), bell.rung()).await;
        }
    }

    async fn wait_for_job(&self, ask: Wait) -> Result<Staged<Option<JobView>>, StoreError> {
        let deadline = Instant::now() + Duration::from_millis(ask.timeout.as_millis());
        let waiting = self.wakes.wait_for(ask.job);
        let look = || {
            self.run(|engine, _| match ask.seen {
                Some(_) => engine.follow(ask.job),
                None => engine.job(ask.job),
            })
        };
        // A job that existed and is gone has ended; the notification of its end is about to come.
        let mut allow_unknown = ask.allow_unknown;
        loop {
            let mut changed = pin!(waiting.changed());
            changed.as_mut().enable();
            let (job, durable) = look()?;
            allow_unknown |= job.is_some();
            let more = |job: &JobView| ask.seen.is_some_and(|seen| job.lines() > seen);
            let over = job.as_ref().map_or(!allow_unknown, |job| job.status.is_final() || more(job));
            if over {
                return Ok((job, durable));
            }
            tokio::select! {
                biased;
                ended = waiting.ended() => return match ended {
                    Some(forgotten) => {
                        // The end itself may not be durable yet: join the current group.
                        let ((), durable) = self.run(|_, _| ())?;
                        Ok((Some(forgotten), durable))
                    }
                    None => look(),
                },
                () = changed, if ask.seen.is_some() => {}
                // The job may have arrived meanwhile, however short the time was.
                () = sleep_until(deadline) => return look(),
            }
        }
    }
}

impl Stage {
    /// Looks at what is cheap to compare often, and at everything now and then: levels and times of gates change by themselves.
    async fn observe_changes(&self, ask: Observe) -> Result<Staged<Observed>, StoreError> {
        let deadline = Instant::now() + Duration::from_millis(ask.wait.as_millis());
        let (observed, durable) = self.run(|engine, now| engine.observe(&ask, now))?;
        if observed.is_news() {
            return Ok((observed, durable));
        }
        drop(durable);
        let seen = observed.cursor;
        for looks in 1_u32.. {
            sleep_until(deadline.min(Instant::now() + LOOK_AT_JOBS)).await;
            let whole = looks.is_multiple_of(JOBS_PER_STATE);
            let changed = self.peek(|engine, now| {
                engine.jobs_changed_since(&seen) || (whole && engine.state_changed_since(&seen, now))
            })?;
            if changed || Instant::now() >= deadline {
                break;
            }
        }
        self.run(|engine, now| engine.observe(&ask, now))
    }
}

/// How long to wait when the engine says at `now` that something is due at `next`.
fn until(next: Time, now: Time) -> Duration {
    Duration::from_millis(next.since(now).as_millis()).min(LOOK_AGAIN)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use eclusa_core::gate::{GateSpecs, Reason};
    use eclusa_core::{
        Chain, Denied, Engine, Enqueued, JobId, LaneSpec, Name, NewJob, Span, Spec, UpstreamSpec,
    };
    use futures_util::poll;

    use super::*;
    use crate::clock::VirtualClock;
    use crate::store::doorbell::Doorbell;
    use crate::store::group::resolve;
    use crate::store::journal::file::FileJournal;
    use crate::store::verbs::ends as ends_of;
    use crate::store::writer::Desk;
    use crate::store::{Ack, JournalError};

    fn lane() -> Name {
        Name::new("work").unwrap()
    }

    fn clock() -> Arc<VirtualClock> {
        Arc::new(VirtualClock(Instant::now()))
    }

    /// A stage whose writer is this test.
    fn stage() -> Stage {
        stage_with(|_| {})
    }

    fn spec(edit: impl FnOnce(&mut LaneSpec)) -> Spec {
        let up = Name::new("up").unwrap();
        let mut rules = LaneSpec::new(lane(), Chain::new(vec![up.clone()]).unwrap());
        edit(&mut rules);
        Spec::new(vec![rules], vec![UpstreamSpec::new(up, GateSpecs::default())]).unwrap()
    }

    fn stage_with(edit: impl FnOnce(&mut LaneSpec)) -> Stage {
        let (engine, bell) = (Engine::new(&spec(edit)), Arc::new(Doorbell::default()));
        let stage = Stage::new(engine, clock(), Some(bell), None);
        write(&stage);
        stage
    }

    fn write(stage: &Stage) {
        let group = stage.take_group().unwrap();
        stage.written();
        group.iter().for_each(|group| resolve(&group.durable, Ok(())));
    }

    fn enqueue(id: u128, bytes: usize) -> Question {
        Question::Enqueue(vec![NewJob::new(JobId(id), lane(), "acme", vec![b'x'; bytes])])
    }

    fn waiting(stage: &Stage) -> u64 {
        stage.look(|engine| engine.lanes(Time::default())[0].queued.iter().sum())
    }

    #[tokio::test]
    async fn staged_bytes_that_are_not_durable_slow_down_intake() {
        let stage = stage();
        let (first, second) = (stage.ask(enqueue(1, 8 << 20)), stage.ask(enqueue(2, 8 << 20)));
        let (mut first, mut second) = (pin!(first), pin!(second));
        let mut third = pin!(stage.ask(enqueue(3, 1)));
        assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
        assert!(poll!(&mut third).is_pending());
        assert_eq!(waiting(&stage), 2, "the third does not reach the engine");
        write(&stage);
        assert!(poll!(&mut first).is_ready() && poll!(&mut second).is_ready());
        assert!(poll!(&mut third).is_pending());
        assert_eq!(waiting(&stage), 3);
        write(&stage);
        assert!(
            matches!(third.await, Ok(Reply::Enqueued(answer)) if matches!(answer.jobs[..], [Enqueued::Accepted(_)]))
        );
    }

    /// Time stands still, so the second caller follows the first closely.
    #[tokio::test(start_paused = true)]
    async fn a_caller_writes_its_group_and_a_dropped_one_leaves_it_to_the_writer() {
        let dir = tempfile::tempdir().unwrap();
        let journal = FileJournal::open(dir.path(), Ack::Write, |_, _| Ok::<_, JournalError>(())).unwrap();
        let aging = crate::store::aging::Aging::new(crate::config::FORGET_WITHIN, Time::default());
        let (bell, desk) = (Arc::new(Doorbell::default()), Arc::new(Desk::new(journal, aging)));
        let stage = Stage::new(Engine::new(&spec(|_| {})), clock(), Some(bell.clone()), None);
        let stage = stage.at(desk.clone());
        assert!(poll!(pin!(stage.ask(enqueue(1, 1)))).is_ready(), "no other caller was close");
        let mut gone = Box::pin(stage.ask(enqueue(2, 1)));
        assert!(poll!(&mut gone).is_pending(), "others may join");
        let mut joins = pin!(stage.ask(enqueue(3, 1)));
        assert!(poll!(&mut joins).is_pending());
        drop(gone);
        bell.sleep(Duration::from_mins(10));
        assert!(desk.write_now(&stage), "as the writer does");
        assert!(poll!(&mut joins).is_ready());
    }

    #[tokio::test]
    async fn a_grant_is_released_if_its_caller_is_dropped_before_it_is_durable() {
        let stage = stage();
        let mut put = pin!(stage.ask(enqueue(1, 1)));
        assert!(poll!(&mut put).is_pending());
        write(&stage);
        let ask = || Dispatch {
            lane: lane(),
            max: 1,
            lease: Span::from_secs(10),
            nonce: 7,
            wait: Span::ZERO,
            denied: None,
        };
        {
            let mut gone = pin!(stage.ask(Question::Dispatch(ask())));
            assert!(poll!(&mut gone).is_pending());
            assert_eq!(waiting(&stage), 0, "it was granted");
        }
        assert_eq!(waiting(&stage), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_follower_of_a_job_is_held_until_its_timeline_grows() {
        let stage = stage();
        stage.run(|engine, now| apply(engine, enqueue(1, 1), now)).unwrap();
        let follow = |seen| {
            let ask =
                Wait { job: JobId(1), timeout: Span::from_secs(5), allow_unknown: false, seen: Some(seen) };
            stage.hold(Question::Wait(ask))
        };
        let lines = |answer: Result<Staged<Reply>, StoreError>| match answer {
            Ok((Reply::Job(Some(job)), _)) => job.lines(),
            other => panic!("{:?}", other.map(|(reply, _)| reply)),
        };
        let began = Instant::now();
        assert_eq!((lines(follow(1).await), began.elapsed().as_secs()), (1, 5), "nothing happened");

        let (mut one, mut other) = (pin!(follow(1)), pin!(follow(1)));
        assert!(poll!(&mut one).is_pending() && poll!(&mut other).is_pending());
        let ask = Dispatch {
            lane: lane(),
            max: 1,
            lease: Span::from_secs(10),
            nonce: 7,
            wait: Span::ZERO,
            denied: None,
        };
        stage.run(|engine, now| apply(engine, Question::Dispatch(ask), now)).unwrap();
        let began = Instant::now();
        assert_eq!((lines(one.await), lines(other.await)), (2, 2));
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_job_that_is_forgotten_as_it_ends_is_delivered_to_its_followers() {
        let stage = stage_with(|lane| lane.keep.max = 0);
        stage.run(|engine, now| apply(engine, enqueue(1, 1), now)).unwrap();
        let ask = Wait { job: JobId(1), timeout: Span::from_secs(60), allow_unknown: false, seen: Some(1) };
        let mut follows = pin!(stage.hold(Question::Wait(ask)));
        let ends = Wait::for_end(JobId(1), Span::from_secs(60));
        let mut waits = pin!(stage.hold(Question::Wait(ends)));
        assert!(poll!(&mut follows).is_pending() && poll!(&mut waits).is_pending());
        let (reply, _) = stage.run(|engine, now| apply(engine, Question::Cancel(JobId(1)), now)).unwrap();
        assert!(
            poll!(&mut follows).is_pending() && poll!(&mut waits).is_pending(),
            "nothing was notified yet"
        );
        stage.wakes.notify_ended(ends_of(&reply));
        for answer in [follows.await, waits.await] {
            assert!(matches!(answer, Ok((Reply::Job(Some(job)), _)) if job.lines() == 2));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_observer_is_held_until_something_changes_or_its_time_is_over() {
        let stage = stage();
        let observe = |seen| stage.hold(Question::Observe(Observe { seen, wait: Span::from_secs(5) }));
        let observed = |reply: Result<Staged<Reply>, StoreError>| match reply {
            Ok((Reply::Observed(observed), _)) => *observed,
            other => panic!("{:?}", other.map(|(reply, _)| reply)),
        };
        let began = Instant::now();
        let first = observed(observe(None).await);
        assert_eq!(
            (first.state.is_some(), began.elapsed()),
            (true, Duration::ZERO),
            "a new observer does not wait"
        );
        let nothing = observed(observe(Some(first.cursor)).await);
        assert_eq!((nothing.is_news(), began.elapsed().as_secs()), (false, 5));

        let mut waits = pin!(observe(Some(nothing.cursor)));
        assert!(poll!(&mut waits).is_pending());
        stage.run(|engine, now| apply(engine, enqueue(1, 1), now)).unwrap();
        let began = Instant::now();
        let news = observed(waits.await);
        assert_eq!((news.jobs.len(), news.state.is_some(), news.gap), (1, true, false));
        assert!(began.elapsed() <= LOOK_AT_JOBS);

        let mut waits = pin!(observe(Some(news.cursor)));
        assert!(poll!(&mut waits).is_pending());
        let pause = Question::Pause { lane: lane(), paused: true };
        stage.run(|engine, now| apply(engine, pause, now)).unwrap();
        let news = observed(waits.await);
        assert!(news.jobs.is_empty() && news.state.is_some_and(|state| state.lanes[0].paused));

        let mut waits = pin!(observe(Some(news.cursor)));
        assert!(poll!(&mut waits).is_pending());
        stage.stop(StoreError::Unavailable { cause: "another process took over".into() });
        assert!(waits.await.is_err(), "the new owner is asked instead");
    }

    #[tokio::test(start_paused = true)]
    async fn a_dispatch_is_held_until_a_job_arrives_or_its_time_is_over() {
        let stage = stage();
        let held = Dispatch {
            lane: lane(),
            max: 1,
            lease: Span::from_secs(10),
            nonce: 7,
            wait: Span::from_secs(5),
            denied: None,
        };
        let began = Instant::now();
        let (answer, _) = stage.hold(Question::Dispatch(held.clone())).await.unwrap();
        assert!(matches!(answer, Reply::Dispatched(answer) if answer.grants.is_empty()));
        assert_eq!(began.elapsed().as_secs(), 5);
        let mut waits = pin!(stage.hold(Question::Dispatch(held)));
        assert!(poll!(&mut waits).is_pending());
        stage.run(|engine, now| apply(engine, enqueue(1, 1), now)).unwrap();
        let (answer, _) = waits.await.unwrap();
        assert!(matches!(answer, Reply::Dispatched(answer) if answer.grants.len() == 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dispatch_held_back_by_one_upstream_is_woken_by_a_job_for_another() {
        let (up, other) = (Name::new("up").unwrap(), Name::new("other").unwrap());
        let one = GateSpecs::default().with_slots("max_concurrent", 1).unwrap();
        let rules = LaneSpec::new(lane(), Chain::new(vec![up.clone()]).unwrap());
        let upstreams =
            vec![UpstreamSpec::new(up.clone(), one), UpstreamSpec::new(other.clone(), GateSpecs::default())];
        let engine = Engine::new(&Spec::new(vec![rules], upstreams).unwrap());
        let stage = Stage::new(engine, clock(), Some(Arc::new(Doorbell::default())), None);
        let ask = |nonce, wait| Dispatch {
            lane: lane(),
            max: 1,
            lease: Span::from_secs(600),
            nonce,
            wait,
            denied: Some(Denied { upstream: Some(up.clone()), reason: Reason::Concurrency }),
        };
        for id in [1, 2] {
            stage.run(|engine, now| apply(engine, enqueue(id, 1), now)).unwrap();
        }
        let first = Question::Dispatch(ask(1, Span::ZERO));
        stage.run(|engine, now| apply(engine, first, now)).unwrap();
        let mut waits = pin!(stage.hold(Question::Dispatch(ask(2, Span::from_secs(5)))));
        assert!(poll!(&mut waits).is_pending());
        let began = Instant::now();
        let job = NewJob { chain: Some(vec![other]), ..NewJob::new(JobId(3), lane(), "acme", *b"x") };
        stage.run(|engine, now| apply(engine, Question::Enqueue(vec![job]), now)).unwrap();
        let (answer, _) = waits.await.unwrap();
        assert!(matches!(answer, Reply::Dispatched(answer) if answer.grants.len() == 1));
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
