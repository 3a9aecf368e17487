//! All that can be seen of a store.

use eclusa_core::{
    DeadLetterView, JobId, JobQuery, JobView, LaneView, Store, StoreError, TenantView, UpstreamView, Why,
};

use super::world::{LANES, lane_name};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct View {
    lanes: Vec<LaneView>,
    upstreams: Vec<UpstreamView>,
    /// By lane and name: what page they are on is the store's own affair.
    tenants: Vec<Vec<TenantView>>,
    letters: Vec<Vec<(u64, DeadLetterView)>>,
    /// By id: pages come in no particular order.
    jobs: Vec<(JobView, Option<Why>)>,
}

impl View {
    pub(crate) async fn of(store: &impl Store) -> Result<Self, StoreError> {
        let (mut tenants, mut letters) = (Vec::new(), Vec::new());
        for lane in (0..LANES).map(lane_name) {
            let of_lane = store.tenants(lane.clone(), 0, 100).await?;
            let mut of_lane: Vec<_> = of_lane.into_iter().map(|(_, tenant)| tenant).collect();
            of_lane.sort_by(|one, other| one.tenant.cmp(&other.tenant));
            tenants.push(of_lane);
            letters.push(store.dead_letters(lane, 0, 100).await?);
        }
        let mut jobs = Vec::new();
        for job in all_jobs(store).await? {
            let why = store.why(job.id).await?;
            jobs.push((job, why));
        }
        Ok(Self { lanes: store.lanes().await?, upstreams: store.upstreams().await?, tenants, letters, jobs })
    }

    /// Whether there are no jobs, calls or dead letters.
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
            && self.letters.iter().all(Vec::is_empty)
            && self.upstreams.iter().all(|upstream| upstream.in_flight == 0)
    }
}

async fn all_jobs(store: &impl Store) -> Result<Vec<JobView>, StoreError> {
    let mut found: Vec<JobView> = Vec::new();
    let mut next = Some(0);
    while let Some(after) = next {
        let page = store.jobs(JobQuery { after, max: 100, ..JobQuery::default() }).await?;
        found.extend(page.jobs);
        next = page.next;
    }
    let key = |job: &JobView| -> JobId { job.id };
    found.sort_by_key(key);
    found.dedup_by_key(|job| key(job));
    Ok(found)
}
