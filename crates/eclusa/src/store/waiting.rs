//! Questions that are held until something happens: a dispatch until a job may start, a wait until a job has ended.

use std::time::Duration;

use eclusa_core::layout::{Question, Reply};
use eclusa_core::{Dispatch, Dispatched, JobView, StoreError, Time, Wait};
use tokio::time::{Instant, timeout_at};

use super::stage::{Durable, Stage, settled};
use super::verbs::{apply, ends, give_back, payload_bytes};

/// However quiet it is, a dispatch that waits looks again after this long: the safety net under all wake-ups.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A reply that may be told once it is durable.
pub(super) type Told<T> = (T, Option<Durable>);

/// A reply on its way to its caller: if the caller goes away meanwhile, what it grants is given back.
struct Undelivered<'a> {
    stage: &'a Stage,
    reply: Option<Reply>,
}

impl Drop for Undelivered<'_> {
    fn drop(&mut self) {
        if let Some(question) = self.reply.take().as_ref().and_then(give_back) {
            // A stage that stopped gives nothing to anybody.
            let _ = self.stage.run(|engine, now| apply(engine, question, now));
        }
    }
}

impl Stage {
    /// Answers a question when the answer is durable.
    pub(super) async fn ask(&self, question: Question) -> Result<Reply, StoreError> {
        let _room = self.room_for(payload_bytes(&question)).await;
        let (reply, durable) = self.ask_and_wait(question).await?;
        let mut undelivered = Undelivered { stage: self, reply: Some(reply) };
        settled(durable).await?;
        undelivered.reply.take().ok_or_else(|| StoreError::Unavailable { cause: "it was taken back".into() })
    }

    /// Answers a question, holding it for as long as it wants to wait.
    pub(super) async fn ask_and_wait(&self, question: Question) -> Result<Told<Reply>, StoreError> {
        match question {
            Question::Dispatch(ask) if !ask.wait.is_zero() => Box::pin(self.dispatch_when_possible(ask))
                .await
                .map(|(told, durable)| (Reply::Dispatched(told), durable)),
            Question::Wait(ask) => {
                Box::pin(self.wait_for_end(ask)).await.map(|(told, durable)| (Reply::Job(told), durable))
            }
            question => {
                let (reply, durable) = self.run(|engine, now| self.withheld.apply(engine, question, now))?;
                self.wakes.tell(ends(&reply));
                Ok((reply, durable))
            }
        }
    }

    async fn dispatch_when_possible(&self, ask: Dispatch) -> Result<Told<Dispatched>, StoreError> {
        let asked = Instant::now();
        let deadline = asked + Duration::from_millis(ask.wait.as_millis());
        let bell = self.wakes.bell(&ask.lane);
        loop {
            let held = asked.elapsed().into();
            let (mut told, durable) = self.run(|engine, now| self.withheld.dispatch(engine, &ask, now))?;
            told.held = held;
            self.wakes.tell(&told.ended);
            let something = !told.grants.is_empty() || !told.ended.is_empty() || !told.taken_up.is_empty();
            if something || told.denied != ask.denied || Instant::now() >= deadline {
                if told.grants.len() >= ask.max {
                    // There may be more for whoever else waits.
                    bell.ring();
                }
                return Ok((told, durable));
            }
            let again = Instant::now() + until(told.next, told.now);
            let held_back = told.denied.is_some();
            let _ = timeout_at(again.min(deadline), bell.rung(held_back)).await;
        }
    }

    async fn wait_for_end(&self, ask: Wait) -> Result<Told<Option<JobView>>, StoreError> {
        let deadline = Instant::now() + Duration::from_millis(ask.timeout.as_millis());
        let waiting = self.wakes.wait_for(ask.job);
        let look = || self.run(|engine, _| engine.job(ask.job));
        let (job, durable) = look()?;
        let known = job.as_ref().map(|job| job.status.is_final());
        if known == Some(true) || known.is_none() && !ask.coming {
            return Ok((job, durable));
        }
        match timeout_at(deadline, waiting.ended()).await {
            Ok(Some(forgotten)) => {
                // The end itself may not be durable yet: join what is under way.
                let ((), durable) = self.run(|_, _| ())?;
                Ok((Some(forgotten), durable))
            }
            Ok(None) | Err(_) => look(),
        }
    }
}

/// How long to wait when the engine says at `now` that something happens at `next`.
fn until(next: Time, now: Time) -> Duration {
    Duration::from_millis(next.since(now).as_millis()).min(LOOK_AGAIN)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;

    use eclusa_core::gate::GateSpecs;
    use eclusa_core::{Chain, Engine, Enqueued, JobId, LaneSpec, Name, NewJob, Span, Spec, UpstreamSpec};
    use futures_util::poll;

    use super::*;
    use crate::SystemClock;
    use crate::store::doorbell::Doorbell;
    use crate::store::stage::tell;

    fn lane() -> Name {
        Name::new("work").unwrap()
    }

    /// A stage whose writer is this test.
    fn stage() -> Stage {
        let up = Name::new("up").unwrap();
        let rules = LaneSpec::new(lane(), Chain::new(vec![up.clone()]).unwrap());
        let spec = Spec::new(vec![rules], vec![UpstreamSpec::new(up, GateSpecs::default())]).unwrap();
        let stage =
            Stage::new(Engine::new(&spec), Arc::new(SystemClock), Some(Arc::new(Doorbell::default())), None);
        write(&stage);
        stage
    }

    fn write(stage: &Stage) {
        let group = stage.take_group().unwrap();
        stage.written();
        group.iter().for_each(|group| tell(&group.durable, Ok(())));
    }

    fn enqueue(id: u128, bytes: usize) -> Question {
        Question::Enqueue(vec![NewJob::new(JobId(id), lane(), "acme", vec![b'x'; bytes])])
    }

    fn waiting(stage: &Stage) -> u64 {
        stage.look(|engine| engine.lanes(Time::default())[0].queued.iter().sum())
    }

    #[tokio::test]
    async fn what_is_staged_and_not_durable_pushes_back_at_intake() {
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
            matches!(third.await, Ok(Reply::Enqueued(told)) if matches!(told.jobs[..], [Enqueued::Accepted(_)]))
        );
    }

    #[tokio::test]
    async fn a_grant_whose_caller_goes_away_before_it_is_durable_is_given_back() {
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
    async fn a_dispatch_is_held_until_a_job_comes_or_its_time_is_over() {
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
        let (told, _) = stage.ask_and_wait(Question::Dispatch(held.clone())).await.unwrap();
        assert!(matches!(told, Reply::Dispatched(told) if told.grants.is_empty()));
        assert_eq!(began.elapsed().as_secs(), 5);
        let mut waits = pin!(stage.ask_and_wait(Question::Dispatch(held)));
        assert!(poll!(&mut waits).is_pending());
        stage.run(|engine, now| apply(engine, enqueue(1, 1), now)).unwrap();
        let (told, _) = waits.await.unwrap();
        assert!(matches!(told, Reply::Dispatched(told) if told.grants.len() == 1));
    }
}
