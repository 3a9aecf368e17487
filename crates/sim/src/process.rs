//! A process: the state machine, an engine behind it, the askers in front of it, and the driver that connects them with
//! the server. `driver` and `worker` handle replies and messages.

use std::collections::BTreeSet;

use eclusa_core::{Span, Time};
use eclusa_fleet::{Ack, Batch, Chunk, Command, Event, Ownership, ProcessId, Settings, Step, TermId, Wanted};

use crate::answer::Answers;
use crate::archive::Chain;
use crate::ask::{Asker, Verb};
use crate::bugs::Bug;
use crate::config::{TERM_MS, TIMEOUT_MS};
use crate::engine::LeaseId;
use crate::journal::Journal;
use crate::net::{ConnId, Ctx, Happening, Request, Response};
use crate::server::{Channel, Server};

/// A command that waits for its reply.
#[derive(Debug, Clone)]
pub(crate) struct PendingCommand {
    pub(crate) id: u64,
    pub(crate) sent_at: u64,
    pub(crate) command: Command,
}

/// The server's clock, read between two times of the process's own clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ServerTime {
    pub(crate) time: u64,
    pub(crate) sent_at: u64,
    pub(crate) received_at: u64,
}

impl ServerTime {
    /// The latest time it can show when the process's clock shows `now`.
    pub(crate) fn at_most(self, now: u64) -> u64 {
        self.time + (now - self.sent_at)
    }

    /// The earliest time it can show.
    pub(crate) fn at_least(self, now: u64) -> u64 {
        self.time + (now - self.received_at)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Process {
    /// Its id: place × 1000 + how often the place was filled.
    pub(crate) id: ProcessId,
    /// The state machine.
    pub(crate) machine: Ownership,
    /// Its engine, if it has one.
    pub(crate) journal: Option<Journal>,
    pub(crate) loading: bool,
    /// When its engine is built.
    pub(crate) built_at: Option<u64>,
    /// The term that it last owned.
    pub(crate) term: Option<TermId>,
    pub(crate) answers: Answers,
    /// Its askers.
    pub(crate) asker: Asker,
    pub(crate) call: Option<PendingCommand>,
    pub(crate) calls: u64,
    pub(crate) commands: Option<ConnId>,
    pub(crate) messages: Option<ConnId>,
    pub(crate) listening: Option<TermId>,
    clock: u64,
    /// When it started, by its own clock.
    pub(crate) stamp: u64,
    /// Engine time at a time of its clock.
    pub(crate) base: (u64, u64),
    /// The last received engine time, at a time of its clock.
    pub(crate) heard: Option<(u64, u64)>,
    pub(crate) server_time: ServerTime,
    /// The states of the batches that were handed out.
    pub(crate) batches: Vec<Chain>,
    /// It is paused until this time.
    pub(crate) paused_until: u64,
    pub(crate) started: BTreeSet<LeaseId>,
    pub(crate) format: u16,
    /// The state of the journal at the last reply, and that of its own last durable work. Only checkers read them.
    pub(crate) seen_journal: Chain,
    pub(crate) durable: Chain,
    /// It cannot reach the server until this time.
    pub(crate) cut_until: u64,
    /// It cannot be sent anything.
    pub(crate) deaf: bool,
    /// A planted bug: the chunk to send instead of the original.
    pub(crate) changed: Option<Chunk>,
    wake_at: u64,
}

impl Process {
    /// A process that has just started in a place, for the `count`th time.
    pub(crate) fn new(ctx: &mut Ctx, place: usize, count: u64) -> Self {
        let id = ProcessId(place as u64 * 1_000 + count);
        let cfg = &ctx.net.cfg;
        let last = place + 1 == cfg.processes;
        let patience = if last && cfg.patient { Span::from_millis(500) } else { Span::ZERO };
        let format = if last && cfg.old_format { 1 } else { 2 };
        let ack = match cfg.ack {
            Ack::Fsync if ctx.net.has(Bug::AnswersBeforeSync) => Ack::Write,
            Ack::Replicate if ctx.net.has(Bug::AnswersBeforeReplication) => Ack::Write,
            ack => ack,
        };
        let term = Span::from_millis(TERM_MS);
        let seed = u128::from(ctx.net.rng.u64(..)) << 64 | u128::from(id.0);
        let settings = Settings { process: id, term, patience, format, ack, seed };
        let clock = ctx.net.rng.u64(0..1_000_000);
        let mut process = Self {
            id,
            machine: Ownership::new(settings),
            journal: None,
            loading: false,
            built_at: None,
            term: None,
            answers: Answers::default(),
            asker: Asker::new(id),
            call: None,
            calls: 0,
            commands: None,
            messages: None,
            listening: None,
            clock,
            stamp: ctx.net.now,
            base: (0, 0),
            heard: None,
            server_time: ServerTime::default(),
            batches: Vec::new(),
            paused_until: 0,
            started: BTreeSet::new(),
            format,
            seen_journal: 0,
            durable: 0,
            cut_until: 0,
            deaf: false,
            changed: None,
            wake_at: u64::MAX,
        };
        let stamp = process.stamp;
        process.ask(ctx, Verb::Register { stamp }, 500);
        ctx.net.after(0, Happening::Resubscribe(id));
        ctx.net.after(1, Happening::Ask(id));
        process.wake_in(ctx, 1);
        process
    }

    /// Its own clock.
    pub(crate) fn clock(&self, ctx: &Ctx) -> u64 {
        ctx.net.now + self.clock
    }

    pub(crate) fn wake_in(&mut self, ctx: &mut Ctx, ms: u64) {
        let at = ctx.net.now + ms;
        if at < self.wake_at {
            self.wake_at = at;
            ctx.net.after(ms, Happening::Wake(self.id));
        }
    }

    /// Its timer fires.
    pub(crate) fn woken(&mut self, ctx: &mut Ctx, server: &mut Server) {
        if ctx.net.now >= self.wake_at {
            self.wake_at = u64::MAX;
            self.step(ctx, server);
        }
    }

    /// Runs the next step of the state machine, unless it waits for a reply.
    pub(crate) fn step(&mut self, ctx: &mut Ctx, server: &mut Server) {
        if self.call.is_some() {
            return;
        }
        let now = self.clock(ctx);
        self.run_engine(ctx, now);
        let step = self.next(ctx, now);
        self.handle_events(ctx, server);
        match step {
            Step::Send(command) => self.send(ctx, server, command),
            Step::Idle(until) if until == Time::NEVER => {}
            Step::Idle(until) => {
                if !(Self::unwatched(ctx) && self.follows()) {
                    self.wake_in(ctx, until.as_millis().saturating_sub(now).max(1));
                }
            }
        }
    }

    fn follows(&self) -> bool {
        self.machine.holds().is_none() && self.asker.term.is_some()
    }

    /// Advances engine time and retries parked questions.
    fn run_engine(&mut self, ctx: &mut Ctx, now: u64) {
        let (true, Some(term), Some(journal)) = (self.machine.owns(), self.term, &mut self.journal) else {
            return;
        };
        journal.engine.true_now = ctx.net.now;
        journal.engine.advance(self.base.0 + (now - self.base.1));
        let served = self.server_time.at_most(now);
        journal.ahead = journal.engine.time.cast_signed() - served.cast_signed();
        self.answers.retry(term, journal, ctx.net.bug);
        if ctx.net.has(Bug::ReadsNotFenced) {
            self.publish_reads(ctx);
        }
    }

    fn next(&mut self, ctx: &mut Ctx, now: u64) -> Step {
        let epoch = self.machine.holds().map_or(0, |(_, epoch)| epoch);
        let Self { machine, journal, answers, batches, .. } = self;
        let (archive, bug) = (&mut ctx.archive, ctx.net.bug);
        let mut work = |wanted| {
            let journal = journal.as_mut()?;
            let (chunk, last) = match wanted {
                Wanted::Changes { number } => (journal.changes(archive, number, epoch, bug), true),
                Wanted::Snapshot { number, first } => {
                    let (chunk, last) = journal.snapshot(archive, number, epoch, first, bug)?;
                    (Some(chunk), last)
                }
            };
            let answers = if last { answers.address(journal.chain, archive, bug) } else { Vec::new() };
            if chunk.is_none() && answers.is_empty() {
                return None;
            }
            batches.push(journal.chain);
            Some(Batch { chunk, answers })
        };
        machine.next(Time::from_millis(now), &mut work)
    }

    fn send(&mut self, ctx: &mut Ctx, server: &mut Server, mut command: Command) {
        if let Command::Append(append) = &mut command {
            self.answers.published(&append.answers);
            let is_changed = |chunk: &mut Chunk| append.chunk.is_some() && chunk.number == append.number;
            if let Some(chunk) = self.changed.take_if(is_changed) {
                append.chunk = Some(chunk);
            }
        }
        self.calls += 1;
        let id = self.calls;
        ctx.net.log(format_args!("{} {}", self.id, Brief(&command)));
        self.invite_strike(ctx, &command);
        let listen = matches!(command, Command::Listen(_));
        if let Command::Listen(term) = &command {
            self.listening = Some(*term);
        }
        self.call = Some(PendingCommand { id, sent_at: self.clock(ctx), command: command.clone() });
        if self.answer_itself(ctx, id, &command) {
            return;
        }
        self.connect_commands(ctx, server);
        let conn = if listen { self.messages } else { self.commands };
        let Some(conn) = conn else {
            let response = Response::TryAgain;
            let (process, server_time) = (self.id, server.time(ctx));
            let journal = self.seen_journal;
            ctx.net.after(2, Happening::Response { process, call: id, response, server_time, journal });
            return;
        };
        ctx.net.request(conn, id, Request::Fleet { command, format: self.format });
        ctx.net.after(TIMEOUT_MS, Happening::Timeout { process: self.id, call: id });
    }

    /// Faults are more likely at rare steps.
    fn invite_strike(&mut self, ctx: &mut Ctx, command: &Command) {
        let chance = match command {
            Command::Look => return,
            Command::Append(append) if append.chunk.is_some() && !self.machine.owns() => ctx.net.cfg.strikes,
            Command::Append(append) if append.chunk.is_none() || append.number % 4 != 0 => return,
            Command::Append(_) => ctx.net.cfg.strikes / 4,
            _ => ctx.net.cfg.strikes,
        };
        if ctx.net.mishap(chance) {
            let soon = ctx.net.rng.u64(0..=2 * ctx.net.cfg.latency_ms);
            ctx.net.after(soon, Happening::Strike(self.id));
        }
    }

    fn connect_commands(&mut self, ctx: &mut Ctx, server: &mut Server) {
        if self.commands.is_none() && ctx.net.now >= self.cut_until {
            self.commands = server.connect(self.id, &[]);
        }
    }

    /// Opens missing connections.
    pub(crate) fn connect(&mut self, ctx: &mut Ctx, server: &mut Server) {
        self.connect_commands(ctx, server);
        if self.messages.is_none() && ctx.net.now >= self.cut_until && !self.deaf {
            let mut channels = vec![Channel::Process(self.id), Channel::Fleet];
            channels.extend(self.listening.map(Channel::Term));
            self.messages = server.connect(self.id, &channels);
            if self.messages.is_some() {
                self.asker.reconnected();
                // Messages were lost in between.
                let now = self.clock(ctx);
                self.machine.look_soon(Time::from_millis(now));
                self.wake_in(ctx, 1);
            }
        }
        if self.commands.is_none() || self.messages.is_none() {
            ctx.net.after(40, Happening::Resubscribe(self.id));
        }
    }

    /// Handles the events of its ownership.
    pub(crate) fn handle_events(&mut self, ctx: &mut Ctx, server: &mut Server) {
        for event in self.machine.events() {
            if !matches!(event, Event::Follows(_) | Event::Durable { .. }) {
                ctx.net.log(format_args!("{} {event:?}", self.id));
            }
            self.on_event(ctx, server, event);
        }
    }
}

/// A short description of a command.
struct Brief<'a>(&'a Command);

impl std::fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Command::Append(append) => {
                let chunk = append.chunk.as_ref().map(|chunk| chunk.checksum);
                write!(f, "append {} chunk {chunk:?} answers {}", append.number, append.answers.len())
            }
            other => write!(f, "{other:?}"),
        }
    }
}
