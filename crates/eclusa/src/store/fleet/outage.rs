//! What the owning thread does about an outage: while nothing replies, processes decide by themselves, each with its part of
//! every limit, and nobody can prolong leases.

use std::collections::BTreeSet;
use std::time::Duration;

use eclusa_core::{RegistrationView, Span};
use eclusa_fleet::ProcessId;
use tokio::time::Instant;

use super::owner::Owner;

/// Leases last at least so much longer after nobody decided for a while: nobody could prolong them meanwhile.
pub(super) const GRACE: Span = Span::from_secs(4);

/// How much earlier than callers the owner begins to count an outage.
const SLACK: Duration = Duration::from_millis(100);

/// An outage counts until then for whoever becomes the owner after it.
const OUTAGE_REMEMBERED: Duration = Duration::from_secs(10);

impl Owner {
    /// After a silence in which processes decided by themselves, nothing is granted until they are back.
    pub(super) fn note_outage(&mut self) {
        if self.unanswered {
            // From the first failure on: leases may be shorter than the time until an outage counts as one.
            self.spare_leases();
            // This thread may learn of it a little before the callers that wait.
            if self.shared.outage() + SLACK > self.shared.timeout {
                self.cut = true;
                if let Some(stage) = &self.work.stage {
                    stage.withheld.cut();
                }
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
    pub(super) fn spare_leases(&self) {
        if let Some(stage) = &self.work.stage {
            // A stage that has stopped gives no leases.
            let _ = stage.run(|engine, now| engine.spare_leases(now + GRACE, now));
        }
    }

    /// Withholds grants until the other processes have caught up, if there was an outage just now.
    pub(super) fn gather(&mut self) {
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
}
