//! Jobs: what comes in, what they become, what is shown of them.

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

/// The request or message a job carries, or the result it left; the engine does not look inside.
pub type Payload = Arc<[u8]>;

/// Priority: high before normal before low, always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Level {
    /// Served first.
    High,
    /// Where a job goes that says nothing.
    #[default]
    Normal,
    /// Served last, evicted first.
    Low,
}

impl Level {
    /// In the order in which they are served.
    pub const ALL: [Level; 3] = [Level::High, Level::Normal, Level::Low];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Level::High => "high",
            Level::Normal => "normal",
            Level::Low => "low",
        }
    }
}

/// No job carries more, so that a batch of them fits a chunk of the journal.
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
    /// Takes `tokens` from the bucket with key `bucket`, which must be able to hold them.
    pub fn new(upstream: Name, bucket: &str, spec: BucketSpec, tokens: Tokens) -> Result<Self, SpecError> {
        if bucket.is_empty() {
            return Err(SpecError::new("bucket", "the key must not be empty"));
        }
        Ok(Self { upstream, bucket: bucket.into(), spec, tokens: spec.check_hold(tokens)?, terms: None })
    }

    /// A hold as it was written down; the bucket's rule may have changed since, to less than the hold.
    pub fn restore(upstream: Name, bucket: &str, spec: BucketSpec, tokens: Tokens) -> Self {
        Self { upstream, bucket: bucket.into(), spec, tokens, terms: None }
    }

    /// The same under these terms, which from now on are those of all buckets of the policy and class. Without, the
    /// terms that are known for them stay; if none are, a call costs its hold.
    #[must_use]
    pub fn under(self, terms: Arc<Terms>) -> Self {
        Self { terms: Some(terms), ..self }
    }

    /// Of what a call takes at `upstream` that from the bucket which the fewest others use.
    pub fn narrowest<'a>(holds: &'a [Hold], upstream: &Name) -> Option<&'a Hold> {
        let own = holds.iter().filter(|hold| hold.upstream == *upstream);
        own.min_by_key(|hold| width(&hold.bucket, hold.spec.capacity()))
    }

    /// What a call cost that ended so; what its bucket really gave for it.
    #[must_use]
    pub fn settled(&self, report: &Report) -> Option<Self> {
        let cost = match &self.terms {
            Some(terms) => terms.charge.cost(self.tokens, report),
            None => Charge::default().cost(self.tokens, report),
        };
        (cost > Tokens::ZERO).then(|| Self { tokens: cost, ..self.clone() })
    }

    /// Where.
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

    /// How many.
    pub const fn tokens(&self) -> Tokens {
        self.tokens
    }
}

/// A job to enqueue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// Chosen by the caller; the same id again is the same job again.
    pub id: JobId,
    /// Where it queues.
    pub lane: Name,
    /// Whose it is.
    pub tenant: Arc<str>,
    /// How urgent it is.
    pub level: Level,
    /// What is to be sent.
    pub payload: Payload,
    /// `id` (outboxId) or `Idempotency-Key`, unique per lane.
    pub key: Option<Arc<str>>,
    /// Tells two requests under one key apart, if not all of the payload does: a repeat may differ in its headers.
    pub fingerprint: Option<u64>,
    /// Jobs of the lane under one key want the same answer; nothing to a lane without a cache.
    pub cache_key: Option<Arc<str>>,
    /// How long it may wait, if not as long as the lane says.
    pub ttl: Option<Span>,
    /// How long to hold it back first.
    pub delay: Span,
    /// The upstreams it may use, if not those of the lane.
    pub chain: Option<Vec<Name>>,
    /// What it takes from scoped buckets.
    pub holds: Vec<Hold>,
    /// What ties a later event to its call, so that it can earn a credit.
    pub correlation: Option<Correlation>,
    /// Where its end is to be told, if anywhere.
    pub callback: Option<Arc<str>>,
    /// How long its caller waits for its end, if that matters to the lane.
    pub caller_waits: Option<Span>,
}

impl NewJob {
    /// A job of normal priority under the lane's own rules.
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

    /// What tells this request from another one under the same key.
    pub fn identity(&self) -> u64 {
        self.fingerprint.unwrap_or_else(|| fingerprint(&self.payload))
    }

    /// Whether everything about it is possible, where there are the upstreams that `exists` says and the lane's own chain
    /// has those that `in_lane` says.
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

/// Where a job is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Held back: scheduled, or between attempts.
    Pending,
    /// Waits for its turn.
    Queued,
    /// A worker has it, or the upstream works on it.
    Processing,
    /// It succeeded.
    Completed,
    /// It failed for good.
    Failed,
    /// It was given up before it was sent.
    Dropped,
    /// Somebody cancelled it.
    Cancelled,
}

impl Status {
    /// The word for it.
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

    /// Whether nothing more will happen to it.
    pub const fn is_final(self) -> bool {
        matches!(self, Status::Completed | Status::Failed | Status::Dropped | Status::Cancelled)
    }
}

/// Why a job was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// It waited longer than it may.
    TtlExpired,
    /// A more urgent one took its place in a full lane.
    Preempted,
    /// The lane was full and nothing below it could go.
    QueueFull,
    /// It could not have started before it expires.
    NotInTime,
}

impl DropReason {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            DropReason::TtlExpired => "ttl_expired",
            DropReason::Preempted => "preempted",
            DropReason::QueueFull => "queue_full",
            DropReason::NotInTime => "not_in_time",
        }
    }
}

/// Why an attempt failed, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Said by the upstream or by us; never empty.
    pub reason: FailureReason,
    /// The HTTP status, SMTP reply or SES code, if there was one.
    pub code: Option<Arc<str>>,
    /// When.
    pub at: Time,
    /// At which upstream.
    pub upstream: Option<Name>,
}

/// Why an attempt failed, as its worker tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFailure {
    /// Said by the upstream or by us; never empty.
    pub reason: FailureReason,
    /// The HTTP status, SMTP reply or SES code, if there was one.
    pub code: Option<Arc<str>>,
    /// At which upstream.
    pub upstream: Option<Name>,
}

impl CallFailure {
    /// The failure as a store keeps it that hears of it at `at`.
    pub fn at(self, at: Time) -> Failure {
        let Self { reason, code, upstream } = self;
        Failure { reason, code, at, upstream }
    }
}

/// A reason that says something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureReason(Arc<str>);

impl FailureReason {
    /// `text`, unless it is empty or blank.
    pub fn new(text: &str) -> Result<Self, SpecError> {
        if text.trim().is_empty() {
            return Err(SpecError::new("lastFailureReason", "must not be empty"));
        }
        Ok(Self(text.into()))
    }

    /// A text that was written here, so that it says something.
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
    /// Its identity.
    pub id: JobId,
    /// Its lane.
    pub lane: Name,
    /// Whose it is.
    pub tenant: Arc<str>,
    /// Its priority.
    pub level: Level,
    /// `id` (outboxId) or `Idempotency-Key`.
    pub key: Option<Arc<str>>,
    /// What makes it equal to others.
    pub cache_key: Option<Arc<str>>,
    /// Where it is in its life.
    pub status: Status,
    /// Whose answer it got, if it was completed without a call of its own that succeeded.
    pub served: Option<ServedBy>,
    /// Why it was dropped, if it was.
    pub dropped: Option<DropReason>,
    /// When it came in.
    pub created_at: Time,
    /// After when it is not started any more.
    pub expires_at: Time,
    /// When it starts at the earliest, while pending.
    pub due_at: Option<Time>,
    /// Attempts begun so far.
    pub attempts: u32,
    /// The upstream it is or was at.
    pub upstream: Option<Name>,
    /// What the upstream that it was last submitted to calls it.
    pub external: Option<Arc<str>>,
    /// The lease it runs under.
    pub lease: Option<LeaseId>,
    /// Where that lease is: at `upstream`, or at the key of it with which the call is made ([`Name::key`]).
    pub at: Option<Name>,
    /// Its last failure.
    pub last_failure: Option<Failure>,
    /// What was to be sent.
    pub payload: Payload,
    /// What came back.
    pub result: Option<Payload>,
    /// Its history.
    pub timeline: Vec<Event<Name>>,
}

impl JobView {
    /// How many lines its history has, with those that are left out.
    pub fn lines(&self) -> u64 {
        numbered(&self.timeline).last().map_or(0, |(number, _)| number)
    }
}
