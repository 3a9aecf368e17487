//! The rules of Eclusa: queues, fairness, gates, leases, retries and dead letters as a pure engine.
//!
//! Nothing here does I/O, reads a clock or draws a random number: `now` is an argument and jitter is a hash. The
//! [`Engine`] decides; a [`Store`] makes its decisions durable and shares them.

mod alert;
mod charge;
mod dead_letter;
mod durations;
mod ended;
mod engine;
mod error;
pub mod gate;
mod ids;
mod job;
mod lane;
pub mod layout;
pub mod learned;
mod pattern;
mod policy;
pub mod retry;
mod seeded;
mod spec;
mod store;
mod table;
mod time;
mod timeline;
mod tokens;
mod verbs;
mod views;

pub use alert::{
    Alert, AlertChanges, AlertKey, AlertLimits, AlertRule, AlertsView, Condition, DeadLetterRate, Evaluation,
    Notice, Recipient, Severity, Watch,
};
pub use charge::{CREDIT_WITHIN, Charge, CreditRule, Terms};
pub use dead_letter::{DeadLetter, DeadLetterView, LetterAges, TrimReason};
pub use durations::Quantiles;
pub use ended::{End, Ended, Fallback, ServedBy};
pub use engine::{
    BucketOf, CALLBACKS, Callback, Engine, FallbackCall, FallbackLog, FallbackReport, LastSeen,
    MAX_SEEN_BUCKETS, Mentions, ProcessId, PublicChange, Registration, RegistrationView, RestoreError,
    Restorer, SILENCE, SaveError, SeenBucket, SeenBuckets, StartCounts, TokensTaken, tenant_bucket_keys,
};
pub use error::SpecError;
pub use ids::{JobId, LeaseId, Name};
pub use job::{
    CallFailure, DropReason, Failure, FailureReason, Hold, JobView, Level, NewJob, Payload, Status,
};
pub use lane::Totals;
pub use pattern::{Patterns, matches};
pub use policy::{BucketId, Correlation, HashKey, Scope};
pub use seeded::seed_maps;
pub use spec::{
    CacheSpec, Capacity, Chain, DeadLetterSpec, Fairness, Keep, LaneSpec, RedriveSpec, Spec, TenantLimits,
    UpstreamSpec,
};
pub use store::{Answer, Store, StoreError};
pub use time::{Clock, Span, Time};
pub use timeline::{Event, EventKind, FailureNote, Waited, numbered};
pub use tokens::Tokens;
pub use verbs::*;
pub use views::*;
