//! What is asked about limits by scope.

use std::sync::Arc;

use crate::gate::BucketSpec;
use crate::policy::{BucketId, Correlation};
use crate::time::Span;
use crate::tokens::Tokens;

/// An event that earns tokens back for the call with this correlation id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credit {
    /// Its name, as policies have it (`payment`).
    pub event: Arc<str>,
    /// Which call.
    pub correlation: Correlation,
}

/// What an event did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credited {
    /// Each of these buckets got so much: what its policy gives, or what was missing to its capacity less what is held.
    Buckets(Vec<(BucketId, Tokens)>),
    /// It was counted before; nothing changed.
    Repeated,
    /// No call with this correlation id cost anything lately, or no policy that it fell under knows the event.
    Unknown,
}

/// What the upstream itself says that a bucket holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Correction {
    /// Which bucket.
    pub bucket: BucketId,
    /// Its rule here.
    pub spec: BucketSpec,
    /// What is there by the upstream's count, in whole tokens.
    pub reported: Tokens,
    /// What was here, and held by calls under way, when the upstream was asked.
    pub when_asked: Tokens,
    /// How long ago that was.
    pub asked_ago: Span,
}

/// What a bucket held before it was corrected, and what it holds now. The difference is the drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrected {
    /// Before.
    pub before: Tokens,
    /// After: their count less the holds of calls under way and what was spent since they were asked.
    pub after: Tokens,
    /// How much of the difference calls and refills during the round trip may account for.
    pub uncertainty: Tokens,
}
