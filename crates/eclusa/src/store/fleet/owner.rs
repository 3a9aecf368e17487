//! The thread that owns the basin, or may own it: it runs the commands of the ownership protocol, one after the other.
//! What a change of ownership means is in `tenure`, what an outage means in `outage`.
//!
//! It is a dedicated thread, so that a program that blocks its async runtime does not hold up the fleet.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use eclusa_core::Time;
use eclusa_fleet::{
    Command, Ownership, Position, ProcessId, Reply, Step, TakeReason, TermId, Unanswered, Wanted,
};
use redis::{ErrorKind, RedisError};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::loader::{LoadError, Loader};
use super::shared::{Route, Shared, unavailable};
use super::subscriber::Listen;
use super::work::Work;
use crate::store::journal::redis::RedisJournal;
use crate::store::stage::Stage;

/// How long a subscription may take before the command is tried again.
const LISTEN: Duration = Duration::from_secs(1);

/// After this many failed reads in a row the journal counts as damaged.
const MAX_UNREADABLE: u32 = 5;

/// How often the server's memory is checked.
const LOOK_AT_MEMORY: Duration = Duration::from_millis(500);

/// How long claims live after the last renewal.
const CLAIMS_MS: u64 = 10_000;

/// See the module.
pub(super) struct OwnerThread {
    pub(super) machine: Ownership,
    pub(super) journal: RedisJournal,
    pub(super) shared: Arc<Shared>,
    pub(super) wishes: UnboundedSender<Listen>,
    pub(super) started: Instant,
    pub(super) work: Work,
    /// The state of a lost tenure, until it is known whether the journal has all of it.
    pub(super) lost: Option<Arc<Stage>>,
    pub(super) loading: Option<Loader>,
    /// Whether there was no owner for a while before this process took over.
    pub(super) unplanned: bool,
    /// Failed reads of the journal in a row.
    pub(super) unreadable: u32,
    /// Whether this process has announced that it will stop soon.
    pub(super) leaving: bool,
    /// When the process began to stop.
    pub(super) stopping: Option<Instant>,
    /// The process that will own then.
    pub(super) successor: Option<ProcessId>,
    /// Whether the last command was not answered.
    pub(super) unanswered: bool,
    /// The owner's beat when it was last read.
    beat: Option<(TermId, u64)>,
    /// Whether nothing replied for so long that processes decide on their own.
    pub(super) cut: bool,
    /// When the last such outage ended.
    pub(super) back_at: Option<Instant>,
    /// When to check the server's memory again.
    pub(super) memory_at: Instant,
}

impl OwnerThread {
    pub(super) fn new(
        machine: Ownership,
        journal: RedisJournal,
        shared: Arc<Shared>,
        wishes: UnboundedSender<Listen>,
    ) -> Self {
        let (work, started) = (Work::default(), Instant::now());
        Self {
            machine,
            journal,
            shared,
            wishes,
            started,
            work,
            lost: None,
            loading: None,
            unplanned: false,
            unreadable: 0,
            leaving: false,
            stopping: None,
            successor: None,
            unanswered: false,
            beat: None,
            cut: false,
            back_at: None,
            memory_at: started,
        }
    }

    /// Takes part in the fleet until the process stops.
    pub(super) fn run(mut self) {
        while !self.machine.is_stopped() && !self.stop_times_out() {
            if self.shared.look_soon.swap(false, Ordering::Relaxed) {
                self.machine.look_soon(self.now());
            }
            if self.shared.stopping.load(Ordering::Relaxed) && self.stopping.is_none() {
                self.stop();
            }
            if self.shared.leaving.load(Ordering::Relaxed) && !self.leaving {
                self.leave();
            }
            self.choose_successor();
            if let Some((_, epoch)) = self.machine.holds() {
                self.work.epoch = epoch;
            }
            let now = self.now();
            let (work, journal, shared) = (&mut self.work, &mut self.journal, &self.shared);
            let step = self.machine.next(now, &mut |wanted| match wanted {
                Wanted::Changes { number } => work.changes(number, journal, shared),
                Wanted::Snapshot { number, first } => work.snapshot(number, first, journal, shared),
            });
            self.react();
            if !matches!(step, Step::Send(Command::Append(_))) {
                self.work.answer_callers();
            }
            match step {
                Step::Send(command) => {
                    let reply = self.execute(command);
                    self.machine.reply(self.now(), reply);
                    self.react();
                }
                Step::Idle(_) if self.machine.is_stopped() => {}
                Step::Idle(until) => {
                    let wait = Duration::from_millis(until.since(self.now()).as_millis());
                    self.shared.doorbell.sleep(wait.min(Duration::from_secs(1)));
                }
            }
        }
        self.give_up(&unavailable("this process has stopped"));
        self.shared.set_route(Route::Nobody);
    }

    /// The time on this thread's monotonic clock.
    pub(super) fn now(&self) -> Time {
        Time::default() + self.started.elapsed().into()
    }

    fn execute(&mut self, command: Command) -> Result<Reply, Unanswered> {
        let executed = self.try_execute(command);
        self.unanswered = executed.is_err();
        self.note_reply(&executed);
        self.note_outage();
        match executed {
            Ok(reply) => {
                if self.unreadable < MAX_UNREADABLE {
                    self.shared.refuse(None);
                }
                if let Reply::Confirmed(confirmed) = reply {
                    self.shared.replicated(confirmed);
                }
                self.look_at_memory();
                Ok(reply)
            }
            Err(CommandError::Redis(error)) => {
                tracing::debug!(%error, "Redis did not execute a command");
                // The server can be reached, but may not be used: the detail says why.
                let refused = error.detail().filter(|_| error.kind() == ErrorKind::InvalidClientConfig);
                let refused = refused.map(|why| format!("this Redis server cannot be used: {why}"));
                self.shared.refuse(refused.as_deref());
                Err(Unanswered)
            }
            Err(CommandError::NotListening) => Err(Unanswered),
        }
    }

    /// Notes whether the server replies and whether it executes commands. Reads alone do not show that it accepts
    /// writes again; a write does, of this process or of the owner.
    fn note_reply(&mut self, executed: &Result<Reply, CommandError>) {
        match executed {
            // The server was not asked.
            Ok(Reply::Built(_)) | Err(CommandError::NotListening) => {}
            Ok(reply) => {
                self.shared.heard();
                if self.shows_writes(reply) {
                    self.shared.set_refusing(false);
                    self.shared.note_trouble(None);
                }
            }
            Err(CommandError::Redis(error)) => {
                if matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) {
                    self.shared.heard();
                    self.shared.set_refusing(true);
                }
                self.shared.note_trouble(Some(&error.to_string()));
            }
        }
    }

    /// Whether a reply shows that the server accepts writes.
    fn shows_writes(&mut self, reply: &Reply) -> bool {
        match reply {
            Reply::Looked(look) => {
                let beat = look.term.as_ref().map(|view| (view.term, view.beat));
                std::mem::replace(&mut self.beat, beat) != beat
            }
            Reply::Listening | Reply::Read { .. } | Reply::Tail(_) => false,
            _ => true,
        }
    }

    /// Stops intake before the server runs out of memory, so that existing jobs can still end.
    fn look_at_memory(&mut self) {
        if Instant::now() < self.memory_at {
            return;
        }
        self.memory_at = Instant::now() + LOOK_AT_MEMORY;
        if let Ok(full) = self.journal.is_full() {
            self.shared.set_full(
                full.then_some(
                    "Redis has used 90 % of its `maxmemory`: no job is accepted until there is room",
                ),
            );
        }
    }

    fn try_execute(&mut self, command: Command) -> Result<Reply, CommandError> {
        Ok(match command {
            Command::Look => {
                let looked = self.journal.look()?;
                self.shared.server_clock.hear(looked.time);
                Reply::Looked(looked.look)
            }
            Command::Listen(term) => {
                let (done, subscribed) = std::sync::mpsc::channel();
                let _ = self.wishes.send(Listen::To(term, done));
                subscribed.recv_timeout(LISTEN).map_err(|_| CommandError::NotListening)?;
                Reply::Listening
            }
            Command::Take(take) => {
                self.unplanned = !matches!(take.reason, TakeReason::Released | TakeReason::First);
                self.journal.take(&take)?
            }
            Command::Read { after } => self.read(after)?,
            Command::Build { epoch } => match self.build(epoch) {
                Ok(built) => Reply::Built(built),
                Err(error) => self.read_again(&error),
            },
            Command::Tail => Reply::Tail(self.journal.tail()?),
            Command::Append(append) => {
                self.shared.answering.published(&append.answers);
                let public = std::mem::take(&mut self.work.public);
                let reply = self.journal.append(&append, &public, || self.work.answer_callers());
                if !matches!(reply, Ok(Reply::Appended { .. })) {
                    self.work.public = public;
                }
                reply?
            }
            Command::Confirm => self.journal.confirm()?,
            Command::Claim(claim) => self.journal.claim(claim, CLAIMS_MS)?,
            Command::Name { term, successor } => self.journal.name(term, successor)?,
            Command::Release { term, successor } => self.journal.release(term, successor)?,
        })
    }

    fn read(&mut self, after: Position) -> Result<Reply, RedisError> {
        if after == Position::default() {
            self.journal.forget();
            self.loading = None;
        }
        match self.loader().and_then(Loader::has_room) {
            Ok(true) => {}
            Ok(false) => return Ok(Reply::Read { last: after, end: false }),
            Err(error) => return Ok(self.read_again(&error)),
        }
        let page = self.journal.page(after)?;
        let (last, end) = (page.last().map_or(after, |(position, _)| *position), page.is_empty());
        match self.loader().and_then(|loader| loader.apply(page)) {
            Ok(()) => Ok(Reply::Read { last, end }),
            Err(error) => Ok(self.read_again(&error)),
        }
    }

    fn build(&mut self, epoch: Option<u64>) -> Result<bool, LoadError> {
        let loader = self.loader()?;
        if let Some(epoch) = epoch { loader.finish(epoch) } else { loader.build() }
    }

    fn loader(&mut self) -> Result<&mut Loader, LoadError> {
        Ok(match &mut self.loading {
            Some(loader) => loader,
            none => none.insert(Loader::start()?),
        })
    }

    /// Discards what was read and starts over. If this process reads ahead, the owner may have cleaned the journal
    /// between two pages; a journal that no other process appends to and that still cannot be read is damaged.
    fn read_again(&mut self, error: &LoadError) -> Reply {
        self.loading = None;
        if self.machine.holds().is_some() {
            tracing::error!(%error, "The journal on Redis cannot be read");
            self.unreadable += 1;
        }
        if self.unreadable >= MAX_UNREADABLE {
            self.shared.refuse(Some(&format!("the journal on Redis cannot be read: {error}")));
        }
        Reply::Read { last: Position::default(), end: true }
    }
}

/// Why a command has no reply.
enum CommandError {
    Redis(RedisError),
    NotListening,
}

impl From<RedisError> for CommandError {
    fn from(error: RedisError) -> Self {
        CommandError::Redis(error)
    }
}
