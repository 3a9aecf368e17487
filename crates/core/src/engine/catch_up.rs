//! Catch up: calls that a process made with its own share of the limits while it could not reach the owner.
//!
//! They are taken from the gates without asking for admission, because they happened. A limit may be exceeded
//! afterwards; it then admits nothing until it has recovered. Everything carries its age, so that window places, open
//! breakers and cooldowns end when they would have ended.

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

/// What a process did in fallback, without the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FallbackLog {
    /// The process's share of every limit. It could spend this share of a bucket's refill.
    pub share: Share,
    /// How long ago it lost the owner.
    pub since: Span,
    /// The balance of its share of each bucket at that time ([`Engine::own_buckets`]). A bucket that is not listed
    /// counts as empty.
    pub left: Vec<(BucketOf, Tokens)>,
    /// The calls it made, except those that were not sent.
    pub calls: Vec<FallbackCall>,
    /// The results it saw, in order.
    pub reports: Vec<FallbackReport>,
}

/// Identifies the bucket of a lane or an upstream itself, as opposed to a scoped one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BucketOf {
    /// The lane with this name.
    Lane(Name),
    /// The upstream with this name.
    Upstream(Name),
}

/// A call that the owner does not know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FallbackCall {
    /// The lane it came through, if any.
    pub lane: Option<Name>,
    /// The tenant whose limits in that lane apply, if any.
    pub tenant: Option<Arc<str>>,
    /// The upstream it went to.
    pub upstream: Name,
    /// What it took from scoped buckets; after its end, what it cost.
    pub holds: Vec<Hold>,
    /// Links a later credit event to this call.
    pub correlation: Option<Correlation>,
    /// How long ago it started.
    pub began: Span,
    /// The lease it runs under and how long that still lasts; `None` if it has ended or never had one.
    pub lease: Option<(LeaseId, Span)>,
    /// How long ago it ended, if it has no lease any more; `None`: at its start.
    pub ended: Option<Span>,
}

/// The result of a call, as reported to the gates of its upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FallbackReport {
    /// The upstream or key that was called.
    pub upstream: Name,
    /// How the call ended.
    pub result: CallResult,
    /// A Retry-After of the upstream, counted from the end of the call.
    pub retry_after: Option<RetryAfter>,
    /// The call's narrowest hold ([`Hold::narrowest`]): only its bucket is closed.
    pub hold: Option<Hold>,
    /// How long ago the call started; `None` if it was reported without a lease.
    pub began: Option<Span>,
    /// How long ago the call ended.
    pub ago: Span,
}

/// What a bucket lacks because of calls made elsewhere: the difference between a bucket that was charged for them and
/// one that was not.
#[derive(Debug)]
struct Deficit {
    rule: BucketSpec,
    bucket: Bucket,
    untouched: Bucket,
}

impl Deficit {
    /// No deficit yet, in a bucket that holds `left`.
    fn new(rule: BucketSpec, left: Tokens, since: Time) -> Self {
        let bucket = Bucket::holding(left, since);
        Self { rule, bucket, untouched: bucket }
    }

    fn spend(&mut self, tokens: Tokens, began: Time) {
        self.bucket.spend(&self.rule, tokens, began);
    }

    /// Tokens spent and not refilled since.
    fn at(&self, now: Time) -> Tokens {
        self.untouched.balance(&self.rule, now) - self.bucket.balance(&self.rule, now)
    }
}

#[derive(Debug)]
struct ChargesElsewhere {
    since: Time,
    lanes: BTreeMap<LaneIx, Deficit>,
    upstreams: BTreeMap<UpstreamIx, Deficit>,
    scoped: BTreeMap<BucketIx, Deficit>,
    /// What running calls hold.
    held: Vec<(BucketIx, Tokens)>,
}

impl Engine {
    /// Accounts for what a process did in fallback. Running calls become leases under the ids they have; those that are
    /// already known are skipped, so that reporting them twice changes nothing. Everything else counts each time it is
    /// reported. Unknown upstreams are skipped.
    pub fn catch_up(&mut self, fallback_log: FallbackLog, now: Time) {
        let FallbackLog { share, since, left, mut calls, reports } = fallback_log;
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

    /// The balances of the lanes' and upstreams' own buckets, for a process that enters fallback now.
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

    /// The buckets that calls are charged to, as they were before the first of them.
    fn nothing_spent(&self, share: Share, since: Time, left: &[(BucketOf, Tokens)]) -> ChargesElsewhere {
        let deficit = |rule: BucketSpec, of: &BucketOf| {
            let left = left.iter().find(|(known, _)| known == of).map_or(Tokens::ZERO, |(_, left)| *left);
            Deficit::new(share_of(rule, share), left, since)
        };
        let lanes = (0..).map(LaneIx).zip(&self.lanes).filter_map(|(index, lane)| {
            let rule = lane.spec.as_ref()?.gates.bucket?;
            Some((index, deficit(rule, &BucketOf::Lane(lane.name.clone()))))
        });
        let upstreams = (0..).map(UpstreamIx).zip(&self.upstreams).filter_map(|(index, upstream)| {
            let rule = upstream.spec.as_ref()?.bucket?;
            Some((index, deficit(rule, &BucketOf::Upstream(upstream.name.clone()))))
        });
        let (lanes, upstreams) = (lanes.collect(), upstreams.collect());
        ChargesElsewhere { since, lanes, upstreams, scoped: BTreeMap::new(), held: Vec::new() }
    }

    fn catch_up_call(&mut self, call: &FallbackCall, spent: &mut ChargesElsewhere, now: Time) {
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
            if let Some(deficit) = spent.lanes.get_mut(&lane) {
                deficit.spend(Tokens::ONE, began);
            }
        }
        let mut pass = Pass::default();
        for index in self.gates_at(upstream) {
            let state = self.upstream_mut(index);
            pass = state.gates.catch_up(state.spec.as_ref(), began, ended, now);
            if let Some(deficit) = spent.upstreams.get_mut(&index) {
                deficit.spend(Tokens::ONE, began);
            }
        }
        let (mut holds, name) = (Vec::new(), call.upstream.without_key());
        for hold in call.holds.iter().filter(|hold| hold.upstream == name) {
            let bucket = self.buckets.find_or_create(hold, now);
            let empty = || Deficit::new(hold.spec, Tokens::ZERO, spent.since);
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

    /// Charges a call to the limits of its tenant. Returns what it still holds of them if it is running.
    fn catch_up_tenant(
        &mut self,
        lane: Option<LaneIx>,
        call: &FallbackCall,
        spent: &mut ChargesElsewhere,
        now: Time,
    ) -> TenantHold {
        let Some((lane, tenant)) = lane.zip(call.tenant.as_ref()) else { return TenantHold::default() };
        let hold = self.tenant_buckets(lane, tenant, now);
        if let Some(rate) = hold.rate {
            let empty = || Deficit::new(self.buckets[rate].spec, Tokens::ZERO, spent.since);
            spent.scoped.entry(rate).or_insert_with(empty).spend(Tokens::ONE, now - call.began);
        }
        if call.lease.is_some() {
            spent.held.extend(hold.slot.map(|slot| (slot, Tokens::ONE)));
            hold.rate.into_iter().for_each(|rate| self.buckets.add_user(rate));
        }
        hold
    }

    /// Takes the deficits from the buckets.
    fn charge(&mut self, spent: &ChargesElsewhere, now: Time) {
        let due = |deficit: &Deficit| Some(deficit.at(now)).filter(|tokens| *tokens > Tokens::ZERO);
        for (lane, deficit) in &spent.lanes {
            let Some(tokens) = due(deficit) else { continue };
            let state = self.lane_mut(*lane);
            state.dirty = true;
            if let Some(spec) = &state.spec {
                state.gates.charge(&spec.gates, tokens, now);
            }
        }
        for (upstream, deficit) in &spent.upstreams {
            let Some(tokens) = due(deficit) else { continue };
            let state = self.upstream_mut(*upstream);
            if let Some(spec) = &state.spec {
                state.gates.charge(spec, tokens, now);
            }
        }
        for (bucket, deficit) in &spent.scoped {
            self.buckets.charge(*bucket, deficit.at(now), now);
        }
        for (bucket, tokens) in &spent.held {
            self.buckets.hold_again(*bucket, *tokens);
        }
    }

    fn catch_up_report(&mut self, report: &FallbackReport, now: Time) {
        let Some(upstream) = self.known_at(&report.upstream) else { return };
        let at = now - report.ago;
        if let Some(RetryAfter { wait, bucket }) = &report.retry_after {
            // A bucket that is full here is not stored, so create it.
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

    /// The upstream or key with this name; the upstream if its key is unknown.
    fn known_at(&self, name: &Name) -> Option<UpstreamIx> {
        let known =
            self.upstream_by_name.get(name).or_else(|| self.upstream_by_name.get(&name.without_key()));
        known.copied()
    }
}

/// The rule of a share of a bucket. A share of less than one token could not be spent: it refills nothing.
fn share_of(rule: BucketSpec, share: Share) -> BucketSpec {
    rule.share(share).unwrap_or(BucketSpec::restore(rule.capacity(), (0, 1)))
}

#[cfg(test)]
mod tests;
