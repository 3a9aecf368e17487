//! Limits that apply to each tenant of a lane separately.
//!
//! They are scoped buckets whose keys contain lane and tenant, so lines wait at them and are woken, and they are stored
//! and forgotten, like any other scoped bucket. A rate is spent when a call starts, like the rate of a lane. A slot is
//! a token held until the call leaves the lane: its bucket immediately refills to the number of free slots.

use std::sync::Arc;

use super::Engine;
use super::admit::ASK_AGAIN;
use crate::gate::{Bucket, BucketSpec, GateView, NotUntil, Reason};
use crate::ids::Name;
use crate::lane::Rank;
use crate::spec::{LaneSpec, TenantLimits};
use crate::table::{BucketIx, LaneIx};
use crate::time::Time;
use crate::tokens::Tokens;

/// What a call holds of its tenant's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TenantHold {
    /// The bucket it took a token from.
    pub(crate) rate: Option<BucketIx>,
    /// The bucket it holds a token of.
    pub(crate) slot: Option<BucketIx>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Rate,
    Slots,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Rate, Self::Slots];

    /// No upstream name starts with a colon. The part shared by all tenants of a lane ends at the last slash.
    fn key(self, lane: &Name, tenant: &str) -> String {
        let kind = match self {
            Self::Rate => "rate",
            Self::Slots => "slots",
        };
        format!(":{kind}/{lane}/{}", tenant.replace('%', "%25").replace('/', "%2F"))
    }

    fn rule(self, limits: &TenantLimits, tenant: &str) -> Option<BucketSpec> {
        match self {
            Self::Rate => limits.rate.find(tenant).copied(),
            Self::Slots => limits.concurrency.find(tenant).map(|slots| BucketSpec::slots(*slots)),
        }
    }
}

/// The keys of the buckets that the limits of `tenant` in `lane` use.
pub fn tenant_bucket_keys(lane: &Name, tenant: &str) -> [String; 2] {
    Kind::ALL.map(|kind| kind.key(lane, tenant))
}

impl Engine {
    /// The rule of a limit, or a denial if this process has no share of it.
    fn tenant_rule(
        &self,
        lane: LaneIx,
        kind: Kind,
        tenant: &str,
        now: Time,
    ) -> Result<Option<BucketSpec>, NotUntil> {
        let limits = self.lane(lane).spec.as_ref().map(|spec| &spec.tenant_limits);
        let rule = limits.and_then(|limits| kind.rule(limits, tenant));
        match (rule, self.share) {
            (Some(rule), Some(share)) => {
                rule.share(share).map(Some).ok_or(NotUntil::new(Reason::RateLimit, now + ASK_AGAIN))
            }
            (rule, _) => Ok(rule),
        }
    }

    /// The limit of `tenant` that denies a call longest, and the bucket to wait at.
    pub(super) fn tenant_denial(
        &self,
        lane: LaneIx,
        tenant: &str,
        rank: Rank,
        now: Time,
    ) -> Option<(Option<BucketIx>, NotUntil)> {
        let denials = Kind::ALL.into_iter().filter_map(|kind| {
            let rule = match self.tenant_rule(lane, kind, tenant, now) {
                Ok(rule) => rule?,
                Err(denial) => return Some((None, denial)),
            };
            let bucket = self.buckets.find(&kind.key(&self.lane(lane).name, tenant))?;
            let denial = self.limit_denial((kind, &rule), bucket, rank, now)?;
            Some((Some(bucket), denial))
        });
        denials.max_by_key(|(_, denial)| denial.at)
    }

    /// The denial of the bucket of one limit.
    fn limit_denial(
        &self,
        (kind, rule): (Kind, &BucketSpec),
        bucket: BucketIx,
        rank: Rank,
        now: Time,
    ) -> Option<NotUntil> {
        let state = &self.buckets[bucket];
        let denial = state.admits(Tokens::ONE, rank, now).err()?;
        Some(match kind {
            Kind::Rate => denial,
            Kind::Slots if state.bucket.waits_for_others(rule, Tokens::ONE) => {
                NotUntil::new(Reason::Concurrency, self.leases.next_expiry())
            }
            Kind::Slots => NotUntil::new(Reason::Concurrency, denial.at),
        })
    }

    /// Takes from the limits of `tenant` for an admitted call.
    pub(super) fn take_tenant(&mut self, lane: LaneIx, tenant: &str, now: Time) -> TenantHold {
        if self.lane(lane).spec.as_ref().is_none_or(|spec| spec.tenant_limits.is_empty()) {
            return TenantHold::default();
        }
        let hold = self.tenant_buckets(lane, tenant, now);
        if let Some(rate) = hold.rate {
            self.buckets.add_user(rate);
            self.buckets.charge(rate, Tokens::ONE, now);
        }
        if let Some(slot) = hold.slot {
            self.buckets.hold(slot, Tokens::ONE, now);
        }
        hold
    }

    /// The buckets of the limits of `tenant`.
    pub(super) fn tenant_buckets(&mut self, lane: LaneIx, tenant: &str, now: Time) -> TenantHold {
        let [rate, slot] = Kind::ALL.map(|kind| {
            let rule = self.tenant_rule(lane, kind, tenant, now).ok().flatten()?;
            let key: Arc<str> = kind.key(&self.lane(lane).name, tenant).into();
            let is_new = self.buckets.find(&key).is_none();
            let bucket = self.buckets.find_or_create_under(&key, rule, now);
            if is_new && matches!(kind, Kind::Slots) {
                self.hold_seen_slots(bucket, now);
            }
            Some(bucket)
        });
        TenantHold { rate, slot }
    }

    /// The buckets of the limits of `tenant` that exist, that is, are in use or not full.
    pub(super) fn tenant_hold(&self, lane: LaneIx, tenant: &str) -> TenantHold {
        let [rate, slot] = Kind::ALL.map(|kind| self.buckets.find(&kind.key(&self.lane(lane).name, tenant)));
        TenantHold { rate, slot }
    }

    /// The limits of `tenant` as gates.
    pub(super) fn tenant_gates(&self, lane: LaneIx, tenant: &str, rank: Rank, now: Time) -> Vec<GateView> {
        let views = Kind::ALL.into_iter().filter_map(|kind| {
            let rule = self.tenant_rule(lane, kind, tenant, now).ok().flatten()?;
            let bucket = self.buckets.find(&kind.key(&self.lane(lane).name, tenant));
            let denial = bucket.and_then(|bucket| self.limit_denial((kind, &rule), bucket, rank, now));
            let state = bucket.map(|bucket| &self.buckets[bucket].bucket);
            let (reason, level, unit) = match kind {
                Kind::Rate => {
                    let left = state.map_or(rule.capacity(), |bucket| bucket.balance(&rule, now));
                    (Reason::RateLimit, left, 1)
                }
                Kind::Slots => {
                    let used = state.map_or(Tokens::ZERO, Bucket::held);
                    (Reason::Concurrency, used, Tokens::ONE.as_micro())
                }
            };
            Some(GateView {
                reason,
                denies_until: denial.map(|denial| denial.at),
                level: level.as_micro() / unit,
                limit: Some(rule.capacity().as_micro() / unit),
            })
        });
        views.collect()
    }

    /// Releases what a call holds of its tenant's limits: the slot, and the token if it was never sent.
    pub(super) fn release_tenant(&mut self, hold: TenantHold, unsent: bool, now: Time) {
        if let Some(rate) = hold.rate {
            if unsent {
                self.buckets.credit(rate, Tokens::ONE, now);
            }
            self.buckets.remove_user(rate, now);
        }
        if let Some(slot) = hold.slot {
            self.buckets.settle(slot, Tokens::ONE, Tokens::ZERO, now);
        }
    }

    /// Applies changed rules to the limits of tenants. Balances are kept; waiting lines are checked again.
    pub(super) fn fit_tenants(&mut self, rule: &LaneSpec, now: Time) {
        for kind in Kind::ALL {
            // Tenants that only make direct calls are not among the lane's tenants, so go by the keys.
            let prefix = kind.key(&rule.name, "");
            for (bucket, key) in self.buckets.under(&prefix) {
                for parked in self.buckets.unpark_all(bucket) {
                    self.lane_mut(parked.lane).unpark(parked.line);
                }
                let tenant = key[prefix.len()..].replace("%2F", "/").replace("%25", "%");
                if let Some(rule) = kind.rule(&rule.tenant_limits, &tenant) {
                    self.buckets.find_or_create_under(&key, rule, now);
                }
            }
        }
    }

    /// When the rate of `tenant` admits a call with `ahead` calls before it.
    pub(super) fn tenant_start(&self, lane: LaneIx, tenant: &str, ahead: u64, now: Time) -> Time {
        let Ok(Some(rule)) = self.tenant_rule(lane, Kind::Rate, tenant, now) else { return now };
        let bucket = self.buckets.find(&Kind::Rate.key(&self.lane(lane).name, tenant));
        let balance =
            bucket.map_or(rule.capacity(), |bucket| self.buckets[bucket].bucket.balance(&rule, now));
        let wanted = Tokens::whole(u32::try_from(ahead).unwrap_or(u32::MAX).saturating_add(1));
        now + rule.time_to_gain((wanted - balance).max(Tokens::ZERO))
    }
}
