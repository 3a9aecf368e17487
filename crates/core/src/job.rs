//! Jobs: how they are submitted, their states, and how they are shown.

use std::sync::Arc;

use crate::charge::{Charge, Terms};
use crate::ended::ServedBy;
use crate::error::SpecError;
use crate::gate::BucketSpec;
use crate::ids::{JobId, LeaseId, Name, fingerprint};
use crate::policy::{Correlation, width};
use crate::spec::Chain;
use crate::time::{Span, Time};
use crate::timeline::{Event, numbered};
use crate::tokens::Tokens;
use crate::verbs::Report;

/// The request or message of a job, or its result; opaque to the engine.
pub type Payload = Arc<[u8]>;

/// Priority: high is always served before normal, normal before low.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Level {
    /// Served first.
    High,
    /// The default.
    #[default]
    Normal,
    /// Served last, evicted first.
    Low,
}

impl Level {
    /// In the order in which they are served.
    pub const ALL: [Level; 3] = [Level::High, Level::Normal, Level::Low];

    /// Its name in the API, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Level::High => "high",
            Level::Normal => "normal",
            Level::Low => "low",
        }
    }
}

/// The largest payload of a job, so that a batch of jobs fits into a chunk of the journal.
const MAX_PAYLOAD: usize = 8 << 20;

/// Tokens a job takes from a scoped bucket when it goes to `upstream`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    pub(crate) upstream: Name,
    pub(crate) bucket: Arc<str>,
    pub(crate) spec: BucketSpec,
    pub(crate) tokens: Tokens,
    pub(crate) terms: Option<Arc<Terms>>,
}

impl Hold {
    /// Takes `tokens` from the bucket with key `bucket`; the bucket's capacity must allow it.
    pub fn new(upstream: Name, bucket: &str, spec: BucketSpec, tokens: Tokens) -> Result<Self, SpecError> {
        if bucket.is_empty() {
            return Err(SpecError::new("bucket", "the key must not be empty"));
        }
        Ok(Self { upstream, bucket: bucket.into(), spec, tokens: spec.check_hold(tokens)?, terms: None })
    }

    /// A stored hold. It may exceed the bucket's capacity, because the rule may have changed since.
    pub fn restore(upstream: Name, bucket: &str, spec: BucketSpec, tokens: Tokens) -> Self {
        Self { upstream, bucket: bucket.into(), spec, tokens, terms: None }
    }

    /// Sets the terms, which from now on apply to all buckets of the policy and class. Without it the known terms stay;
    /// if there are none, a call costs its hold.
    #[must_use]
    pub fn under(self, terms: Arc<Terms>) -> Self {
        Self { terms: Some(terms), ..self }
    }

    /// The hold at `upstream` on the bucket that the fewest other requests use.
    pub fn narrowest<'a>(holds: &'a [Hold], upstream: &Name) -> Option<&'a Hold> {
        let own = holds.iter().filter(|hold| hold.upstream == *upstream);
        own.min_by_key(|hold| width(&hold.bucket, hold.spec.capacity()))
    }

    /// The final cost of a call that ended with `report`, as a hold of that size; `None` if it cost nothing.
    #[must_use]
    pub fn settled(&self, report: &Report) -> Option<Self> {
        let cost = match &self.terms {
            Some(terms) => terms.charge.cost(self.tokens, report),
            None => Charge::default().cost(self.tokens, report),
        };
        (cost > Tokens::ZERO).then(|| Self { tokens: cost, ..self.clone() })
    }

    /// The upstream at which it applies.
    pub const fn upstream(&self) -> &Name {
        &self.upstream
    }

    /// The bucket's key.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The bucket's rule.
    pub const fn spec(&self) -> &BucketSpec {
        &self.spec
    }

    /// How many tokens it takes.
    pub const fn tokens(&self) -> Tokens {
        self.tokens
    }
}

/// A job to enqueue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// Chosen by the caller; repeating an id returns the same job.
    pub id: JobId,
    /// Its lane.
    pub lane: Name,
    /// The tenant it belongs to.
    pub tenant: Arc<str>,
    /// Its priority.
    pub level: Level,
    /// What to send.
    pub payload: Payload,
    /// `id` (outboxId) or `Idempotency-Key`, unique per lane.
    pub key: Option<Arc<str>>,
    /// Distinguishes requests under one key, if not the whole payload should: a repeat may differ in its headers.
    pub fingerprint: Option<u64>,
    /// Jobs of the lane with the same cache key share an answer; ignored by a lane without a cache.
    pub cache_key: Option<Arc<str>>,
    /// How long it may wait; `None` uses the lane's TTL.
    pub ttl: Option<Span>,
    /// How long to delay it.
    pub delay: Span,
    /// The upstreams it may use; `None` uses the lane's chain.
    pub chain: Option<Vec<Name>>,
    /// What it takes from scoped buckets.
    pub holds: Vec<Hold>,
    /// Identifies its call to later events that earn tokens back.
    pub correlation: Option<Correlation>,
    /// The callback URL that its end is reported to.
    pub callback: Option<Arc<str>>,
    /// How long the caller waits for its end, if that matters to the lane.
    pub caller_waits: Option<Span>,
}

impl NewJob {
    /// A job of normal priority with the lane's defaults.
    pub fn new(id: JobId, lane: Name, tenant: &str, payload: impl Into<Payload>) -> Self {
        Self {
            id,
            lane,
            tenant: tenant.into(),
            level: Level::Normal,
            payload: payload.into(),
            key: None,
            fingerprint: None,
            cache_key: None,
            ttl: None,
            delay: Span::ZERO,
            chain: None,
            holds: Vec::new(),
            correlation: None,
            callback: None,
            caller_waits: None,
        }
    }

    /// Distinguishes this request from another one with the same key.
    pub fn identity(&self) -> u64 {
        self.fingerprint.unwrap_or_else(|| fingerprint(&self.payload))
    }

    /// Validates the job. `exists` says which upstreams exist, `in_lane` which are in the lane's own chain.
    pub fn check(
        &self,
        exists: impl Fn(&Name) -> bool,
        in_lane: impl Fn(&Name) -> bool,
    ) -> Result<(), SpecError> {
        if self.payload.len() > MAX_PAYLOAD {
            return Err(SpecError::new("payload", format!("has more than {MAX_PAYLOAD} bytes")));
        }
        if self.ttl.is_some_and(Span::is_zero) {
            return Err(SpecError::new("ttl", "must be greater than zero"));
        }
        if let Some(names) = &self.chain {
            let own = Chain::new(names.clone())?;
            if let Some(name) = own.names().iter().find(|name| !exists(name)) {
                let problem = format!("names the unknown upstream {:?}", name.as_str());
                return Err(SpecError::new("chain", problem));
            }
        }
        for (at, hold) in self.holds.iter().enumerate() {
            let same = |other: &Hold| other.upstream == hold.upstream && other.bucket == hold.bucket;
            if self.holds[..at].iter().any(same) {
                return Err(SpecError::new("holds", format!("bucket {:?} is named twice", hold.bucket)));
            }
            let in_chain = self
                .chain
                .as_ref()
                .map_or_else(|| in_lane(&hold.upstream), |own| own.contains(&hold.upstream));
            if !in_chain {
                return Err(SpecError::new("holds", format!("{} is not in the job's chain", hold.upstream)));
            }
        }
        Ok(())
    }
}

/// The status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Scheduled, or waiting for a retry.
    Pending,
    /// Waiting for its turn.
    Queued,
    /// A worker or an upstream is working on it.
    Processing,
    /// It succeeded.
    Completed,
    /// It failed permanently.
    Failed,
    /// It was dropped before it was sent.
    Dropped,
    /// It was cancelled.
    Cancelled,
}

impl Status {
    /// Its name in the API, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Queued => "queued",
            Status::Processing => "processing",
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Dropped => "dropped",
            Status::Cancelled => "cancelled",
        }
    }

    /// Whether the job has ended.
    pub const fn is_final(self) -> bool {
        matches!(self, Status::Completed | Status::Failed | Status::Dropped | Status::Cancelled)
    }
}

/// Why a job was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// It waited longer than its TTL.
    TtlExpired,
    /// A more urgent job took its place in a full lane.
    Preempted,
    /// The lane was full and had no less urgent job to evict.
    QueueFull,
    /// It could not start before it expires.
    NotInTime,
}

impl DropReason {
    /// Its name in the API, logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            DropReason::TtlExpired => "ttl_expired",
            DropReason::Preempted => "preempted",
            DropReason::QueueFull => "queue_full",
            DropReason::NotInTime => "not_in_time",
        }
    }
}

/// Why an attempt failed, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The reason, from the upstream or from Eclusa; never empty.
    pub reason: FailureReason,
    /// The HTTP status, SMTP reply or SES code, if there was one.
    pub code: Option<Arc<str>>,
    /// When it failed.
    pub at: Time,
    /// The upstream that failed.
    pub upstream: Option<Name>,
}

/// Why an attempt failed, as the worker reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFailure {
    /// The reason, from the upstream or from Eclusa; never empty.
    pub reason: FailureReason,
    /// The HTTP status, SMTP reply or SES code, if there was one.
    pub code: Option<Arc<str>>,
    /// The upstream that failed.
    pub upstream: Option<Name>,
}

impl CallFailure {
    /// Adds the time at which the store received it.
    pub fn at(self, at: Time) -> Failure {
        let Self { reason, code, upstream } = self;
        Failure { reason, code, at, upstream }
    }
}

/// A non-empty reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureReason(Arc<str>);

impl FailureReason {
    /// Checks that `text` is not blank.
    pub fn new(text: &str) -> Result<Self, SpecError> {
        if text.trim().is_empty() {
            return Err(SpecError::new("lastFailureReason", "must not be empty"));
        }
        Ok(Self(text.into()))
    }

    /// A reason from the source code, which is never blank.
    pub fn fixed(text: &'static str) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A job as shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView {
    /// Its id.
    pub id: JobId,
    /// Its lane.
    pub lane: Name,
    /// The tenant it belongs to.
    pub tenant: Arc<str>,
    /// Its priority.
    pub level: Level,
    /// `id` (outboxId) or `Idempotency-Key`.
    pub key: Option<Arc<str>>,
    /// The key that equal jobs share.
    pub cache_key: Option<Arc<str>>,
    /// Its status.
    pub status: Status,
    /// How it was completed, if not by a successful call of its own.
    pub served: Option<ServedBy>,
    /// Why it was dropped, if it was.
    pub dropped: Option<DropReason>,
    /// When it was created.
    pub created_at: Time,
    /// It does not start after this time.
    pub expires_at: Time,
    /// The earliest start, while pending.
    pub due_at: Option<Time>,
    /// Number of attempts started.
    pub attempts: u32,
    /// The upstream it is or was sent to.
    pub upstream: Option<Name>,
    /// Its id at the upstream it was last submitted to.
    pub external: Option<Arc<str>>,
    /// The lease it runs under.
    pub lease: Option<LeaseId>,
    /// Where the lease holds a slot: at `upstream`, or at the key of it that the call uses ([`Name::key`]).
    pub at: Option<Name>,
    /// Its last failure.
    pub last_failure: Option<Failure>,
    /// What to send.
    pub payload: Payload,
    /// The upstream's answer.
    pub result: Option<Payload>,
    /// Its history.
    pub timeline: Vec<Event<Name>>,
    /// Whether it has a dead letter, which can be replayed.
    pub dead_letter: bool,
}

impl JobView {
    /// The number of lines in its history, including omitted ones.
    pub fn lines(&self) -> u64 {
        numbered(&self.timeline).last().map_or(0, |(number, _)| number)
    }
}
