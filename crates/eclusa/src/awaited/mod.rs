//! Jobs that an upstream works on: what its answers and webhooks mean, and how it is asked or told that a job was
//! cancelled.

mod follow_up;
mod progress;

pub(crate) use follow_up::{FollowUp, Submitted, recall};
pub(crate) use progress::{JobProgress, completion, external_id, progress, submit_failed};
