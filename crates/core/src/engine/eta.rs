//! An estimate of when a job will start: how many jobs go first, when the gates admit that many, and how fast slots and
//! workers become free. A formula, not a scan.

use super::Engine;
use super::jobs::{Job, Phase};
use super::why::Obstacle;
use crate::gate::{NotUntil, Reason};
use crate::job::{Level, NewJob};
use crate::lane::{EVERYONE, Lane, LineKey, TenantLevel};
use crate::table::{GroupIx, LaneIx, UpstreamIx};
use crate::time::{Span, Time};

impl Engine {
    /// About how many jobs start first: all of higher levels, those before it in its line, and those that other tenants
    /// start in their turns until then.
    pub(super) fn position(&self, job: &Job) -> u64 {
        let Phase::Queued { line } = job.phase else {
            return 0;
        };
        let lane = self.lane(job.lane);
        let LineKey { level, group, tenant, .. } = *lane.lines[line].key();
        let (own, len) = (lane.lines[line].ahead_of(job.seq), lane.lines[line].len() as u64);
        ahead(lane, (level, group), &lane.tenants[tenant].name, own, len)
    }

    /// The position that a new job would get, behind all jobs of its tenant in lines of that group.
    fn position_of_new(&self, lane: LaneIx, group: GroupIx, job: &NewJob) -> u64 {
        let lane = self.lane(lane);
        let fair = lane.spec.as_ref().is_some_and(|spec| spec.fairness.is_some());
        let tenant: &str = if fair { &job.tenant } else { EVERYONE };
        let lines = lane.tenants.find(tenant).and_then(|tenant| lane.tenants[tenant].level(job.level));
        let lines = lines.into_iter().flat_map(TenantLevel::heads).filter(|(at, _, _)| *at == group);
        let own: u64 = lines.map(|(_, _, line)| lane.lines[line].len() as u64).sum();
        ahead(lane, (job.level, group), tenant, own, own)
    }

    pub(super) fn eta(&self, job: &Job, obstacle: &Obstacle, position: u64, now: Time) -> Option<Time> {
        if obstacle.until == Time::NEVER {
            return None;
        }
        let denial = NotUntil::new(obstacle.reason, obstacle.until);
        let at = self.estimate(job.lane, self.untried(job), denial, position, now);
        let lane = self.lane(job.lane);
        let own = match job.phase {
            Phase::Queued { line } => lane.lines[line].ahead_of(job.seq),
            _ => 0,
        };
        Some(at.max(self.tenant_start(job.lane, &lane.tenants[job.tenant].name, own, now)))
    }

    /// When a new job would start, if that can be estimated.
    pub(super) fn forecast(&self, lane: LaneIx, chain: GroupIx, job: &NewJob, now: Time) -> Option<Time> {
        let state = self.lane(lane);
        let equal = job.cache_key.as_ref().and_then(|key| state.equals.leader(key)).is_some();
        let upstreams = state.chain(chain);
        let denials = upstreams.iter().map(|upstream| self.denial_of_new(*upstream, job, now));
        let denial = self.lane_admits(lane, now).err().or_else(|| earliest(denials));
        let denial = denial.unwrap_or(NotUntil::new(Reason::Behind, now));
        if state.paused || equal || denial.at == Time::NEVER {
            return None;
        }
        let denial = NotUntil::new(denial.reason, denial.at.max(now + job.delay));
        let position = self.position_of_new(lane, chain, job);
        let own = state.tenants.find(&job.tenant).map_or(0, |tenant| state.tenants[tenant].waiting);
        let by_tenant = self.tenant_start(lane, &job.tenant, own, now);
        Some(self.estimate(lane, upstreams.iter().copied(), denial, position, now).max(by_tenant))
    }

    /// Why a new job could not start at `upstream` now, even with no job before it.
    fn denial_of_new(&self, upstream: UpstreamIx, job: &NewJob, now: Time) -> Option<NotUntil> {
        let own = job.holds.iter().filter(|hold| hold.upstream == self.upstream(upstream).name);
        let scoped = own.filter_map(|hold| {
            let state = &self.buckets[self.buckets.find(&hold.bucket)?];
            state.bucket.admits(&state.spec, hold.tokens, now).err()
        });
        scoped.chain(self.upstream_admits(upstream, now).err()).max_by_key(|denial| denial.at)
    }

    /// `denial` is what would deny the job with no job before it.
    pub(super) fn estimate(
        &self,
        lane: LaneIx,
        upstreams: impl Iterator<Item = UpstreamIx> + Clone,
        denial: NotUntil,
        ahead: u64,
        now: Time,
    ) -> Time {
        let lane = self.lane(lane);
        let interval_us = lane.tempo.interval_us();
        // Slots become free as calls end; expiry of a lease is only the upper bound.
        let measured = denial.reason == Reason::Concurrency && interval_us > 0;
        let (from, waits) = if measured { (now, ahead + 1) } else { (denial.at.max(now), ahead) };
        let by_tempo = from + Span::from_millis(interval_us.saturating_mul(waits) / 1_000);
        let by_lane = lane.spec.as_ref().map_or(now, |spec| lane.gates.nth_start(&spec.gates, ahead, now));
        by_tempo.max(by_lane).max(self.chain_start(upstreams, ahead, now))
    }

    /// When the upstreams of a chain admit a call with `ahead` calls before it.
    fn chain_start(
        &self,
        upstreams: impl Iterator<Item = UpstreamIx> + Clone,
        ahead: u64,
        now: Time,
    ) -> Time {
        let in_force = |at: &UpstreamIx| !self.upstream(*at).gone && self.upstream(*at).spec.is_some();
        side_by_side(upstreams.filter(in_force), ahead, now, |upstream, ahead| {
            self.nth_start(upstream, ahead, now)
        })
    }
}

/// When a call with `ahead` calls before it starts at one of several upstreams: at the fastest one, or with the calls
/// divided evenly among all, whichever is earlier.
pub(super) fn side_by_side(
    all: impl Iterator<Item = UpstreamIx> + Clone,
    ahead: u64,
    now: Time,
    start: impl Fn(UpstreamIx, u64) -> Time,
) -> Time {
    let share = match all.clone().count() as u64 {
        0 => return now,
        // Not asked twice.
        1 => return all.map(|at| start(at, ahead)).next().unwrap_or(now),
        count => ahead / count,
    };
    let fastest = all.clone().map(|at| start(at, ahead)).min().unwrap_or(now);
    let shared = all.map(|at| start(at, share)).max().unwrap_or(now);
    fastest.min(shared)
}

/// How many jobs go before one that has `own` jobs before it in a line of `len`.
fn ahead(lane: &Lane, (level, group): (Level, GroupIx), tenant: &str, own: u64, len: u64) -> u64 {
    let queued = |level: &Level| lane.levels[*level as usize].queued;
    let above: u64 = Level::ALL.iter().filter(|above| **above < level).map(queued).sum();
    let Some(fairness) = lane.spec.as_ref().and_then(|spec| spec.fairness.as_ref()) else {
        return above + own;
    };
    let others = queued(&level).saturating_sub(len);
    let turns = own / u64::from(fairness.quota(tenant)) + 1;
    let neighbours = lane.levels[level as usize].turns.ready_in(group).saturating_sub(1);
    above + own + others.min(turns * neighbours * u64::from(fairness.batch()))
}

/// The denial that ends first, if all deny.
fn earliest(denials: impl Iterator<Item = Option<NotUntil>>) -> Option<NotUntil> {
    let all: Option<Vec<NotUntil>> = denials.collect();
    all?.into_iter().min_by_key(|denial| denial.at)
}
