//! Permits: each allows one call without a job, in a direct lane or by a worker elsewhere.

use std::sync::Arc;

use eclusa_core::gate::{CallResult, GateView, NotUntil, Quota};
use eclusa_core::{Admission, Admit, Admitted, LeaseId, Name, Report, Store, StoreError, Time, Usage};
use tokio::time::Instant;

use super::{Decider, end_of_call};
use crate::store::AnyStore;

/// The answer to a request for a permit.
pub(crate) enum PermitAnswer {
    Granted(Permit),
    /// A gate denies the call.
    Denied {
        /// The upstream that will admit it first; `None` if the lane denies it.
        upstream: Option<Name>,
        denied: PermitDenied,
    },
    /// The store has no such lane or upstream.
    Unknown,
}

/// A denial by a gate.
pub(crate) struct PermitDenied {
    /// The reason, and when to ask again.
    pub(crate) denial: NotUntil,
    /// The limit that leaves the fewest such calls, if there is one.
    pub(crate) quota: Option<Quota>,
    /// The gate that denied, if it is one of the lane or the upstream (not a scoped bucket).
    pub(crate) gate: Option<GateView>,
    /// Whether the gate may open before `denial.at`.
    pub(crate) sooner: bool,
    /// The time in the store when it denied.
    pub(crate) now: Time,
}

impl PermitDenied {
    /// The limit that has too little left for such a call, if there is one.
    pub(crate) fn used_up(&self) -> Option<&Quota> {
        self.quota.as_ref().filter(|quota| quota.enough_at > self.now)
    }
}

/// A granted permit. Dropping it ends its lease.
pub(crate) struct Permit {
    decider: Arc<Decider>,
    /// The upstream that may be called.
    pub(crate) upstream: Name,
    /// The name of the upstream's key to use, if it has keys.
    pub(crate) key: Option<String>,
    pub(crate) lease: LeaseId,
    /// The limit that leaves the fewest further calls, if there is one.
    pub(crate) quota: Option<Quota>,
    /// The time in the store when it was granted.
    pub(crate) granted_at: Time,
    /// The report to send when the permit ends; `None` if another party ends the lease.
    report: Option<Report>,
    /// When the answer began, or the call ended without one.
    answered_at: Option<Instant>,
}

impl Permit {
    /// Sets the report to send when the permit ends.
    pub(crate) fn set_report(&mut self, report: Report) {
        self.report = Some(report);
    }

    /// Sends the report and waits until the store has it.
    pub(crate) async fn end(mut self) {
        if let Some(report) = self.take_report() {
            self.decider.settle(&self.upstream, end_of_call(self.lease, report)).await;
        }
    }

    /// The lease and its report, for the call that continues from this one.
    pub(crate) fn final_report(&self) -> Option<(LeaseId, Report)> {
        Some((self.lease, self.dated(self.report.clone()?)))
    }

    /// Notes that the answer begins now, or that the call ended without one. The caller may read the answer for longer.
    pub(crate) fn set_answered(&mut self) {
        self.answered_at = Some(Instant::now());
    }

    fn take_report(&mut self) -> Option<Report> {
        let report = self.report.take()?;
        Some(self.dated(report))
    }

    /// The report, with how long ago the answer began.
    fn dated(&self, report: Report) -> Report {
        let answered_ago = self.answered_at.map(|began| began.elapsed().into());
        Report { answered_ago, ..report }
    }

    /// The call under `next` continues from this one, so its admission carried the report. If another engine granted
    /// `next`, this permit still sends its own report.
    pub(crate) fn continued_by(mut self, next: &Permit) {
        if self.lease.epoch == next.lease.epoch {
            self.report = None;
            self.decider.turns.ring(&self.upstream);
        }
    }

    /// Sets the usage that the answer reported.
    pub(crate) fn set_usage(&mut self, usage: Usage) {
        if let Some(report) = &mut self.report {
            report.usage = usage;
        }
    }

    /// Leaves it to the caller to end the lease.
    pub(crate) fn hand_over(mut self) {
        self.report = None;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(report) = self.take_report() {
            self.decider.end_call(self.upstream.clone(), self.lease, report);
        }
    }
}

impl Decider {
    /// Asks once for a permit. If the caller is dropped meanwhile, a granted permit is released.
    pub(crate) async fn admit(self: &Arc<Self>, ask: Admit) -> Result<PermitAnswer, StoreError> {
        if let AnyStore::Embedded(store) = &*self.store {
            let (admitted, durable) = store.admit_soon(&ask)?;
            // From here on dropping it releases the lease.
            let asked = self.permit_answer(admitted);
            durable.await?;
            return Ok(asked);
        }
        let decider = self.clone();
        let admit = async move { Ok(decider.permit_answer(decider.store.admit(ask).await?)) };
        self.life.run_to_completion(admit).await
    }

    fn permit_answer(self: &Arc<Self>, Admitted { admission, ended, now }: Admitted) -> PermitAnswer {
        self.note(&ended);
        match admission {
            Admission::Granted { lease, upstream, quota, .. } => {
                let (decider, report) = (self.clone(), Some(CallResult::NotSent.into()));
                let (upstream, key) = (upstream.without_key(), upstream.key().map(ToOwned::to_owned));
                PermitAnswer::Granted(Permit {
                    decider,
                    upstream,
                    key,
                    lease,
                    quota,
                    granted_at: now,
                    report,
                    answered_at: None,
                })
            }
            Admission::Denied { upstream, denial, quota, gate, sooner } => {
                PermitAnswer::Denied { upstream, denied: PermitDenied { denial, quota, gate, sooner, now } }
            }
            Admission::UnknownUpstream(_) | Admission::UnknownLane => PermitAnswer::Unknown,
        }
    }
}
