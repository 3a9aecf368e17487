//! The journal is cleaned continuously: its size and the work for it are bounded, and live data stays.

use std::path::Path;
use std::sync::Arc;

use eclusa::SystemClock;
use eclusa::store::{Ack, EmbeddedStore, OpenError};
use eclusa_core::gate::{CallResult, GateSpecs};
use eclusa_core::{
    CallFailure, Chain, Dispatch, FailureReason, JobId, Keep, LaneSpec, Level, Name, NewJob, Outcome,
    Settlement, Span, Spec, Status, Store, UpstreamSpec,
};
use pollster::block_on;
use tempfile::TempDir;

const PAYLOAD: usize = 256 << 10;
const OLD_JOBS: u128 = 20;
const ROUNDS: u128 = 60;
const BATCH: u128 = 20;

fn lane() -> Name {
    Name::new("work").unwrap()
}

fn open(dir: &Path) -> EmbeddedStore {
    try_open(dir).unwrap()
}

fn try_open(dir: &Path) -> Result<EmbeddedStore, OpenError> {
    let upstream = Name::new("api").unwrap();
    let mut rules = LaneSpec::new(lane(), Chain::new(vec![upstream.clone()]).unwrap());
    rules.keep = Keep { span: Span::ZERO, max: 0 };
    let spec = Spec::new(vec![rules], vec![UpstreamSpec::new(upstream, GateSpecs::default())]).unwrap();
    EmbeddedStore::open(dir, Ack::Write, &spec, Arc::new(SystemClock))
}

/// Bytes this process has written, to files and elsewhere.
fn written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.unwrap().parse().unwrap()
}

fn size_of(dir: &Path) -> u64 {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

/// Enqueues a batch and runs as many high jobs as there are; the low ones are never reached.
fn churn(store: &EmbeddedStore, round: u128) {
    let ids = (0..BATCH).map(|n| JobId(1_000 + round * BATCH + n));
    let job = |id| NewJob { level: Level::High, ..NewJob::new(id, lane(), "busy", vec![b'x'; PAYLOAD]) };
    block_on(store.enqueue(ids.map(job).collect())).unwrap();
    let settle = |lease| Settlement {
        lease,
        report: CallResult::Success.into(),
        outcome: Outcome::Done,
        answer: None,
        unsent: None,
    };
    let mut left = usize::try_from(BATCH).unwrap();
    // One dispatch returns no more than a few MiB.
    while left > 0 {
        let ask = Dispatch {
            lane: lane(),
            max: left,
            lease: Span::from_secs(60),
            nonce: 0,
            wait: Span::ZERO,
            denied: None,
        };
        let grants = block_on(store.dispatch(ask)).unwrap().grants;
        assert_ne!(grants.len(), 0);
        left -= grants.len();
        block_on(store.settle(grants.iter().map(|grant| settle(grant.lease)).collect())).unwrap();
    }
}

#[test]
fn the_journal_stays_small_and_keeps_what_lives() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    let old = (0..OLD_JOBS).map(JobId);
    let job = |id: JobId| NewJob {
        level: Level::Low,
        ..NewJob::new(id, lane(), "old", id.to_string().into_bytes())
    };
    block_on(store.enqueue(old.clone().map(job).collect())).unwrap();
    (0..ROUNDS).for_each(|round| churn(&store, round));
    let written = u64::try_from(ROUNDS * BATCH).unwrap() * PAYLOAD as u64;
    let left = size_of(dir.path());
    assert!(left < written / 2, "{left} of {written} bytes are left");
    let before = store.snapshot().split_off(1);
    drop(store);
    let store = open(dir.path());
    assert!(before == store.snapshot().split_off(1), "the reopened store differs");
    for id in old {
        let job = block_on(store.job(id)).unwrap().unwrap();
        assert_eq!((job.status, &*job.payload), (Status::Queued, id.to_string().as_bytes()));
    }
}

#[test]
fn cleaning_does_not_feed_on_what_it_writes_itself() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    let reason = FailureReason::new("refused").unwrap();
    let failure = CallFailure { reason, code: None, upstream: None };
    for round in 0..16 {
        let jobs =
            (0..100).map(|n| NewJob::new(JobId(round * 100 + n), lane(), "acme", vec![b'x'; 64 << 10]));
        block_on(store.enqueue(jobs.collect())).unwrap();
        let ask = Dispatch {
            lane: lane(),
            max: 100,
            lease: Span::from_secs(60),
            nonce: 0,
            wait: Span::ZERO,
            denied: None,
        };
        let grants = block_on(store.dispatch(ask)).unwrap().grants;
        let outcome = || Outcome::Dead(failure.clone());
        let dead = |lease| Settlement {
            lease,
            report: CallResult::Failed.into(),
            outcome: outcome(),
            answer: None,
            unsent: None,
        };
        block_on(store.settle(grants.iter().map(|grant| dead(grant.lease)).collect())).unwrap();
    }
    let before = written();
    for _ in 0..20 {
        block_on(store.pause(lane(), false)).unwrap();
    }
    let idle = written() - before;
    assert!(idle < 1 << 20, "twenty calls that change next to nothing wrote {idle} bytes");
}

#[test]
fn closing_promises_what_was_written() {
    let dir = TempDir::new().unwrap();
    let store = open(dir.path());
    block_on(store.enqueue(vec![NewJob::new(JobId(1), lane(), "acme", *b"x")])).unwrap();
    drop(store);
    let segment = dir.path().join(format!("{:020}.log", 1));
    let whole = std::fs::read(&segment).unwrap();
    std::fs::write(&segment, &whole[..whole.len() - 1]).unwrap();
    assert!(try_open(dir.path()).is_err(), "a closed store lost its end without anybody noticing");
    std::fs::write(&segment, &whole).unwrap();
    assert!(try_open(dir.path()).is_ok());
}
