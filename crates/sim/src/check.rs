//! The checkers: invariants of every world, judged from what the server stores and publishes and what processes report,
//! never from the inside of the state machine. They are named I1 to I12.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use eclusa_fleet::{Ack, ProcessId, RunId, Take, TakeReason, TermId, TermView};

use crate::archive::{Archive, Body, Chain, Effect, Kind};
use crate::ask::{Answer, Pending};
use crate::config::TERM_MS;
use crate::engine::{Key, LEASE_MS, LeaseId, SLOTS, State, TOKENS, Value, apply};
use crate::loss::Losses;
use crate::server::OUTPUT_LIMIT;

/// A new owner knows the server's clock and the engine time only up to the delay of a message, in ms.
const CLOCK_MS: u64 = 250;

/// What the checkers know about one journal; it goes back with the server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Audit {
    /// The state that the journal leads to.
    pub(crate) chain: Chain,
    /// Everything, as a fold over all chunks that were ever added to this journal.
    pub(crate) state: Rc<State>,
    /// A snapshot whose end is missing.
    open: Option<(Chain, State)>,
    time: u64,
    rule: u64,
}

/// A violation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Violation {
    /// The invariant.
    pub invariant: &'static str,
    /// What happened.
    pub what: String,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Check {
    /// The first violation.
    pub(crate) violation: Option<Violation>,
    /// States that were on the server's disk.
    pub(crate) synced: Vec<Chain>,
    /// States that were on the replica.
    pub(crate) replicated: Vec<Chain>,
    /// What was acknowledged, and what happened to it.
    pub(crate) losses: Losses,
    /// Every state that was in a journal, with its fold.
    states: BTreeMap<Chain, Rc<State>>,
    holders: BTreeMap<TermId, ProcessId>,
    /// The state in which each lease was first seen.
    leases: BTreeMap<LeaseId, Chain>,
    effects: BTreeMap<(ProcessId, u64, Option<TermId>), Vec<Chain>>,
    tokens: u64,
    /// Calls at the upstream.
    running: Vec<(ProcessId, u64)>,
    /// When a call was last started.
    pub(crate) started_at: u64,
    /// Jobs that were requested.
    pub(crate) jobs: u64,
    /// Jobs whose acceptance was received.
    pub(crate) accepted: BTreeSet<u64>,
    /// When and why terms were taken.
    pub(crate) takes: Vec<(u64, TakeReason)>,
}

impl Check {
    /// Reports a violation.
    pub(crate) fn fail(&mut self, invariant: &'static str, what: fmt::Arguments<'_>) {
        if self.violation.is_none() {
            self.violation = Some(Violation { invariant, what: what.to_string() });
        }
    }

    /// I2, I10: a term is taken once, and never from an owner that is known to be alive.
    pub(crate) fn taken(
        &mut self,
        now: u64,
        process: ProcessId,
        take: &Take,
        old: Option<&TermView>,
        (run, listeners, silent_ms): (&RunId, u64, u64),
    ) {
        self.takes.push((now, take.reason));
        if self.holders.insert(take.term, process).is_some() {
            self.fail("I2", format_args!("{} was taken twice", take.term));
        }
        let Some(view) = old else { return };
        let gone = is_gone(take.reason, view, run, listeners, silent_ms);
        if !gone {
            self.fail("I10", format_args!("{process} took a term, {take:?}, silent for {silent_ms} ms"));
        }
    }

    /// A chunk was added to a journal.
    pub(crate) fn appended(&mut self, audit: &mut Audit, body: &Body, term: TermId, archive: &Archive) {
        let follows = match body.kind {
            Kind::Changes { .. } => true,
            Kind::Snapshot { chain, last, .. } => last && archive.contains(chain, audit.chain),
        };
        if follows {
            self.time_and_rules(audit, body);
        }
        match body.kind {
            Kind::Changes { before, after } => {
                audit.open = None;
                if before != audit.chain {
                    let chain = audit.chain;
                    self.fail("I1", format_args!("a chunk made after state {before} follows {chain}"));
                }
                self.jobs_of(audit, body);
                let state = Rc::make_mut(&mut audit.state);
                body.records.iter().for_each(|record| apply(state, *record));
                audit.chain = after;
                if let Some(lost) = self.losses.appended(after, archive) {
                    self.fail("I3", format_args!("{lost}"));
                }
                self.states.insert(after, Rc::clone(&audit.state));
                self.leases_of(audit, body, after, archive);
                for effect in &body.effects {
                    self.effect(effect, term, before, after, archive);
                }
            }
            Kind::Snapshot { chain, first, last } => self.snapshot(audit, body, (chain, first, last)),
        }
    }

    /// I6, I11: neither time nor rules go back, except to before what the fleet lost.
    fn time_and_rules(&mut self, audit: &mut Audit, body: &Body) {
        let lost = self.losses.any_excused();
        if body.time < audit.time && !lost {
            self.fail("I6", format_args!("time fell from {} to {}", audit.time, body.time));
        }
        if body.rule < audit.rule && !lost {
            self.fail("I11", format_args!("rules went back from {} to {}", audit.rule, body.rule));
        }
        (audit.time, audit.rule) = (body.time, body.rule);
    }

    fn snapshot(&mut self, audit: &mut Audit, body: &Body, (chain, first, last): (Chain, bool, bool)) {
        if first {
            audit.open = Some((chain, State::new()));
        }
        let Some((of, state)) = &mut audit.open else {
            return self.fail("I1", format_args!("a part of a snapshot without its beginning"));
        };
        if *of != chain {
            return self.fail("I1", format_args!("parts of two snapshots are mixed"));
        }
        body.records.iter().for_each(|record| apply(state, *record));
        if !last {
            return;
        }
        let Some((_, state)) = audit.open.take() else { return };
        audit.state = Rc::new(state);
        audit.chain = chain;
        (audit.time, audit.rule) = (body.time, body.rule);
        let known = self.states.entry(chain).or_insert_with(|| Rc::clone(&audit.state));
        if *known != audit.state {
            self.fail("I1", format_args!("a snapshot of state {chain} is another state"));
        }
    }

    /// I5: a job is accepted once. It waits again only if its lease has ended.
    fn jobs_of(&mut self, audit: &Audit, body: &Body) {
        for (key, value) in &body.records {
            let (Key::Job(job), Some(Value::Waiting)) = (key, value) else { continue };
            let accepted_again = match audit.state.get(key) {
                None | Some(Value::Waiting) => false,
                Some(Value::Leased(lease)) => !body.records.contains(&(Key::Lease(*lease), None)),
                Some(_) => true,
            };
            if accepted_again {
                self.fail("I5", format_args!("job {job} was accepted again"));
            }
        }
    }

    /// I5, I6, I9: leases are granted once, for one question each, and do not end early.
    fn leases_of(&mut self, audit: &Audit, body: &Body, after: Chain, archive: &Archive) {
        for (key, value) in &body.records {
            let (Key::Lease(lease), Some(Value::Lease { nonce, .. })) = (key, value) else { continue };
            let made = *self.leases.entry(*lease).or_insert(after);
            if !archive.contains(after, made) {
                self.fail("I9", format_args!("{lease:?} was made in states {made} and {after}"));
            }
            let same = |(key, value): (&Key, &Value)| match value {
                Value::Lease { nonce: other, .. } => other == nonce && *key != Key::Lease(*lease),
                _ => false,
            };
            if audit.state.iter().any(same) {
                self.fail("I5", format_args!("question {nonce:?} has two leases, one is {lease:?}"));
            }
        }
        for (lease, ended) in &body.expired {
            let Some(granted) = archive.granted.get(lease).copied() else { continue };
            if *ended + CLOCK_MS < granted + LEASE_MS {
                self.fail("I6", format_args!("{lease:?} ended after {} ms", ended - granted));
            }
        }
    }

    /// I5: a question runs once per term, and some questions only once overall.
    fn effect(&mut self, effect: &Effect, term: TermId, before: Chain, after: Chain, archive: &Archive) {
        // A grant that nobody received is returned and made again.
        if effect.lease.is_some() {
            return;
        }
        let of = (!effect.once).then_some(effect.term);
        let again = self.effects.entry((effect.asker, effect.seq, of)).or_default();
        let twice = again.iter().any(|earlier| archive.contains(before, *earlier));
        again.push(after);
        if twice {
            self.fail("I5", format_args!("{effect:?} took effect again under {term}"));
        }
    }

    /// I2, I8: an answer is published.
    pub(crate) fn published(&mut self, answer: &Answer, audit: &Audit, archive: &Archive, ack: Ack) {
        let inside = |chain: &Chain| archive.contains(*chain, answer.chain);
        if !inside(&audit.chain) {
            self.fail("I2", format_args!("{answer:?} is published, the journal is at {}", audit.chain));
        }
        let durable = match ack {
            Ack::Write => true,
            Ack::Fsync => self.synced.iter().rev().any(inside),
            Ack::Replicate => self.replicated.iter().rev().any(inside),
        };
        if !durable && answer.chain != 0 {
            self.fail("I8", format_args!("{answer:?} is not durable by {ack:?}"));
        }
    }

    /// I8: a process reports that its batches are durable.
    pub(crate) fn durable(&mut self, chain: Chain, archive: &Archive, ack: Ack) {
        let inside = |one: &Chain| archive.contains(*one, chain);
        let durable = match ack {
            Ack::Write => self.states.contains_key(&chain),
            Ack::Fsync => self.synced.iter().rev().any(inside),
            Ack::Replicate => self.replicated.iter().rev().any(inside),
        };
        if !durable && chain != 0 {
            self.fail("I8", format_args!("state {chain} is said to be durable by {ack:?}"));
        }
    }

    /// I3: an answer that depends on this state was received.
    pub(crate) fn acknowledge(&mut self, chain: Chain, archive: &Archive) {
        if let Some(lost) = self.losses.acknowledge(chain, archive) {
            self.fail("I3", format_args!("{lost}"));
        }
    }

    /// I3: a superseded process knows whether anything that it reported as durable is missing.
    pub(crate) fn superseded(&mut self, durable: Chain, journal: Chain, missing: bool, archive: &Archive) {
        if !missing && !archive.contains(journal, durable) {
            self.fail("I3", format_args!("state {durable} is missing in {journal}, and nothing reports it"));
        }
    }

    /// I4: an asker receives an answer. It reflects everything that was acknowledged before the question was asked.
    pub(crate) fn delivered(&mut self, answer: &Answer, question: &Pending, archive: &Archive) {
        for known in &question.known {
            if !archive.contains(answer.chain, *known) && !self.losses.is_excused(*known, archive) {
                self.fail("I4", format_args!("{answer:?} to {question:?} does not know of {known}"));
            }
        }
    }

    /// I1: a process becomes the owner with this state, which it has read.
    pub(crate) fn loaded(&mut self, process: ProcessId, chain: Chain, state: &State) {
        let known = self.states.get(&chain).cloned().unwrap_or_default();
        if *known != *state {
            let missing: Vec<_> = known.iter().filter(|(key, value)| state.get(key) != Some(value)).collect();
            let wrong: Vec<_> = state.iter().filter(|(key, value)| known.get(key) != Some(value)).collect();
            let what = format!("missing {missing:?}, wrong {wrong:?}");
            self.fail("I1", format_args!("{process} read state {chain} otherwise than written: {what}"));
        }
    }

    /// I12: the bytes queued for a subscriber are bounded.
    pub(crate) fn queued(&mut self, bytes: u64) {
        if bytes > OUTPUT_LIMIT {
            self.fail("I12", format_args!("{bytes} bytes are queued"));
        }
    }

    /// I7: a process starts a call at the upstream, which ends at `until`.
    pub(crate) fn started(&mut self, now: u64, process: ProcessId, until: u64) {
        self.started_at = now;
        self.running.retain(|(_, until)| *until > now);
        self.running.push((process, until));
        let running = self.running.len();
        if running > SLOTS && !self.losses.any_excused() {
            self.fail("I7", format_args!("{running} calls at a time"));
        }
    }

    /// A process has ended.
    pub(crate) fn died(&mut self, process: ProcessId) {
        self.running.retain(|(of, _)| *of != process);
        self.losses.died(process);
    }

    /// I7: a token is given to an asker.
    pub(crate) fn spent(&mut self) {
        self.tokens += 1;
        let tokens = self.tokens;
        if tokens > TOKENS && !self.losses.any_excused() {
            self.fail("I7", format_args!("{tokens} tokens"));
        }
    }
}

/// Whether the reason for a takeover is true.
pub(crate) fn is_gone(
    reason: TakeReason,
    view: &TermView,
    run: &RunId,
    listeners: u64,
    silent_ms: u64,
) -> bool {
    match reason {
        TakeReason::Released => view.released,
        TakeReason::NobodyListens => listeners == 0 && silent_ms >= 200,
        TakeReason::Silent => silent_ms >= TERM_MS,
        TakeReason::Settled => view.run != *run,
        TakeReason::First => false,
    }
}
