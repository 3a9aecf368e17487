//! A process leaves the fleet in order.

use eclusa_fleet::ProcessId;
use tokio::time::Instant;

use super::owner::Owner;

impl Owner {
    /// Whether there is no server to stop in order with: the others find out by this process's silence.
    pub(super) fn stops_in_vain(&self) -> bool {
        self.unanswered && self.stopping.is_some_and(|since| since.elapsed() > self.shared.timeout)
    }

    /// Leaves the fleet in order: the others no longer count this process, and one of them may decide at once.
    pub(super) fn stop(&mut self) {
        self.stopping = Some(Instant::now());
        let own = self.shared.membership.process;
        let mut successor = None;
        if let Some(stage) = &self.work.stage {
            let others =
                stage.look(|engine| engine.registrations().map(|one| one.process.0).collect::<Vec<_>>());
            successor = others.into_iter().map(ProcessId).find(|other| *other != own);
            // A stage that has stopped has nobody to leave.
            let _ = stage.run(|engine, now| engine.unregister(eclusa_core::ProcessId(own.0), now));
        } else {
            self.tell_of_leaving();
        }
        self.machine.stop(successor);
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
