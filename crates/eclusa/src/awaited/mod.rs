//! Jobs that an upstream works on asynchronously: what its answers and webhooks mean, and the calls that poll or cancel
//! a job there.

mod follow_up;
mod progress;

pub(crate) use follow_up::{FollowUp, Submitted, recall};
pub(crate) use progress::{JobProgress, completion, external_id, progress, submit_failed};
