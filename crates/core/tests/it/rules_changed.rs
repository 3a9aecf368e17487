//! What becomes of answers and of those who wait for one when a store is opened under other rules.

use eclusa_core::gate::{CallResult, GateSpecs};
use eclusa_core::{
    CacheSpec, Chain, Dispatch, Engine, Enqueued, JobId, LaneSpec, LeaseId, Name, NewJob, Outcome, Restorer,
    Settlement, Span, Spec, Time, UpstreamSpec,
};

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

/// An engine and all that it has written.
struct Kept {
    engine: Engine,
    chunks: Vec<Vec<u8>>,
}

impl Kept {
    fn new() -> Self {
        Self { engine: Engine::new(&spec(true)), chunks: Vec::new() }
    }

    fn save(&mut self) {
        let mut chunk = Engine::begin_chunk();
        self.engine.save_changes(&mut chunk).unwrap();
        self.chunks.push(chunk);
    }

    fn reopen(&mut self, caches: bool) {
        self.save();
        let mut restorer = Restorer::default();
        self.chunks.iter().for_each(|chunk| restorer.apply(chunk).unwrap());
        self.engine = restorer.finish(&spec(caches)).unwrap();
        self.save();
    }

    fn dispatch(&mut self) -> Vec<(u128, LeaseId)> {
        let ask = Dispatch { lane: name("score"), max: 10, lease: Span::from_secs(10), nonce: 1 };
        let grants = self.engine.dispatch(&ask, NOW).grants;
        grants.iter().map(|grant| (grant.job.0, grant.lease)).collect()
    }

    fn settle(&mut self, lease: LeaseId) -> usize {
        let (report, answer) = (CallResult::Success.into(), Some(b"700"[..].into()));
        self.engine
            .settle(vec![Settlement { lease, report, outcome: Outcome::Done, answer }], NOW)
            .ended
            .len()
    }
}

fn numbers(grants: &[(u128, LeaseId)]) -> Vec<u128> {
    grants.iter().map(|(job, _)| *job).collect()
}

#[test]
fn without_a_cache_those_set_aside_go_for_themselves() {
    let mut kept = Kept::new();
    kept.engine.enqueue(vec![job(1), job(2), job(3)], NOW);
    assert_eq!(numbers(&kept.dispatch()), [1]);
    kept.reopen(false);
    assert_eq!(numbers(&kept.dispatch()), [2, 3]);
}

#[test]
fn with_the_cache_back_one_of_several_that_run_answers_those_that_wait() {
    let mut kept = Kept::new();
    kept.engine.enqueue(vec![job(1), job(2), job(3), job(4)], NOW);
    let first = kept.dispatch();
    kept.reopen(false);
    let others = kept.dispatch();
    assert_eq!(numbers(&others), [2, 3, 4]);
    kept.reopen(true);
    kept.engine.enqueue(vec![job(5)], NOW);
    assert_eq!(kept.dispatch(), []);
    assert_eq!(kept.settle(first[0].1), 2, "itself and the one that waits");
    let released = Settlement {
        lease: others[0].1,
        report: CallResult::NotSent.into(),
        outcome: Outcome::Release,
        answer: None,
    };
    assert_eq!(kept.engine.settle(vec![released], NOW).ended.len(), 1, "it waits for what is there already");
}

#[test]
fn without_a_cache_answers_are_forgotten() {
    let mut kept = Kept::new();
    kept.engine.enqueue(vec![job(1)], NOW);
    let grants = kept.dispatch();
    kept.settle(grants[0].1);
    kept.reopen(false);
    kept.engine.sweep(NOW);
    kept.reopen(true);
    let answer = kept.engine.enqueue(vec![job(2)], NOW);
    assert!(matches!(answer.jobs[..], [Enqueued::Accepted(_)]), "{answer:?}");
}
