//! Answers other processes, as the owner: each question takes effect once, however often it arrives.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eclusa_core::layout::{
    Answers, LayoutError, Question, Questions, QuestionsHeader, Reply, SentRules, decode_spec,
};
use eclusa_core::{Engine, Spec, StoreError, Time};
use eclusa_fleet::{Outbox, Outgoing, ProcessId};
use tokio::time::Instant;

use crate::store::group::{AnswersByProcess, encode};
use crate::store::stage::Stage;
use crate::store::verbs::{apply, may_wait, undo_question};

/// The most bytes on the way to the owner: below what the server buffers for a slow subscriber (32 MB).
const ALL_WINDOWS: u64 = 16 << 20;
/// The half that is divided among all processes; the other half is lent to one process at a time.
const DIVIDED: u64 = ALL_WINDOWS / 2;
/// The most that one process gets of the divided half.
const LARGEST_SHARE: u64 = 1 << 20;

/// A process that asked nothing for this long is gone: each process asks every two seconds who is in the fleet.
const SILENT: Duration = Duration::from_mins(1);

/// What is known about the asking processes.
#[derive(Default)]
pub(super) struct Answering {
    state: Mutex<AskersState>,
}

#[derive(Default)]
struct AskersState {
    askers: BTreeMap<ProcessId, Asker>,
    /// The process that may send one long question.
    lent_to: Option<ProcessId>,
}

/// One asking process.
#[derive(Default)]
struct Asker {
    /// Sequences below this are finished.
    done_below: u64,
    /// Answers by sequence.
    answers: BTreeMap<u64, Remembered>,
    outbox: Outbox,
    /// Whether it gets a message even without answers: it has asked, so it learns its window and whether to register.
    has_asked: bool,
    /// Whether the last message came from a process whose rules are not known.
    unregistered: bool,
    /// Why its rules cannot be read: its questions are refused until it sends others.
    unread_rules: Option<String>,
    heard: Option<Instant>,
}

/// The state of a question.
#[derive(Default)]
struct Remembered {
    /// `None` while the question is held or its answer has not been sent.
    reply: Option<Arc<[u8]>>,
    /// [`Outbox::sent`] after it.
    sent: u64,
    /// How often the answer was sent.
    copies: u32,
}

/// A question that is held until something happens.
pub(super) struct HeldQuestion {
    pub(super) process: ProcessId,
    pub(super) sequence: u64,
    pub(super) question: Question,
}

impl Answering {
    fn lock(&self) -> MutexGuard<'_, AskersState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything: the answers of a lost tenure may not be in the journal.
    pub(super) fn forget(&self) {
        *self.lock() = AskersState::default();
    }

    /// Runs the questions of a message; returns those that may wait, to be held.
    pub(super) fn hear(&self, stage: &Stage, message: &[u8]) -> Result<Vec<HeldQuestion>, StoreError> {
        let questions = match Questions::decode(message) {
            Ok(questions) => questions,
            Err(error) => {
                self.refuse(stage, message, &error);
                return Ok(Vec::new());
            }
        };
        let process = ProcessId(questions.process);
        let mut held = Vec::new();
        let mut state = self.lock();
        state.forget_silent();
        state.lend(process, questions.wants);
        let asker = state.askers.entry(process).or_default();
        asker.heard = Some(Instant::now());
        asker.done_below = asker.done_below.max(questions.done_below);
        asker.answers = asker.answers.split_off(&asker.done_below);
        asker.outbox.received(questions.received);
        let spec = asker.read_rules(questions.registration.as_ref());
        let fresh: Vec<_> = questions
            .items
            .iter()
            .filter_map(|(sequence, bytes)| asker.fresh(stage, process, *sequence, bytes))
            .collect();
        // It has reported what it did on its own, so what it asks now may be granted.
        if !questions.in_fallback {
            stage.withheld.caught_up(process);
        }
        stage.run_for(process, message.len(), |engine, now| {
            let registered = register(engine, &questions, spec, now);
            // Rules that cannot be read are not requested again.
            asker.unregistered = !registered && asker.unread_rules.is_none();
            if asker.unregistered {
                return Vec::new();
            }
            let mut replies = Vec::new();
            for (sequence, question) in fresh {
                asker.answers.insert(sequence, Remembered::default());
                if may_wait(&question) {
                    held.push(HeldQuestion { process, sequence, question });
                } else {
                    replies.push((sequence, stage.withheld.apply(engine, question, now)));
                }
            }
            replies
        })?;
        Ok(held)
    }

    /// Refuses each question of a message that cannot be read.
    fn refuse(&self, stage: &Stage, message: &[u8], error: &LayoutError) {
        tracing::error!(%error, "Questions cannot be read");
        let Ok(header) = QuestionsHeader::decode(message) else { return };
        let process = ProcessId(header.process);
        self.lock().askers.entry(process).or_default().heard = Some(Instant::now());
        let refusal = encode(&Reply::Unread(error.to_string()));
        for sequence in header.sequences {
            stage.answer_again(process, sequence, refusal.clone());
        }
    }

    /// Sends the answer to a held question.
    pub(super) fn answer(
        &self,
        stage: &Stage,
        held: (ProcessId, u64),
        reply: Reply,
    ) -> Result<(), StoreError> {
        let (process, sequence) = held;
        let waits = |asker: &Asker| asker.answers.contains_key(&sequence);
        if !self.lock().askers.get(&process).is_some_and(waits) {
            // The question was withdrawn, or the process is gone.
            if let Some(question) = undo_question(&reply) {
                stage.run(|engine, now| apply(engine, question, now))?;
            }
            return Ok(());
        }
        stage.run_for(process, 0, |_, _| vec![(sequence, reply)])
    }

    /// The messages to be sent now, one per process at most: these answers and earlier ones, as far as there is room.
    /// Answers are kept until the asker is done with them.
    pub(super) fn address(&self, answers: AnswersByProcess) -> Vec<Outgoing> {
        let mut state = self.lock();
        let share = state.share();
        let lent_to = state.lent_to;
        let mut outgoing = Vec::new();
        for (process, replies) in answers {
            state.askers.entry(process).or_default().queue(replies);
        }
        for (process, asker) in &mut state.askers {
            if !asker.has_message() {
                continue;
            }
            let window = if lent_to == Some(*process) { share + DIVIDED } else { share };
            let message = asker.message(window);
            outgoing.push(Outgoing { to: *process, message, sent: asker.outbox.sent() });
        }
        outgoing
    }

    /// Notes that these messages are being published.
    pub(super) fn published(&self, outgoing: &[Outgoing]) {
        let mut state = self.lock();
        for one in outgoing {
            if let Some(asker) = state.askers.get_mut(&one.to) {
                asker.outbox.published(one.sent);
            }
        }
    }

    /// Whether there are messages to be sent besides new answers.
    pub(super) fn has_messages(&self) -> bool {
        self.lock().askers.values().any(Asker::has_message)
    }

    /// Releases what these answers granted, because nobody received them, unless another copy of the answer is on its
    /// way.
    pub(super) fn unheard(&self, stage: &Stage, outgoing: &[Outgoing]) -> Result<(), StoreError> {
        let mut undo = Vec::new();
        for Outgoing { to, message, .. } in outgoing {
            let Ok(answers) = Answers::decode(message) else { continue };
            let mut state = self.lock();
            let Some(asker) = state.askers.get_mut(to) else { continue };
            asker.outbox.unheard();
            for (sequence, reply) in &answers.items {
                if asker.answers.get(sequence).is_none_or(|remembered| remembered.copies > 1) {
                    continue;
                }
                if let Some(question) = Reply::decode(reply).ok().as_ref().and_then(undo_question) {
                    // If it is asked again, it is decided again.
                    asker.answers.remove(sequence);
                    undo.push(question);
                }
            }
        }
        if undo.is_empty() {
            return Ok(());
        }
        let undone = stage.run(|engine, now| {
            for question in undo {
                apply(engine, question, now);
            }
        });
        undone.map(drop)
    }
}

impl AskersState {
    /// Forgets processes that are gone.
    fn forget_silent(&mut self) {
        let silent = |asker: &Asker| asker.heard.is_some_and(|heard| heard.elapsed() > SILENT);
        self.askers.retain(|_, asker| !silent(asker));
        if self.lent_to.is_some_and(|process| !self.askers.contains_key(&process)) {
            self.lent_to = None;
        }
    }

    /// The bytes that each process may have on the way.
    fn share(&self) -> u64 {
        (DIVIDED / (self.askers.len().max(1) as u64)).min(LARGEST_SHARE)
    }

    /// Lends the other half to one process that needs it, until it asks without needing it.
    fn lend(&mut self, process: ProcessId, wants: u64) {
        if wants == 0 {
            if self.lent_to == Some(process) {
                self.lent_to = None;
            }
        } else if self.lent_to.is_none_or(|other| !self.askers.contains_key(&other)) {
            self.lent_to = Some(process);
        }
    }
}

impl Asker {
    /// Queues answers. One for which there is no room is forgotten: its question is asked and decided again.
    fn queue(&mut self, replies: Vec<(u64, Arc<[u8]>)>) {
        self.has_asked = true;
        for (sequence, reply) in replies {
            if !self.outbox.queue(sequence, reply) {
                self.answers.remove(&sequence);
            }
        }
    }

    fn has_message(&self) -> bool {
        self.has_asked || self.outbox.is_ready()
    }

    /// The next message to it.
    fn message(&mut self, window: u64) -> Arc<[u8]> {
        self.has_asked = false;
        let replies = self.outbox.next_message();
        for (sequence, reply) in &replies {
            if let Some(remembered) = self.answers.get_mut(sequence) {
                remembered.reply = Some(reply.clone());
                remembered.sent = self.outbox.sent();
                remembered.copies += 1;
            }
        }
        let items = replies.iter().map(|(sequence, reply)| (*sequence, &**reply)).collect();
        Answers { window, sent: self.outbox.sent(), register: self.unregistered, items }.encode().into()
    }

    /// The rules that a message brings, if they can be read.
    fn read_rules(&mut self, sent: Option<&SentRules<'_>>) -> Option<Spec> {
        let read = decode_spec(sent?.spec);
        self.unread_rules = read.as_ref().err().map(|error| format!("the rules of this process: {error}"));
        read.ok()
    }

    /// The question, if it is new. One that was answered is answered again; one that cannot be read is refused.
    fn fresh(
        &self,
        stage: &Stage,
        process: ProcessId,
        sequence: u64,
        bytes: &[u8],
    ) -> Option<(u64, Question)> {
        if sequence < self.done_below {
            return None;
        }
        match self.answers.get(&sequence) {
            Some(Remembered { reply: Some(reply), sent, .. }) if !self.outbox.is_under_way(*sent) => {
                stage.answer_again(process, sequence, reply.clone());
                None
            }
            Some(_) => None,
            None => {
                let cause = match (&self.unread_rules, Question::decode(bytes)) {
                    (None, Ok(question)) => return Some((sequence, question)),
                    (None, Err(error)) => error.to_string(),
                    (Some(cause), _) => cause.clone(),
                };
                tracing::error!(error = cause, "A question cannot be read");
                stage.answer_again(process, sequence, encode(&Reply::Unread(cause)));
                None
            }
        }
    }
}

/// Registers the rules of a process; returns whether they are known.
fn register(engine: &mut Engine, questions: &Questions<'_>, spec: Option<Spec>, now: Time) -> bool {
    let process = eclusa_core::ProcessId(questions.process);
    if let (Some(sent), Some(spec)) = (&questions.registration, spec) {
        let (stamp, about, spec) = (questions.stamp, sent.about.into(), spec.into());
        engine.register(eclusa_core::Registration { process, stamp, about, spec }, now);
    }
    engine.heard_from(process, now)
}
