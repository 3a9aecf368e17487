//! What a process did with its own share of the limits while it could not ask.
//!
//! It is taken from the gates without asking whether they admit it, because it happened: a limit may be exceeded
//! afterwards, and then admits nobody until it is not. Everything carries its age, so that places, openings and rests end
//! when they would have.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::Engine;
use super::leases::{Lease, Use};
use super::tenant_limits::TenantHold;
use crate::gate::{Bucket, BucketSpec, CallResult, Pass, Share};
use crate::ids::{LeaseId, Name};
use crate::job::Hold;
use crate::policy::Correlation;
use crate::table::{BucketIx, LaneIx, UpstreamIx};
use crate::time::{Span, Time};
use crate::tokens::Tokens;
use crate::verbs::RetryAfter;

/// What a process did while it could not ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    /// What fell to it of every limit: of a bucket's refill, so much was its own to spend.
    pub share: Share,
    /// How long ago it was cut off.
    pub since: Span,
    /// What its part of each bucket held then ([`Engine::own_buckets`]). One that is not named counts as empty.
    pub left: Vec<(BucketOf, Tokens)>,
    /// The calls that it made; those that were not sent are not among them.
    pub calls: Vec<AbsentCall>,
    /// What it learned of upstreams, in the order in which it did.
    pub reports: Vec<AbsentReport>,
}

/// Whose own bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BucketOf {
    /// A lane's.
    Lane(Name),
    /// An upstream's.
    Upstream(Name),
}

/// A call that nobody else heard of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbsentCall {
    /// The lane it came through, if any.
    pub lane: Option<Name>,
    /// Whose limits in that lane it fell under, if anybody's.
    pub tenant: Option<Arc<str>>,
    /// The upstream it went to.
    pub upstream: Name,
    /// What it took from scoped buckets; what it cost, if it has ended.
    pub holds: Vec<Hold>,
    /// What ties a later event to it.
    pub correlation: Option<Correlation>,
    /// How long ago it began.
    pub began: Span,
    /// The lease it runs under, and how long that lasts from now; `None` if it has ended or never had one.
    pub lease: Option<(LeaseId, Span)>,
    /// How long ago it ended, if it has no lease any more; `None` is when it began.
    pub ended: Option<Span>,
}

/// What the end of a call told of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbsentReport {
    /// Which.
    pub upstream: Name,
    /// How the call ended.
    pub result: CallResult,
    /// The upstream's word to stay away, counted from then.
    pub retry_after: Option<RetryAfter>,
    /// The narrowest that the call took ([`Hold::narrowest`]): only its bucket is closed.
    pub hold: Option<Hold>,
    /// How long ago the call began; `None` if whoever told it had no lease.
    pub began: Option<Span>,
    /// How long ago it ended.
    pub ago: Span,
}

/// What a bucket lacks because of calls made elsewhere: the difference between one from which they were taken and its twin.
#[derive(Debug)]
struct Missing {
    rule: BucketSpec,
    bucket: Bucket,
    untouched: Bucket,
}

impl Missing {
    /// Nothing, while the bucket holds `left`.
    fn new(rule: BucketSpec, left: Tokens, since: Time) -> Self {
        let bucket = Bucket::holding(left, since);
        Self { rule, bucket, untouched: bucket }
    }

    fn spend(&mut self, tokens: Tokens, began: Time) {
        self.bucket.spend(&self.rule, tokens, began);
    }

    /// What was spent and not gained again since.
    fn at(&self, now: Time) -> Tokens {
        self.untouched.balance(&self.rule, now) - self.bucket.balance(&self.rule, now)
    }
}

#[derive(Debug)]
struct Spent {
    since: Time,
    lanes: BTreeMap<LaneIx, Missing>,
    upstreams: BTreeMap<UpstreamIx, Missing>,
    scoped: BTreeMap<BucketIx, Missing>,
    /// What calls hold that still run.
    held: Vec<(BucketIx, Tokens)>,
}

impl Engine {
    /// Counts what a process did while it could not ask. Calls that still run become leases under the ids they have; those
    /// that are known already are skipped, so that telling of them twice changes nothing. Whatever else is told twice counts
    /// twice. Upstreams that are not known are skipped.
    pub fn catch_up(&mut self, absence: Absence, now: Time) {
        let Absence { share, since, left, mut calls, reports } = absence;
        calls.sort_by_key(|call| Reverse(call.began));
        let mut spent = self.nothing_spent(share, now - since, &left);
        for call in &calls {
            self.catch_up_call(call, &mut spent, now);
        }
        self.charge(&spent, now);
        for report in &reports {
            self.catch_up_report(report, now);
        }
    }

    /// What the own buckets of lanes and upstreams hold, for a process that goes on by itself from now.
    pub fn own_buckets(&self, now: Time) -> Vec<(BucketOf, Tokens)> {
        let lanes = self.lanes.iter().filter_map(|lane| {
            let left = lane.gates.tokens(&lane.spec.as_ref()?.gates, now)?;
            Some((BucketOf::Lane(lane.name.clone()), left))
        });
        let upstreams = self.upstreams.iter().filter_map(|upstream| {
            let left = upstream.gates.tokens(upstream.spec.as_ref()?, now)?;
            Some((BucketOf::Upstream(upstream.name.clone()), left))
        });
        lanes.chain(upstreams).collect()
    }

    /// The buckets that calls were taken from, as they were before the first of them.
    fn nothing_spent(&self, share: Share, since: Time, left: &[(BucketOf, Tokens)]) -> Spent {
        let missing = |rule: BucketSpec, of: &BucketOf| {
            let left = left.iter().find(|(known, _)| known == of).map_or(Tokens::ZERO, |(_, left)| *left);
            Missing::new(share_of(rule, share), left, since)
        };
        let lanes = (0..).map(LaneIx).zip(&self.lanes).filter_map(|(index, lane)| {
            let rule = lane.spec.as_ref()?.gates.bucket?;
            Some((index, missing(rule, &BucketOf::Lane(lane.name.clone()))))
        });
        let upstreams = (0..).map(UpstreamIx).zip(&self.upstreams).filter_map(|(index, upstream)| {
            let rule = upstream.spec.as_ref()?.bucket?;
            Some((index, missing(rule, &BucketOf::Upstream(upstream.name.clone()))))
        });
        let (lanes, upstreams) = (lanes.collect(), upstreams.collect());
        Spent { since, lanes, upstreams, scoped: BTreeMap::new(), held: Vec::new() }
    }

    fn catch_up_call(&mut self, call: &AbsentCall, spent: &mut Spent, now: Time) {
        let Some(upstream) = self.known_at(&call.upstream) else { return };
        if call.lease.is_some_and(|(id, _)| self.leases.get(id).is_some()) {
            return;
        }
        let lane = call.lane.as_ref().and_then(|lane| self.lane_by_name.get(lane)).copied();
        let began = now - call.began;
        let ended = call.lease.is_none().then(|| call.ended.map_or(began, |ago| now - ago));
        if let Some(lane) = lane {
            let state = self.lane_mut(lane);
            state.dirty = true;
            let rules = state.spec.as_ref().map(|spec| &spec.gates);
            state.gates.catch_up(rules, began, ended, now);
            if let Some(missing) = spent.lanes.get_mut(&lane) {
                missing.spend(Tokens::ONE, began);
            }
        }
        let mut pass = Pass::default();
        for index in self.gates_at(upstream) {
            let state = self.upstream_mut(index);
            pass = state.gates.catch_up(state.spec.as_ref(), began, ended, now);
            if let Some(missing) = spent.upstreams.get_mut(&index) {
                missing.spend(Tokens::ONE, began);
            }
        }
        let (mut holds, name) = (Vec::new(), call.upstream.without_key());
        for hold in call.holds.iter().filter(|hold| hold.upstream == name) {
            let bucket = self.buckets.find_or_create(hold, now);
            let empty = || Missing::new(hold.spec, Tokens::ZERO, spent.since);
            spent.scoped.entry(bucket).or_insert_with(empty).spend(hold.tokens, began);
            holds.push((bucket, hold.tokens));
        }
        let tenant = self.catch_up_tenant(lane, call, spent, now);
        if let Some((id, lasts)) = call.lease {
            spent.held.extend(&holds);
            let (used_by, correlation) = (Use::Call(lane), call.correlation);
            let (upstream, expires) = (Some(upstream), now + lasts);
            self.leases.insert(id, Lease { used_by, upstream, pass, holds, tenant, correlation, expires });
        } else if let Some(correlation) = call.correlation {
            self.note_debit(correlation, holds.iter().map(|(bucket, _)| *bucket), now);
        }
    }

    /// Counts a call under the limits of its tenant. Says what it has of them if it still runs.
    fn catch_up_tenant(
        &mut self,
        lane: Option<LaneIx>,
        call: &AbsentCall,
        spent: &mut Spent,
        now: Time,
    ) -> TenantHold {
        let Some((lane, tenant)) = lane.zip(call.tenant.as_ref()) else { return TenantHold::default() };
        let hold = self.tenant_buckets(lane, tenant, now);
        if let Some(rate) = hold.rate {
            let empty = || Missing::new(self.buckets[rate].spec, Tokens::ZERO, spent.since);
            spent.scoped.entry(rate).or_insert_with(empty).spend(Tokens::ONE, now - call.began);
        }
        if call.lease.is_some() {
            spent.held.extend(hold.slot.map(|slot| (slot, Tokens::ONE)));
            hold.rate.into_iter().for_each(|rate| self.buckets.add_user(rate));
        }
        hold
    }

    /// Takes from the buckets what is missing in them.
    fn charge(&mut self, spent: &Spent, now: Time) {
        let due = |missing: &Missing| Some(missing.at(now)).filter(|tokens| *tokens > Tokens::ZERO);
        for (lane, missing) in &spent.lanes {
            let Some(tokens) = due(missing) else { continue };
            let state = self.lane_mut(*lane);
            state.dirty = true;
            if let Some(spec) = &state.spec {
                state.gates.charge(&spec.gates, tokens, now);
            }
        }
        for (upstream, missing) in &spent.upstreams {
            let Some(tokens) = due(missing) else { continue };
            let state = self.upstream_mut(*upstream);
            if let Some(spec) = &state.spec {
                state.gates.charge(spec, tokens, now);
            }
        }
        for (bucket, missing) in &spent.scoped {
            self.buckets.charge(*bucket, missing.at(now), now);
        }
        for (bucket, tokens) in &spent.held {
            self.buckets.hold_again(*bucket, *tokens);
        }
    }

    fn catch_up_report(&mut self, report: &AbsentReport, now: Time) {
        let Some(upstream) = self.known_at(&report.upstream) else { return };
        let at = now - report.ago;
        if let Some(RetryAfter { wait, bucket }) = &report.retry_after {
            // It may be full here, and then it is not known.
            let narrowest = report.hold.as_ref().filter(|_| bucket.is_none());
            let narrowest = narrowest.map(|hold| self.buckets.find_or_create(hold, now));
            let narrowest = narrowest.map(|index| self.buckets[index].key.clone());
            self.close(upstream, bucket.as_deref().or(narrowest.as_deref()), at + *wait, now);
        }
        let began = report.began.map_or(at, |ago| now - ago);
        for index in self.gates_at(upstream) {
            self.change_gates(index, now, |state| {
                if let Some(spec) = &state.spec {
                    state.gates.record_late(spec, report.result, began, at);
                }
            });
        }
    }

    /// The upstream, or key of one, with this name; the upstream where its key is not known.
    fn known_at(&self, name: &Name) -> Option<UpstreamIx> {
        let known =
            self.upstream_by_name.get(name).or_else(|| self.upstream_by_name.get(&name.without_key()));
        known.copied()
    }
}

/// The rule that `part` of a bucket goes by. One that no whole token falls to was not to spend anything: it gains nothing.
fn share_of(rule: BucketSpec, share: Share) -> BucketSpec {
    rule.share(share).unwrap_or(BucketSpec::restore(rule.capacity(), (0, 1)))
}

#[cfg(test)]
mod tests;
