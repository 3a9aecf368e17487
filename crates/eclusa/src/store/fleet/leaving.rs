//! A process leaves the fleet in order.

use eclusa_core::RegistrationView;
use eclusa_fleet::ProcessId;
use tokio::time::Instant;

use super::membership::LEAVING;
use super::owner::Owner;

impl Owner {
    /// Whether there is no server to stop in order with: the others find out by this process's silence.
    pub(super) fn stops_in_vain(&self) -> bool {
        self.unanswered && self.stopping.is_some_and(|since| since.elapsed() > self.shared.timeout)
    }

    /// Tells the others that this process will stop soon, and has one of them decide. It takes part until then.
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

    /// Leaves the fleet in order: the others no longer count this process, and one of them gets ready to decide.
    pub(super) fn stop(&mut self) {
        self.stopping = Some(Instant::now());
        let own = eclusa_core::ProcessId(self.shared.membership.process.0);
        if let Some(stage) = &self.work.stage {
            // A stage that has stopped has nobody to leave.
            let _ = stage.run(|engine, now| engine.unregister(own, now));
        } else {
            self.tell_of_leaving();
        }
        self.successor = None;
        self.machine.stop(None);
    }

    /// Has another process follow, also if the one that was chosen leaves itself. A process that only will stop soon goes on
    /// where there is none.
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

    /// Without it the others find out by this process's silence.
    fn tell_of_leaving(&mut self) {
        let Some(message) = self.shared.asking.leave(&self.shared.membership, Instant::now()) else { return };
        let channel = self.shared.keys.questions(message.term);
        let _ = self.journal.publish(&channel, &message.bytes);
        // After it: whoever hears this asks an owner that knows.
        let _ = self.journal.publish(&self.shared.keys.fleet(), b"left");
    }
}

/// Who is to follow: `current` while it is there, else one that stays, a gateway before a program that only uses the library, and the one that
/// was heard last. A process that stops has left.
fn successor(others: &[RegistrationView], current: Option<ProcessId>) -> Option<ProcessId> {
    let best = others.iter().max_by_key(|one| {
        let id = ProcessId(one.process.0);
        (Some(id) == current, !leaves(one), !one.about.starts_with("library"), one.heard)
    });
    best.map(|one| ProcessId(one.process.0))
}

/// Whether a process will stop soon.
fn leaves(one: &RegistrationView) -> bool {
    one.about.ends_with(LEAVING)
}

#[cfg(test)]
mod tests {
    use eclusa_core::Time;

    use super::*;

    fn process(id: u64, about: &str, heard: u64) -> RegistrationView {
        let (process, heard) = (eclusa_core::ProcessId(id), Some(Time::from_millis(heard)));
        RegistrationView { process, stamp: 1, about: about.into(), heard, differs: 0 }
    }

    #[test]
    fn a_gateway_follows_before_a_library_and_the_one_that_was_chosen_while_it_is_there() {
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
