//! Asks the owner: questions wait here, in order, until the current owner answers them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eclusa_core::StoreError;
use eclusa_core::layout::{Answers, LayoutError, Question, Questions, ReceivedAnswers, Reply, SentRules};
use eclusa_fleet::{CONFIRMED_EVERY, TermId};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::membership::Membership;
use crate::store::verbs::{is_read, is_repeatable, may_wait, undo_question};

/// The most bytes of questions in a message, unless a single one is longer.
const MAX_MESSAGE: usize = 1 << 20;
/// Bytes that may be on the way before the owner has granted more.
const FIRST_WINDOW: u64 = 64 << 10;
/// When an unanswered question is sent again, in case it or its answer was lost.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The same for a question that the owner may hold.
const ASK_AGAIN_HELD: Duration = Duration::from_secs(5);

/// How often a larger window is requested.
const ASK_FOR_ROOM: Duration = Duration::from_millis(50);

/// The result of a question.
pub(super) type Answered = Result<Reply, StoreError>;

/// The questions of this process.
pub(super) struct Asking {
    state: Mutex<AskingState>,
    /// Notified when something may be sent.
    pub(super) sendable: Notify,
}

struct AskingState {
    next: u64,
    pending: BTreeMap<u64, Pending>,
    /// The term whose owner is asked.
    term: Option<TermId>,
    window: u64,
    /// The answers that were received from that owner, and up to which byte it knows that.
    received: ReceivedAnswers,
    confirmed: u64,
    /// Whether answers can be received; nothing is sent before.
    listening: bool,
    /// Whether that owner knows the rules of this process.
    registered: bool,
    /// Whether this process has left the fleet: a later question would register it again.
    left: bool,
    /// When a larger window was last requested.
    asked_for_room: Option<Instant>,
}

struct Pending {
    question: Arc<[u8]>,
    /// Whether it changes nothing.
    read: bool,
    repeatable: bool,
    held: bool,
    /// The term to whose owner it was last sent, and when.
    sent: Option<(TermId, Instant)>,
    /// Whether it was ever sent.
    was_sent: bool,
    /// `None` once the caller is gone; what the answer grants is then released.
    answer: Option<oneshot::Sender<Answered>>,
}

/// The questions of one message.
struct Chosen {
    sequences: Vec<u64>,
    /// The size of the next question, if the window is too small for it; else 0.
    wants: u64,
}

impl AskingState {
    /// The questions to send now, as far as they fit the window.
    fn choose(&self, term: TermId, now: Instant) -> Chosen {
        let under_way = self.pending.values().filter(|pending| pending.due(term, now) > now);
        let used: usize = under_way.map(|pending| pending.question.len()).sum();
        let mut room = usize::try_from(self.window).unwrap_or(usize::MAX).saturating_sub(used);
        let (mut sequences, mut size, mut wants) = (Vec::new(), 0, 0);
        for (sequence, pending) in self.pending.iter().filter(|(_, pending)| pending.due(term, now) <= now) {
            let len = pending.question.len();
            if !sequences.is_empty() && size + len > MAX_MESSAGE {
                break;
            }
            if len > room {
                wants = if len as u64 > self.window { len as u64 } else { 0 };
                break;
            }
            room -= len;
            size += len;
            sequences.push(*sequence);
        }
        Chosen { sequences, wants }
    }

    fn push(&mut self, pending: Pending) -> u64 {
        let sequence = self.next;
        self.next += 1;
        self.pending.insert(sequence, pending);
        sequence
    }

    /// The next message, if there is something to send now; else when to look again.
    fn next_message(&mut self, own: &Membership, now: Instant) -> Result<QuestionMessage, Option<Instant>> {
        let Some(term) = self.term.filter(|_| self.listening && !self.left) else { return Err(None) };
        let Chosen { sequences, wants } = self.choose(term, now);
        let asks_for_room = wants > 0 && self.asked_for_room.is_none_or(|at| at + ASK_FOR_ROOM <= now);
        let confirms = self.received.bytes >= self.confirmed + CONFIRMED_EVERY;
        if sequences.is_empty() && !asks_for_room && !confirms && self.registered {
            let again = self.pending.values().map(|pending| pending.due(term, now)).min();
            return Err(again.map(|at| at.max(now + ASK_FOR_ROOM)));
        }
        if wants > 0 {
            self.asked_for_room = Some(now);
        }
        let rules = own.rules();
        let registration =
            (!self.registered).then(|| SentRules { about: &rules.about, spec: &rules.encoded });
        let items = sequences.iter().filter_map(|sequence| self.pending.get_key_value(sequence));
        let message = Questions {
            process: own.process.0,
            stamp: rules.stamp,
            done_below: self.pending.keys().next().copied().unwrap_or(self.next),
            wants,
            received: self.received,
            in_fallback: own.is_in_fallback(),
            registration,
            items: items.map(|(sequence, pending)| (*sequence, &*pending.question)).collect(),
        };
        let bytes = message.encode();
        self.registered = true;
        self.confirmed = self.received.bytes;
        for sequence in &sequences {
            if let Some(pending) = self.pending.get_mut(sequence) {
                pending.sent = Some((term, now));
                pending.was_sent = true;
            }
        }
        Ok(QuestionMessage { term, bytes, sequences })
    }
}

/// A message ready to be published.
pub(super) struct QuestionMessage {
    pub(super) term: TermId,
    pub(super) bytes: Vec<u8>,
    sequences: Vec<u64>,
}

impl Asking {
    pub(super) fn new() -> Self {
        let state = AskingState {
            next: 1,
            pending: BTreeMap::new(),
            term: None,
            window: FIRST_WINDOW,
            received: ReceivedAnswers::default(),
            confirmed: 0,
            listening: false,
            registered: false,
            left: false,
            asked_for_room: None,
        };
        Self { state: Mutex::new(state), sendable: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, AskingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a question. If the result is dropped, what the answer grants is released.
    pub(super) fn ask(self: &Arc<Self>, question: &Question) -> Asked {
        let (answer, reply) = oneshot::channel();
        let sequence = self.push(question, Some(answer));
        Asked { asking: self.clone(), sequence, reply }
    }

    /// Queues a question whose answer is not needed.
    pub(super) fn post(&self, question: &Question) {
        self.push(question, None);
    }

    fn push(&self, question: &Question, answer: Option<oneshot::Sender<Answered>>) -> u64 {
        let pending = Pending::new(question, answer);
        let sequence = self.lock().push(pending);
        self.sendable.notify_one();
        sequence
    }

    /// Asks the owner of another term from now on, or nobody if none is known.
    pub(super) fn follow(&self, term: Option<TermId>) {
        let mut state = self.lock();
        if state.term == term {
            return;
        }
        state.term = term;
        state.window = FIRST_WINDOW;
        state.received.bytes = 0;
        state.confirmed = 0;
        state.registered = false;
        // A question that counts each time it arrives is not repeated if it may have arrived.
        let in_doubt = |pending: &Pending| !pending.repeatable && pending.sent.is_some();
        let lost: Vec<_> = state
            .pending
            .iter()
            .filter(|(_, pending)| in_doubt(pending))
            .map(|(sequence, _)| *sequence)
            .collect();
        for pending in lost.iter().filter_map(|sequence| state.pending.remove(sequence)) {
            let cause =
                "the process that decides changed before it answered; this may have been counted".into();
            pending.deliver(Err(StoreError::Unconfirmed { cause }));
        }
        drop(state);
        self.sendable.notify_one();
    }

    /// Sets whether answers can be received. Answers that came meanwhile are lost, so their questions are sent again.
    pub(super) fn listen(&self, listening: bool) {
        let mut state = self.lock();
        state.listening = listening;
        state.received.connection += u64::from(listening);
        state
            .pending
            .values_mut()
            .filter(|pending| pending.repeatable)
            .for_each(|pending| pending.sent = None);
        drop(state);
        self.sendable.notify_one();
    }

    /// The next message, if there is something to send now; else when to look again.
    pub(super) fn next_message(
        &self,
        own: &Membership,
        now: Instant,
    ) -> Result<QuestionMessage, Option<Instant>> {
        self.lock().next_message(own, now)
    }

    /// The last message of this process, with which it leaves the fleet.
    pub(super) fn leave(&self, own: &Membership, now: Instant) -> Option<QuestionMessage> {
        // Under one lock, so that nothing else sends it.
        let mut state = self.lock();
        let leave = Question::Leave(eclusa_core::ProcessId(own.process.0));
        state.push(Pending::new(&leave, None));
        let message = state.next_message(own, now).ok();
        state.left = true;
        message
    }

    /// Marks a message as not received; it is sent again, to the next owner.
    pub(super) fn not_heard(&self, message: &QuestionMessage) {
        let mut state = self.lock();
        for sequence in &message.sequences {
            if let Some(pending) = state.pending.get_mut(sequence) {
                pending.sent = None;
            }
        }
        state.registered = false;
        state.confirmed = 0;
    }

    /// Delivers answers. What was granted to a caller that is gone is released.
    pub(super) fn answered(self: &Arc<Self>, answers: &Answers<'_>) {
        let mut orphans = Vec::new();
        let mut state = self.lock();
        state.window = answers.window;
        state.received.bytes = state.received.bytes.max(answers.sent);
        if answers.register {
            state.registered = false;
            state
                .pending
                .values_mut()
                .filter(|pending| !pending.held)
                .for_each(|pending| pending.sent = None);
        }
        for (sequence, reply) in &answers.items {
            let Some(pending) = state.pending.remove(sequence) else { continue };
            let answer = match Reply::decode(reply) {
                Ok(Reply::Unread(cause)) => {
                    Err(unread(&format!("the owner cannot read the question: {cause}")))
                }
                answer => answer.map_err(|error| unread(&format!("the answer cannot be read: {error}"))),
            };
            if let Some(Ok(unheard)) = pending.deliver(answer) {
                orphans.push(unheard);
            }
        }
        drop(state);
        self.sendable.notify_one();
        for reply in orphans {
            if let Some(question) = undo_question(&reply) {
                self.post(&question);
            }
        }
    }

    /// Ends the questions that are with the owner: its answers cannot be read.
    pub(super) fn cannot_read(&self, error: &LayoutError) {
        let mut state = self.lock();
        let (asked, others): (BTreeMap<_, _>, _) =
            std::mem::take(&mut state.pending).into_iter().partition(|(_, pending)| pending.sent.is_some());
        state.pending = others;
        drop(state);
        for pending in asked.into_values() {
            pending.deliver(Err(unread(&format!("the owner's answers cannot be read: {error}"))));
        }
    }

    /// Sends the rules of this process with the next message, because they changed.
    pub(super) fn register_again(&self) {
        self.lock().registered = false;
        self.sendable.notify_one();
    }
}

impl Pending {
    fn new(question: &Question, answer: Option<oneshot::Sender<Answered>>) -> Self {
        let (held, repeatable, read) = (may_wait(question), is_repeatable(question), is_read(question));
        let mut bytes = Vec::new();
        question.encode(&mut bytes);
        Self { question: bytes.into(), read, repeatable, held, sent: None, was_sent: false, answer }
    }

    /// When to send it to the owner of `term`.
    fn due(&self, term: TermId, now: Instant) -> Instant {
        match self.sent {
            Some((to, at)) if to == term => at + if self.held { ASK_AGAIN_HELD } else { ASK_AGAIN },
            _ => now,
        }
    }

    /// Delivers the answer to the caller; returns it if the caller is gone.
    fn deliver(self, answer: Answered) -> Option<Answered> {
        match self.answer {
            Some(caller) => caller.send(answer).err(),
            None => Some(answer),
        }
    }
}

/// A question that waits for its answer.
pub(super) struct Asked {
    asking: Arc<Asking>,
    sequence: u64,
    reply: oneshot::Receiver<Answered>,
}

impl Asked {
    /// Waits for the answer.
    pub(super) async fn answer(&mut self) -> Answered {
        let gone = || StoreError::Unavailable { cause: "this process is stopping".into() };
        (&mut self.reply).await.unwrap_or_else(|_| Err(gone()))
    }

    /// Turns an error into one that says whether the owner may have received the question.
    pub(super) fn in_doubt(&self, error: StoreError) -> StoreError {
        let was_sent = self.asking.lock().pending.get(&self.sequence).is_none_or(|pending| pending.was_sent);
        match error {
            StoreError::Unavailable { cause } if was_sent => StoreError::Unconfirmed { cause },
            error => error,
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let mut state = self.asking.lock();
        if let Some(pending) = state.pending.get_mut(&self.sequence) {
            // Nobody needs the answer to a read, so it is not asked for again.
            if pending.sent.is_none() || pending.read {
                state.pending.remove(&self.sequence);
            } else {
                pending.answer = None;
            }
        }
    }
}

/// The error for a question that the owner cannot read, or an answer that this process cannot read: the versions
/// differ.
fn unread(cause: &str) -> StoreError {
    StoreError::Stopped { cause: cause.into() }
}
