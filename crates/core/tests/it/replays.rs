//! Bulk replays and redrives over random calls, pauses and restarts, in virtual time.

use std::collections::{BTreeMap, BTreeSet};

use eclusa_core::gate::{CallResult, GateSpecs};
use eclusa_core::{
    BulkAnswer, BulkAsk, BulkStatus, BulkView, CallFailure, Capacity, Chain, DeadLetterSpec, DeadLetterView,
    Dispatch, DropReason, End, Engine, FailureReason, Grant, JobId, LaneSpec, LetterFilter, Name, NewJob,
    Outcome, RedriveSpec, Restorer, Settlement, Span, Spec, Swept, Time, UpstreamSpec,
};

use crate::rules::letters;

const SEEDS: u64 = 60;
const AFTER: Span = Span::from_secs(600);
const TIMES: u32 = 3;
const BULK: JobId = JobId(1 << 100);

fn lane() -> Name {
    Name::new("a").unwrap()
}

/// An engine that is rebuilt from its records at random times.
struct World {
    engine: Engine,
    chunks: Vec<Vec<u8>>,
    epoch: u64,
    now: Time,
    random: u64,
    running: Vec<Grant>,
    capacity: u64,
    next_job: u128,
}

impl World {
    fn new(seed: u64, redrive: bool) -> Self {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let capacity = 1 + next(&mut random) % 9;
        let up = Name::new("up").unwrap();
        let mut rules = LaneSpec::new(lane(), Chain::new(vec![up.clone()]).unwrap());
        rules.capacity = Capacity::new(capacity, 1 << 20).unwrap();
        let codes = vec!["5xx".into()];
        let redrive = redrive.then(|| RedriveSpec::new(AFTER, TIMES, codes).unwrap());
        rules.dead_letters = Some(DeadLetterSpec::default().with_redrive(redrive));
        let spec = Spec::new(vec![rules], vec![UpstreamSpec::new(up, GateSpecs::default())]).unwrap();
        let engine = Engine::new(&spec);
        let now = Time::from_millis(1_000_000);
        let (chunks, running) = (Vec::new(), Vec::new());
        Self { engine, chunks, epoch: 1, now, random, running, capacity, next_job: 1 }
    }

    fn pick(&mut self, below: u64) -> u64 {
        next(&mut self.random) % below
    }

    /// Saves what the last verb changed, and sometimes continues with an engine rebuilt from everything saved.
    fn step(&mut self) {
        let mut chunk = Engine::begin_chunk();
        self.engine.save_changes(&mut chunk).unwrap();
        self.chunks.push(chunk);
        if self.pick(8) == 0 {
            let mut restorer = Restorer::default();
            self.chunks.iter().for_each(|chunk| restorer.apply(chunk).unwrap());
            self.epoch += 1;
            let again = restorer.finish(self.epoch).unwrap();
            assert_eq!(self.engine.snapshot().unwrap()[1..], again.snapshot().unwrap()[1..]);
            self.engine = again;
        }
    }

    fn enqueue(&mut self) {
        let job = NewJob::new(JobId(self.next_job), lane(), "acme", self.next_job.to_string().into_bytes());
        self.next_job += 1;
        self.engine.enqueue(vec![job], self.now);
        self.step();
    }

    fn dispatch(&mut self, max: usize) {
        let nonce = (u64::try_from(self.next_job).unwrap() << 20) | self.pick(1 << 20);
        let lease = Span::from_secs(100_000);
        let ask = Dispatch { lane: lane(), max, lease, nonce, wait: Span::ZERO, denied: None };
        self.running.extend(self.engine.dispatch(&ask, self.now).grants);
        self.step();
    }

    fn settle(&mut self, grant: &Grant, well: bool) {
        let reason = FailureReason::new("unavailable").unwrap();
        let failure = CallFailure { reason, code: Some("503".into()), upstream: None };
        let (result, outcome) = if well {
            (CallResult::Success, Outcome::Done)
        } else {
            (CallResult::Failed, Outcome::Dead(failure))
        };
        let settlement =
            Settlement { lease: grant.lease, report: result.into(), outcome, answer: None, unsent: None };
        self.engine.settle(vec![settlement], self.now);
        self.step();
    }

    /// Ends one of the running jobs; returns whether it succeeded.
    fn end_one(&mut self, well_in_eight: u64) -> Option<(Grant, bool)> {
        let count = self.running.len() as u64;
        let at = usize::try_from(self.pick(count.max(1))).unwrap();
        let grant = (count > 0).then(|| self.running.swap_remove(at))?;
        let well = self.pick(8) < well_in_eight;
        self.settle(&grant, well);
        Some((grant, well))
    }

    fn sweep(&mut self) -> Swept {
        let swept = self.engine.sweep(self.now);
        let pushed_out =
            |end: &End| matches!(end, End::Dropped(DropReason::Preempted | DropReason::QueueFull));
        assert!(!swept.ended.iter().any(|ended| pushed_out(&ended.end)), "{:?}", swept.ended);
        self.step();
        let view = &self.engine.lanes(self.now)[0];
        assert!(view.queued.iter().sum::<u64>() + view.pending <= self.capacity);
        swept
    }

    fn letters(&self) -> Vec<DeadLetterView> {
        letters(&self.engine, &lane())
    }

    fn bury(&mut self, count: u64) {
        for _ in 0..count {
            self.enqueue();
            self.dispatch(1);
            let grant = self.running.pop().unwrap();
            self.settle(&grant, false);
        }
    }

    fn bulk(&mut self, ask: BulkAsk) -> BulkView {
        match self.engine.bulk(ask, self.now) {
            BulkAnswer::Replays(mut views) => views.pop().unwrap(),
            BulkAnswer::TooMany => panic!("too many"),
        }
    }
}

fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

#[test]
fn a_bulk_replay_sends_each_letter_once_and_never_overfills_a_lane() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed, false);
        let count = 1 + world.pick(40);
        world.bury(count);
        let begun = world.bulk(BulkAsk::Begin { id: BULK, filter: LetterFilter::default() });
        assert_eq!((begun.total, begun.remaining), (count, count), "seed {seed}");
        let (mut sent, mut steps) = (BTreeSet::new(), 0);
        loop {
            steps += 1;
            assert!(steps < 20_000, "seed {seed}: it does not end");
            match world.pick(6) {
                0 => world.enqueue(),
                1 => world.dispatch(2),
                2 | 3 => drop(world.end_one(6)),
                _ => {
                    let swept = world.sweep();
                    for letter in &swept.replayed {
                        assert!(sent.insert(letter.letter), "seed {seed}: {letter:?} twice");
                    }
                    // Not so far that letters expire.
                    if swept.next <= world.now + Span::from_secs(1) {
                        world.now = world.now.max(swept.next);
                    }
                }
            }
            let view = world.bulk(BulkAsk::Show(BULK));
            let known = view.replayed + view.failed + view.running + view.remaining;
            assert_eq!((view.total, known), (count, count), "seed {seed}: {view:?}");
            assert!(view.running <= (world.capacity / 2).max(1), "seed {seed}: {view:?}");
            if view.status == BulkStatus::Done {
                assert_eq!((sent.len() as u64, view.replayed + view.failed), (count, count), "seed {seed}");
                break;
            }
        }
        let left = world.letters().iter().filter(|view| sent.contains(&view.job)).count() as u64;
        assert_eq!(left, world.bulk(BulkAsk::Show(BULK)).failed, "seed {seed}: what failed again is there");
    }
}

/// Checks what a redrive may do, based on what it did before.
#[derive(Default)]
struct Judge {
    last_failure: BTreeMap<JobId, Time>,
    redrives: BTreeMap<JobId, u32>,
    in_flight: BTreeMap<JobId, JobId>,
    held_until: Time,
    proven: bool,
}

impl Judge {
    fn started(&mut self, letter: JobId, job: JobId, now: Time) {
        let times = self.redrives.entry(letter).or_default();
        *times += 1;
        assert!(*times <= TIMES, "{letter} is sent for the {times}th time");
        assert!(now >= self.last_failure[&letter] + AFTER, "{letter} is sent too soon");
        assert!(now >= self.held_until, "{letter} is sent while all wait");
        assert!(self.in_flight.is_empty() || self.proven, "two canaries");
        self.in_flight.insert(job, letter);
    }

    fn ended(&mut self, job: JobId, well: bool, now: Time) {
        let Some(letter) = self.in_flight.remove(&job) else { return };
        self.proven = well;
        if !well {
            self.last_failure.insert(letter, now);
            self.held_until = now + AFTER;
        }
    }
}

#[test]
fn a_redrive_sends_a_canary_first_waits_after_failures_and_finally_gives_up() {
    let mut in_waves = 0;
    for seed in 0..SEEDS {
        let mut world = World::new(seed, true);
        let count = 1 + world.pick(12);
        world.bury(count);
        let mut judge = Judge::default();
        for letter in world.letters() {
            judge.last_failure.insert(letter.job, letter.letter.last_failure.at);
        }
        let well_in_eight = world.pick(9);
        let mut steps = 0;
        loop {
            steps += 1;
            assert!(steps < 20_000, "seed {seed}: it does not end");
            let swept = world.sweep();
            for letter in &swept.replayed {
                judge.started(letter.letter, letter.job, world.now);
            }
            in_waves += usize::from(swept.replayed.len() > 1);
            world.dispatch(4);
            if let Some((grant, well)) = world.end_one(well_in_eight) {
                judge.ended(grant.job, well, world.now);
            }
            if judge.in_flight.is_empty() && world.running.is_empty() {
                let planned = world.letters().iter().filter_map(|view| view.next_redrive).min();
                let Some(planned) = planned else { break };
                world.now = world.now.max(planned);
            }
        }
        for view in world.letters() {
            assert_eq!(view.letter.redrives, TIMES, "seed {seed}: {} was given up early", view.job);
        }
        if well_in_eight == 8 {
            assert_eq!(world.letters().len(), 0, "seed {seed}: all succeeded");
        }
    }
    assert!(in_waves > 10, "others follow a canary at once: {in_waves}");
}
