//! Dispatch: which jobs may start now, and where.
//!
//! Levels are served in order. Within a level, the oldest line of the tenant whose turn it is is offered to the first
//! upstream of its chain whose gates admit it. If no upstream admits it, its whole group is skipped. Gates of an
//! upstream treat all jobs alike, so they deny lower levels too, which therefore cannot starve the group. A line that
//! only its own scoped bucket or a limit of its tenant denies is parked there. Other lines pass it, but later lines
//! take nothing from that bucket first.

use super::Engine;
use super::jobs::Phase;
use super::leases::{Lease, Use};
use super::tenant_limits::TenantHold;
use crate::gate::{NotUntil, Pass, Reason};
use crate::ids::LeaseId;
use crate::job::{DropReason, Level};
use crate::lane::{Choice, Closed, HoldCause, JobHold, Rank};
use crate::table::{BucketIx, JobIx, LaneIx, UpstreamIx};
use crate::time::{Span, Time};
use crate::timeline::{EventKind, Waited};
use crate::tokens::Tokens;
use crate::verbs::{Denied, Dispatch, Dispatched, Grant, MAX_BATCH};

/// Lines that one dispatch examines before it answers "ask again at once".
pub(super) const MAX_SCANNED: usize = 4 * MAX_BATCH;

/// A dispatch stops granting once the payloads reach this size, so that its answer fits into one message.
const MAX_GRANTED_BYTES: usize = 4 << 20;

/// A parked line with other upstreams in its chain checks those again after this long.
const PARKED_WITH_CHOICE: Span = Span::from_secs(1);

/// The state of one dispatch.
struct Round {
    lane: LaneIx,
    now: Time,
    /// When the result may change without another verb.
    next: Time,
    scanned: usize,
    /// Total size of the granted payloads.
    granted_bytes: usize,
    /// How many more jobs may be answered from the cache.
    serves: usize,
    /// Why the most urgent job that could not start was denied.
    denied: Option<Denied>,
    /// What holds the lane: the first denial that concerns more than one line.
    cause: Option<HoldCause>,
}

impl Round {
    fn wake(&mut self, at: Time) {
        self.next = self.next.min(at);
    }

    fn holds(&mut self, reason: Reason, upstream: Option<UpstreamIx>) {
        self.cause = self.cause.or(Some(HoldCause { reason, upstream: upstream.map(|upstream| upstream.0) }));
    }
}

/// The decision of the gates for one line.
enum Offer {
    Take(UpstreamIx),
    /// The upstreams deny the whole group of the line.
    GroupWaits(Option<UpstreamIx>, NotUntil),
    /// Only the line's own scoped bucket denies it.
    LineWaits(JobHold, Time),
    /// A limit of the line's tenant denies it.
    TenantWaits(BucketIx, NotUntil),
}

impl Engine {
    /// Grants at most `ask.max` jobs that may start now. A request repeated after a restore gets the leases it was
    /// granted before, if they still exist.
    pub fn dispatch(&mut self, ask: &Dispatch, now: Time) -> Dispatched {
        self.end_silent(now);
        let recovered = self.recover_lost(MAX_BATCH, now);
        let grants = self.granted_before(ask.nonce);
        if !grants.is_empty() {
            let ended = std::mem::take(&mut self.ended);
            return Dispatched { grants, ended, recovered, denied: None, now, next: now, held: Span::ZERO };
        }
        self.wake_parked(now);
        let mut budget = MAX_BATCH;
        self.serve_owed(&mut budget, now);
        let mut grants = Vec::new();
        let (mut next, mut denied) = (Time::NEVER, None);
        if let Some((lane, _)) = self.configured_lane(&ask.lane) {
            let mut round =
                Round { lane, now, next, scanned: 0, granted_bytes: 0, serves: budget, denied, cause: None };
            self.dispatch_from(&mut round, ask, &mut grants);
            (next, denied) = (round.next, round.denied);
        }
        if !self.owed.is_empty() {
            next = now;
        }
        Dispatched {
            grants,
            ended: std::mem::take(&mut self.ended),
            recovered,
            denied,
            now,
            next,
            held: Span::ZERO,
        }
    }

    fn granted_before(&self, nonce: u64) -> Vec<Grant> {
        let grant = |(id, lease): (LeaseId, &Lease)| match (lease.used_by, lease.upstream) {
            (Use::Job(job, _), Some(upstream)) => Some(self.grant(job, id, upstream, lease.expires)),
            _ => None,
        };
        let mut grants: Vec<_> = self.leases.given_before(nonce).filter_map(grant).collect();
        grants.sort_unstable_by_key(|grant| grant.lease.number);
        grants
    }

    fn dispatch_from(&mut self, round: &mut Round, ask: &Dispatch, grants: &mut Vec<Grant>) {
        let Round { lane, now, .. } = *round;
        self.lane_mut(lane).asked = now;
        self.release_due(lane, MAX_BATCH, now);
        self.drop_expired(lane, MAX_BATCH, now);
        if self.lane(lane).paused {
            round.holds(Reason::Paused, None);
        } else {
            if self.serve_covered(lane, &mut round.serves, now) {
                round.wake(now);
            }
            self.fill(round, ask, grants);
            self.keep_tempo(round);
        }
        let state = self.lane_mut(lane);
        // A pause is remembered also while nothing waits.
        let cause = round.cause.filter(|_| state.waiting > 0 || state.paused);
        state.holds_dirty |= state.holds.see(cause, now);
        round.wake(self.next_event(lane, now));
        round.wake(self.buckets.next_wake().unwrap_or(Time::NEVER));
    }

    /// The tempo is measured only while jobs wait for slots and workers.
    fn keep_tempo(&mut self, round: &Round) {
        let gated = round.denied.as_ref().is_some_and(|denied| denied.reason != Reason::Concurrency);
        let lane = self.lane_mut(round.lane);
        let idle = lane.levels.iter().all(|level| level.queued == 0);
        if (gated || idle) && lane.tempo.rest() {
            lane.dirty = true;
        }
    }

    fn deny(&self, round: &mut Round, upstream: Option<UpstreamIx>, denial: NotUntil) {
        round.wake(denial.at);
        if round.denied.is_none() {
            let upstream = upstream.map(|upstream| self.upstream(upstream).name.clone());
            round.denied = Some(Denied { upstream, reason: denial.reason });
        }
    }

    fn fill(&mut self, round: &mut Round, ask: &Dispatch, grants: &mut Vec<Grant>) {
        let max = ask.max.min(MAX_BATCH);
        self.lane_mut(round.lane).closed = Closed::default();
        for level in Level::ALL {
            let mut blocked = vec![false; self.lane(round.lane).groups()];
            while let Some(choice) = self.choose(round.lane, level, &blocked) {
                let full = grants.len() >= max || round.granted_bytes >= MAX_GRANTED_BYTES;
                if full || round.scanned >= MAX_SCANNED || round.serves == 0 {
                    round.wake(round.now);
                    return;
                }
                if let Err(denial) = self.lane_admits(round.lane, round.now) {
                    self.lane_mut(round.lane).closed.lane = true;
                    round.holds(denial.reason, None);
                    self.deny(round, None, denial);
                    return;
                }
                round.scanned += 1;
                match self.offer(round.lane, choice, round.now) {
                    Offer::Take(upstream) => {
                        let grant = self.take_head(round, choice, upstream, ask);
                        round.granted_bytes += grant.as_ref().map_or(0, |grant| grant.payload.len());
                        grants.extend(grant);
                    }
                    Offer::GroupWaits(upstream, denial) => {
                        blocked[choice.group.0 as usize] = true;
                        let lane = self.lane_mut(round.lane);
                        lane.closed.groups.insert(choice.group);
                        lane.held_back.group_denied(choice.group);
                        round.holds(denial.reason, upstream);
                        self.deny(round, upstream, denial);
                    }
                    Offer::TenantWaits(bucket, denial) => {
                        self.park(round.lane, choice, (bucket, Tokens::ONE), denial.at, None);
                        self.hold_line(round.lane, choice.line, (denial.reason, None), round.now);
                        round.wake(denial.at);
                    }
                    Offer::LineWaits(hold, until) => {
                        let recheck_at =
                            (self.lane(round.lane).chain(choice.group).len() > 1).then_some(until);
                        self.park(round.lane, choice, (hold.bucket, hold.tokens), until, recheck_at);
                        let cause = (Reason::RateLimit, Some(hold.upstream));
                        self.hold_line(round.lane, choice.line, cause, round.now);
                        round.wake(until);
                    }
                }
            }
        }
        // The lines that are left are parked, perhaps by an earlier dispatch.
        if round.denied.is_none() {
            round.denied = self.denied_alone(round.lane);
        }
    }

    /// Starts the head of a line, unless it has expired, has an answer, will get one from an equal job, or is a retry
    /// beyond the budget.
    fn take_head(
        &mut self,
        round: &mut Round,
        choice: Choice,
        upstream: UpstreamIx,
        ask: &Dispatch,
    ) -> Option<Grant> {
        let job = self.lane(round.lane).lines[choice.line].head_job()?;
        if self.jobs[job].is_expired(round.now) {
            self.drop_job(job, DropReason::TtlExpired, round.now);
        } else if self.serve_fresh(job, round.now) {
            round.serves -= 1;
        } else if self.leader_of(job).is_some() {
            self.set_aside(job);
        } else if let Some(opens) = self.over_budget(job, round.now) {
            self.hold_back(job, round.now);
            round.wake(opens);
        } else {
            return Some(self.start(job, choice, upstream, ask, round.now));
        }
        None
    }

    /// The job that the next dispatch starts or, if no upstream admits one, whose turn it is. A line that only its own bucket or
    /// its tenant's limit denies keeps its turn until a dispatch parks it.
    pub(super) fn next_in_turn(&self, lane: LaneIx, now: Time) -> Option<JobIx> {
        let mut first = None;
        for level in Level::ALL {
            let mut blocked = vec![false; self.lane(lane).groups()];
            while let Some(choice) = self.choose(lane, level, &blocked) {
                let head = self.lane(lane).lines[choice.line].head_job();
                if !matches!(self.offer(lane, choice, now), Offer::GroupWaits(..)) {
                    return head;
                }
                first = first.or(head);
                blocked[choice.group.0 as usize] = true;
            }
        }
        first
    }

    pub(super) fn choose(&self, lane: LaneIx, level: Level, blocked: &[bool]) -> Option<Choice> {
        let lane = self.lane(lane);
        let fairness = lane.spec.as_ref().and_then(|spec| spec.fairness.as_ref());
        lane.levels[level as usize].turns.choose(&lane.tenants, level, fairness, blocked)
    }

    pub(super) fn lane_admits(&self, lane: LaneIx, now: Time) -> Result<(), NotUntil> {
        let lane = self.lane(lane);
        let spec = lane.spec.as_ref().map(|spec| &spec.gates);
        spec.map_or(Ok(()), |spec| lane.gates.admits(spec, now, self.leases.next_expiry()))
    }

    pub(super) fn upstream_admits(&self, index: UpstreamIx, now: Time) -> Result<(), NotUntil> {
        let upstream = self.upstream(index);
        let Some(spec) = upstream.spec.as_ref().filter(|_| !upstream.gone) else {
            return Err(NotUntil::new(Reason::RulesGone, Time::NEVER));
        };
        upstream.gates.admits(spec, now, self.leases.next_expiry())?;
        self.free_key(index, now).map(|_| ())
    }

    /// The hold at `upstream` that its bucket denies longest to a job with this `rank`.
    pub(super) fn denied_hold(
        &self,
        holds: &[JobHold],
        upstream: UpstreamIx,
        rank: Rank,
        now: Time,
    ) -> Option<(JobHold, NotUntil)> {
        let own = holds.iter().filter(|hold| hold.upstream == upstream);
        let denied = own.filter_map(|hold| {
            let tokens = taken_with(holds, hold);
            self.buckets[hold.bucket].admits(tokens, rank, now).err().map(|denial| (*hold, denial))
        });
        denied.max_by_key(|(_, denial)| denial.at)
    }

    /// Asks the gates whether a line may start.
    fn offer(&self, lane_ix: LaneIx, choice: Choice, now: Time) -> Offer {
        let lane = self.lane(lane_ix);
        let chain = lane.chain(choice.group);
        let line = &lane.lines[choice.line];
        let (holds, rank) = (line.key().holds.as_deref().unwrap_or_default(), line.rank());
        if let Some(limited) = line.key().limited
            && let Some((Some(bucket), denial)) =
                self.tenant_denial(lane_ix, &lane.tenants[limited].name, rank, now)
        {
            return Offer::TenantWaits(bucket, denial);
        }
        let (mut at, mut earliest) = (None, NotUntil::new(Reason::NoWorker, Time::NEVER));
        let mut scoped: Option<(JobHold, NotUntil)> = None;
        for upstream in chain {
            match self.upstream_admits(*upstream, now) {
                Err(denial) if denial.at <= earliest.at => (at, earliest) = (Some(*upstream), denial),
                Err(_) => {}
                Ok(()) => match self.denied_hold(holds, *upstream, rank, now) {
                    None => return Offer::Take(*upstream),
                    Some(denied) if scoped.is_none_or(|(_, known)| denied.1.at < known.at) => {
                        scoped = Some(denied);
                    }
                    Some(_) => {}
                },
            }
        }
        let Some((hold, denial)) = scoped else { return Offer::GroupWaits(at, earliest) };
        let mut until = denial.at.min(earliest.at);
        if chain.len() > 1 {
            until = until.min(now + PARKED_WITH_CHOICE);
        }
        Offer::LineWaits(hold, until)
    }

    /// Starts a job: takes from every gate at once and issues the lease.
    fn start(
        &mut self,
        index: JobIx,
        choice: Choice,
        upstream: UpstreamIx,
        ask: &Dispatch,
        now: Time,
    ) -> Grant {
        let (lane, level) = (self.jobs[index].lane, self.jobs[index].level);
        let waited = self.waited(index, choice.line, now);
        self.release_line(lane, choice.line, now);
        self.stop_waiting(index);
        let expires = now + ask.lease;
        let lease = self.leases.issue(ask.nonce);
        self.serve(lane, level, choice, index, now);
        self.take_lane(lane, lease, expires, now);
        let tenant = self.lane(lane).tenants[self.jobs[index].tenant].name.clone();
        let holder = (Use::Job(index, lane), self.take_tenant(lane, &tenant, now));
        self.count_attempt(index, now);
        let at = self.enter_upstream(index, lease, holder, (upstream, waited), expires, now);
        let job = &mut self.jobs[index];
        job.phase = Phase::Processing { lease };
        if job.attempts == 0 && !job.delayed {
            self.history.count_start(lane, now.since(job.created_at));
        }
        if job.tried == 0 {
            job.attempts += 1;
        }
        self.grant(index, lease, at, expires)
    }

    fn grant(&self, index: JobIx, lease: LeaseId, upstream: UpstreamIx, lease_expires: Time) -> Grant {
        let job = &self.jobs[index];
        Grant {
            lease,
            lease_expires,
            job: job.id,
            tenant: self.lane(job.lane).tenants[job.tenant].name.clone(),
            level: job.level,
            payload: job.payload.clone(),
            upstream: self.upstream(upstream).name.clone(),
            attempt: job.attempts,
            expires_at: job.expires_at,
        }
    }

    fn serve(&mut self, lane: LaneIx, level: Level, choice: Choice, index: JobIx, now: Time) {
        let tenant = self.jobs[index].tenant;
        let state = self.lane_mut(lane);
        state.levels[level as usize].turns.serve(&mut state.tenants, choice.tenant, level);
        let served = &mut state.tenants[tenant];
        served.processed += 1;
        served.last_processed = Some(now);
        state.tenants.touch(tenant);
        state.tempo.granted(now);
        state.totals.started += 1;
        state.dirty = true;
        self.begin_processing(index);
    }

    /// Takes from the gates and buckets at `upstream` and stores the lease. Returns where the lease is: at a key, if
    /// the upstream has keys.
    pub(super) fn enter_upstream(
        &mut self,
        index: JobIx,
        lease: LeaseId,
        (used_by, tenant): (Use, TenantHold),
        (upstream, waited): (UpstreamIx, Option<Box<Waited>>),
        expires: Time,
        now: Time,
    ) -> UpstreamIx {
        let job_holds = self.jobs[index].holds();
        let own =
            job_holds.into_iter().flat_map(|holds| holds.iter()).filter(|hold| hold.upstream == upstream);
        let holds: Vec<_> = own.map(|hold| (hold.bucket, hold.tokens)).collect();
        for (bucket, tokens) in &holds {
            self.buckets.hold(*bucket, *tokens, now);
        }
        let (at, pass) = self.take_gates(upstream, lease, expires, now);
        let correlation = self.jobs[index].correlation();
        let held = Lease { used_by, upstream: Some(at), pass, holds, tenant, correlation, expires };
        self.leases.insert(lease, held);
        self.jobs[index].upstream = Some(upstream);
        self.note(
            index,
            now,
            match waited {
                Some(waited) => EventKind::StartedAfter(upstream, waited),
                None => EventKind::Started(upstream),
            },
        );
        self.jobs.touch(index);
        at
    }

    /// Takes what a call takes from the gates of its lane.
    pub(super) fn take_lane(&mut self, lane: LaneIx, lease: LeaseId, expires: Time, now: Time) {
        let lane = self.lane_mut(lane);
        lane.dirty = true;
        if let Some(spec) = &lane.spec {
            lane.gates.take(&spec.gates, lease, expires, now);
        }
    }

    /// Takes from the gates of an upstream and of one of its keys, if it has any. Returns where the lease is.
    pub(super) fn take_gates(
        &mut self,
        upstream: UpstreamIx,
        lease: LeaseId,
        expires: Time,
        now: Time,
    ) -> (UpstreamIx, Pass) {
        let at = self.free_key(upstream, now).ok().flatten().unwrap_or(upstream);
        let mut pass = Pass::default();
        // The upstream comes last, because only it has a breaker.
        for index in self.gates_at(at) {
            self.change_gates(index, now, |state| {
                if let Some(spec) = &state.spec {
                    pass = state.gates.take(spec, lease, expires, now);
                }
            });
        }
        (at, pass)
    }
}

/// All tokens that a call takes from the bucket of `hold` at its upstream.
pub(super) fn taken_with(holds: &[JobHold], hold: &JobHold) -> Tokens {
    let same = |other: &&JobHold| other.upstream == hold.upstream && other.bucket == hold.bucket;
    holds.iter().filter(same).fold(Tokens::ZERO, |sum, other| sum + other.tokens)
}
