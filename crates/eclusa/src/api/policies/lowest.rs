//! The buckets that are closest to empty, of all policies.

use std::collections::BTreeSet;

use eclusa_core::{BucketQuery, BucketView, MAX_BATCH};

use super::{BucketState, Owned, Policies, PoliciesQuery, known};
use crate::api::problem::Problem;
use crate::intake::Fault;
use crate::rules::Rules;

/// How many buckets are asked for, if the query asks for the lowest.
pub(super) fn asked(query: &PoliciesQuery) -> Result<Option<usize>, Problem> {
    let Some(most) = query.lowest else { return Ok(None) };
    let alone = query.scope.is_none() && query.cursor.is_none();
    let alone = (!alone).then(|| Fault::new("lowest", "cannot be combined with `scope` and `cursor`"));
    let bounds = format!("must be 1 to {MAX_BATCH}");
    let bounds = (!(1..=MAX_BATCH).contains(&most)).then(|| Fault::new("lowest", bounds));
    let faults: Vec<_> = alone.into_iter().chain(bounds).collect();
    if faults.is_empty() { Ok(Some(most)) } else { Err(Problem::invalid(&faults)) }
}

impl Policies {
    /// The `most` buckets that are closest to empty. The store examines all buckets, in steps, once per upstream.
    pub(super) async fn lowest(
        &self,
        rules: &Rules,
        owned: &[Owned<'_>],
        most: usize,
    ) -> Result<Vec<BucketState>, Problem> {
        let upstreams: BTreeSet<_> = owned.iter().map(|(upstream, _)| (*upstream).clone()).collect();
        let mut lowest = Vec::new();
        for upstream in upstreams {
            let mut after = Some(0);
            while let Some(place) = after {
                let upstream = Some(upstream.clone());
                let query = BucketQuery { upstream, after: place, lowest: true, ..BucketQuery::default() };
                let page = self.page(query).await?;
                lowest.extend(page.buckets);
                lowest.sort_by_cached_key(BucketView::urgency);
                lowest.truncate(most);
                after = page.next;
            }
        }
        let mut lowest: Vec<_> = lowest.iter().filter_map(|view| known(rules, view)).collect();
        // A full bucket is not stored.
        let shared = self.shared(rules, owned).await?;
        let full = shared.into_iter().filter(|bucket| bucket.available_tokens == bucket.capacity);
        lowest.extend(full.take(most - lowest.len()));
        Ok(lowest)
    }
}
