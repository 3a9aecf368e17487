//! What the owning thread does about an outage: while nothing replies, processes decide on their own, each with its
//! share of every limit, and no lease can be extended.

use std::collections::BTreeSet;
use std::time::Duration;

use eclusa_core::{RegistrationView, Span};
use eclusa_fleet::ProcessId;
use tokio::time::Instant;

use super::owner::OwnerThread;

/// How much longer leases last after a time without an owner, because they could not be extended meanwhile.
pub(super) const GRACE: Span = Span::from_secs(4);

/// How much earlier than callers the owner notices an outage.
const SLACK: Duration = Duration::from_millis(100);

/// How long an outage still counts for a process that becomes the owner after it.
const OUTAGE_REMEMBERED: Duration = Duration::from_secs(10);

impl OwnerThread {
    /// Withholds grants after an outage in which processes decided on their own, until they are back.
    pub(super) fn note_outage(&mut self) {
        if self.unanswered {
            // From the first failure on: a lease may be shorter than the time after which an outage counts.
            self.spare_leases();
            // This thread may notice it a little before the waiting callers.
            if self.shared.outage() + SLACK > self.shared.timeout {
                if !std::mem::replace(&mut self.cut, true) {
                    self.shared.faults.note("store_lost", "Redis does not answer");
                }
                if let Some(stage) = &self.work.stage {
                    stage.withheld.cut();
                }
            }
        } else if std::mem::take(&mut self.cut) {
            self.shared.faults.note("store_back", "Redis answers again");
            self.spare_leases();
            self.back_at = Some(Instant::now());
            if self.machine.owns() {
                self.gather();
            }
        }
    }

    /// Extends all leases, because no worker could do that during the outage.
    pub(super) fn spare_leases(&self) {
        if let Some(stage) = &self.work.stage {
            // A stage that has stopped has no leases.
            let _ = stage.run(|engine, now| engine.spare_leases(now + GRACE, now));
        }
    }

    /// Withholds grants until the other processes have caught up, if there was an outage shortly before.
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
        if !own.is_in_fallback() {
            waited_for.remove(&own.process);
        }
        stage.withheld.wait_for(waited_for);
    }
}
