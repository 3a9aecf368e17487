//! Callbacks: the end of a job, told to whoever asked for that, by a job of a lane of its own. It is enqueued in the step
//! in which the first one ends, so that no crash comes between the two.

use std::sync::Arc;

use super::Engine;
use crate::error::SpecError;
use crate::ids::{JobId, Name};
use crate::job::{DropReason, JobView, NewJob, Payload};
use crate::table::JobIx;
use crate::time::Time;

/// The lane that delivers callbacks. Processes that may do so have rules for it.
pub const CALLBACKS: &str = "_callbacks";

/// A job whose request and result are larger is told without them.
const MAX_TOLD: usize = 4 << 20;
/// Turns the id of a job into that of its callback.
const CALLBACK_OF: u128 = 0x00ca_11ba_c4ca_11ba;

/// What a job of the lane [`CALLBACKS`] carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callback {
    /// Where to.
    pub url: Arc<str>,
    /// The job that ended.
    pub job: JobView,
}

impl Engine {
    /// A job that is to be called back for needs somebody who will.
    pub(super) fn check_callback(&self, job: &NewJob) -> Result<(), SpecError> {
        let configured = || Name::new(CALLBACKS).is_ok_and(|lane| self.configured_lane(&lane).is_some());
        if job.callback.is_none() || configured() {
            return Ok(());
        }
        Err(SpecError::new("callbackUrl", "cannot be called: there are no rules for callbacks"))
    }

    /// Tells the end of a job that has just ended, if that is wanted. No rules are needed by now: a lane that lost them
    /// waits.
    pub(super) fn call_back(&mut self, index: JobIx, now: Time) {
        let ended = &self.jobs[index];
        let Some(url) = ended.callback().cloned() else { return };
        let mut job = self.view_job(ended);
        if job.payload.len() + job.result.as_ref().map_or(0, |result| result.len()) > MAX_TOLD {
            (job.payload, job.result) = ([].into(), None);
        }
        let (id, tenant) = (JobId(ended.id.0 ^ CALLBACK_OF), job.tenant.clone());
        self.deliver(id, &tenant, Callback { url, job }.encode(), now);
    }

    /// Enqueues a job of the lane [`CALLBACKS`], if there ever was one.
    pub(super) fn deliver(&mut self, id: JobId, tenant: &str, payload: Payload, now: Time) {
        let Some(lane) = Name::new(CALLBACKS).ok() else { return };
        let Some(at) = self.lane_by_name.get(&lane).copied() else { return };
        let new = NewJob::new(id, lane, tenant, payload);
        let state = self.lane(at);
        let (chain, spec) = (state.default_chain, state.spec.as_ref());
        let (capacity, ttl) = spec.map(|spec| (spec.capacity, spec.ttl)).unwrap_or_default();
        if !self.make_room(at, &new, capacity, now) {
            return self.refuse(at, new, DropReason::QueueFull, now);
        }
        self.accept(new, at, chain, None, now, ttl.map_or(Time::NEVER, |ttl| now + ttl));
    }
}
