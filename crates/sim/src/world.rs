//! One world: a server and several processes, driven by one seed.

use std::sync::Arc;

use eclusa_fleet::ProcessId;

use crate::archive::Archive;
use crate::ask::Verb;
use crate::bugs::Bug;
use crate::check::{Check, Violation};
use crate::config::Config;
use crate::engine::{Key, Value};
use crate::net::{Ctx, Happening, Net};
use crate::process::Process;
use crate::server::{Mode, Server};
use crate::small::Planned;
use crate::worker::IDLE_MS;

/// How long faults happen, at least and at most, in ms.
const FAULTY_MS: std::ops::Range<u64> = 8_000..20_000;
/// A healthy world recovers in this time, in ms. A hanging server may take 3.5 s of it, and settling three terms if the
/// process with the most state cannot subscribe.
const RECOVERY_MS: u64 = 13_000;
/// A question that only waits for the owner ends in this time, in ms.
const QUESTION_MS: u64 = 5_000;

/// A small world runs this long before it is healthy, and after the last kill, in ms.
const SMALL_MS: u64 = 4_000;

/// The result of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Hash of the trace.
    pub hash: u64,
    /// The violation that was found, if any.
    pub violation: Option<Violation>,
}

/// See the module.
#[derive(Debug)]
pub struct World {
    pub(crate) ctx: Ctx,
    pub(crate) server: Server,
    /// The running process in each place.
    pub(crate) places: Vec<Option<Process>>,
    starts: u64,
    pub(crate) flushed_at: u64,
    last_kill_at: Option<u64>,
}

impl World {
    /// The world of a seed, made for one bug and with or without it.
    pub fn new(seed: u64, focus: Option<Bug>, bug: Option<Bug>, print: bool) -> Self {
        let net = Net::new(seed, focus, bug, print);
        let blob = vec![0; net.cfg.chunk_bytes].into();
        let mut world = Self::empty(net, blob);
        for place in 0..world.places.len() {
            let at = world.ctx.net.rng.u64(0..1_000);
            world.ctx.net.after(at, Happening::Start(place));
        }
        let faulty = world.ctx.net.rng.u64(FAULTY_MS);
        world.ctx.net.after(3_000, Happening::Fault);
        world.schedule(faulty, RECOVERY_MS);
        world
    }

    /// A small world in which only planned faults happen.
    pub(crate) fn small(cfg: Config, plan: Vec<(u64, Planned)>, bug: Option<Bug>, blob: &Arc<[u8]>) -> Self {
        let mut net = Net::new(1, None, bug, false);
        (net.cfg, net.plan) = (cfg, plan);
        let mut world = Self::empty(net, Arc::clone(blob));
        for place in 0..world.places.len() {
            world.ctx.net.after(50 * place as u64, Happening::Start(place));
        }
        world.schedule(SMALL_MS, SMALL_MS);
        world
    }

    fn empty(net: Net, blob: Arc<[u8]>) -> Self {
        let ctx = Ctx { net, archive: Archive::new(blob), check: Check::default() };
        let places = (0..ctx.net.cfg.processes).map(|_| None).collect();
        let mut world =
            Self { ctx, server: Server::new(), places, starts: 0, flushed_at: 0, last_kill_at: None };
        let cfg = world.ctx.net.cfg.clone();
        world.ctx.net.log(format_args!("{cfg:?}"));
        world
    }

    /// Faults happen until `faulty`, then none, and at the end the owner is killed.
    fn schedule(&mut self, faulty: u64, after_kill: u64) {
        for (at, happening) in [
            (1, Happening::Replicate),
            (2, Happening::Sync),
            (faulty, Happening::Quiet),
            (faulty + RECOVERY_MS, Happening::LastKill),
            (faulty + RECOVERY_MS + after_kill, Happening::End),
        ] {
            self.ctx.net.after(at, happening);
        }
    }

    /// Runs it to its end, or until a violation is found.
    pub fn run(mut self) -> Outcome {
        while let Some(happening) = self.ctx.net.pop() {
            if matches!(happening, Happening::End) {
                self.end();
                break;
            }
            self.happen(happening);
            if self.ctx.check.violation.is_some() {
                break;
            }
        }
        Outcome { hash: self.ctx.net.trace.hash, violation: self.ctx.check.violation }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Request { conn, call, request, lose } => {
                self.server.receive(&mut self.ctx, conn, call, request, lose);
            }
            Happening::Gone(conn) => {
                self.server.conns.remove(&conn);
            }
            Happening::Fault => self.fault(),
            Happening::Planned(what, process) => self.planned(what, process),
            Happening::Strike(process) => self.strike(process),
            Happening::Start(place) => {
                self.starts += 1;
                self.places[place] = Some(Process::new(&mut self.ctx, place, self.starts));
            }
            Happening::Replicate => {
                self.server.replicate(&mut self.ctx);
                let most = if self.ctx.net.quiet { 10 } else { self.ctx.net.cfg.lag_ms };
                let lag = self.ctx.net.rng.u64(1..=most);
                self.ctx.net.after(lag, Happening::Replicate);
            }
            Happening::Sync => {
                if self.server.mode == Mode::Up {
                    self.server.sync(&mut self.ctx);
                }
                self.ctx.net.after(1_000, Happening::Sync);
            }
            Happening::ServerUp => {
                self.ctx.net.log(format_args!("server up, {}", self.server.run));
                self.server.up(&mut self.ctx);
            }
            Happening::Quiet => {
                self.ctx.net.log(format_args!("--- quiet"));
                self.ctx.net.quiet = true;
            }
            Happening::LastKill => self.last_kill(),
            Happening::End => {}
            of_process => self.happen_to_process(of_process),
        }
    }

    fn happen_to_process(&mut self, happening: Happening) {
        let Some(id) = target(&happening) else { return };
        let place = usize::try_from(id.0 / 1_000).unwrap_or(usize::MAX);
        let Some(process) =
            self.places.get_mut(place).and_then(|one| one.as_mut()).filter(|one| one.id == id)
        else {
            return;
        };
        if process.paused_until > self.ctx.net.now {
            let wait = process.paused_until - self.ctx.net.now;
            return self.ctx.net.after(wait, happening);
        }
        let (ctx, server) = (&mut self.ctx, &mut self.server);
        match happening {
            Happening::Wake(_) => process.woken(ctx, server),
            Happening::Ask(_) => process.on_ask(ctx, server),
            Happening::Response { call, response, server_time, journal, .. } => {
                process.seen_journal = journal;
                process.on_response(ctx, server, call, response, server_time);
            }
            Happening::Timeout { call, .. } => process.on_timeout(ctx, server, call),
            Happening::Deliver { conn, .. } => {
                let messages = server.read_messages(conn);
                process.on_messages(ctx, server, messages);
            }
            Happening::Late { messages, .. } => process.on_messages(ctx, server, messages),
            Happening::Closed { conn, .. } => process.on_closed(ctx, server, conn),
            Happening::Resubscribe(_) => process.connect(ctx, server),
            Happening::CallEnds { lease, .. } => process.on_call_ended(ctx, lease),
            _ => {}
        }
        if process.machine.is_stopped() {
            self.kill(place, 100);
        }
    }

    /// In a healthy world the owner dies.
    fn last_kill(&mut self) {
        self.ctx.net.log(format_args!("--- last kill"));
        let Some(place) = self.owner() else {
            return self.ctx.check.fail("I10", format_args!("nobody owns in a healthy world"));
        };
        if self.places[place].as_ref().is_some_and(|process| process.deaf) {
            return self.ctx.check.fail("I10", format_args!("an owner that hears nobody was not superseded"));
        }
        self.last_kill_at = Some(self.ctx.net.now);
        self.kill(place, 500);
    }

    /// I10 and I3 in a world that had time to recover.
    fn end(&mut self) {
        let since = self.last_kill_at.unwrap_or(u64::MAX);
        let takes: Vec<_> = self.ctx.check.takes.iter().filter(|(at, _)| *at > since).collect();
        if takes.len() != 1 {
            let takes = format!("{takes:?}");
            return self.ctx.check.fail("I10", format_args!("one death, takeovers: {takes}"));
        }
        let owner = self.owner().and_then(|place| self.places[place].as_ref());
        let Some(owner) = owner.filter(|process| process.machine.owns()) else {
            return self.ctx.check.fail("I10", format_args!("nobody owns at the end"));
        };
        for process in self.places.iter().flatten().filter(|process| !process.deaf) {
            let now = process.clock(&self.ctx);
            let old = |at: u64| now > at + QUESTION_MS;
            let stuck =
                process.asker.pending.values().find(|one| one.verb != Verb::Dispatch && old(one.asked_at));
            if let Some(stuck) = stuck {
                let id = process.id;
                return self.ctx.check.fail("I10", format_args!("{id} waits for an answer to {stuck:?}"));
            }
        }
        let Some(journal) = &owner.journal else { return };
        // A fleet that was slow to recover may still be working on what it has accepted.
        let works = self.ctx.net.now <= self.ctx.check.started_at + IDLE_MS;
        let safe = |job: &u64| match journal.engine.state.get(&Key::Job(*job)) {
            Some(Value::Done(_)) => true,
            waits => waits.is_some() && works,
        };
        let lost = self.ctx.check.accepted.iter().find(|job| !safe(job)).copied();
        if let Some(job) = lost
            && !self.ctx.check.losses.any_excused()
        {
            let state = format!("{:?}", journal.engine.state.get(&Key::Job(job)));
            self.ctx.check.fail("I3", format_args!("job {job} was accepted and is {state}"));
        }
    }
}

fn target(happening: &Happening) -> Option<ProcessId> {
    match happening {
        Happening::Wake(id) | Happening::Ask(id) | Happening::Resubscribe(id) => Some(*id),
        Happening::Response { process, .. }
        | Happening::Timeout { process, .. }
        | Happening::Deliver { process, .. }
        | Happening::Late { process, .. }
        | Happening::Closed { process, .. }
        | Happening::CallEnds { process, .. } => Some(*process),
        _ => None,
    }
}
