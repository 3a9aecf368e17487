//! The thread that owns the basin, or would: it does what the ownership protocol says, one command after the other.
//!
//! It is a thread of its own, so that a program that blocks its async runtime does not hold up the fleet.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use eclusa_core::layout::Question;
use eclusa_core::{Clock, Engine, RegistrationView, Span, StoreError, Time};
use eclusa_fleet::{
    Command, Event, Outgoing, Ownership, Position, ProcessId, Reply, Step, TakeReason, TermView, Unanswered,
    Wanted,
};
use redis::{ErrorKind, RedisError};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::loader::{LoadError, Loader};
use super::shared::{OwnerView, Route, Shared, unavailable};
use super::subscriber::Listen;
use super::work::Work;
use crate::store::journal::redis::RedisJournal;
use crate::store::stage::{Stage, tell};
use crate::store::verbs::apply;

/// How long a subscription may take before the command is tried again.
const LISTEN: Duration = Duration::from_secs(1);

/// Leases last at least so much longer after nobody decided for a while: nobody could prolong them meanwhile.
const GRACE: Span = Span::from_secs(4);

/// A journal that cannot be read so often in a row is damaged.
const MAX_UNREADABLE: u32 = 5;

/// How often the server's memory is looked at.
const LOOK_AT_MEMORY: Duration = Duration::from_millis(500);

/// How much earlier than callers the owner begins to count an outage.
const SLACK: Duration = Duration::from_millis(100);

/// An outage counts until then for whoever becomes the owner after it.
const OUTAGE_REMEMBERED: Duration = Duration::from_secs(10);

/// How long claims live after they were last renewed.
const CLAIMS_MS: u64 = 10_000;

/// See the module.
pub(super) struct Owner {
    machine: Ownership,
    journal: RedisJournal,
    shared: Arc<Shared>,
    wishes: UnboundedSender<Listen>,
    started: Instant,
    work: Work,
    /// The state of a tenure that was lost, until it is known whether the journal has all of it.
    lost: Option<Arc<Stage>>,
    loading: Option<Loader>,
    /// Whether nobody decided for a while before this process took over.
    unplanned: bool,
    /// How often in a row the journal could not be read.
    unreadable: u32,
    /// Since when the process stops.
    stopping: Option<Instant>,
    /// Whether the last command was not answered.
    unanswered: bool,
    /// Whether nothing replied for so long that processes decide by themselves.
    cut: bool,
    /// When that was last over.
    back_at: Option<Instant>,
    /// When to look at the server's memory again.
    memory_at: Instant,
}

impl Owner {
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
            stopping: None,
            unanswered: false,
            cut: false,
            back_at: None,
            memory_at: started,
        }
    }

    /// Takes part in the fleet until the process stops.
    pub(super) fn run(mut self) {
        while !self.machine.is_stopped() && !self.stops_in_vain() {
            if self.shared.look_soon.swap(false, Ordering::Relaxed) {
                self.machine.look_soon(self.now());
            }
            if self.shared.stopping.load(Ordering::Relaxed) && self.stopping.is_none() {
                self.stop();
            }
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

    /// Whether there is no server to stop in order with: the others find out by this process's silence.
    fn stops_in_vain(&self) -> bool {
        self.unanswered && self.stopping.is_some_and(|since| since.elapsed() > self.shared.timeout)
    }

    /// Leaves the fleet in order: the others no longer count this process, and one of them may decide at once.
    fn stop(&mut self) {
        self.stopping = Some(Instant::now());
        let own = self.shared.membership.process;
        let leave = Question::Leave(eclusa_core::ProcessId(own.0));
        let mut successor = None;
        if let Some(stage) = &self.work.stage {
            let others =
                stage.look(|engine| engine.registrations().map(|one| one.process.0).collect::<Vec<_>>());
            successor = others.into_iter().map(ProcessId).find(|other| *other != own);
            // A stage that has stopped has nobody to leave.
            let _ = stage.run(|engine, now| apply(engine, leave, now));
        } else {
            self.shared.asking.tell(&leave);
            if let Ok(message) = self.shared.asking.next_message(&self.shared.membership, Instant::now()) {
                let channel = self.shared.keys.questions(message.term);
                // Without it the others find out by its silence.
                let _ = self.journal.publish(&channel, &message.bytes);
            }
        }
        self.machine.stop(successor);
    }

    /// Time on this thread's monotonic clock.
    fn now(&self) -> Time {
        Time::default() + self.started.elapsed().into()
    }

    fn execute(&mut self, command: Command) -> Result<Reply, Unanswered> {
        let executed = self.try_execute(command);
        self.unanswered = executed.is_err();
        self.note_outage();
        match executed {
            Ok(reply) => {
                self.shared.heard();
                self.shared.refuse(None);
                self.shared.note_trouble(None);
                if let Reply::Confirmed(confirmed) = reply {
                    self.shared.replicated(confirmed);
                }
                self.look_at_memory();
                Ok(reply)
            }
            Err(Failed::Redis(error)) => {
                tracing::debug!(%error, "Redis did not do what it was asked");
                self.shared.note_trouble(Some(&error.to_string()));
                let refused = error.kind() == ErrorKind::InvalidClientConfig;
                self.shared.refuse(refused.then(|| error.to_string()).as_deref());
                Err(Unanswered)
            }
            Err(Failed::Journal(error)) => {
                // Another process may have cleaned the journal meanwhile: it is read again from the beginning.
                tracing::error!(%error, "The journal on Redis cannot be read");
                self.unreadable += 1;
                if self.unreadable >= MAX_UNREADABLE {
                    self.shared.refuse(Some(&format!("the journal on Redis cannot be read: {error}")));
                }
                Err(Unanswered)
            }
            Err(Failed::NotListening) => Err(Unanswered),
        }
    }

    /// After a silence in which processes decided by themselves, nothing is granted until they are back.
    fn note_outage(&mut self) {
        if self.unanswered {
            // This thread may learn of it a little before the callers that wait.
            if self.shared.silence() + SLACK > self.shared.timeout {
                self.cut = true;
                if let Some(stage) = &self.work.stage {
                    stage.withheld.cut();
                }
                self.spare_leases();
            }
        } else if std::mem::take(&mut self.cut) {
            self.spare_leases();
            self.back_at = Some(Instant::now());
            if self.machine.owns() {
                self.gather();
            }
        }
    }

    /// No worker could prolong its leases during an outage: none of them ends because of it.
    fn spare_leases(&self) {
        if let Some(stage) = &self.work.stage {
            // A stage that has stopped gives no leases.
            let _ = stage.run(|engine, now| engine.spare_leases(now + GRACE, now));
        }
    }

    /// Withholds grants until the other processes have caught up, if there was an outage just now.
    fn gather(&mut self) {
        let Some(stage) = &self.work.stage else { return };
        let just_back = self.back_at.take().is_some_and(|at| at.elapsed() < OUTAGE_REMEMBERED);
        if !just_back && !stage.withheld.is_cut() {
            return;
        }
        let own = &self.shared.membership;
        let shares = |one: &RegistrationView| !one.about.starts_with("worker");
        let mut waited_for: BTreeSet<_> = stage.look(|engine| {
            engine.registrations().filter(shares).map(|one| ProcessId(one.process.0)).collect()
        });
        if !own.is_alone() {
            waited_for.remove(&own.process);
        }
        stage.withheld.wait_for(waited_for);
    }

    /// Stops intake before the server has no memory left: what is there must be able to end.
    fn look_at_memory(&mut self) {
        if Instant::now() < self.memory_at {
            return;
        }
        self.memory_at = Instant::now() + LOOK_AT_MEMORY;
        if let Ok(full) = self.journal.is_full() {
            self.shared.fill(full.then_some(
                "Redis has used 90 % of its `maxmemory`: nothing is taken in until there is room",
            ));
        }
    }

    fn try_execute(&mut self, command: Command) -> Result<Reply, Failed> {
        Ok(match command {
            Command::Look => {
                let looked = self.journal.look()?;
                self.shared.server_clock.hear(looked.time);
                Reply::Looked(looked.look)
            }
            Command::Listen(term) => {
                let (done, told) = std::sync::mpsc::channel();
                let _ = self.wishes.send(Listen::To(term, done));
                told.recv_timeout(LISTEN).map_err(|_| Failed::NotListening)?;
                Reply::Listening
            }
            Command::Take(take) => {
                self.unplanned = !matches!(take.reason, TakeReason::Released | TakeReason::First);
                self.journal.take(&take)?
            }
            Command::Read { after } => self.read(after)?,
            Command::Tail => Reply::Tail(self.journal.tail()?),
            Command::Append(append) => {
                let reply = self.journal.append(&append, &self.work.public)?;
                if matches!(reply, Reply::Appended { .. }) {
                    self.work.public.clear();
                }
                reply
            }
            Command::Confirm => self.journal.confirm()?,
            Command::Claim(claim) => self.journal.claim(claim, CLAIMS_MS)?,
            Command::Release { term, successor } => self.journal.release(term, successor)?,
        })
    }

    fn read(&mut self, after: Position) -> Result<Reply, Failed> {
        if after == Position::default() {
            self.journal.forget();
            self.loading = Some(Loader::default());
        }
        let page = self.journal.page(after)?;
        let loader = self.loading.get_or_insert_default();
        for (position, chunk) in &page {
            loader.apply(*position, chunk)?;
        }
        let last = page.last().map_or(after, |(position, _)| *position);
        Ok(Reply::Read { last, end: page.is_empty() })
    }

    fn react(&mut self) {
        for event in self.machine.events() {
            match event {
                Event::Loading { epoch } => {
                    self.give_up(&unavailable("the journal is read anew"));
                    self.work = Work::new(epoch, self.work.handed);
                    self.loading = Some(Loader::default());
                }
                Event::Owns { term, epoch } => self.own(term, epoch),
                Event::Durable { batches } => self.work.durable(batches),
                Event::Unheard(answers) => self.unheard(&answers),
                Event::Deaf => drop(self.wishes.send(Listen::Anew)),
                Event::InDoubt => self.shared.set_route(Route::Nobody),
                Event::Lost => self.lose(),
                Event::Superseded { missing } => self.superseded(missing),
                Event::Follows(view) => self.follow(&view),
                Event::Released => tracing::info!("Another process may decide now"),
            }
        }
    }

    fn own(&mut self, term: eclusa_fleet::TermId, epoch: u64) {
        if let Some(loader) = self.loading.take() {
            match loader.finish(epoch) {
                Ok(engine) => self.work.stage = Some(Arc::new(self.stage(engine))),
                Err(error) => {
                    tracing::error!(%error, "The journal on Redis cannot be used");
                    self.shared.refuse(Some(&error.to_string()));
                    return;
                }
            }
        }
        self.work.epoch = epoch;
        self.unreadable = 0;
        let Some(stage) = &self.work.stage else { return };
        let rules = self.shared.membership.rules();
        let process = self.shared.membership.process;
        let unplanned = std::mem::take(&mut self.unplanned);
        // What cannot run here any more is told to whoever asks next.
        let _ = stage.run(|engine, now| {
            engine.set_epoch(epoch);
            if unplanned {
                engine.spare_leases(now + GRACE, now);
            }
            engine.register(rules.registration(process), now);
        });
        let (stage, owner) = (stage.clone(), OwnerView { process, epoch, term });
        self.gather();
        self.shared.set_route(Route::Own(stage, owner));
        let _ = self.wishes.send(Listen::Owns);
        tracing::info!(epoch, "This process decides now");
    }

    fn stage(&self, engine: Engine) -> Stage {
        let shared = self.shared.clone();
        let clock: Arc<dyn Clock> = match &self.shared.clock {
            Some(clock) => clock.clone(),
            None => Arc::new(FleetClock(shared)),
        };
        let owner = eclusa_core::ProcessId(self.shared.membership.process.0);
        Stage::new(engine, clock, Some(self.shared.doorbell.clone()), Some(owner))
    }

    fn unheard(&self, answers: &[Outgoing]) {
        if let Some(stage) = &self.work.stage {
            let _ = self.shared.answering.unheard(stage, answers);
        }
    }

    fn follow(&self, view: &TermView) {
        let owner = OwnerView { process: view.owner, epoch: view.epoch, term: view.term };
        let known = matches!(self.shared.route(), Route::Ask(known) if known == owner);
        if !known && !view.released {
            self.shared.set_route(Route::Ask(owner));
        }
    }

    fn lose(&mut self) {
        tracing::warn!("Another process decides now");
        self.shared.set_route(Route::Nobody);
        self.lost = self.work.stage.clone();
        self.give_up(&unavailable("another process took over"));
        self.loading = None;
    }

    /// Nobody here is told that anything became durable.
    fn give_up(&mut self, error: &StoreError) {
        if let Some(stage) = self.work.stage.take() {
            stage.stop(error.clone());
        }
        for (_, durable) in self.work.groups.drain(..) {
            tell(&durable, Err(error.clone()));
        }
    }

    fn superseded(&mut self, missing: bool) {
        let Some(stage) = self.lost.take() else { return };
        if !missing {
            return;
        }
        tracing::error!(
            "Redis lost what this process had acknowledged; its waiting jobs are enqueued again by their ids"
        );
        let now = self.shared.server_clock.now();
        let jobs = stage.look(|engine| engine.waiting_jobs(now));
        for some in jobs.chunks(100) {
            self.shared.asking.tell(&Question::Enqueue(some.to_vec()));
        }
    }
}

/// Why a command was not answered.
enum Failed {
    Redis(RedisError),
    Journal(LoadError),
    NotListening,
}

impl From<RedisError> for Failed {
    fn from(error: RedisError) -> Self {
        Failed::Redis(error)
    }
}

impl From<LoadError> for Failed {
    fn from(error: LoadError) -> Self {
        Failed::Journal(error)
    }
}

/// The server's time as the engine reads it.
struct FleetClock(Arc<Shared>);

impl Clock for FleetClock {
    fn now(&self) -> Time {
        self.0.server_clock.now()
    }
}
