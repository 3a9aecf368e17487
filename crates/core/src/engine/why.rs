//! Why a job waits, and until when.

use std::collections::BTreeSet;

use super::Engine;
use super::dispatch::taken_with;
use super::jobs::{Job, Phase};
use super::leases::Use;
use crate::gate::{GateView, NotUntil, Reason};
use crate::ids::JobId;
use crate::lane::{JobHold, Rank};
use crate::policy::BucketId;
use crate::table::{JobIx, UpstreamIx};
use crate::time::Time;
use crate::views::{GateOwner, Place, Why};

/// What keeps a job from starting, and where.
pub(super) struct Obstacle {
    pub(super) reason: Reason,
    pub(super) until: Time,
    pub(super) upstream: Option<UpstreamIx>,
    /// Whether it is a limit of the job's tenant.
    pub(super) of_tenant: bool,
}

impl Obstacle {
    /// Whether it is a gate. One without an upstream belongs to the lane or the tenant.
    fn is_gate(&self) -> bool {
        use Reason::{CircuitOpen, Concurrency, Cooldown, Pace, RateLimit, UpstreamRetryAfter, Window};
        let gates = [Pace, RateLimit, Window, Concurrency, Cooldown, CircuitOpen, UpstreamRetryAfter];
        gates.contains(&self.reason)
    }

    /// Until when it lasts. A slot becomes free when a call ends, which nobody knows beforehand.
    fn known_until(&self) -> Option<Time> {
        use Reason::{Behind, Concurrency, NoWorker};
        let unknown = matches!(self.reason, Behind | Concurrency | NoWorker) || self.until == Time::NEVER;
        (!unknown).then_some(self.until)
    }
}

impl Engine {
    /// Why a job waits, its position, and an estimate of when it will start.
    pub fn why(&self, id: JobId, now: Time) -> Option<Why> {
        let index = self.jobs.find(id)?;
        let job = &self.jobs[index];
        let (Place { status, position, eta, expires_at }, obstacle) = self.place_of(index, now);
        let tenant = self.lane(job.lane).tenants[job.tenant].name.clone();
        let name = |upstream: UpstreamIx| self.upstream(upstream).name.clone();
        Some(Why {
            status,
            reason: obstacle.as_ref().map(|obstacle| obstacle.reason),
            of_tenant: obstacle.as_ref().filter(|obstacle| obstacle.of_tenant).map(|_| tenant),
            of_bucket: obstacle.as_ref().and_then(|obstacle| self.bucket_behind(job, obstacle, now)),
            until: obstacle.as_ref().and_then(Obstacle::known_until),
            upstream: match obstacle {
                Some(obstacle) if obstacle.is_gate() => obstacle.upstream,
                obstacle => obstacle.and_then(|obstacle| obstacle.upstream).or(job.upstream),
            }
            .map(name),
            position,
            eta,
            will_expire: job.is_waiting() && eta.is_some_and(|eta| eta > expires_at),
            gates: self.gates_of(job, now),
        })
    }

    /// Every gate that a job must pass.
    fn gates_of(&self, job: &Job, now: Time) -> Vec<(GateOwner, GateView)> {
        let lane = self.lane(job.lane);
        let (tenant, rank) = (&lane.tenants[job.tenant].name, self.rank(job));
        let of_lane = self.lane_gates(lane, now).into_iter().map(|gate| (GateOwner::Lane, gate));
        let of_tenant = self.tenant_gates(job.lane, tenant, rank, now).into_iter();
        let mut gates: Vec<_> =
            of_lane.chain(of_tenant.map(|gate| (GateOwner::Tenant(tenant.clone()), gate))).collect();
        for upstream in lane.chain(job.chain) {
            for (name, views) in self.gates_with_keys(*upstream, now) {
                gates.extend(views.into_iter().map(|gate| (GateOwner::Upstream(name.clone()), gate)));
            }
            gates.extend(self.bucket_gates(job, *upstream, rank, now));
        }
        gates
    }

    /// The scoped buckets that a job takes from at an upstream, as gates.
    fn bucket_gates(
        &self,
        job: &Job,
        upstream: UpstreamIx,
        rank: Rank,
        now: Time,
    ) -> Vec<(GateOwner, GateView)> {
        let (holds, mut seen) = (job.holds().map_or([].as_slice(), |holds| holds), BTreeSet::new());
        let own = holds.iter().filter(|hold| hold.upstream == upstream && seen.insert(hold.bucket));
        let gate = |hold: &JobHold| {
            let state = &self.buckets[hold.bucket];
            let owner = GateOwner::Bucket(BucketId::parse(&state.key)?);
            Some((owner, state.view(taken_with(holds, hold), rank, now)))
        };
        own.filter_map(gate).collect()
    }

    /// The scoped bucket that is the obstacle, if it is one.
    fn bucket_behind(&self, job: &Job, obstacle: &Obstacle, now: Time) -> Option<BucketId> {
        let upstream = obstacle.upstream.filter(|at| self.upstream_admits(*at, now).is_ok())?;
        let (hold, denial) = self.denied_hold(job.holds()?, upstream, self.rank(job), now)?;
        let bucket = (denial.reason == obstacle.reason).then_some(hold.bucket)?;
        BucketId::parse(&self.buckets[bucket].key)
    }

    /// The position and estimate of a waiting job: a part of [`Engine::why`] that costs less.
    pub(super) fn place(&self, index: JobIx, now: Time) -> Place {
        self.place_of(index, now).0
    }

    fn place_of(&self, index: JobIx, now: Time) -> (Place, Option<Obstacle>) {
        let job = &self.jobs[index];
        let position = self.position(job);
        let obstacle = self.hindrance(index, position, now);
        let hindrance = obstacle.as_ref().filter(|_| job.is_waiting());
        let eta = hindrance.and_then(|obstacle| self.eta(job, obstacle, position, now));
        (Place { status: job.status(), position, eta, expires_at: job.expires_at }, obstacle)
    }

    /// What keeps a job from starting or, if it runs, from ending.
    pub(super) fn hindrance(&self, index: JobIx, position: u64, now: Time) -> Option<Obstacle> {
        let job = &self.jobs[index];
        let obstacle = self.without_rules(job).or_else(|| self.coalesced(index));
        obstacle.or_else(|| self.obstacle(job, position, now))
    }

    /// A waiting job whose lane, or all of whose remaining upstreams, have no registration. Neither time nor other jobs
    /// change that, so it is reported first.
    fn without_rules(&self, job: &Job) -> Option<Obstacle> {
        if !job.is_waiting() {
            return None;
        }
        let mut untried = self.untried(job);
        let lane_is_gone = self.lane(job.lane).gone;
        let upstream = untried.clone().next().filter(|_| !lane_is_gone);
        let stuck = lane_is_gone || untried.all(|upstream| self.upstream(upstream).gone);
        let reason = Reason::RulesGone;
        stuck.then_some(Obstacle { reason, until: Time::NEVER, upstream, of_tenant: false })
    }

    /// An equal job is being processed, whose answer will end this one too.
    fn coalesced(&self, index: JobIx) -> Option<Obstacle> {
        let leader = match self.jobs[index].phase {
            Phase::Queued { .. } => Some(self.leader_of(index)?),
            Phase::Coalesced => self.leader_of(index),
            Phase::Pending { .. }
            | Phase::HeldBack { .. }
            | Phase::Processing { .. }
            | Phase::Finished { .. } => return None,
        };
        let upstream = leader.and_then(|leader| self.jobs[leader].upstream);
        let reason = Reason::Coalesced;
        Some(Obstacle { reason, until: Time::NEVER, upstream, of_tenant: false })
    }

    /// The limit of its own tenant that denies a queued job.
    fn own_limit(&self, job: &Job, now: Time) -> Option<NotUntil> {
        let Phase::Queued { line } = job.phase else { return None };
        let lane = self.lane(job.lane);
        let (limited, rank) = (lane.lines[line].key().limited?, lane.lines[line].rank());
        let denial = self.tenant_denial(job.lane, &lane.tenants[limited].name, rank, now);
        denial.map(|(_, denial)| denial)
    }

    /// The first obstacle of the job, in the order in which they are reported.
    fn obstacle(&self, job: &Job, position: u64, now: Time) -> Option<Obstacle> {
        let plain = |reason, until| Some(Obstacle { reason, until, upstream: None, of_tenant: false });
        match job.phase {
            Phase::Finished { .. } | Phase::Coalesced => None,
            Phase::Processing { lease } => {
                let awaited =
                    self.leases.get(lease).filter(|lease| matches!(lease.used_by, Use::Awaiting(_)))?;
                Some(Obstacle {
                    reason: Reason::AwaitingWebhook,
                    until: awaited.expires,
                    upstream: awaited.upstream.map(|at| self.without_key(at)),
                    of_tenant: false,
                })
            }
            _ if self.lane(job.lane).paused => plain(Reason::Paused, Time::NEVER),
            Phase::HeldBack { .. } => plain(Reason::RetryBackoff, self.budget_opens(job.lane, now)),
            Phase::Pending { due } if job.attempts > 0 => {
                let until = if due > now { due } else { self.budget_opens(job.lane, now) };
                plain(Reason::RetryBackoff, until)
            }
            Phase::Pending { due } => plain(Reason::Scheduled, due),
            Phase::Queued { .. } => {
                if let Err(NotUntil { reason, at }) = self.lane_admits(job.lane, now) {
                    return plain(reason, at);
                }
                if let Some(NotUntil { reason, at }) = self.own_limit(job, now) {
                    return Some(Obstacle { reason, until: at, upstream: None, of_tenant: true });
                }
                if let Err((upstream, NotUntil { reason, at })) = self.first_admitting(job, now) {
                    return Some(Obstacle { reason, until: at, upstream, of_tenant: false });
                }
                plain(if position > 0 { Reason::Behind } else { Reason::NoWorker }, now)
            }
        }
    }
}
