//! Read-only views of a store's state, and the queries for them.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::dead_letter::LetterAges;
use crate::durations::Quantiles;
use crate::error::SpecError;
use crate::gate::{BreakerView, GateSpecs, GateView, Gates, PaceView, Reason};
use crate::ids::{JobId, Name};
use crate::job::{JobView, Status};
use crate::lane::{SATURATED, Totals, priority};
use crate::policy::{BucketId, Scope};
use crate::time::{Span, Time};
use crate::tokens::Tokens;

/// Selects jobs; absent fields do not restrict.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobQuery {
    /// In this lane.
    pub lane: Option<Name>,
    /// Of this tenant.
    pub tenant: Option<Arc<str>>,
    /// With this status.
    pub status: Option<Status>,
    /// With this id at the upstream.
    pub external: Option<Arc<str>>,
    /// With this id: the `id` (outboxId) or `Idempotency-Key` given by the caller, unique per lane, or the job's own
    /// id.
    pub key: Option<Arc<str>>,
    /// Created at this time or later.
    pub since: Option<Time>,
    /// Created at this time or earlier.
    pub until: Option<Time>,
    /// Where to start: the cursor of the previous page.
    pub after: Option<JobCursor>,
    /// The most jobs to return, capped at [`MAX_BATCH`](crate::MAX_BATCH).
    pub max: usize,
}

/// A position in the order of jobs by age. It stays valid when its job is removed, and across restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobCursor {
    /// When the job was created.
    pub created_at: Time,
    /// The job.
    pub job: JobId,
}

impl JobCursor {
    /// Before the newest job.
    pub(crate) const START: JobCursor = JobCursor { created_at: Time::NEVER, job: JobId(u128::MAX) };
}

impl fmt::Display for JobCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.created_at.as_millis(), self.job)
    }
}

impl FromStr for JobCursor {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let parts = text.split_once('.').and_then(|(ms, job)| Some((ms.parse().ok()?, job.parse().ok()?)));
        let bad = || SpecError::new("cursor", format!("{text:?} is not a cursor of a previous page"));
        parts.map(|(ms, job)| Self { created_at: Time::from_millis(ms), job }).ok_or_else(bad)
    }
}

/// A page of jobs, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobPage {
    /// The jobs. A page may be short or empty without being the last.
    pub jobs: Vec<JobView>,
    /// Where the next page starts; `None` after the last page.
    pub next: Option<JobCursor>,
}

/// The position of a waiting job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its status.
    pub status: Status,
    /// About how many jobs are ahead of it.
    pub position: u64,
    /// The estimated start, if one can be given.
    pub eta: Option<Time>,
    /// It does not start after this time.
    pub expires_at: Time,
}

/// Why a job waits and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// Its status.
    pub status: Status,
    /// What it waits for, if it waits.
    pub reason: Option<Reason>,
    /// The upstream it waits for, if it waits for one.
    pub upstream: Option<Name>,
    /// Its tenant, if it waits for a limit of that tenant.
    pub of_tenant: Option<Arc<str>>,
    /// The scoped bucket it waits for, if it waits for one.
    pub of_bucket: Option<BucketId>,
    /// Until when that holds it, if that is known.
    pub until: Option<Time>,
    /// About how many jobs are ahead of it.
    pub position: u64,
    /// The estimated start, if one can be given.
    pub eta: Option<Time>,
    /// Whether it will expire before that.
    pub will_expire: bool,
    /// All gates that it must pass: of its lane, its tenant, its upstreams and its scoped buckets.
    pub gates: Vec<(GateOwner, GateView)>,
}

/// Whose gate it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateOwner {
    /// The lane's.
    Lane,
    /// This tenant's in the lane.
    Tenant(Arc<str>),
    /// This upstream's, or that of one of its keys.
    Upstream(Name),
    /// This scoped bucket.
    Bucket(BucketId),
}

/// A lane as shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneView {
    /// Its name.
    pub name: Name,
    /// Whether it is paused.
    pub paused: bool,
    /// Since when, if it is paused and that is known.
    pub paused_since: Option<Time>,
    /// Jobs in lines: high, normal, low.
    pub queued: [u64; 3],
    /// Jobs that are scheduled or wait for a retry.
    pub pending: u64,
    /// Jobs that a worker or an upstream is working on.
    pub processing: u64,
    /// Payload bytes of waiting jobs.
    pub waiting_bytes: u64,
    /// Finished jobs still kept.
    pub finished: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// When the oldest dead letter was written.
    pub oldest_dead_letter: Option<Time>,
    /// Until when the oldest dead letter is kept.
    pub dead_letters_until: Option<Time>,
    /// The code that most dead letters failed with, and their number.
    pub top_code: Option<(Arc<str>, u64)>,
    /// The tenant with the most dead letters, and their number.
    pub top_tenant: Option<(Arc<str>, u64)>,
    /// The ages of removed dead letters: replayed, discarded or expired.
    pub letter_ages: LetterAges,
    /// When the oldest job in a line was created.
    pub oldest_waiting: Option<Time>,
    /// How many jobs may wait; `None` while no process has rules for the lane.
    pub capacity: Option<u64>,
    /// Counters since the lane was created.
    pub totals: Totals,
    /// Its own gates.
    pub gates: Vec<GateView>,
    /// Where its jobs go unless they name their own upstreams, in order.
    pub chain: Vec<Name>,
    /// How long a job may wait; `None` is for ever.
    pub ttl: Option<Span>,
    /// What keeps its next job from starting; `None` if nothing does or none waits.
    pub held: Option<LaneHold>,
    /// About when the last job in line will start; `None` if it cannot be estimated. Limits per tenant and the chains of single
    /// jobs are not looked at.
    pub last_start: Option<Time>,
    /// About how many jobs will expire before they start; 0 if that cannot be estimated.
    pub will_expire: u64,
}

/// What keeps the next job of a lane from starting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneHold {
    /// What it waits for.
    pub reason: Reason,
    /// The upstream whose gate says so, if it is one.
    pub upstream: Option<Name>,
    /// Until when, if that is known.
    pub until: Option<Time>,
}

/// The last call to an upstream that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastFailure {
    /// The HTTP status, SMTP reply, SES code, or a word for a failure without an answer.
    pub code: Arc<str>,
    /// When the call failed.
    pub at: Time,
}

/// An upstream as shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamView {
    /// Its name.
    pub name: Name,
    /// Running calls.
    pub in_flight: u32,
    /// Failures in a row that the breaker counts.
    pub failures: u32,
    /// Until when the breaker is open, if it is.
    pub degraded_until: Option<Time>,
    /// Its breaker, if it has one.
    pub breaker: Option<BreakerView>,
    /// The balance of its own bucket, if it has one.
    pub tokens: Option<Tokens>,
    /// Calls that began in the last 60 s: exact below 128, above that each may count for up to a second longer.
    pub starts_last_minute: u64,
    /// Its gates.
    pub gates: Vec<GateView>,
    /// Its pace, if it has one.
    pub pace: Option<PaceView>,
    /// About how many calls failed in the last minute. The engine that decides counts it, from when it began to; the same
    /// holds for the next two.
    pub errors_last_minute: u64,
    /// How long the calls of the last minute took until their answers began.
    pub latency: Option<Quantiles>,
    /// The last call that failed.
    pub last_failure: Option<LastFailure>,
}

impl UpstreamView {
    /// The state of upstream `name` at `now`. `slot_free_at` is when the first lease expires.
    pub fn of(
        name: &Name,
        spec: Option<&GateSpecs>,
        gates: &Gates,
        now: Time,
        slot_free_at: Time,
    ) -> UpstreamView {
        UpstreamView {
            name: name.clone(),
            in_flight: gates.in_flight(),
            failures: gates.breaker().failures(now),
            degraded_until: gates.breaker().degraded_until(now),
            breaker: spec.and_then(|spec| gates.breaker_view(spec, now)),
            tokens: spec.and_then(|spec| gates.tokens(spec, now)),
            starts_last_minute: gates.starts_last_minute(now),
            gates: spec.map_or(Vec::new(), |spec| gates.view(spec, now, slot_free_at)),
            pace: spec.and_then(|spec| gates.pace_view(spec)),
            errors_last_minute: 0,
            latency: None,
            last_failure: None,
        }
    }
}

/// Selects buckets; absent fields do not restrict.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BucketQuery {
    /// Of this upstream.
    pub upstream: Option<Name>,
    /// Under this policy.
    pub policy: Option<Name>,
    /// Of this scope, under each policy and class.
    pub scope: Option<Scope>,
    /// Where to start: zero, or the cursor of the previous page.
    pub after: u64,
    /// The most buckets to return, capped at [`MAX_BATCH`](crate::MAX_BATCH).
    pub max: usize,
    /// Only buckets without a scope, which all requests under a policy share.
    pub shared: bool,
    /// Of the buckets that one step examines, those closest to empty, in this order. Not for `scope` and `shared`.
    pub lowest: bool,
}

/// A page of buckets, in no particular order unless `lowest` is set. A full, unused bucket is not stored and not listed;
/// its balance follows from the rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BucketPage {
    /// The buckets. A page may be short or empty without being the last.
    pub buckets: Vec<BucketView>,
    /// Where the next page starts; `None` after the last page. It is not valid after a restart.
    pub next: Option<u64>,
}

/// One scope's balance under a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketView {
    /// Its identity.
    pub id: BucketId,
    /// Its current balance; negative means debt.
    pub available: Tokens,
    /// Its balance when full.
    pub capacity: Tokens,
    /// How much it gains per `period`.
    pub refill: Tokens,
    /// The refill period; `refill` and `period` are in lowest terms.
    pub period: Span,
    /// Tokens held by running calls.
    pub held: Tokens,
    /// When the upstream's Retry-After for it ends, if there is one.
    pub closed_until: Option<Time>,
    /// About how much calls cost in the last minute. Counted by the current owner's engine only, since it started.
    pub spent_last_minute: Tokens,
    /// About how much events gave back in the last minute, counted in the same way.
    pub credited_last_minute: Tokens,
}

impl BucketView {
    /// The time until it is empty at the rates of the last minute; `None` if it does not run out.
    pub fn empty_in(&self) -> Option<Span> {
        let available = i128::from(self.available.as_micro());
        if available <= 0 {
            return Some(Span::ZERO);
        }
        let (minute, period) = (60_000, i128::from(self.period.as_millis().max(1)));
        let spent = i128::from((self.spent_last_minute - self.credited_last_minute).as_micro()) * period;
        let lost = spent - i128::from(self.refill.as_micro()) * minute;
        let ms = (lost > 0).then(|| available * minute * period / lost)?;
        Some(Span::from_millis(u64::try_from(ms).unwrap_or(u64::MAX)))
    }

    /// Orders buckets by how close to empty they are: debts first, then what runs out soonest, then what has the smallest
    /// share left.
    pub fn urgency(&self) -> impl Ord + use<> {
        let [available, capacity] =
            [self.available, self.capacity].map(|tokens| i128::from(tokens.as_micro()));
        let left_per_million = available * 1_000_000 / capacity.max(1);
        (available >= 0, self.empty_in().map_or(u64::MAX, Span::as_millis), left_per_million)
    }
}

/// Calls to an upstream that failed with one code, and how their retries went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeView {
    /// The HTTP status, SMTP reply, SES code, or a name for a failure without an answer.
    pub code: Arc<str>,
    /// Calls that failed with it.
    pub seen: u64,
    /// How many of their jobs succeeded there with the next call.
    pub cured: u64,
    /// How many of their jobs failed there with the next call.
    pub failed_again: u64,
}

/// Selects tenants of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantQuery {
    /// The lane.
    pub lane: Name,
    /// Only those whose names match one of these patterns.
    pub names: Option<Vec<Arc<str>>>,
    /// Where to start: zero, or `next` of the previous page.
    pub after: u32,
    /// The most tenants to return.
    pub max: usize,
    /// Of the tenants that one step examines, those that come first by [`TenantView::urgency`], in that order.
    pub busiest: bool,
}

impl TenantQuery {
    /// The first `max` tenants of `lane`.
    pub fn new(lane: Name, max: usize) -> Self {
        Self { lane, names: None, after: 0, max, busiest: false }
    }
}

/// A page of tenants, in no particular order unless `busiest` is set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantPage {
    /// The tenants. A page may be short or empty without being the last.
    pub tenants: Vec<TenantView>,
    /// Where the next page starts; `None` after the last page.
    pub next: Option<u32>,
}

/// How fair a lane is to one tenant (`TenantFairnessMetrics`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantView {
    /// `companyId`.
    pub tenant: Arc<str>,
    /// When a job of it last started.
    pub last_processed: Option<Time>,
    /// Turns of other tenants since its own.
    pub rounds_without_processing: i64,
    /// `max(1, 5 - rounds)`: 1 is the most urgent.
    pub current_priority: i64,
    /// Jobs of it started so far.
    pub total_processed: u64,
    /// Jobs of it started in a row.
    pub consecutive_batch: u32,
    /// Jobs of it that wait, including retries and scheduled jobs.
    pub waiting: u64,
    /// Jobs of it that a worker or an upstream has.
    pub processing: u64,
    /// How many batches in a row it gets while others wait.
    pub weight: u32,
    /// Whether the next job to start is one of its: of the most urgent level whose upstreams admit a job or, if none do, of the
    /// most urgent level. At most one tenant of a lane has it.
    pub next: bool,
}

impl TenantView {
    /// A tenant of weight one without jobs, which has waited for `rounds` turns, or was never served.
    pub fn of(tenant: Arc<str>, rounds: Option<i64>) -> Self {
        let rounds = rounds.unwrap_or(SATURATED);
        Self {
            tenant,
            last_processed: None,
            rounds_without_processing: rounds,
            current_priority: priority(rounds),
            total_processed: 0,
            consecutive_batch: 0,
            waiting: 0,
            processing: 0,
            weight: 1,
            next: false,
        }
    }

    /// Orders tenants: the one that is served next, then those with the most waiting jobs, then those served most.
    pub fn urgency(&self) -> impl Ord + use<> {
        (!self.next, Reverse(self.waiting), Reverse(self.total_processed), self.tenant.clone())
    }
}
