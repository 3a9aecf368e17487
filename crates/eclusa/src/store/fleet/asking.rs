//! Asks the owner: questions wait here, in order, until the current owner answers them.

use std::collections::{BTreeMap, VecDeque};
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
/// Questions that are due within this time are sent again with the first of them: finding them takes a look at all.
const AGAIN_TOGETHER: Duration = Duration::from_millis(100);

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
    /// The sequences of the questions to send, in order.
    unsent: VecDeque<u64>,
    /// Bytes of the questions that are with the owner.
    under_way: usize,
    /// When a question may have to be sent again.
    again_at: Option<Instant>,
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
    /// When it was sent to the owner.
    sent: Option<Instant>,
    /// Whether any owner may have received it.
    may_have_arrived: bool,
    /// `None` once the caller is gone; what the answer grants is then released.
    answer: Option<oneshot::Sender<Answered>>,
}

/// The questions of one message.
struct Chosen {
    sequences: Vec<u64>,
    /// Those that no owner can have received before.
    new: Vec<u64>,
    /// The size of the next question, if the window is too small for it; else 0.
    wants: u64,
}

impl AskingState {
    /// The questions to send now, as far as they fit the window. They are with the owner from now on.
    fn choose(&mut self, now: Instant) -> Chosen {
        if self.again_at.is_some_and(|at| at <= now) {
            self.send_again(|pending| pending.again_at().is_some_and(|at| at <= now + AGAIN_TOGETHER));
        }
        let room = usize::try_from(self.window).unwrap_or(usize::MAX).saturating_sub(self.under_way);
        let mut chosen = Chosen { sequences: Vec::new(), new: Vec::new(), wants: 0 };
        let mut size = 0;
        while let Some(sequence) = self.unsent.front() {
            let Some(pending) = self.pending.get_mut(sequence) else {
                self.unsent.pop_front();
                continue;
            };
            let len = pending.question.len();
            if !chosen.sequences.is_empty() && size + len > MAX_MESSAGE {
                break;
            }
            if size + len > room {
                chosen.wants = if len as u64 > self.window { len as u64 } else { 0 };
                break;
            }
            size += len;
            chosen.sequences.push(*sequence);
            if !std::mem::replace(&mut pending.may_have_arrived, true) {
                chosen.new.push(*sequence);
            }
            pending.sent = Some(now);
            self.again_at = earlier(self.again_at, pending.again_at());
            self.unsent.pop_front();
        }
        self.under_way += size;
        chosen
    }

    /// Sends questions again, in their order.
    fn send_again(&mut self, which: impl Fn(&Pending) -> bool) {
        self.unsent.clear();
        (self.under_way, self.again_at) = (0, None);
        for (sequence, pending) in &mut self.pending {
            pending.sent = pending.sent.filter(|_| !which(pending));
            if pending.sent.is_some() {
                self.under_way += pending.question.len();
                self.again_at = earlier(self.again_at, pending.again_at());
            } else {
                self.unsent.push_back(*sequence);
            }
        }
    }

    /// Sends the questions of a message again.
    fn take_back(&mut self, sequences: &[u64]) {
        for sequence in sequences {
            if let Some(pending) = self.pending.get_mut(sequence) {
                pending.sent = None;
            }
        }
        self.send_again(|_| false);
        self.registered = false;
        self.confirmed = 0;
    }

    fn push(&mut self, pending: Pending) -> u64 {
        let sequence = self.next;
        self.next += 1;
        self.pending.insert(sequence, pending);
        self.unsent.push_back(sequence);
        sequence
    }

    fn remove(&mut self, sequence: u64) -> Option<Pending> {
        let pending = self.pending.remove(&sequence)?;
        if pending.sent.is_some() {
            self.under_way -= pending.question.len();
        } else if let Ok(at) = self.unsent.binary_search(&sequence) {
            self.unsent.remove(at);
        }
        Some(pending)
    }

    /// The next message, if there is something to send now; else when to look again.
    fn next_message(&mut self, own: &Membership, now: Instant) -> Result<QuestionMessage, Option<Instant>> {
        let Some(term) = self.term.filter(|_| self.listening && !self.left) else { return Err(None) };
        let chosen = self.choose(now);
        let wants = chosen.wants;
        let asks_for_room = wants > 0 && self.asked_for_room.is_none_or(|at| at + ASK_FOR_ROOM <= now);
        let confirms = self.received.bytes >= self.confirmed + CONFIRMED_EVERY;
        if chosen.sequences.is_empty() && !asks_for_room && !confirms && self.registered {
            return Err(if self.unsent.is_empty() { self.again_at } else { Some(now + ASK_FOR_ROOM) });
        }
        if wants > 0 {
            self.asked_for_room = Some(now);
        }
        Ok(self.message(own, term, chosen))
    }

    fn message(&mut self, own: &Membership, term: TermId, chosen: Chosen) -> QuestionMessage {
        let Chosen { sequences, new, wants } = chosen;
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
        QuestionMessage { term, bytes, sequences, new }
    }
}

/// A message ready to be published.
pub(super) struct QuestionMessage {
    pub(super) term: TermId,
    pub(super) bytes: Vec<u8>,
    sequences: Vec<u64>,
    /// See [`Chosen`].
    new: Vec<u64>,
}

impl Asking {
    pub(super) fn new() -> Self {
        let state = AskingState {
            next: 1,
            pending: BTreeMap::new(),
            unsent: VecDeque::new(),
            under_way: 0,
            again_at: None,
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
        let in_doubt = |_: &u64, pending: &mut Pending| !pending.repeatable && pending.may_have_arrived;
        for (_, pending) in state.pending.extract_if(.., in_doubt) {
            let cause =
                "the process that decides changed before it answered; this may have been counted".into();
            pending.deliver(Err(StoreError::Unconfirmed { cause }));
        }
        state.send_again(|_| true);
        drop(state);
        self.sendable.notify_one();
    }

    /// Sets whether answers can be received. Answers that came meanwhile are lost, so their questions are sent again.
    pub(super) fn listen(&self, listening: bool) {
        let mut state = self.lock();
        state.listening = listening;
        state.received.connection += u64::from(listening);
        state.send_again(|pending| pending.repeatable);
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

    /// The last message of this process, with which it leaves the fleet. It does not wait for room, nor for questions that
    /// came before.
    pub(super) fn leave(&self, own: &Membership) -> Option<QuestionMessage> {
        // Under one lock, so that nothing else sends it.
        let mut state = self.lock();
        let term = state.term.filter(|_| state.listening && !state.left);
        let leave = Question::Leave(eclusa_core::ProcessId(own.process.0));
        let sequences = vec![state.push(Pending::new(&leave, None))];
        state.left = true;
        Some(state.message(own, term?, Chosen { sequences, new: Vec::new(), wants: 0 }))
    }

    /// Sends a message again, to the next owner, because nobody listens to this one.
    pub(super) fn not_heard(&self, message: &QuestionMessage) {
        let mut state = self.lock();
        for sequence in &message.new {
            if let Some(pending) = state.pending.get_mut(sequence) {
                pending.may_have_arrived = false;
            }
        }
        state.take_back(&message.sequences);
    }

    /// Sends a message again, because it may not have arrived.
    pub(super) fn not_confirmed(&self, message: &QuestionMessage) {
        self.lock().take_back(&message.sequences);
    }
    /// Delivers answers. What was granted to a caller that is gone is released.
    pub(super) fn answered(self: &Arc<Self>, answers: &Answers<'_>) {
        let mut state = self.lock();
        state.window = answers.window;
        state.received.bytes = state.received.bytes.max(answers.sent);
        if answers.register {
            state.registered = false;
            state.send_again(|pending| !pending.held);
        }
        let of_pending = |(sequence, reply): &(u64, _)| Some((state.remove(*sequence)?, *reply));
        let answered: Vec<(Pending, &[u8])> = answers.items.iter().filter_map(of_pending).collect();
        drop(state);
        self.sendable.notify_one();
        for (pending, reply) in answered {
            let answer = match Reply::decode(reply) {
                Ok(Reply::Unread(cause)) => {
                    Err(unread(&format!("the owner cannot read the question: {cause}")))
                }
                answer => answer.map_err(|error| unread(&format!("the answer cannot be read: {error}"))),
            };
            if let Some(Ok(unheard)) = pending.deliver(answer)
                && let Some(question) = undo_question(&unheard)
            {
                self.post(&question);
            }
        }
    }

    /// Ends the questions that are with the owner: its answers cannot be read.
    pub(super) fn cannot_read(&self, error: &LayoutError) {
        let mut state = self.lock();
        let asked: Vec<_> = state.pending.extract_if(.., |_, pending| pending.sent.is_some()).collect();
        state.under_way = 0;
        drop(state);
        for (_, pending) in asked {
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
        Self { question: bytes.into(), read, repeatable, held, sent: None, may_have_arrived: false, answer }
    }

    /// When to send it again, if it is with the owner.
    fn again_at(&self) -> Option<Instant> {
        Some(self.sent? + if self.held { ASK_AGAIN_HELD } else { ASK_AGAIN })
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
        let state = self.asking.lock();
        let may_have_arrived =
            state.pending.get(&self.sequence).is_none_or(|pending| pending.may_have_arrived);
        match error {
            StoreError::Unavailable { cause } if may_have_arrived => StoreError::Unconfirmed { cause },
            error => error,
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let mut state = self.asking.lock();
        if let Some(pending) = state.pending.get_mut(&self.sequence) {
            // Nobody needs the answer to a read, so it is not asked for again.
            if !pending.may_have_arrived || pending.read {
                state.remove(self.sequence);
            } else {
                pending.answer = None;
            }
        }
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

/// The error for a question that the owner cannot read, or an answer that this process cannot read: the versions
/// differ.
fn unread(cause: &str) -> StoreError {
    StoreError::Stopped { cause: cause.into() }
}

#[cfg(test)]
mod tests;
