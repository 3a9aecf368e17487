//! Admit: calls without a job, for direct lanes and for workers that make their own calls.

use super::Engine;
use super::leases::{Lease, Use};
use super::tenant_limits::TenantHold;
use crate::gate::{CallResult, NotUntil, Reason};
use crate::ids::{LeaseId, Name};
use crate::job::{Hold, Level};
use crate::lane::{JobHold, Rank};
use crate::table::{BucketIx, LaneIx, UpstreamIx};
use crate::time::{Span, Time};
use crate::verbs::{Admission, Admit, Admitted, MAX_BATCH};

/// A call without a job starts now or not at all, so it never waits behind others.
const FIRST: Rank = (Level::High, 0);

/// When a process that has no share of a limit may ask again: the others may be back by then.
pub(super) const ASK_AGAIN: Span = Span::from_secs(1);

impl Engine {
    /// Takes from all gates of the lane, of the first upstream that admits the call, and from all buckets of the call,
    /// or from none. A request repeated after a restore gets the lease it was granted before, if that still exists.
    pub fn admit(&mut self, ask: &Admit, now: Time) -> Admitted {
        self.end_silent(now);
        self.recover_lost(MAX_BATCH, now);
        let admission = match self.admitted_before(ask, now) {
            Some(granted) => granted,
            None => self.admit_call(ask, now).unwrap_or_else(|refusal| *refusal),
        };
        Admitted { admission, ended: std::mem::take(&mut self.ended), now }
    }

    fn admitted_before(&self, ask: &Admit, now: Time) -> Option<Admission> {
        if ask.lease == Span::ZERO {
            return None;
        }
        let granted = |(id, lease): (LeaseId, &Lease)| match (lease.used_by, lease.upstream) {
            (Use::Call(_), Some(upstream)) => {
                let root = self.without_key(upstream);
                let quota = self.quota((lease.used_by.lane(), lease.tenant), Some(root), &lease.holds, now);
                let upstream = self.upstream(upstream).name.clone();
                Some(Admission::Granted { lease: id, upstream, lease_expires: lease.expires, quota })
            }
            _ => None,
        };
        self.leases.given_before(ask.nonce).find_map(granted)
    }

    fn admit_call(&mut self, ask: &Admit, now: Time) -> Result<Admission, Box<Admission>> {
        let lane = match &ask.lane {
            Some(name) => Some(self.configured_lane(name).ok_or_else(|| Box::new(Admission::UnknownLane))?.0),
            None => None,
        };
        let chain = self.chain_of_call(ask, lane)?;
        let before = self.release_for_next(ask, lane, now);
        if let (Some(lane), None) = (lane, &before) {
            self.lane_lets_in(ask, lane, now)
                .map_err(|denial| Box::new(self.denied(ask, Some(lane), (None, denial), now)))?;
        }
        let mut earliest: (Option<UpstreamIx>, _) = (None, NotUntil::new(Reason::NoWorker, Time::NEVER));
        for upstream in chain {
            match self.call_admitted(ask, upstream, now) {
                Ok(holds) => return Ok(self.begin_call(ask, (lane, before), upstream, &holds, now)),
                Err(denial) if earliest.0.is_none() || denial.at < earliest.1.at => {
                    earliest = (Some(upstream), denial);
                }
                Err(_) => {}
            }
        }
        if let (Some(before), Some((_, report))) = (before, &ask.after) {
            self.release_lane(&before, report, now);
        }
        Err(Box::new(self.denied(ask, lane, earliest, now)))
    }

    /// Ends the previous call of the chain at its upstream and keeps what it holds in the lane.
    fn release_for_next(&mut self, ask: &Admit, lane: Option<LaneIx>, now: Time) -> Option<Lease> {
        let (id, report) = ask.after.as_ref()?;
        let continues = |lease: &Lease| match lease.used_by {
            Use::Call(of) | Use::LaterCall(of) => of.is_some() && of == lane,
            Use::Job(..) | Use::Awaiting(_) => false,
        };
        if !self.leases.get(*id).is_some_and(continues) {
            return None;
        }
        let mut lease = self.leases.remove(*id)?;
        self.release_upstream(*id, &lease, report, now);
        if !report.result.is_unsent() {
            lease.used_by = Use::LaterCall(lane);
        }
        Some(lease)
    }

    fn denied(
        &self,
        ask: &Admit,
        lane: Option<LaneIx>,
        (upstream, denial): (Option<UpstreamIx>, NotUntil),
        now: Time,
    ) -> Admission {
        let name = upstream.map(|upstream| self.upstream(upstream).name.clone());
        let own = ask.holds.iter().filter(|hold| Some(&hold.upstream) == name.as_ref());
        let held = own.filter_map(|hold| Some((self.buckets.find(&hold.bucket)?, hold.tokens)));
        let tenant = lane.zip(ask.tenant.as_deref());
        let of_tenant = tenant.map(|(lane, tenant)| self.tenant_hold(lane, tenant)).unwrap_or_default();
        let quota = self.quota((lane, of_tenant), upstream, &held.collect::<Vec<_>>(), now);
        let gates = match (upstream, lane) {
            (Some(upstream), _) => {
                self.gates_with_keys(upstream, now).into_iter().flat_map(|(_, gates)| gates).collect()
            }
            (None, Some(lane)) if self.lane_admits(lane, now).is_ok() => {
                tenant.map_or(Vec::new(), |(lane, tenant)| self.tenant_gates(lane, tenant, FIRST, now))
            }
            (None, Some(lane)) => self.lane_gates(self.lane(lane), now),
            (None, None) => Vec::new(),
        };
        let gate = gates.into_iter().find(|gate| gate.reason == denial.reason);
        let sooner = match denial.reason {
            Reason::Concurrency => true,
            // A half-open breaker denies because all probes are in flight.
            Reason::CircuitOpen => upstream.is_some_and(|upstream| {
                self.upstream(upstream).gates.breaker().degraded_until(now).is_none()
            }),
            _ => false,
        };
        Admission::Denied { upstream: name, denial, quota, gate, sooner }
    }

    fn chain_of_call(&self, ask: &Admit, lane: Option<LaneIx>) -> Result<Vec<UpstreamIx>, Box<Admission>> {
        if let (Some(lane), []) = (lane, ask.chain.as_slice()) {
            let lane = self.lane(lane);
            return Ok(lane.chain(lane.default_chain).to_vec());
        }
        let find = |name: &Name| {
            let found = self.upstream_by_name.get(name).copied();
            found.ok_or_else(|| Box::new(Admission::UnknownUpstream(name.clone())))
        };
        ask.chain.iter().map(find).collect()
    }

    fn lane_lets_in(&mut self, ask: &Admit, lane: LaneIx, now: Time) -> Result<(), NotUntil> {
        if self.lane(lane).paused {
            return Err(NotUntil::new(Reason::Paused, Time::NEVER));
        }
        self.lane_admits(lane, now)?;
        if let (Some(tenant), Some(_)) = (&ask.tenant, self.share) {
            // In fallback, a bucket that does not exist may not be full.
            self.tenant_buckets(lane, tenant, now);
        }
        let denial = ask.tenant.as_ref().and_then(|tenant| self.tenant_denial(lane, tenant, FIRST, now));
        denial.map_or(Ok(()), |(_, denial)| Err(denial))
    }

    /// The call's holds in scoped buckets at `upstream`, if everything there admits it.
    fn call_admitted(
        &mut self,
        ask: &Admit,
        upstream: UpstreamIx,
        now: Time,
    ) -> Result<Vec<JobHold>, NotUntil> {
        if ask.lease == Span::ZERO {
            self.admits_unreported(ask, upstream, now)?;
        } else {
            if !ask.probe {
                self.upstream(upstream).gates.breaker().admits_no_probe(now)?;
            }
            self.upstream_admits(upstream, now)?;
        }
        let name = self.upstream(upstream).name.clone();
        let mut holds = Vec::new();
        for hold in ask.holds.iter().filter(|hold| hold.upstream == name) {
            let bucket = self.bucket_of_call(hold, now)?;
            holds.push(JobHold { upstream, bucket, tokens: hold.tokens });
        }
        match self.denied_hold(&holds, upstream, FIRST, now) {
            Some((_, denial)) => Err(denial),
            None => Ok(holds),
        }
    }

    /// The bucket that a call takes from. In fallback it is this process's share of the bucket; if the share is less
    /// than one token, the call is denied.
    fn bucket_of_call(&mut self, hold: &Hold, now: Time) -> Result<BucketIx, NotUntil> {
        let Some(share) = self.share else { return Ok(self.buckets.find_or_create(hold, now)) };
        let nothing = NotUntil::new(Reason::RateLimit, now + ASK_AGAIN);
        let spec = hold.spec.share(share).ok_or(nothing)?;
        Ok(self.buckets.find_or_create(&Hold { spec, ..hold.clone() }, now))
    }

    /// Whether all gates admit a call whose result will not be reported. Without a lane the breaker is not asked.
    fn admits_unreported(&self, ask: &Admit, upstream: UpstreamIx, now: Time) -> Result<(), NotUntil> {
        let state = self.upstream(upstream);
        match state.spec.as_ref().filter(|_| !state.gone) {
            Some(spec) if spec.breaker.is_some() => {
                if ask.lane.is_some() {
                    state.gates.breaker().admits_no_probe(now)?;
                }
                let mut rate = spec.clone();
                rate.breaker = None;
                state.gates.admits(&rate, now, self.leases.next_expiry())?;
                self.free_key(upstream, now).map(|_| ())
            }
            _ => self.upstream_admits(upstream, now),
        }
    }

    fn begin_call(
        &mut self,
        ask: &Admit,
        (lane, before): (Option<LaneIx>, Option<Lease>),
        upstream: UpstreamIx,
        holds: &[JobHold],
        now: Time,
    ) -> Admission {
        for hold in holds {
            self.buckets.hold(hold.bucket, hold.tokens, now);
        }
        let expires = now + ask.lease;
        let id = if ask.lease == Span::ZERO {
            LeaseId { epoch: self.leases.epoch, number: 0, nonce: ask.nonce }
        } else {
            self.leases.issue(ask.nonce)
        };
        let tenant = match (lane, &before) {
            (_, Some(before)) => before.tenant,
            (Some(lane), None) => {
                self.take_lane(lane, id, expires, now);
                let tenant = ask.tenant.as_ref();
                tenant.map(|tenant| self.take_tenant(lane, tenant, now)).unwrap_or_default()
            }
            (None, None) => TenantHold::default(),
        };
        let (at, pass) = self.take_gates(upstream, id, expires, now);
        let holds: Vec<_> = holds.iter().map(|hold| (hold.bucket, hold.tokens)).collect();
        let quota = self.quota((lane, tenant), Some(upstream), &holds, now);
        let used_by = before.map_or(Use::Call(lane), |lease| lease.used_by);
        let correlation = ask.correlation;
        let lease = Lease { used_by, upstream: Some(at), pass, holds, tenant, correlation, expires };
        if ask.lease == Span::ZERO {
            self.release(id, &lease, &CallResult::Unknown.into(), now);
        } else {
            self.leases.insert(id, lease);
        }
        let upstream = self.upstream(at).name.clone();
        Admission::Granted { lease: id, upstream, lease_expires: expires, quota }
    }
}
