//! The answering side: an owner runs questions on its engine and keeps its answers for repeated questions.

use std::collections::BTreeMap;
use std::rc::Rc;

use eclusa_fleet::{ProcessId, TermId};

use crate::archive::Effect;
use crate::ask::{Question, Said, Verb};
use crate::bugs::Bug;
use crate::engine::{Key, LeaseId, Value};
use crate::journal::Journal;

/// What the owner keeps about an asker.
#[derive(Debug, Clone, Default)]
struct Memory {
    /// Every question below this one has ended.
    acknowledged: u64,
    answered: BTreeMap<u64, Answered>,
    parked: BTreeMap<u64, Rc<Question>>,
}

/// An answer that was given.
#[derive(Debug, Clone, Copy)]
struct Answered {
    said: Said,
    /// Engine time when the question ran.
    time: u64,
    /// The number of copies in flight or received: a repeated question gets another one.
    copies: u32,
}

/// An answer that has not been sent yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ready {
    /// The asker.
    pub(crate) asker: ProcessId,
    /// The question.
    pub(crate) seq: u64,
    /// The answer.
    pub(crate) said: Said,
    /// Engine time when it ran.
    pub(crate) time: u64,
    /// Whether the question changed nothing.
    pub(crate) read: bool,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answers {
    askers: BTreeMap<ProcessId, Memory>,
    /// Answers to send with the next batch.
    pub(crate) ready: Vec<Ready>,
}

impl Answers {
    /// Runs a question that reached the owner of `term`.
    pub(crate) fn receive(
        &mut self,
        question: Rc<Question>,
        term: TermId,
        journal: &mut Journal,
        bug: Option<Bug>,
    ) {
        if question.term != term && bug != Some(Bug::LateQuestionAccepted) {
            return;
        }
        let (asker, seq) = (question.asker, question.seq);
        let memory = self.askers.entry(asker).or_default();
        memory.acknowledged = memory.acknowledged.max(question.acknowledged);
        let acknowledged = memory.acknowledged;
        memory.answered.retain(|seq, _| *seq >= acknowledged);
        memory.parked.retain(|seq, _| *seq >= acknowledged);
        if seq < acknowledged && bug != Some(Bug::OldSequenceAccepted) {
            return;
        }
        let forget = bug == Some(Bug::DispatchGrantedTwice) && question.verb == Verb::Dispatch;
        if let Some(answered) = memory.answered.get_mut(&seq).filter(|_| !forget) {
            answered.copies += 1;
            let (said, time) = (answered.said, answered.time);
            self.ready.push(Ready { asker, seq, said, time, read: false });
            return;
        }
        if !journal.engine.knows(asker) && !matches!(question.verb, Verb::Register { .. } | Verb::Probe) {
            let time = journal.engine.time;
            self.ready.push(Ready { asker, seq, said: Said::RegisterFirst, time, read: true });
            return;
        }
        memory.parked.insert(seq, question);
        self.run(asker, seq, term, journal, bug);
    }

    /// Retries parked questions: something may be able to start now.
    pub(crate) fn retry(&mut self, term: TermId, journal: &mut Journal, bug: Option<Bug>) {
        let parked: Vec<_> = self
            .askers
            .iter()
            .flat_map(|(asker, memory)| memory.parked.keys().map(|seq| (*asker, *seq)))
            .collect();
        for (asker, seq) in parked {
            self.run(asker, seq, term, journal, bug);
        }
    }

    fn run(&mut self, asker: ProcessId, seq: u64, term: TermId, journal: &mut Journal, bug: Option<Bug>) {
        let Some(memory) = self.askers.get_mut(&asker) else { return };
        let Some(question) = memory.parked.get(&seq) else { return };
        let Some(said) = carry_out(question, journal, bug) else { return };
        let lease = match said {
            Said::Granted { lease, .. } => Some(lease),
            _ => None,
        };
        let read = matches!(question.verb, Verb::Probe | Verb::Read(_));
        if !read {
            let once = question.verb == Verb::Spend;
            let at = journal.engine.true_now;
            journal.effects.push(Effect { asker, seq, term, once, lease, at });
        }
        memory.parked.remove(&seq);
        let time = journal.engine.time;
        memory.answered.insert(seq, Answered { said, time, copies: 1 });
        self.ready.push(Ready { asker, seq, said, time, read });
    }

    /// Nobody received this grant. If no other copy of it can be received, the grant is returned, and the question may
    /// be asked again.
    pub(crate) fn give_back(&mut self, asker: ProcessId, seq: u64, lease: LeaseId, journal: &mut Journal) {
        let Some(memory) = self.askers.get_mut(&asker) else { return };
        let Some(answered) = memory.answered.get_mut(&seq) else { return };
        answered.copies = answered.copies.saturating_sub(1);
        if answered.copies == 0 {
            memory.answered.remove(&seq);
            journal.engine.give_back(lease);
        }
    }
}

fn carry_out(question: &Question, journal: &mut Journal, bug: Option<Bug>) -> Option<Said> {
    let engine = &mut journal.engine;
    let yes = match question.verb {
        Verb::Register { stamp } => {
            engine.register(question.asker, stamp);
            true
        }
        Verb::Probe => true,
        Verb::Enqueue(job) => {
            engine.enqueue(job);
            true
        }
        Verb::Dispatch => {
            let (lease, until) = engine.dispatch((question.asker, question.seq), bug)?;
            return Some(Said::Granted { lease, until });
        }
        Verb::Settle(lease) => engine.settle(lease),
        Verb::Spend => engine.spend(),
        Verb::Read(job) => matches!(engine.state.get(&Key::Job(job)), Some(Value::Done(_))),
    };
    Some(if yes { Said::Yes } else { Said::No })
}
