//! How much of a limit is left, for callers who want to pace themselves.

use std::cmp::Reverse;
use std::sync::Arc;

use super::{Bucket, BucketSpec, GateSpecs, Gates, Reason};
use crate::ids::Name;
use crate::time::{Span, Time};
use crate::tokens::Tokens;

/// What a limit belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuotaOf {
    /// This lane.
    Lane(Name),
    /// This upstream.
    Upstream(Name),
    /// The scoped bucket with this key.
    Bucket(Arc<str>),
    /// The caller's tenant in this lane.
    Tenant(Name),
}

/// What is left of one bucket or window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// What the limit belongs to.
    pub of: QuotaOf,
    /// Its reason when it denies: `rate_limit` for a bucket, `window` for `rpm`.
    pub reason: Reason,
    /// The limit.
    pub limit: Tokens,
    /// What is left; negative means debt.
    pub remaining: Tokens,
    /// How much it gains per `period`.
    pub refill: Tokens,
    /// The refill period; `refill` and `period` are in lowest terms.
    pub period: Span,
    /// When there is enough for such a call.
    pub enough_at: Time,
    /// When it is full again if nothing else is taken; for a window, the latest time.
    pub full_at: Time,
}

impl Quota {
    /// The key of the scoped bucket, if it belongs to one.
    pub const fn bucket(&self) -> Option<&Arc<str>> {
        match &self.of {
            QuotaOf::Bucket(key) => Some(key),
            QuotaOf::Lane(_) | QuotaOf::Upstream(_) | QuotaOf::Tenant(_) => None,
        }
    }

    /// Orders quotas: the lowest allows the fewest calls of `tokens` each; of those that allow none, the one that does
    /// so longest.
    pub(crate) fn tightness(&self, tokens: Tokens) -> (i64, Reverse<Time>) {
        (self.remaining.as_micro().max(0) / tokens.as_micro().max(1), Reverse(self.enough_at))
    }
}

impl Bucket {
    /// Its quota for calls that take `tokens` each.
    pub(crate) fn quota(&self, of: QuotaOf, spec: &BucketSpec, tokens: Tokens, now: Time) -> Quota {
        let (micro, ms) = spec.refill();
        Quota {
            of,
            reason: Reason::RateLimit,
            limit: spec.capacity(),
            remaining: self.balance(spec, now),
            refill: Tokens::from_micro(i64::try_from(micro).unwrap_or(i64::MAX)),
            period: Span::from_millis(ms),
            enough_at: self.admits(spec, tokens, now).err().map_or(now, |denial| denial.at),
            full_at: self.full_at(spec, now),
        }
    }
}

impl Gates {
    /// The quotas of the bucket and of the window of a lane or upstream.
    pub(crate) fn quotas(
        &self,
        of: &QuotaOf,
        spec: &GateSpecs,
        now: Time,
        slot_free_at: Time,
    ) -> impl Iterator<Item = Quota> + use<> {
        let bucket = spec.bucket.as_ref().map(|rule| {
            let bucket = self.bucket.unwrap_or_else(|| Bucket::full(rule, now));
            bucket.quota(of.clone(), rule, Tokens::ONE, now)
        });
        let window = spec.window.as_ref().map(|rule| {
            let (limit, used) = (Tokens::whole(rule.limit()), Tokens::whole(self.window.count(now)));
            let verdict = self.window.admits(rule, now, slot_free_at);
            Quota {
                of: of.clone(),
                reason: Reason::Window,
                limit,
                remaining: limit - used,
                refill: limit,
                period: Span::from_secs(60),
                enough_at: verdict.err().map_or(now, |denial| denial.at),
                full_at: if used > Tokens::ZERO { now + Span::from_secs(60) } else { now },
            }
        });
        bucket.into_iter().chain(window)
    }
}
