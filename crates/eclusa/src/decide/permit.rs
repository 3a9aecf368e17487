//! Permit to make one call without a job: in a direct lane, or by a worker elsewhere.

use std::sync::Arc;

use eclusa_core::gate::{CallResult, GateView, NotUntil, Quota};
use eclusa_core::{Admission, Admit, Admitted, LeaseId, Name, Report, Store, StoreError, Time, Usage};

use super::{Decider, end_of_call};
use crate::store::AnyStore;

/// What comes of asking for permit.
pub(crate) enum PermitAnswer {
    /// It was given.
    Granted(Permit),
    /// A gate said no.
    Denied {
        /// The upstream that will admit it first; `None` if the lane denies it.
        upstream: Option<Name>,
        denied: PermitDenied,
    },
    /// The store has no such lane or upstream.
    Unknown,
}

/// A gate said no.
pub(crate) struct PermitDenied {
    /// Why and until when.
    pub(crate) denial: NotUntil,
    /// The limit that allows the fewest such calls, if there is any.
    pub(crate) quota: Option<Quota>,
    /// The own gate of the lane or the upstream, if it is one of theirs.
    pub(crate) gate: Option<GateView>,
    /// Whether it may open before the time that `denial` says.
    pub(crate) sooner: bool,
    /// What time it was in the store.
    pub(crate) now: Time,
}

impl PermitDenied {
    /// The limit that has not enough for such a call, if there is one.
    pub(crate) fn used_up(&self) -> Option<&Quota> {
        self.quota.as_ref().filter(|quota| quota.enough_at > self.now)
    }
}

/// Permit that was given. Its lease ends when this is dropped, however that comes.
pub(crate) struct Permit {
    decider: Arc<Decider>,
    /// Where the call may be made.
    pub(crate) upstream: Name,
    /// With which key of the upstream, by its name.
    pub(crate) key: Option<String>,
    pub(crate) lease: LeaseId,
    /// The limit that allows the fewest more such calls, if there is any.
    pub(crate) quota: Option<Quota>,
    /// What time it was in the store when it was given.
    pub(crate) granted_at: Time,
    /// How the call went; nothing if somebody else will tell.
    report: Option<Report>,
}

impl Permit {
    /// What is told of the call unless something else is told before its end.
    pub(crate) fn set_report(&mut self, report: Report) {
        self.report = Some(report);
    }

    /// Tells how the call went and returns when that is known.
    pub(crate) async fn end(mut self) {
        if let Some(report) = self.report.take() {
            self.decider.settle(&self.upstream, end_of_call(self.lease, report)).await;
        }
    }

    /// What there is to tell of the call, for one that goes on from it.
    pub(crate) fn final_report(&self) -> Option<(LeaseId, Report)> {
        Some((self.lease, self.report.clone()?))
    }

    /// The call under `next` goes on from it. If another engine gave that, the one that gave this is still to be told.
    pub(crate) fn continued_by(mut self, next: &Permit) {
        if self.lease.epoch == next.lease.epoch {
            self.report = None;
            self.decider.turns.ring(&self.upstream);
        }
    }

    /// The answer says that so much was used.
    pub(crate) fn set_usage(&mut self, usage: Usage) {
        if let Some(report) = &mut self.report {
            report.usage = usage;
        }
    }

    /// Leaves it to somebody else to end the lease.
    pub(crate) fn hand_over(mut self) {
        self.report = None;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(report) = self.report.take() {
            self.decider.end_call(self.upstream.clone(), self.lease, report);
        }
    }
}

impl Decider {
    /// Asks once for permit. What was granted is given back if the caller goes away meanwhile.
    pub(crate) async fn admit(self: &Arc<Self>, ask: Admit) -> Result<PermitAnswer, StoreError> {
        if let AnyStore::Embedded(store) = &*self.store {
            let (admitted, durable) = store.admit_soon(&ask)?;
            // From here on its own drop gives it back.
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
                })
            }
            Admission::Denied { upstream, denial, quota, gate, sooner } => {
                PermitAnswer::Denied { upstream, denied: PermitDenied { denial, quota, gate, sooner, now } }
            }
            Admission::UnknownUpstream(_) | Admission::UnknownLane => PermitAnswer::Unknown,
        }
    }
}
