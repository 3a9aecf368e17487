//! The answering side: an owner runs questions on its engine and keeps its answers for repeated questions.

use std::collections::BTreeMap;
use std::rc::Rc;

use eclusa_fleet::{Outbox, Outgoing, ProcessId, TermId};

use crate::archive::{Archive, Chain, Effect};
use crate::ask::{Answer, AnswerMessage, Question, Said, Verb};
use crate::bugs::Bug;
use crate::engine::{Key, Value};
use crate::journal::Journal;
use crate::reply::Length;

/// What the owner keeps about an asker.
#[derive(Debug, Default)]
struct Memory {
    /// Every question below this one has ended.
    acknowledged: u64,
    answered: BTreeMap<u64, Answered>,
    parked: BTreeMap<u64, Rc<Question>>,
    outbox: Outbox,
    /// The answers in the outbox.
    queued: BTreeMap<u64, Answer>,
}

/// An answer that was given.
#[derive(Debug, Clone, Copy)]
struct Answered {
    said: Said,
    /// Engine time when the question ran.
    time: u64,
    reply: Length,
    /// [`Outbox::sent`] after it; `None` until it is sent.
    sent: Option<u64>,
    /// The number of copies in flight or received: a repeated question gets another one.
    copies: u32,
}

/// An answer that waits for the next batch.
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
    /// Its length.
    pub(crate) reply: Length,
    /// Whether the question changed nothing.
    pub(crate) read: bool,
}

impl Ready {
    /// The answer, which depends on the state `chain`.
    pub(crate) fn answer(&self, chain: Chain) -> Answer {
        Answer { seq: self.seq, said: self.said, time: self.time, chain }
    }
}

/// See the module.
#[derive(Debug, Default)]
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
        memory.outbox.received(question.received);
        if question.verb == Verb::Confirm {
            return;
        }
        if seq < acknowledged && bug != Some(Bug::OldSequenceAccepted) {
            return;
        }
        let forget = bug == Some(Bug::DispatchGrantedTwice) && question.verb == Verb::Dispatch;
        if let Some(answered) = memory.answered.get(&seq).copied().filter(|_| !forget) {
            if answered.sent.is_some_and(|sent| !memory.outbox.is_under_way(sent)) {
                let Answered { said, time, reply, .. } = answered;
                self.ready.push(Ready { asker, seq, said, time, reply, read: false });
            }
            return;
        }
        if !journal.engine.knows(asker) && !matches!(question.verb, Verb::Register { .. } | Verb::Probe) {
            let time = journal.engine.time;
            let (said, reply) = (Said::RegisterFirst, Length::default());
            self.ready.push(Ready { asker, seq, said, time, reply, read: true });
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
        let reply = question.reply;
        let read = matches!(question.verb, Verb::Probe | Verb::Read(_));
        if !read {
            let once = question.verb == Verb::Spend;
            let at = journal.engine.true_now;
            journal.effects.push(Effect { asker, seq, term, once, lease, at });
        }
        memory.parked.remove(&seq);
        let time = journal.engine.time;
        memory.answered.insert(seq, Answered { said, time, reply, sent: None, copies: 0 });
        self.ready.push(Ready { asker, seq, said, time, reply, read });
    }

    /// The messages to send now, one per asker at most: the answers that are ready, which depend on the state `chain`,
    /// and earlier ones, as far as there is room.
    pub(crate) fn address(&mut self, chain: Chain, archive: &mut Archive, bug: Option<Bug>) -> Vec<Outgoing> {
        for one in std::mem::take(&mut self.ready) {
            self.askers.entry(one.asker).or_default().queue(&one, chain);
        }
        let messages = self.askers.iter_mut().filter_map(|(asker, memory)| memory.message(*asker, bug));
        let outgoing = messages.map(|message| {
            let (to, sent) = (message.asker, message.sent);
            Outgoing { to, message: archive.keep_answers(message).into(), sent }
        });
        outgoing.collect()
    }

    /// These messages are being published.
    pub(crate) fn published(&mut self, outgoing: &[Outgoing]) {
        for one in outgoing {
            if let Some(memory) = self.askers.get_mut(&one.to) {
                memory.outbox.published(one.sent);
            }
        }
    }

    /// Nobody received this message. A grant of which no other copy can be received is returned, and its question may
    /// be asked again.
    pub(crate) fn unheard(&mut self, message: &AnswerMessage, journal: Option<&mut Journal>) {
        let (Some(memory), Some(journal)) = (self.askers.get_mut(&message.asker), journal) else { return };
        memory.outbox.unheard();
        for answer in &message.answers {
            let Said::Granted { lease, .. } = answer.said else { continue };
            let Some(answered) = memory.answered.get_mut(&answer.seq) else { continue };
            answered.copies = answered.copies.saturating_sub(1);
            if answered.copies == 0 {
                memory.answered.remove(&answer.seq);
                journal.engine.give_back(lease);
            }
        }
    }
}

impl Memory {
    /// Queues an answer. One for which there is no room is forgotten: its question is asked and decided again.
    fn queue(&mut self, one: &Ready, chain: Chain) {
        if self.outbox.queue(one.seq, one.reply.bytes()) {
            self.queued.insert(one.seq, one.answer(chain));
        } else {
            self.answered.remove(&one.seq);
        }
    }

    /// The next message to this asker.
    fn message(&mut self, asker: ProcessId, bug: Option<Bug>) -> Option<AnswerMessage> {
        let replies = self.outbox.next_message();
        let sent = self.outbox.sent();
        for (seq, _) in &replies {
            if let Some(answered) = self.answered.get_mut(seq) {
                answered.sent = Some(sent);
                answered.copies += 1;
            }
        }
        if bug == Some(Bug::AnswersWithoutBound) {
            self.outbox.published(sent);
            self.outbox.unheard();
        }
        let bytes = replies.iter().map(|(_, reply)| reply.len() as u64).sum();
        let answers: Vec<_> = replies.iter().filter_map(|(seq, _)| self.queued.remove(seq)).collect();
        (!answers.is_empty()).then_some(AnswerMessage { asker, sent, bytes, answers })
    }
}

fn carry_out(question: &Question, journal: &mut Journal, bug: Option<Bug>) -> Option<Said> {
    let engine = &mut journal.engine;
    let yes = match question.verb {
        Verb::Register { stamp } => {
            engine.register(question.asker, stamp);
            true
        }
        Verb::Probe | Verb::Confirm => true,
        Verb::Enqueue(job) => {
            engine.enqueue(job, bug);
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
