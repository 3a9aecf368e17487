//! Jobs that an upstream works on: what its answers and webhooks mean, and how it is asked or told that a job was
//! cancelled.

mod ask;
mod told;

pub(crate) use ask::{Asking, Submitted, recall};
pub(crate) use told::{Told, completion, external_id, submit_failed, told};
