//! What a store shows to those who only look.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::dead_letter::LetterAges;
use crate::error::SpecError;
use crate::gate::{BreakerView, GateSpecs, GateView, Gates, PaceView, Reason};
use crate::ids::{JobId, Name};
use crate::job::{JobView, Status};
use crate::lane::{SATURATED, Totals, priority};
use crate::policy::{BucketId, Scope};
use crate::time::{Span, Time};
use crate::tokens::Tokens;

/// Which jobs to show; what is absent does not narrow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobQuery {
    /// Of this lane.
    pub lane: Option<Name>,
    /// Of this tenant.
    pub tenant: Option<Arc<str>>,
    /// In this part of their life.
    pub status: Option<Status>,
    /// Called so by the upstream that works or worked on them.
    pub external: Option<Arc<str>>,
    /// With this id: the `id` (outboxId) or `Idempotency-Key` that its caller gave, of which each lane has one at the most, or
    /// its own.
    pub key: Option<Arc<str>>,
    /// That came in then or later.
    pub since: Option<Time>,
    /// That came in then or earlier.
    pub until: Option<Time>,
    /// Go on from there: what the last page said.
    pub after: Option<JobCursor>,
    /// How many at the most; no more than [`MAX_BATCH`](crate::MAX_BATCH) are shown.
    pub max: usize,
}

/// A place in the order of jobs by age. It stays valid when the job there is gone, and over a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobCursor {
    /// When the job came in.
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
        let bad = || SpecError::new("cursor", format!("{text:?} is not one that a page gave"));
        parts.map(|(ms, job)| Self { created_at: Time::from_millis(ms), job }).ok_or_else(bad)
    }
}

/// Some jobs, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobPage {
    /// Those found. A page may be short, or empty, and still not be the last.
    pub jobs: Vec<JobView>,
    /// Where to go on; `None` when all were looked at.
    pub next: Option<JobCursor>,
}

/// Where a job is among those that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where it is in its life.
    pub status: Status,
    /// About how many jobs go before it.
    pub position: u64,
    /// When it will start, as far as can be told.
    pub eta: Option<Time>,
    /// After when it is not started any more.
    pub expires_at: Time,
}

/// Why a job waits and until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    /// Where it is in its life.
    pub status: Status,
    /// What it waits for, if it waits.
    pub reason: Option<Reason>,
    /// At which upstream.
    pub upstream: Option<Name>,
    /// The tenant, where it waits for a limit of its tenant.
    pub of_tenant: Option<Arc<str>>,
    /// About how many jobs go before it.
    pub position: u64,
    /// When it will start, as far as can be told.
    pub eta: Option<Time>,
    /// Whether it will be too old by then.
    pub will_expire: bool,
    /// The gates of its upstreams.
    pub gates: Vec<(Name, Vec<GateView>)>,
}

/// A lane as shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneView {
    /// Its name.
    pub name: Name,
    /// Whether it is paused.
    pub paused: bool,
    /// Jobs in lines: high, normal, low.
    pub queued: [u64; 3],
    /// Jobs held back.
    pub pending: u64,
    /// Jobs that a worker or an upstream has.
    pub processing: u64,
    /// Bytes of payload that wait.
    pub waiting_bytes: u64,
    /// Finished jobs still remembered.
    pub finished: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// When the oldest of them was written.
    pub oldest_dead_letter: Option<Time>,
    /// How old dead letters were that went: replayed, discarded or kept long enough.
    pub letter_ages: LetterAges,
    /// When the oldest job that waits in a line came in.
    pub oldest_waiting: Option<Time>,
    /// How many jobs may wait; `None` while no process has rules for the lane.
    pub capacity: Option<u64>,
    /// What happened so far.
    pub totals: Totals,
    /// Its own gates.
    pub gates: Vec<GateView>,
}

/// An upstream as shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamView {
    /// Its name.
    pub name: Name,
    /// Calls under way.
    pub in_flight: u32,
    /// Failures in a row that the breaker counts.
    pub failures: u32,
    /// Until when the breaker is open, if it is.
    pub degraded_until: Option<Time>,
    /// Its breaker, if it has one.
    pub breaker: Option<BreakerView>,
    /// What its own bucket holds now, if it has one.
    pub tokens: Option<Tokens>,
    /// Calls that began in the last 60 s. Above 128 it may include some of the second before.
    pub starts_last_minute: u64,
    /// Its gates.
    pub gates: Vec<GateView>,
    /// Its pace, if it has one.
    pub pace: Option<PaceView>,
}

impl UpstreamView {
    /// What the gates of upstream `name` show at `now`. `slot_free_at` is when a slot comes back by itself.
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
        }
    }
}

/// Which buckets to show; what is absent does not narrow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BucketQuery {
    /// Of this upstream.
    pub upstream: Option<Name>,
    /// Under this policy.
    pub policy: Option<Name>,
    /// Of this scope, under each policy and class.
    pub scope: Option<Scope>,
    /// Go on from there: zero, or what the last page said.
    pub after: u64,
    /// How many at the most; no more than [`MAX_BATCH`](crate::MAX_BATCH) are shown.
    pub max: usize,
    /// Only those that all requests under a policy share.
    pub shared: bool,
}

/// Some buckets, in no particular order. One that is full and unused is not known: whoever has the rules knows what it
/// holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BucketPage {
    /// Those found. A page may be short, or empty, and still not be the last.
    pub buckets: Vec<BucketView>,
    /// Where to go on; `None` when all were looked at. It does not outlive a restart.
    pub next: Option<u64>,
}

/// One scope's balance under a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketView {
    /// Which it is.
    pub id: BucketId,
    /// What it holds now; less than nothing is debt.
    pub available: Tokens,
    /// What it holds when full.
    pub capacity: Tokens,
    /// It gains so much…
    pub refill: Tokens,
    /// …in so long, in lowest terms.
    pub period: Span,
    /// What calls under way hold.
    pub held: Tokens,
    /// Until when the upstream's word keeps it closed, if it does.
    pub closed_until: Option<Time>,
    /// What calls cost in the last minute, about. The engine that decides counts it, from when it began to.
    pub spent_last_minute: Tokens,
}

impl BucketView {
    /// When nothing is left if as much is spent as in the last minute; `None` if it does not run out.
    pub fn empty_in(&self) -> Option<Span> {
        let available = i128::from(self.available.as_micro());
        if available <= 0 {
            return Some(Span::ZERO);
        }
        let (minute, period) = (60_000, i128::from(self.period.as_millis().max(1)));
        let spent = i128::from(self.spent_last_minute.as_micro()) * period;
        let lost = spent - i128::from(self.refill.as_micro()) * minute;
        let ms = (lost > 0).then(|| available * minute * period / lost)?;
        Some(Span::from_millis(u64::try_from(ms).unwrap_or(u64::MAX)))
    }
}

/// What became of calls to an upstream that failed with one code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeView {
    /// The HTTP status, SMTP reply, SES code, or a word for a failure without an answer.
    pub code: Arc<str>,
    /// Calls that failed with it.
    pub seen: u64,
    /// Those whose job succeeded there with the next call.
    pub cured: u64,
    /// Those whose job failed there with the next call.
    pub failed_again: u64,
}

/// How fair a lane is to one tenant (`TenantFairnessMetrics`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantView {
    /// `companyId`.
    pub tenant: Arc<str>,
    /// When a job of it was last started.
    pub last_processed: Option<Time>,
    /// Turns that passed since its own.
    pub rounds_without_processing: i64,
    /// `max(1, 5 - rounds)`: 1 is the most urgent.
    pub current_priority: i64,
    /// Jobs of it started so far.
    pub total_processed: u64,
    /// Jobs of it started in a row.
    pub consecutive_batch: u32,
    /// Jobs of it that wait, retries and scheduled ones included.
    pub waiting: u64,
    /// Jobs of it that a worker or an upstream has.
    pub processing: u64,
    /// How many batches it may have in a row while others wait.
    pub weight: u32,
}

impl TenantView {
    /// A tenant of weight one without jobs that has waited for `rounds` turns, or was never served.
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
        }
    }
}
