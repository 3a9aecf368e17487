//! Callbacks: the end of a job is sent to its callback URL by a job of a dedicated lane. That job is enqueued in the
//! same step in which the first one ends, so a crash cannot separate the two.

use std::sync::Arc;

use super::Engine;
use crate::error::SpecError;
use crate::ids::{JobId, Name};
use crate::job::{DropReason, JobView, NewJob, Payload};
use crate::table::JobIx;
use crate::time::Time;

/// The lane that delivers callbacks. Processes that deliver them have rules for it.
pub const CALLBACKS: &str = "_callbacks";

/// If request and result are larger than this, the callback is sent without them.
const MAX_CALLBACK_BYTES: usize = 4 << 20;
/// Derives the id of a callback from that of its job.
const CALLBACK_OF: u128 = 0x00ca_11ba_c4ca_11ba;

/// The payload of a job of the lane [`CALLBACKS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Callback {
    /// The URL to call.
    pub url: Arc<str>,
    /// The job that ended.
    pub job: JobView,
}

impl Engine {
    /// A job with a callback is valid only if some process delivers callbacks.
    pub(super) fn check_callback(&self, job: &NewJob) -> Result<(), SpecError> {
        let configured = || Name::new(CALLBACKS).is_ok_and(|lane| self.configured_lane(&lane).is_some());
        if job.callback.is_none() || configured() {
            return Ok(());
        }
        Err(SpecError::new("callbackUrl", "cannot be called: no process has rules for callbacks"))
    }

    /// Enqueues the callback of a job that has just ended, if it has one. Rules are not needed any more: a lane without
    /// rules waits.
    pub(super) fn call_back(&mut self, index: JobIx, now: Time) {
        let ended = &self.jobs[index];
        let Some(url) = ended.callback().cloned() else { return };
        let mut job = self.view_job(ended);
        if job.payload.len() + job.result.as_ref().map_or(0, |result| result.len()) > MAX_CALLBACK_BYTES {
            (job.payload, job.result) = ([].into(), None);
        }
        let (id, tenant) = (JobId(ended.id.0 ^ CALLBACK_OF), job.tenant.clone());
        self.deliver(id, &tenant, Callback { url, job }.encode(), now);
    }

    /// Enqueues a job into the lane [`CALLBACKS`], if that exists.
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
