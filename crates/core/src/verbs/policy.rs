//! Arguments and answers about limits by scope.

use std::sync::Arc;

use crate::gate::BucketSpec;
use crate::policy::{BucketId, Correlation};
use crate::time::Span;
use crate::tokens::Tokens;

/// An event that returns tokens for the call with this correlation id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credit {
    /// Its name in the policies (`payment`).
    pub event: Arc<str>,
    /// The call.
    pub correlation: Correlation,
}

/// The effect of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credited {
    /// The buckets and what each gained: what its policy gives, up to its capacity minus what is held.
    Buckets(Vec<(BucketId, Tokens)>),
    /// The event was counted before; nothing changed.
    Repeated,
    /// No recent call with this correlation id cost anything, or none of its policies knows the event.
    Unknown,
}

/// A bucket's balance as reported by its upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Correction {
    /// The bucket.
    pub bucket: BucketId,
    /// Its rule in this gateway.
    pub spec: BucketSpec,
    /// The balance the upstream reported, in whole tokens.
    pub reported: Tokens,
    /// Our balance plus the tokens held by running calls, at the time the upstream was asked.
    pub when_asked: Tokens,
    /// How long ago the upstream was asked.
    pub asked_ago: Span,
}

/// The balance of a bucket before and after a correction. The difference is the drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Corrected {
    /// The balance before.
    pub before: Tokens,
    /// The balance after: what the upstream reported, minus what running calls hold and what was spent since it was
    /// asked.
    pub after: Tokens,
    /// How much of the drift calls and refills during the round trip can explain.
    pub uncertainty: Tokens,
}
