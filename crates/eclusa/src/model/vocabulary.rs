//! Closed lists of words in the API description. The fields themselves are strings.

use std::borrow::Cow;

use eclusa_core::gate::Reason;
use eclusa_core::{AlertRule, DropReason, Fallback, Level, ServedBy, Status};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::config::Role;
use crate::words::served;

macro_rules! vocabulary {
    ($($(#[doc = $doc:literal])+ $name:ident = $words:expr;)*) => {$(
        $(#[doc = $doc])+
        pub(crate) enum $name {}

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                one_of(concat!($($doc),+), $words)
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
    /// Why a job was dropped, or the source of its result if not its own call: a fresh cache entry, the call of an equal
    /// job, or a stale entry, with what made it necessary.
    JobReason = DROPPED.into_iter().chain([served(ServedBy::Cache), served(ServedBy::Coalesced)]).chain(FALLBACKS);
    /// The source of a result from the cache: a fresh entry, or why a stale one was used.
    CachedReason = [served(ServedBy::Cache)].into_iter().chain(FALLBACKS);
    /// The gate that denied a call, or why a job was dropped.
    ProblemReason = Reason::ALL.map(Reason::as_str).into_iter().chain(DROPPED);
    /// The rule of an alert.
    AlertName = AlertRule::ALL.map(AlertRule::as_str);
    /// Whether a failure is tried again.
    CodeClass = ["retryable", "permanent"];
    /// What classifies a code: the config, a built-in list, or a general rule.
    CodeClassifiedBy = ["config", "built_in", "default"];
    /// Whether everything works.
    HealthStatus = ["ok", "degraded"];
    /// Whether the store answers.
    StoreStatus = ["ok", "lost"];
    /// Where jobs are stored.
    StoreKind = ["embedded", "memory", "redis"];
    /// What "accepted" means: on disk, written, or replicated.
    AckLevel = ["fsync", "write", "replicate"];
    /// What a process does.
    InstanceRole = ["all", "api", "worker", "library"];
    /// What went wrong with the store, or is right again.
    FleetFaultCode = ["takeover", "store_lost", "store_back", "data_lost"];
}

/// Why jobs are dropped.
const DROPPED: [&str; 4] = [
    DropReason::TtlExpired.as_str(),
    DropReason::Preempted.as_str(),
    DropReason::QueueFull.as_str(),
    DropReason::NotInTime.as_str(),
];

/// Why stale entries are used.
const FALLBACKS: [&str; 4] = [
    Fallback::CircuitOpen.as_str(),
    Fallback::Timeout.as_str(),
    Fallback::Error.as_str(),
    Fallback::Connection.as_str(),
];

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
pub(crate) fn one_of(description: &str, words: impl IntoIterator<Item = &'static str>) -> RefOr<Schema> {
    let object = ObjectBuilder::new().schema_type(Type::String).description(Some(description.trim()));
    object.enum_values(Some(words)).into()
}
