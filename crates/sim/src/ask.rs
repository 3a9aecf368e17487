//! The asking side: questions with sequence numbers, repeated until they are answered.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use eclusa_core::layout::ReceivedAnswers;
use eclusa_fleet::{CONFIRMED_EVERY, ProcessId, TermId};

use crate::archive::Chain;
use crate::bugs::Bug;
use crate::engine::LeaseId;
use crate::reply::Length;

/// Bytes that all askers together may have in flight.
const WINDOW: u64 = 16 << 20;
/// The number of processes that share the window.
const ASKERS: u64 = 4;
/// A question without an answer is asked again after this long, in ms.
const REPEAT_MS: u64 = 1_000;

/// The content of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Registers rules.
    Register {
        /// When the process started.
        stamp: u64,
    },
    /// Only asks for the time.
    Probe,
    /// Asks nothing: confirms received answers.
    Confirm,
    /// Accepts a job.
    Enqueue(u64),
    /// Asks for a job to run; parked at the owner until there is one.
    Dispatch,
    /// Ends a job.
    Settle(LeaseId),
    /// Takes a token. Not repeated under another term: it may have been taken.
    Spend,
    /// Reads a job.
    Read(u64),
}

/// A question on its way to the owner.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    /// The asker.
    pub(crate) asker: ProcessId,
    /// Counts the questions of the asker.
    pub(crate) seq: u64,
    /// Every question below this one has ended.
    pub(crate) acknowledged: u64,
    /// The term whose owner is asked; it names the channel.
    pub(crate) term: TermId,
    /// The content of a question.
    pub(crate) verb: Verb,
    /// The size of the message.
    pub(crate) bytes: u64,
    /// The length of its answer.
    pub(crate) reply: Length,
    /// The answers that the asker has received.
    pub(crate) received: ReceivedAnswers,
}

/// The owner's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// It was done, now or before.
    Yes,
    /// It was refused.
    No,
    /// A lease.
    Granted {
        /// The lease.
        lease: LeaseId,
        /// Engine time at which it ends.
        until: u64,
    },
    /// The owner does not know the asker's rules.
    RegisterFirst,
}

/// An answer on its way to the asker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    /// The question.
    pub(crate) seq: u64,
    /// The owner's answer.
    pub(crate) said: Said,
    /// Engine time when the question ran.
    pub(crate) time: u64,
    /// The state after the question ran.
    pub(crate) chain: Chain,
}

/// Answers on their way to their asker, in one message.
#[derive(Debug, Clone)]
pub(crate) struct AnswerMessage {
    /// The asker.
    pub(crate) asker: ProcessId,
    /// The bytes of all answers that were sent to it, with those of this message.
    pub(crate) sent: u64,
    /// The size of the message.
    pub(crate) bytes: u64,
    /// The answers.
    pub(crate) answers: Vec<Answer>,
}

/// A question that has not ended.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    /// The content of a question.
    pub(crate) verb: Verb,
    bytes: u64,
    reply: Length,
    /// The asker's clock when it was first asked.
    pub(crate) asked_at: u64,
    /// The term and time of its last repetition.
    sent: Option<(TermId, u64)>,
    /// What had been acknowledged to any process when it was first asked.
    pub(crate) known: Vec<Chain>,
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    /// The process.
    pub(crate) process: ProcessId,
    /// The term whose owner is asked.
    pub(crate) term: Option<TermId>,
    next: u64,
    /// Questions that have not ended.
    pub(crate) pending: BTreeMap<u64, Pending>,
    /// Questions that may be queued at the owner: sequence and bytes.
    sent: VecDeque<(u64, u64)>,
    /// The answers that were received from that owner, and up to which byte it was told so.
    received: ReceivedAnswers,
    confirmed: u64,
    /// How far engine time can be ahead of this process's clock, and when that was learned.
    pub(crate) ahead: Option<(i64, u64)>,
}

impl Asker {
    /// An asker without questions.
    pub(crate) fn new(process: ProcessId) -> Self {
        Self {
            process,
            term: None,
            next: 1,
            pending: BTreeMap::new(),
            sent: VecDeque::new(),
            received: ReceivedAnswers::default(),
            confirmed: 0,
            ahead: None,
        }
    }

    /// The owner changed: open questions are repeated, except those that may have had an effect and must not be
    /// repeated.
    pub(crate) fn follow(&mut self, term: TermId) {
        if self.term == Some(term) {
            return;
        }
        self.term = Some(term);
        (self.received.bytes, self.confirmed) = (0, 0);
        self.sent.clear();
        self.pending.retain(|_, one| one.verb != Verb::Spend || one.sent.is_none());
    }

    /// Answers arrive on another connection from now on.
    pub(crate) fn reconnected(&mut self) {
        self.received.connection += 1;
    }

    /// A message with answers arrives.
    pub(crate) fn received(&mut self, message: &AnswerMessage) {
        self.received.bytes = self.received.bytes.max(message.sent);
    }

    /// A new question.
    pub(crate) fn ask(&mut self, verb: Verb, (bytes, reply): (u64, Length), now: u64, known: Vec<Chain>) {
        self.pending.insert(self.next, Pending { verb, bytes, reply, asked_at: now, sent: None, known });
        self.next += 1;
    }

    /// The questions to send now.
    pub(crate) fn due(&mut self, now: u64, bug: Option<Bug>) -> Vec<Rc<Question>> {
        let Some(term) = self.term else { return Vec::new() };
        let window = if bug == Some(Bug::WindowWithoutSum) { WINDOW } else { WINDOW / ASKERS };
        let acknowledged = self.pending.keys().next().copied().unwrap_or(self.next);
        let (asker, received) = (self.process, self.received);
        let mut due = Vec::new();
        let mut queued: u64 = self.sent.iter().map(|(_, bytes)| bytes).sum();
        for (seq, one) in &mut self.pending {
            let idle = bug == Some(Bug::IdleDeathUnnoticed) && one.verb == Verb::Dispatch;
            if one.sent.is_some_and(|(to, at)| to == term && (idle || now < at + REPEAT_MS)) {
                continue;
            }
            if queued + one.bytes > window && one.verb != Verb::Probe {
                continue;
            }
            queued += one.bytes;
            one.sent = Some((term, now));
            self.sent.push_back((*seq, one.bytes));
            let (seq, verb, bytes, reply) = (*seq, one.verb, one.bytes, one.reply);
            due.push(Question { asker, seq, acknowledged, term, verb, bytes, reply, received });
        }
        if due.is_empty() && received.bytes >= self.confirmed + CONFIRMED_EVERY {
            let (verb, bytes, reply) = (Verb::Confirm, 100, Length::default());
            due.push(Question { asker, seq: 0, acknowledged, term, verb, bytes, reply, received });
        }
        if !due.is_empty() {
            self.confirmed = received.bytes;
        }
        due.into_iter().map(Rc::new).collect()
    }

    /// Nobody received a question.
    pub(crate) fn unheard(&mut self, question: &Question) {
        self.sent.retain(|(seq, _)| *seq != question.seq);
        self.confirmed = 0;
    }

    /// An answer. Returns the question unless it had ended.
    pub(crate) fn answered(&mut self, answer: &Answer, now: u64) -> Option<Pending> {
        if let Some(at) = self.sent.iter().position(|(seq, _)| *seq == answer.seq) {
            self.sent.drain(..=at);
        }
        if answer.said == Said::RegisterFirst {
            if let Some(one) = self.pending.get_mut(&answer.seq) {
                one.sent = None;
            }
            return None;
        }
        let one = self.pending.remove(&answer.seq)?;
        if one.verb == Verb::Probe {
            let ahead = answer.time.cast_signed() - one.asked_at.cast_signed();
            self.ahead = Some((ahead, now));
        }
        Some(one)
    }
}
