//! The tightest limit of a call, for `RateLimit` headers.

use super::Engine;
use super::tenant_limits::TenantHold;
use crate::gate::{Quota, QuotaOf};
use crate::table::{BucketIx, LaneIx, UpstreamIx};
use crate::time::Time;
use crate::tokens::Tokens;

impl Engine {
    /// Of all buckets and windows that apply to a call, the one that admits the fewest more.
    pub(super) fn quota(
        &self,
        (lane, tenant): (Option<LaneIx>, TenantHold),
        upstream: Option<UpstreamIx>,
        holds: &[(BucketIx, Tokens)],
        now: Time,
    ) -> Option<Quota> {
        let free_at = self.leases.next_expiry();
        let lane = lane.map(|lane| self.lane(lane));
        let lane_name = lane.map(|lane| lane.name.clone());
        let lane = lane.and_then(|lane| {
            let of = QuotaOf::Lane(lane.name.clone());
            Some(lane.gates.quotas(&of, &lane.spec.as_ref()?.gates, now, free_at))
        });
        let upstream = upstream.map(|upstream| self.upstream(upstream));
        let upstream = upstream.and_then(|upstream| {
            let of = QuotaOf::Upstream(upstream.name.clone());
            Some(upstream.gates.quotas(&of, upstream.spec.as_ref()?, now, free_at))
        });
        let of_tenant = tenant.rate.zip(lane_name).map(|(rate, lane)| {
            let state = &self.buckets[rate];
            state.bucket.quota(QuotaOf::Tenant(lane), &state.spec, Tokens::ONE, now)
        });
        let own =
            of_tenant.into_iter().chain(lane.into_iter().flatten()).chain(upstream.into_iter().flatten());
        let scoped = holds.iter().map(|(bucket, tokens)| {
            let state = &self.buckets[*bucket];
            (state.bucket.quota(QuotaOf::Bucket(state.key.clone()), &state.spec, *tokens, now), *tokens)
        });
        let all = own.map(|quota| (quota, Tokens::ONE)).chain(scoped);
        let tightest = all.min_by_key(|(quota, tokens)| quota.tightness(*tokens));
        tightest.map(|(quota, _)| quota)
    }
}
