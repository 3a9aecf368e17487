//! The one place where verbs are applied: the engine, and its changes that are not durable yet.
//!
//! Verbs run one after the other. Their changes are saved as one group when the writer takes it. Answers, reads
//! included, leave when their group is durable, so a crash cannot take back anything that was answered.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use eclusa_core::gate::GateChange;
use eclusa_core::layout::Reply;
use eclusa_core::{Clock, Engine, Mentions, PublicChange, StoreError, Time};
use eclusa_fleet::ProcessId;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;
use tokio::time::Instant;

use super::doorbell::Doorbell;
use super::gate_log::{Decided, log_changes};
use super::group::{AnswersByProcess, Durable, Group, Ticket, encode, resolve};
use super::verbs::ends;
use super::wake::Wakes;
use super::withheld::Withheld;
use super::writer::Desk;

/// Bytes of payload that may be staged for a journal on disk.
const STAGED: u32 = 16 << 20;
/// The same for a journal on Redis, which blocks while it stores a chunk.
const STAGED_SHARED: u32 = 1 << 20;
/// The most bytes of payloads and questions in a chunk on Redis, unless a single question is longer.
const MAX_CHUNK: usize = 1 << 20;

/// How often a thread yields while another one uses the engine, before it sleeps.
const YIELDS: u32 = 200;

/// Callers that follow each other faster than this are likely to be ready at the same time and share a group.
const CROWD: Duration = Duration::from_micros(60);

/// See the module.
pub(super) struct Stage {
    state: Mutex<StageState>,
    clock: Arc<dyn Clock>,
    /// `None` if nothing is journaled.
    doorbell: Option<Arc<Doorbell>>,
    /// Lets a caller write its group itself, which saves waking the writer and being woken by it.
    desk: Option<Arc<Desk>>,
    /// The process that owns the journal, if it is shared. Answers must then be fenced, so they wait for the journal
    /// even if nothing changed.
    owner: Option<eclusa_core::ProcessId>,
    pub(super) wakes: Wakes,
    /// Bytes that may be staged but not yet durable: a journal that stalls slows down intake.
    room: Semaphore,
    pub(super) withheld: Withheld,
}

struct StageState {
    engine: Engine,
    /// The records of the group that are saved already; empty, or a chunk.
    records: Vec<u8>,
    /// What the saved records mention.
    mentions: Mentions,
    /// The group that is not handed to the writer yet, if anything waits for it.
    group: Option<Durable>,
    /// Groups that are complete and wait for the writer, because another question would have made them too long.
    complete: VecDeque<Group>,
    /// About how many bytes the group that is not complete adds to the journal.
    open_bytes: usize,
    /// Whether the open group must not be completed before the writer takes it.
    kept_open: bool,
    /// Whether the writer is writing a group.
    writing: bool,
    /// When the last caller came that waits for a group.
    last_came: Option<Instant>,
    /// Answers to other processes, encoded, by sequence.
    answers: AnswersByProcess,
    /// Gate changes to log once the group is durable.
    gates: Vec<GateChange>,
    stopped: Option<StoreError>,
}

impl Stage {
    /// A stage whose groups a writer takes when the bell rings. Without a bell nothing is journaled.
    pub(super) fn new(
        engine: Engine,
        clock: Arc<dyn Clock>,
        doorbell: Option<Arc<Doorbell>>,
        owner: Option<eclusa_core::ProcessId>,
    ) -> Self {
        let state = StageState {
            engine,
            records: Vec::new(),
            mentions: Mentions::default(),
            group: None,
            complete: VecDeque::new(),
            open_bytes: 0,
            kept_open: false,
            writing: false,
            last_came: None,
            answers: AnswersByProcess::new(),
            gates: Vec::new(),
            stopped: None,
        };
        let most = if owner.is_some() { STAGED_SHARED } else { STAGED };
        Self {
            state: Mutex::new(state),
            clock,
            doorbell,
            desk: None,
            owner,
            wakes: Wakes::default(),
            room: Semaphore::new(most as usize),
            withheld: Withheld::default(),
        }
    }

    /// Lets callers write their groups at `desk`.
    pub(super) fn at(self, desk: Arc<Desk>) -> Self {
        Self { desk: Some(desk), ..self }
    }

    /// Yields before it sleeps: the engine is never busy for long, and falling asleep and being woken takes longer.
    /// Stops the stage if a verb panicked: the engine is in an unknown state, which must not become durable.
    fn lock(&self) -> MutexGuard<'_, StageState> {
        for _ in 0..YIELDS {
            match self.state.try_lock() {
                Ok(state) => return state,
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
                Err(TryLockError::Poisoned(_)) => break,
            }
        }
        self.state.lock().unwrap_or_else(|poisoned: PoisonError<_>| {
            let mut state = poisoned.into_inner();
            let cause = "a rule failed unexpectedly; see the log".into();
            state.stopped.get_or_insert(StoreError::Stopped { cause });
            state
        })
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&Engine) -> T) -> T {
        look(&self.lock().engine)
    }

    /// Looks at the engine as it is now. Callers must not report what they see: it may not be durable yet.
    pub(super) fn peek<T>(&self, look: impl FnOnce(&Engine, Time) -> T) -> Result<T, StoreError> {
        let mut state = self.lock();
        if let Some(stopped) = &state.stopped {
            return Err(stopped.clone());
        }
        let now = state.engine.now(self.clock.now());
        Ok(look(&state.engine, now))
    }

    /// Waits until `bytes` more may be staged; they count until the permit is dropped. What is larger than the whole
    /// bound waits until nothing else is staged.
    pub(super) async fn room_for(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        if bytes == 0 || self.doorbell.is_none() {
            return None;
        }
        let most = if self.owner.is_some() { STAGED_SHARED } else { STAGED };
        let bytes = u32::try_from(bytes).unwrap_or(most).min(most);
        // Never closed.
        self.room.acquire_many(bytes).await.ok()
    }

    /// Changes the engine outside of the verbs, and waits until that is durable.
    pub(super) async fn change<T: Send>(
        &self,
        change: impl FnOnce(&mut Engine, Time) -> T + Send,
    ) -> Result<T, StoreError> {
        let (answer, ticket) = self.run(change)?;
        self.durable(ticket).await?;
        Ok(answer)
    }

    /// Runs a verb on the engine. The answer may leave once its group is durable, or at once if there is no ticket.
    pub(super) fn run<T>(
        &self,
        verb: impl FnOnce(&mut Engine, Time) -> T,
    ) -> Result<(T, Option<Ticket>), StoreError> {
        self.run_with(0, verb)
    }

    /// Runs a verb that adds about `bytes` to the journal.
    pub(super) fn run_with<T>(
        &self,
        bytes: usize,
        verb: impl FnOnce(&mut Engine, Time) -> T,
    ) -> Result<(T, Option<Ticket>), StoreError> {
        let mut state = self.lock();
        if self.owner.is_some() {
            state.make_room(bytes)?;
        }
        let answer = self.run_locked(&mut state, verb)?;
        let Some(doorbell) = &self.doorbell else {
            state.engine.forget_changes();
            let gates = std::mem::take(&mut state.gates);
            drop(state);
            log_changes(&gates, Decided::Here);
            return Ok((answer, None));
        };
        if self.owner.is_none() && !state.writing && state.group.is_none() && !state.engine.has_changes() {
            return Ok((answer, None));
        }
        let first = state.group.is_none();
        if first && !state.writing && self.desk.is_none() {
            // Most likely a group of one. Its changes are in the caches of this core, not of the writer's.
            state.save()?;
        }
        let group = state.group.get_or_insert_default().clone();
        let crowded = self.desk.is_some() && state.is_crowded();
        drop(state);
        let mut ticket = Ticket { group, wake: first.then(|| doorbell.clone()), crowded };
        if self.desk.is_none() {
            // The writer sleeps only while nothing waits, so only the first caller wakes it: that is a system call.
            ticket.wake_writer();
        }
        Ok((answer, Some(ticket)))
    }

    /// Runs a verb without waiting until it is durable; that happens soon.
    pub(super) fn post<T>(&self, verb: impl FnOnce(&mut Engine, Time) -> T) -> Result<T, StoreError> {
        let mut state = self.lock();
        let answer = self.run_locked(&mut state, verb)?;
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring_soon();
        } else {
            state.engine.forget_changes();
            let gates = std::mem::take(&mut state.gates);
            drop(state);
            log_changes(&gates, Decided::Here);
        }
        Ok(answer)
    }

    /// Waits until a group is durable.
    pub(super) async fn durable(&self, ticket: Option<Ticket>) -> Result<(), StoreError> {
        let Some(mut ticket) = ticket else { return Ok(()) };
        if ticket.wake.is_some()
            && let Some(desk) = &self.desk
        {
            if ticket.crowded {
                // Other callers that are ready join the group.
                yield_now().await;
            }
            if desk.write_now(self) {
                ticket.wake = None;
            } else {
                ticket.wake_writer();
            }
        }
        ticket.group.wait().await.clone()
    }

    fn run_locked<T>(
        &self,
        state: &mut StageState,
        verb: impl FnOnce(&mut Engine, Time) -> T,
    ) -> Result<T, StoreError> {
        if let Some(stopped) = &state.stopped {
            return Err(stopped.clone());
        }
        let now = state.engine.now(self.clock.now());
        if let Some(owner) = self.owner {
            state.engine.heard_from(owner, now);
        }
        let answer = verb(&mut state.engine, now);
        state.gates.append(&mut state.engine.take_gate_changes());
        self.wakes.wake_lanes(&state.engine.take_ready_lanes());
        self.wakes.notify_changed(&state.engine.take_changed_jobs());
        Ok(answer)
    }

    /// Runs verbs for another process, which add about `bytes` to the journal; their answers leave with the group.
    pub(super) fn run_for(
        &self,
        process: ProcessId,
        bytes: usize,
        verbs: impl FnOnce(&mut Engine, Time) -> Vec<(u64, Reply)>,
    ) -> Result<(), StoreError> {
        let mut state = self.lock();
        state.make_room(bytes)?;
        let replies = self.run_locked(&mut state, verbs)?;
        replies.iter().for_each(|(_, reply)| self.wakes.notify_ended(ends(reply)));
        let encoded = replies.into_iter().map(|(sequence, reply)| (sequence, encode(&reply)));
        state.answers.entry(process).or_default().extend(encoded);
        drop(state);
        self.ring();
        Ok(())
    }

    /// Sends an earlier answer again.
    pub(super) fn answer_again(&self, process: ProcessId, sequence: u64, reply: Arc<[u8]>) {
        self.lock().answers.entry(process).or_default().push((sequence, reply));
        self.ring();
    }

    fn ring(&self) {
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring();
        }
    }

    /// The group to write, if there is one. The writer must report when it is durable.
    pub(super) fn take_group(&self) -> Result<Option<Group>, StoreError> {
        let mut state = self.lock();
        if let Some(stopped) = &state.stopped {
            return Err(stopped.clone());
        }
        if state.complete.is_empty() {
            state.save()?;
            state.kept_open = false;
            if state.records.is_empty() && state.group.is_none() && state.answers.is_empty() {
                return Ok(None);
            }
            state.complete()?;
        }
        state.writing = true;
        Ok(state.complete.pop_front())
    }

    /// Ensures that everything that is marked as changed from now on is in the next group that the writer takes. Returns
    /// `false` if that is not possible, because the next group is complete.
    pub(super) fn keep_group_open(&self) -> bool {
        let mut state = self.lock();
        state.kept_open = state.complete.is_empty();
        state.kept_open
    }

    /// Notes that the writer is idle.
    pub(super) fn written(&self) {
        self.lock().writing = false;
    }

    /// The time that the engine is given.
    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// The engine's time.
    pub(super) fn engine_now(&self) -> Time {
        let mut state = self.lock();
        state.engine.now(self.clock.now())
    }

    /// Saves what changed since the last group; returns how many bytes the next group has so far.
    pub(super) fn save(&self) -> Result<u64, StoreError> {
        let mut state = self.lock();
        state.save()?;
        Ok(state.records.len() as u64)
    }

    /// Marks what an old chunk mentions and still exists as changed, so that the next group holds it. Returns about how
    /// many bytes that adds.
    pub(super) fn refresh(&self, mentions: &Mentions) -> u64 {
        self.lock().engine.refresh(mentions)
    }

    /// Has the next group hold a chunk even if nothing changes, so that those before it can be removed.
    pub(super) fn write_a_chunk(&self) {
        let mut state = self.lock();
        if state.records.is_empty() {
            state.records = Engine::begin_chunk();
        }
    }

    /// The public state of upstreams that changed since the last call, and the current time.
    pub(super) fn public_changes(&self) -> (Vec<PublicChange>, Time) {
        let mut state = self.lock();
        let now = state.engine.now(self.clock.now());
        (state.engine.drain_public_changes(now), now)
    }

    /// Stops the stage: nothing more runs here, and nothing that waits becomes durable.
    pub(super) fn stop(&self, error: StoreError) {
        let mut state = self.lock();
        let error = state.stop(error);
        let complete = std::mem::take(&mut state.complete);
        for group in complete.into_iter().map(|group| group.durable).chain(state.group.take()) {
            resolve(&group, Err(error.clone()));
        }
        self.wakes.stop();
    }
}

impl StageState {
    /// Adds the changes to the records of the group.
    fn save(&mut self) -> Result<(), StoreError> {
        if !self.engine.has_changes() {
            return Ok(());
        }
        if self.records.is_empty() {
            self.records = Engine::begin_chunk();
        }
        match self.engine.save_changes(&mut self.records) {
            Ok(mentions) => {
                self.mentions.append(mentions);
                Ok(())
            }
            Err(error) => Err(self.stop(StoreError::Stopped { cause: error.to_string().into() })),
        }
    }

    /// Completes the open group if `bytes` more would make its chunk too long.
    fn make_room(&mut self, bytes: usize) -> Result<(), StoreError> {
        if self.open_bytes > 0 && self.open_bytes + bytes > MAX_CHUNK && !self.kept_open {
            self.complete()?;
        }
        self.open_bytes += bytes;
        Ok(())
    }

    fn complete(&mut self) -> Result<(), StoreError> {
        self.save()?;
        let records = std::mem::take(&mut self.records);
        let mentions = std::mem::take(&mut self.mentions);
        let durable = self.group.take().unwrap_or_default();
        let (answers, gates) = (std::mem::take(&mut self.answers), std::mem::take(&mut self.gates));
        self.open_bytes = 0;
        self.complete.push_back(Group { records, mentions, durable, answers, gates });
        Ok(())
    }

    /// Notes that a caller came; returns whether it followed another closely.
    fn is_crowded(&mut self) -> bool {
        let now = Instant::now();
        self.last_came.replace(now).is_some_and(|last| now - last < CROWD)
    }

    fn stop(&mut self, error: StoreError) -> StoreError {
        self.stopped.get_or_insert(error).clone()
    }
}

#[cfg(test)]
mod tests;
