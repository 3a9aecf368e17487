//! Closed lists of words in the API description. The fields themselves are strings.

use std::borrow::Cow;

use eclusa_core::gate::Reason;
use eclusa_core::{Level, Status};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::config::Role;

macro_rules! vocabulary {
    ($(#[doc = $doc:literal] $name:ident = $words:expr;)*) => {$(
        #[doc = $doc]
        pub(crate) enum $name {}

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                one_of($doc, $words)
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }
        }
    )*};
}

vocabulary! {
    /// The status of a job. `pending`: scheduled, or between attempts. The last four are final.
    JobStatus = STATUSES.map(Status::as_str);
    /// Jobs of a higher priority start first.
    Priority = Level::ALL.map(Level::as_str);
    /// Why a job waits, or what a gate refuses with.
    WaitReason = Reason::ALL.map(Reason::as_str);
    /// What a key may do.
    KeyRole = Role::ALL.map(Role::as_str);
    /// Whether a breaker admits all calls, none, or probes.
    BreakerState = ["closed", "open", "half_open"];
    /// The progress of a bulk replay.
    ReplayStatus = ["counting", "running", "done", "stopped"];
    /// Whether jobs queue, or callers wait on the connection.
    LaneMode = ["queue", "direct"];
    /// How serious an alert is.
    Severity = ["warning", "critical"];
    /// A gate that closes because of errors.
    TransitionGate = ["breaker", "cooldown", "retry_after"];
    /// What happened to a gate.
    TransitionEvent = ["open", "half_open", "closed", "hot", "cool"];
    /// What happened to a job; the last four end it.
    TimelineEvent = [
        "accepted", "started", "failed", "retry_scheduled", "waits_for_rest_of_chain", "taken_up", "released",
        "awaiting", "served", "omitted", "completed", "dropped", "cancelled",
    ];
}

const STATUSES: [Status; 7] = [
    Status::Pending,
    Status::Queued,
    Status::Processing,
    Status::Completed,
    Status::Failed,
    Status::Dropped,
    Status::Cancelled,
];

/// The schema of a string that is one of `words`.
pub(crate) fn one_of<const N: usize>(description: &str, words: [&'static str; N]) -> RefOr<Schema> {
    let object = ObjectBuilder::new().schema_type(Type::String).description(Some(description.trim()));
    object.enum_values(Some(words)).into()
}
