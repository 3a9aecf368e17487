//! Cached answers, and jobs that wait for one, when rules change in place or as a store is opened.

use eclusa_core::gate::{CallResult, GateSpecs};
use eclusa_core::{
    CacheSpec, Chain, Dispatch, Engine, Enqueued, JobId, LaneSpec, LeaseId, Name, NewJob, Outcome, ProcessId,
    Registration, Restorer, Settlement, Span, Spec, Status, Time, UpstreamSpec,
};

use crate::check::restart::follow;

const NOW: Time = Time::from_millis(1_700_000_000_000);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn spec(caches: bool) -> Spec {
    let mut lane = LaneSpec::new(name("score"), Chain::new(vec![name("bureau")]).unwrap());
    lane.cache = caches.then(|| CacheSpec::new(Span::from_secs(60), Span::from_secs(60)).unwrap());
    Spec::new(vec![lane], vec![UpstreamSpec::new(name("bureau"), GateSpecs::default())]).unwrap()
}

fn job(id: u128) -> NewJob {
    NewJob { cache_key: Some("cpf:1".into()), ..NewJob::new(JobId(id), name("score"), "acme", vec![]) }
}

/// An engine and everything it has written.
struct Kept {
    engine: Engine,
    chunks: Vec<Vec<u8>>,
    reopens: bool,
    asks: u64,
}

impl Kept {
    fn save(&mut self) {
        let mut chunk = Engine::begin_chunk();
        self.engine.save_changes(&mut chunk).unwrap();
        self.chunks.push(chunk);
    }

    fn restored(&self) -> Engine {
        let mut restorer = Restorer::default();
        self.chunks.iter().for_each(|chunk| restorer.apply(chunk).unwrap());
        restorer.finish(self.asks).unwrap()
    }

    /// Changes the rules in place, or by restoring the engine with other rules.
    fn change(&mut self, caches: bool) {
        self.save();
        if self.reopens {
            self.engine = self.restored();
        }
        let (process, spec) = (ProcessId::EMBEDDED, spec(caches).into());
        self.engine.register(Registration { process, stamp: 0, about: "".into(), spec }, NOW);
        self.save();
    }

    fn dispatch(&mut self) -> Vec<(u128, LeaseId)> {
        self.asks += 1;
        let ask = Dispatch {
            lane: name("score"),
            max: 10,
            lease: Span::from_secs(10),
            nonce: self.asks,
            wait: Span::ZERO,
            denied: None,
        };
        let grants = self.engine.dispatch(&ask, NOW).grants;
        grants.iter().map(|grant| (grant.job.0, grant.lease)).collect()
    }

    fn settle(&mut self, lease: LeaseId) -> usize {
        let (report, answer) = (CallResult::Success.into(), Some(b"700"[..].into()));
        self.engine
            .settle(vec![Settlement { lease, report, outcome: Outcome::Done, answer, unsent: None }], NOW)
            .ended
            .len()
    }
}

fn numbers(grants: &[(u128, LeaseId)]) -> Vec<u128> {
    grants.iter().map(|(job, _)| *job).collect()
}

/// Runs a scenario twice: with rules that change in place, and with a store that is opened with the changed rules.
fn both_ways(story: impl Fn(&mut Kept)) {
    for reopens in [false, true] {
        story(&mut Kept { engine: Engine::new(&spec(true)), chunks: Vec::new(), reopens, asks: 1 });
    }
}

#[test]
fn without_a_cache_jobs_set_aside_are_sent_themselves() {
    both_ways(|kept| {
        kept.engine.enqueue(vec![job(1), job(2), job(3)], NOW);
        assert_eq!(numbers(&kept.dispatch()), [1]);
        kept.change(false);
        assert_eq!(numbers(&kept.dispatch()), [2, 3]);
    });
}

#[test]
fn with_the_cache_back_one_of_several_running_jobs_answers_the_waiting_ones() {
    both_ways(|kept| {
        kept.engine.enqueue(vec![job(1), job(2), job(3), job(4)], NOW);
        let first = kept.dispatch();
        kept.change(false);
        let others = kept.dispatch();
        assert_eq!(numbers(&others), [2, 3, 4]);
        kept.change(true);
        kept.engine.enqueue(vec![job(5)], NOW);
        assert_eq!(kept.dispatch(), []);
        assert_eq!(kept.settle(first[0].1), 2, "itself and the one that waits");
        let released = Settlement {
            lease: others[0].1,
            report: CallResult::NotSent.into(),
            outcome: Outcome::Release,
            answer: None,
            unsent: None,
        };
        let ended = kept.engine.settle(vec![released], NOW).ended.len();
        assert_eq!(ended, 1, "it waits for the existing jobs");
    });
}

#[test]
fn without_a_cache_answers_are_removed() {
    both_ways(|kept| {
        kept.engine.enqueue(vec![job(1)], NOW);
        let grants = kept.dispatch();
        kept.settle(grants[0].1);
        kept.change(false);
        kept.engine.sweep(NOW);
        kept.change(true);
        let answer = kept.engine.enqueue(vec![job(2)], NOW);
        assert!(matches!(answer.jobs[..], [Enqueued::Accepted(_)]), "{answer:?}");
    });
}

#[test]
fn with_the_cache_back_waiting_jobs_get_the_answer_that_is_still_stored() {
    both_ways(|kept| {
        kept.engine.enqueue(vec![job(1), job(2)], NOW);
        let first = kept.dispatch();
        kept.change(false);
        let second = kept.dispatch();
        kept.change(true);
        assert_eq!(kept.settle(first[0].1), 1);
        kept.change(false);
        let released = Settlement {
            lease: second[0].1,
            report: CallResult::NotSent.into(),
            outcome: Outcome::Release,
            answer: None,
            unsent: None,
        };
        assert_eq!(kept.engine.settle(vec![released], NOW).ended.len(), 0);
        kept.change(true);
        assert_eq!(kept.dispatch(), []);
        assert_eq!(kept.engine.job(JobId(2)).unwrap().status, Status::Completed);
    });
}

/// More jobs wait for an answer than one verb ends, and no record mentions the remaining ones.
#[test]
fn a_following_engine_answers_all_jobs_that_wait() {
    let mut kept = Kept { engine: Engine::new(&spec(true)), chunks: Vec::new(), reopens: false, asks: 0 };
    kept.engine.enqueue((1..=250).map(job).collect(), NOW);
    let (_, lease) = kept.dispatch()[0];
    kept.save();
    let ended = kept.settle(lease);
    assert!(ended < 250, "{ended}");
    kept.save();
    for builds in [|_| false, |_| true] {
        let mut engine = follow(&kept.chunks, 1, builds);
        let ended: usize = (0..5).map(|_| engine.sweep(NOW).ended.len()).sum();
        let left = (1..=250).filter(|id| engine.job(JobId(*id)).unwrap().status != Status::Completed);
        assert_eq!((ended > 0, left.count()), (true, 0));
    }
}
