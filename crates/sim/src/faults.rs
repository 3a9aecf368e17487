//! Injects the faults of a run: kills, pauses, lost messages, fail-overs.

use eclusa_fleet::ProcessId;

use crate::config::Fault;
use crate::loss::AWAY_MS;
use crate::net::Happening;
use crate::process::Process;
use crate::server::{Data, Mode};
use crate::small::Planned;
use crate::world::World;

/// A server's clock is at most this far behind, in ms.
const BEHIND_MS: u64 = 3_000;

/// An owner whose connections are cut for this long can be superseded, in ms.
const DEAF_MS: u64 = 200;
/// The server is emptied at most this often, in ms.
const FLUSH_MS: u64 = 4_000;

impl World {
    /// A fault happens now, and another later.
    pub(crate) fn fault(&mut self) {
        if self.ctx.net.quiet {
            return;
        }
        let (next, at) = (self.ctx.net.cfg.fault_ms, self.ctx.net.cfg.faults.len());
        let next = self.ctx.net.rng.u64(1..=next);
        self.ctx.net.after(next, Happening::Fault);
        let fault = self.ctx.net.cfg.faults[self.ctx.net.rng.usize(0..at)];
        self.ctx.net.log(format_args!("--- {fault:?}"));
        self.cause(fault);
    }

    fn cause(&mut self, fault: Fault) {
        let ms = |this: &mut Self, range| this.ctx.net.rng.u64(range);
        match fault {
            Fault::Kill => {
                if let Some(place) = self.any_process() {
                    let again = ms(self, 50..3_000);
                    self.kill(place, again);
                }
            }
            Fault::Stop => {
                let successor =
                    self.any_process().and_then(|place| self.places[place].as_ref()).map(|one| one.id);
                if let Some(place) = self.any_process()
                    && let Some(process) = &mut self.places[place]
                {
                    match successor.filter(|id| *id != process.id) {
                        // Half of them continue to ask the successor.
                        Some(successor) if self.ctx.net.now.is_multiple_of(2) => {
                            process.machine.step_down(successor);
                        }
                        successor => process.machine.stop(successor),
                    }
                    process.step(&mut self.ctx, &mut self.server);
                }
            }
            Fault::Pause => {
                if let Some(place) = self.any_process() {
                    self.pause(place);
                }
            }
            Fault::CutOwner => self.cut(self.owner()),
            Fault::Cut => {
                let place = self.any_process();
                self.cut(place);
            }
            Fault::Deafen => self.deafen(),
            Fault::Hang => {
                let hang = ms(self, 100..3_500);
                self.server.hang(&mut self.ctx, hang);
            }
            Fault::Refuse => self.server.refuses_until = self.ctx.net.now + ms(self, 100..1_500),
            Fault::FlushAll if self.server.mode == Mode::Up && self.may_flush() => {
                let before = self.server.data.audit.chain;
                self.server.passed(before);
                self.server.data = Data::default();
                self.server.wrote(None);
                self.regressed(before);
            }
            Fault::Restart | Fault::RestartOld | Fault::RestartEmpty | Fault::FailOver | Fault::FailBack => {
                self.restart(fault);
            }
            Fault::FlushAll => {}
        }
    }

    /// Limits how often the server is emptied: otherwise claims would be removed before any process can see them.
    fn may_flush(&mut self) -> bool {
        let may = self.ctx.net.now >= self.flushed_at + FLUSH_MS;
        if may {
            self.flushed_at = self.ctx.net.now;
        }
        may
    }

    fn pause(&mut self, place: usize) {
        let long = self.ctx.net.rng.bool();
        let ms = self.ctx.net.rng.u64(if long { 50..5_000 } else { 1..400 });
        self.pause_for(place, ms);
    }

    fn pause_for(&mut self, place: usize, ms: u64) {
        if let Some(process) = &mut self.places[place] {
            process.paused_until = self.ctx.net.now + ms;
            self.ctx.check.losses.away(process.id, ms);
        }
    }

    /// A fault hits a process or the server at a step of the process.
    pub(crate) fn strike(&mut self, id: ProcessId) {
        let running = |process: &Option<Process>| process.as_ref().is_some_and(|process| process.id == id);
        let Some(place) = self.places.iter().position(running) else { return };
        let what = self.ctx.net.rng.u32(0..8);
        self.ctx.net.log(format_args!("--- strike {id} {what}"));
        match what {
            0..=2 => self.kill(place, 200),
            3 | 4 => self.pause(place),
            5 => self.cut(Some(place)),
            _ => {
                let server: Vec<_> =
                    self.ctx.net.cfg.faults.iter().copied().filter(|fault| fault.is_of_server()).collect();
                if !server.is_empty() {
                    let fault = server[self.ctx.net.rng.usize(0..server.len())];
                    self.ctx.net.log(format_args!("--- {fault:?}"));
                    self.cause(fault);
                }
            }
        }
    }

    /// A fault of a small world, at a command of this process.
    pub(crate) fn planned(&mut self, what: Planned, id: ProcessId) {
        self.ctx.net.log(format_args!("--- {what:?} at {id}"));
        let claimant = self.server.data.keys.highest_claimant().filter(|_| what == Planned::KillClaimant);
        let id = claimant.unwrap_or(id);
        let running = |process: &Option<Process>| process.as_ref().is_some_and(|process| process.id == id);
        let place = self.places.iter().position(running);
        match (what, place) {
            (Planned::Kill, Some(place)) => self.kill(place, 300),
            (Planned::KillClaimant, Some(place)) if claimant.is_some() => self.kill(place, 300),
            (Planned::Pause, Some(place)) => self.pause_for(place, 2_700),
            (Planned::Cut, place) => self.cut(place),
            (Planned::Flush, _) => self.cause(Fault::FlushAll),
            (Planned::Back(writes), _) => {
                let at = self.server.history.len().checked_sub(writes);
                let data = at.and_then(|at| self.server.history.get(at).cloned());
                let data = data.unwrap_or_else(|| self.server.data.clone());
                self.go_back(data, 50);
            }
            _ => {}
        }
    }

    fn cut(&mut self, place: Option<usize>) {
        let Some(process) = place.and_then(|place| self.places[place].as_mut()) else { return };
        let (which, long) = (self.ctx.net.rng.usize(0..3), self.ctx.net.rng.bool());
        let ms = self.ctx.net.rng.u64(if long { 0..3_000 } else { 0..50 });
        for (index, conn) in [process.commands, process.messages].into_iter().enumerate() {
            if which != index
                && let Some(conn) = conn
            {
                self.server.close(&mut self.ctx, conn);
            }
        }
        process.cut_until = self.ctx.net.now + ms;
        // An owner without subscription may be superseded much sooner than one that is silent.
        let away = if ms + 100 >= DEAF_MS { ms + AWAY_MS } else { ms + 100 };
        self.ctx.check.losses.away(process.id, away);
    }

    /// One process at most: another must still be able to receive.
    fn deafen(&mut self) {
        if self.places.iter().flatten().any(|process| process.deaf) {
            return;
        }
        let Some(process) = self.owner().and_then(|place| self.places[place].as_mut()) else { return };
        process.deaf = true;
        if let Some(conn) = process.messages {
            self.server.close(&mut self.ctx, conn);
        }
        self.ctx.check.losses.away(process.id, AWAY_MS);
    }

    fn restart(&mut self, fault: Fault) {
        if self.server.mode == Mode::Down {
            return;
        }
        let data = match fault {
            Fault::Restart => self.server.data.clone(),
            Fault::RestartOld => self.server.disk.clone(),
            Fault::FailOver => self.server.replica.clone(),
            Fault::FailBack => self.server.former.clone(),
            _ => Data::default(),
        };
        if matches!(fault, Fault::FailOver | Fault::FailBack) {
            self.server.former = self.server.data.clone();
            let behind = self.ctx.net.rng.u64(0..1_500);
            self.server.behind_ms = (self.server.behind_ms + behind).min(BEHIND_MS);
        }
        let (down, loading) = (self.ctx.net.rng.u64(5..1_500), self.ctx.net.rng.u64(0..400));
        self.go_back(data, down);
        self.server.refuses_until = self.ctx.net.now + down + loading;
    }

    /// The server restarts with this data.
    fn go_back(&mut self, data: Data, down: u64) {
        let before = self.server.data.audit.chain;
        self.server.restart(&mut self.ctx, data, down);
        self.server.wrote(None);
        self.server.sync(&mut self.ctx);
        self.server.resync(&mut self.ctx);
        self.regressed(before);
    }

    fn regressed(&mut self, before: usize) {
        if self.server.data.keys.term.is_none() && self.ctx.net.rng.bool() {
            // A deployment continues in the meantime.
            let place = self.ctx.net.rng.usize(0..self.places.len());
            let again = self.ctx.net.rng.u64(1..1_500);
            if self.owner() != Some(place)
                && self.places[place].as_ref().is_some_and(|one| one.journal.is_none())
            {
                self.kill(place, again);
            }
        }
        // Except a process that reads ahead for a released term: it has nothing to claim.
        let holders = self.places.iter().flatten();
        let holders = holders.filter(|process| !process.loading && process.machine.holds().is_some());
        let now = self.ctx.net.now;
        let holders = holders.filter_map(|process| {
            let away = process.paused_until.max(process.cut_until).saturating_sub(now);
            // It could not take the term that it would need.
            let away = if process.deaf { AWAY_MS } else { away };
            Some((process.id, (process.journal.as_ref()?.chain, away)))
        });
        let after = self.server.data.audit.chain;
        self.ctx.check.losses.regressed((before, after), holders, &self.ctx.archive);
    }

    /// A random running process.
    fn any_process(&mut self) -> Option<usize> {
        if self.ctx.net.rng.u32(0..3) == 0 {
            return self.owner();
        }
        let place = self.ctx.net.rng.usize(0..self.places.len());
        self.places[place].is_some().then_some(place)
    }

    /// The process that holds the server's term.
    pub(crate) fn owner(&self) -> Option<usize> {
        let owner = self.server.data.keys.term.as_ref()?.owner;
        self.places.iter().position(|process| process.as_ref().is_some_and(|process| process.id == owner))
    }

    /// Ends a process; another one starts in its place.
    pub(crate) fn kill(&mut self, place: usize, again_ms: u64) {
        let Some(process) = self.places[place].take() else { return };
        self.ctx.net.log(format_args!("{} is no more", process.id));
        self.ctx.check.died(process.id);
        let half_open = self.ctx.net.mishap(200);
        for (id, conn) in &mut self.server.conns {
            if conn.process == Some(process.id) {
                if half_open {
                    conn.process = None;
                }
                let learned = if half_open { self.ctx.net.rng.u64(0..5_000) } else { self.ctx.net.latency() };
                self.ctx.net.after(learned, Happening::Gone(*id));
            }
        }
        self.ctx.net.after(again_ms, Happening::Start(place));
    }
}
