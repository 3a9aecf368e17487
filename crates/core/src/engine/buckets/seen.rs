//! Scoped buckets in fallback: what this process's share of a bucket holds when a call first needs it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Buckets;
use crate::gate::{Bucket, BucketSpec, Share};
use crate::time::Time;
use crate::tokens::Tokens;

/// The maximum number of buckets in an answer.
pub const MAX_SEEN_BUCKETS: usize = 1_000;

/// Tokens taken, by the key of their scoped bucket.
pub type TokensTaken = BTreeMap<Arc<str>, Tokens>;

/// A scoped bucket that was not full when it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenBucket {
    /// Its key.
    pub key: Arc<str>,
    /// Its rule.
    pub spec: BucketSpec,
    /// Its balance; negative means debt.
    pub available: Tokens,
    /// When the upstream's Retry-After for it ends.
    pub closed_until: Time,
}

/// The scoped buckets as a process last saw them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SeenBuckets {
    /// They were never seen: all count as full.
    #[default]
    Never,
    /// There are too many to be listed: all count as empty.
    TooMany,
    /// All that were not full.
    NotFull(Vec<SeenBucket>),
}

/// What the share of a bucket holds at first.
#[derive(Debug)]
pub(crate) struct FirstBalances {
    /// The buckets that were not full; `None` if they are not known.
    listed: Option<BTreeMap<Arc<str>, SeenBucket>>,
    share: Share,
    /// What this process took since.
    taken: TokensTaken,
    /// When that was so.
    since: Time,
    /// When all calls that were running then will have ended.
    ended: Time,
}

impl FirstBalances {
    /// `None` if nothing was ever seen.
    pub(crate) fn of(
        seen: &SeenBuckets,
        taken: &TokensTaken,
        share: Share,
        (since, ended): (Time, Time),
    ) -> Option<Self> {
        let listed = match seen {
            SeenBuckets::Never => return None,
            SeenBuckets::TooMany => None,
            SeenBuckets::NotFull(buckets) => {
                Some(buckets.iter().map(|bucket| (bucket.key.clone(), bucket.clone())).collect())
            }
        };
        Some(Self { listed, share, taken: taken.clone(), since, ended })
    }

    /// The share with the rule `own` of the bucket with `key`.
    pub(crate) fn bucket(&self, key: &Arc<str>, own: &BucketSpec) -> Bucket {
        let seen = self.listed.as_ref().map(|listed| listed.get(key));
        let left = match seen {
            None => Tokens::ZERO,
            Some(None) => own.capacity(),
            Some(Some(seen)) => seen.share(self.share),
        };
        let taken = self.taken.get(key).copied().unwrap_or_default();
        let mut bucket = Bucket::holding((left - taken).min(own.capacity()), self.since);
        if let Some(Some(seen)) = seen {
            bucket.close(seen.closed_until);
        }
        bucket
    }
}

impl SeenBucket {
    /// A share of its balance or of its debt.
    fn share(&self, share: Share) -> Tokens {
        let (available, one) = (self.available.as_micro(), Tokens::ONE.as_micro());
        let part = available.rem_euclid(one) / i64::from(share.count());
        match u32::try_from(available.div_euclid(one)) {
            Ok(whole) => Tokens::whole(share.of(whole)) + Tokens::from_micro(part),
            Err(_) => Tokens::from_micro(available.div_euclid(i64::from(share.count()))),
        }
    }
}

impl Buckets {
    /// New buckets hold what was seen, not their capacity.
    pub(crate) fn begin_with(&mut self, first: Option<FirstBalances>) {
        self.first = first;
    }

    /// When the calls that were running when the buckets were seen will have ended; `None` unless in fallback.
    pub(crate) fn seen_calls_end(&self) -> Option<Time> {
        self.first.as_ref().map(|first| first.ended)
    }

    /// A bucket that is not stored: a full one, except in fallback.
    pub(super) fn new_bucket(&self, key: &Arc<str>, spec: &BucketSpec, now: Time) -> Bucket {
        self.first.as_ref().map_or_else(|| Bucket::full(spec, now), |first| first.bucket(key, spec))
    }

    /// The buckets that are not full, for a process that may have to continue without the owner.
    pub(crate) fn not_full(&self, now: Time) -> SeenBuckets {
        if self.len() > MAX_SEEN_BUCKETS {
            return SeenBuckets::TooMany;
        }
        let not_full = self.iter().filter(|state| !state.bucket.is_untouched(&state.spec, now));
        let seen = |state: &super::ScopedBucket| SeenBucket {
            key: state.key.clone(),
            spec: state.spec,
            available: state.bucket.balance(&state.spec, now),
            closed_until: state.bucket.closed_until(),
        };
        SeenBuckets::NotFull(not_full.map(seen).collect())
    }
}
