//! Verbs whose answer was lost with its engine, repeated on an engine restored from the records; and what a chunk
//! contains for that.

use eclusa_core::gate::{CallResult, GateSpecs};
use eclusa_core::{
    Admission, Admit, CallFailure, Chain, Dispatch, End, Engine, FailureReason, Grant, JobId, Keep, LaneSpec,
    LeaseId, Name, NewJob, Outcome, Replay, Replayed, Restorer, SettleAnswer, Settled, Settlement, Span,
    Spec, Status, Time, UpstreamSpec,
};

const NOW: Time = Time::from_millis(1_700_000_000_000);
const LEASE: Span = Span::from_secs(10);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn spec() -> Spec {
    let lane = LaneSpec::new(name("a"), Chain::new(vec![name("up")]).unwrap());
    Spec::new(vec![lane], vec![UpstreamSpec::new(name("up"), GateSpecs::default())]).unwrap()
}

fn failure() -> CallFailure {
    CallFailure { reason: FailureReason::new("refused").unwrap(), code: None, upstream: None }
}

/// An engine and everything it has written.
struct Kept {
    engine: Engine,
    chunks: Vec<Vec<u8>>,
    epoch: u64,
}

impl Kept {
    fn with(spec: &Spec, jobs: u128) -> Self {
        let mut engine = Engine::new(spec);
        for id in 1..=jobs {
            engine.enqueue(vec![NewJob::new(JobId(id), name("a"), "acme", *b"x")], NOW);
        }
        Self { engine, chunks: Vec::new(), epoch: 0 }
    }

    fn new(jobs: u128) -> Self {
        Self::with(&spec(), jobs)
    }

    /// Another engine takes over.
    fn take_over(&mut self) {
        let mut chunk = Engine::begin_chunk();
        self.engine.save_changes(&mut chunk).unwrap();
        self.chunks.push(chunk);
        let mut restorer = Restorer::default();
        self.chunks.iter().for_each(|chunk| restorer.apply(chunk).unwrap());
        self.epoch += 1;
        self.engine = restorer.finish(self.epoch).unwrap();
    }

    fn dispatch(&mut self, nonce: u64, max: usize, now: Time) -> Vec<Grant> {
        let ask = Dispatch { lane: name("a"), max, lease: LEASE, nonce, wait: Span::ZERO, denied: None };
        self.engine.dispatch(&ask, now).grants
    }

    fn admit(&mut self, nonce: u64, now: Time) -> Admission {
        let ask = Admit {
            lane: None,
            tenant: None,
            chain: vec![name("up")],
            holds: Vec::new(),
            correlation: None,
            lease: LEASE,
            nonce,
            after: None,
            probe: true,
        };
        self.engine.admit(&ask, now).admission
    }

    fn settle(&mut self, lease: LeaseId, outcome: Outcome) -> SettleAnswer {
        let report = CallResult::Success.into();
        self.engine.settle(vec![Settlement { lease, report, outcome, answer: None, unsent: None }], NOW)
    }
}

#[test]
fn a_repeated_dispatch_returns_its_earlier_grants() {
    let mut kept = Kept::new(5);
    let given = kept.dispatch(77, 3, NOW);
    kept.take_over();
    assert_eq!(kept.dispatch(77, 3, NOW), given);
    assert_eq!(kept.dispatch(78, 1, NOW).len(), 1, "another ask gets something else");
    kept.settle(given[1].lease, Outcome::Done);
    kept.take_over();
    let left = [given[0].clone(), given[2].clone()];
    assert_eq!(kept.dispatch(77, 3, NOW), left, "only what is still out, also after another takeover");
    let jobs: Vec<_> = kept.dispatch(77, 5, NOW + LEASE).iter().map(|grant| grant.job.0).collect();
    assert_eq!(jobs, [1, 3, 4, 5], "lost jobs are recovered and granted again");
}

#[test]
fn a_repeated_admission_returns_its_earlier_lease() {
    let mut kept = Kept::new(0);
    let given = kept.admit(77, NOW);
    kept.take_over();
    assert_eq!(kept.admit(77, NOW), given);
    assert_ne!(kept.admit(78, NOW), given);
    assert_eq!(kept.engine.upstream_view(&name("up"), NOW).unwrap().in_flight, 2);
    assert_ne!(kept.admit(77, NOW + LEASE), given, "that one has ended");
}

#[test]
fn leases_have_the_epoch_of_the_restored_engine() {
    let mut kept = Kept::new(2);
    assert_eq!(kept.dispatch(1, 1, NOW)[0].lease.epoch, 0);
    kept.epoch = 41;
    kept.take_over();
    let lease = kept.dispatch(2, 1, NOW)[0].lease;
    assert_eq!((lease.epoch, lease.number), (42, 2));
    let mut restorer = Restorer::default();
    kept.take_over();
    kept.chunks.iter().for_each(|chunk| restorer.apply(chunk).unwrap());
    assert_eq!(restorer.next_epoch(), 43);
}

#[test]
fn a_repeated_settlement_returns_what_it_did_and_changes_nothing() {
    let retry = Outcome::Retry { after: Span::from_secs(5), failure: failure() };
    let wait = Outcome::awaiting(Span::from_secs(60));
    for outcome in
        [Outcome::Done, retry, Outcome::Dead(failure()), Outcome::Failed(failure()), Outcome::Release, wait]
    {
        let mut kept = Kept::new(1);
        let lease = kept.dispatch(1, 1, NOW)[0].lease;
        let first = kept.settle(lease, outcome.clone());
        for _ in 0..2 {
            let before = kept.engine.snapshot().unwrap();
            assert_eq!(kept.settle(lease, outcome.clone()), first, "{outcome:?}");
            assert_eq!(kept.engine.snapshot().unwrap(), before, "{outcome:?}");
            kept.take_over();
        }
    }
}

#[test]
fn only_the_last_settlement_of_a_job_is_remembered() {
    let mut kept = Kept::new(1);
    let lease = kept.dispatch(1, 1, NOW)[0].lease;
    let Settled::Awaiting(awaited) = kept.settle(lease, Outcome::awaiting(LEASE)).leases[0] else {
        panic!("the upstream works on it")
    };
    let done = kept.settle(awaited, Outcome::Done);
    assert_eq!(kept.settle(lease, Outcome::awaiting(LEASE)).leases, [Settled::Stale]);
    assert_eq!(kept.settle(awaited, Outcome::Done), done);
    assert_eq!(done.ended[0].end, End::Completed);
}

#[test]
fn a_removed_job_remembers_no_settlement() {
    let mut lane = spec().lanes()[0].clone();
    lane.keep = Keep { span: Span::ZERO, max: 0 };
    let spec = Spec::new(vec![lane], spec().upstreams().to_vec()).unwrap();
    let mut kept = Kept::with(&spec, 1);
    let lease = kept.dispatch(1, 1, NOW)[0].lease;
    assert_eq!(kept.settle(lease, Outcome::Done).leases, [Settled::Ended(Status::Completed)]);
    assert_eq!(kept.settle(lease, Outcome::Done).leases, [Settled::Stale]);
}

#[test]
fn a_repeated_replay_is_the_same_job_however_it_ended() {
    for outcome in [Outcome::Done, Outcome::Dead(failure())] {
        let mut kept = Kept::new(1);
        let lease = kept.dispatch(1, 1, NOW)[0].lease;
        kept.settle(lease, Outcome::Dead(failure()));
        let again = |kept: &mut Kept| kept.engine.replay(replay(), NOW);
        assert_eq!(again(&mut kept), Replayed::As(JobId(2), vec![]));
        kept.take_over();
        assert_eq!(again(&mut kept), Replayed::As(JobId(2), vec![]));
        let lease = kept.dispatch(2, 1, NOW)[0].lease;
        kept.settle(lease, outcome);
        kept.take_over();
        assert_eq!(again(&mut kept), Replayed::As(JobId(2), vec![]));
        assert_eq!(kept.dispatch(3, 1, NOW), []);
    }
}

#[test]
fn a_replay_under_the_id_of_another_job_is_refused() {
    let mut kept = Kept::new(2);
    let lease = kept.dispatch(1, 1, NOW)[0].lease;
    kept.settle(lease, Outcome::Dead(failure()));
    assert_eq!(kept.engine.replay(replay(), NOW), Replayed::IdTaken);
}

#[test]
fn without_changes_nothing_is_written() {
    let mut kept = Kept::new(1);
    kept.take_over();
    let mut chunk = Engine::begin_chunk();
    kept.engine.why(JobId(1), NOW);
    kept.engine.now(NOW);
    assert!(!kept.engine.has_changes());
    kept.engine.save_changes(&mut chunk).unwrap();
    assert_eq!(chunk, Engine::begin_chunk());
    kept.engine.pause(&name("a"), true, NOW);
    assert!(kept.engine.has_changes());
}

#[test]
fn every_chunk_contains_the_time_and_another_clock_continues_from_there() {
    let mut kept = Kept::new(1);
    let now = kept.engine.now(NOW + Span::from_secs(60));
    kept.engine.pause(&name("a"), true, now);
    kept.take_over();
    assert_eq!(kept.engine.now(NOW), now, "the clock of the next is a minute late");
    kept.engine.start_at(NOW + Span::from_secs(3_600), NOW);
    assert_eq!(kept.engine.now(NOW + Span::from_secs(3_601)), now + Span::from_secs(1));
    kept.engine.start_at(NOW + Span::from_secs(7_200), now + Span::from_secs(9));
    assert_eq!(kept.engine.now(NOW + Span::from_secs(7_200)), now + Span::from_secs(9));
}

fn replay() -> Replay {
    Replay { lane: name("a"), letter: JobId(1), id: JobId(2), edit: None }
}
