//! How a process leaves the fleet in an orderly way.

use eclusa_core::RegistrationView;
use eclusa_fleet::ProcessId;
use tokio::time::Instant;

use super::membership::LEAVING;
use super::owner::OwnerThread;

impl OwnerThread {
    /// Whether to stop without the server, which does not reply: the others notice this process's silence.
    pub(super) fn stop_times_out(&self) -> bool {
        self.unanswered && self.stopping.is_some_and(|since| since.elapsed() > self.shared.timeout)
    }

    /// Announces that this process will stop soon, and hands ownership to another one. It stays in the fleet until
    /// then.
    pub(super) fn leave(&mut self) {
        self.leaving = true;
        let rules = self.shared.membership.set_leaving();
        if let Some(stage) = &self.work.stage {
            let registration = rules.registration(self.shared.membership.process);
            let _ = stage.run(|engine, now| engine.register(registration, now));
        } else {
            self.shared.asking.register_again();
        }
    }

    /// Leaves the fleet: the others no longer count this process, and one of them prepares to own.
    pub(super) fn stop(&mut self) {
        self.stopping = Some(Instant::now());
        let own = eclusa_core::ProcessId(self.shared.membership.process.0);
        if let Some(stage) = &self.work.stage {
            // If the stage has stopped, there is nothing to leave.
            let _ = stage.run(|engine, now| engine.unregister(own, now));
        } else {
            self.announce_leaving();
        }
        self.successor = None;
        self.machine.stop(None);
    }

    /// Chooses the successor, again if the chosen one leaves too. If there is none, a process that will only stop soon
    /// continues as owner.
    pub(super) fn choose_successor(&mut self) {
        let stops = self.stopping.is_some();
        let (Some(stage), true) = (&self.work.stage, stops || self.leaving) else { return };
        let own = self.shared.membership.process.0;
        let mut others: Vec<_> = stage.look(|engine| engine.registrations().collect());
        others.retain(|one| one.process.0 != own && (stops || !leaves(one)));
        let successor = successor(&others, self.successor);
        if successor == self.successor {
            return;
        }
        self.successor = successor;
        match successor {
            _ if stops => self.machine.stop(successor),
            Some(successor) => self.machine.step_down(successor),
            None => {}
        }
    }

    /// Tells the others at once; otherwise they would notice this process's silence.
    fn announce_leaving(&mut self) {
        let Some(message) = self.shared.asking.leave(&self.shared.membership) else { return };
        let channel = self.shared.keys.questions(message.term);
        let _ = self.journal.publish(&channel, &message.bytes);
        // Second, so that a process that receives this asks an owner that already knows.
        let _ = self.journal.publish(&self.shared.keys.fleet(), b"left");
    }
}

/// The successor: `current` while it is there; else a process that is not leaving before one that is, a gateway before
/// a program that only uses the library, and the one heard last. A process that has stopped is not in `others`.
fn successor(others: &[RegistrationView], current: Option<ProcessId>) -> Option<ProcessId> {
    let best = others.iter().max_by_key(|one| {
        let id = ProcessId(one.process.0);
        (Some(id) == current, !leaves(one), !one.about.starts_with("library"), one.last_heard)
    });
    best.map(|one| ProcessId(one.process.0))
}

/// Whether a process announced that it will stop soon.
fn leaves(one: &RegistrationView) -> bool {
    one.about.ends_with(LEAVING)
}

#[cfg(test)]
mod tests {
    use eclusa_core::Time;

    use super::*;

    fn process(id: u64, about: &str, heard: u64) -> RegistrationView {
        let (process, last_heard) = (eclusa_core::ProcessId(id), Some(Time::from_millis(heard)));
        RegistrationView {
            process,
            stamp: 1,
            about: about.into(),
            last_heard,
            differs: 0,
            differing: Vec::new(),
        }
    }

    #[test]
    fn the_chosen_successor_stays_while_it_is_there_and_gateways_come_before_libraries() {
        let all = [process(1, "library", 9), process(2, "worker 7f", 3), process(3, "all 7f", 5)];
        assert_eq!(successor(&all, None), Some(ProcessId(3)));
        assert_eq!(successor(&all, Some(ProcessId(2))), Some(ProcessId(2)));
        assert_eq!(successor(&all[..2], Some(ProcessId(3))), Some(ProcessId(2)), "it has left");
        assert_eq!(successor(&all[..1], None), Some(ProcessId(1)), "there is no gateway");
        assert_eq!(successor(&[], Some(ProcessId(3))), None);
        let leaving = [process(1, "library", 1), process(2, "all 7f leaving", 9)];
        assert_eq!(successor(&leaving, None), Some(ProcessId(1)), "the other one stops soon");
        assert_eq!(successor(&leaving[1..], None), Some(ProcessId(2)), "all of them stop");
    }
}
