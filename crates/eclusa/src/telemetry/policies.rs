//! Balances of policies in aggregate: scope values are not exposed.

use std::collections::BTreeMap;

use eclusa_core::{BucketQuery, BucketView, MAX_BATCH, Name, Store, StoreError, Tokens};

use crate::config::{Policy, ScopeSource, UpstreamConfig};

/// Maximum scoped buckets read for one scrape.
const MAX_LOOKED_AT: usize = 10_000;

/// The state of one policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyLevel {
    /// The upstream it belongs to.
    pub upstream: Name,
    /// Its name.
    pub policy: Name,
    /// Whole tokens in the bucket that all requests share, if they share one.
    pub tokens: Option<i64>,
    /// Buckets that are not full.
    pub used: u64,
    /// Buckets below `alert_below`.
    pub low: u64,
}

impl PolicyLevel {
    fn new(upstream: &Name, policy: &Policy) -> Self {
        let shared = policy.classes.first().filter(|_| policy.scope == ScopeSource::Upstream);
        let tokens = shared.map(|class| whole(class.bucket.capacity()));
        Self { upstream: upstream.clone(), policy: policy.name.clone(), tokens, used: 0, low: 0 }
    }

    fn add(&mut self, policy: &Policy, view: &BucketView) {
        let below = |percent: u8| {
            i128::from(view.available.as_micro()) * 100
                < i128::from(view.capacity.as_micro()) * i128::from(percent)
        };
        self.used += u64::from(view.available < view.capacity);
        self.low += u64::from(policy.alert_below.is_some_and(below));
        if self.tokens.is_some()
            && view.id.class == policy.classes.first().and_then(|class| class.name.clone())
        {
            self.tokens = Some(whole(view.available));
        }
    }
}

fn whole(tokens: Tokens) -> i64 {
    tokens.as_micro().div_euclid(Tokens::ONE.as_micro())
}

/// The levels of all policies of `upstreams`.
pub(crate) async fn policy_levels(
    store: &impl Store,
    upstreams: &BTreeMap<Name, UpstreamConfig>,
) -> Result<Vec<PolicyLevel>, StoreError> {
    let policies =
        upstreams.iter().flat_map(|(name, upstream)| upstream.policies().iter().map(move |p| (name, p)));
    let policies: Vec<_> = policies.collect();
    let mut levels: Vec<_> = policies.iter().map(|(name, policy)| PolicyLevel::new(name, policy)).collect();
    for shared in [true, false] {
        let scoped = policies.iter().any(|(_, policy)| policy.scope != ScopeSource::Upstream);
        let (mut after, mut seen) = (Some(0).filter(|_| !policies.is_empty() && (shared || scoped)), 0);
        while let Some(place) = after.filter(|_| seen < MAX_LOOKED_AT) {
            let query = BucketQuery { after: place, max: MAX_BATCH, shared, ..BucketQuery::default() };
            let page = store.buckets(query).await?;
            seen += page.buckets.len();
            after = page.next;
            for view in page.buckets.iter().filter(|view| view.id.scope.is_none() == shared) {
                let of = |(name, policy): &(&Name, &Policy)| {
                    **name == view.id.upstream && policy.name == view.id.policy
                };
                if let Some(at) = policies.iter().position(of) {
                    levels[at].add(policies[at].1, view);
                }
            }
        }
    }
    Ok(levels)
}
