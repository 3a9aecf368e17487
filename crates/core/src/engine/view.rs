//! The read side.

use std::sync::Arc;

use super::Engine;
use super::buckets::ScopedBucket;
use super::jobs::{Job, Phase};
use super::outlook::Outlook;
use crate::dead_letter::DeadLetterView;
use crate::gate::GateView;
use crate::ids::{JobId, Name};
use crate::job::{JobView, Level};
use crate::lane::{EVERYONE, Lane};
use crate::pattern::matches;
use crate::policy::BucketId;
use crate::table::{LaneIx, TenantIx, UpstreamIx};
use crate::time::{Span, Time};
use crate::timeline::{Event, EventKind};
use crate::tokens::Tokens;
use crate::verbs::MAX_BATCH;
use crate::views::{
    BucketPage, BucketQuery, BucketView, LaneView, TenantPage, TenantQuery, TenantView, UpstreamView,
};

/// Slots of the bucket table, or tenants, that one query examines.
const MAX_SCANNED: u64 = 10_000;

impl Engine {
    /// The job, if it exists.
    pub fn job(&self, id: JobId) -> Option<JobView> {
        self.jobs.find(id).map(|job| self.view_job(&self.jobs[job]))
    }

    /// A page of the buckets that match `query`. It examines a bounded number of them, even if few match. Buckets of
    /// one scope and buckets without a scope are looked up directly.
    pub fn buckets(&self, query: &BucketQuery, now: Time) -> BucketPage {
        let max = query.max.min(MAX_BATCH);
        if let Some(scope) = query.scope {
            let keys = self.buckets.families().names().map(|family| format!("{family}{scope}"));
            let found = keys.filter_map(|key| self.buckets.find(&key));
            let views = found.filter_map(|index| view_bucket(&self.buckets[index], query, now));
            return BucketPage { buckets: views.take(max).collect(), next: None };
        }
        if query.shared {
            return self.shared_buckets(query, max, now);
        }
        let places = self.buckets.places();
        let end = places.min(query.after.saturating_add(MAX_SCANNED));
        if query.lowest {
            let states = (query.after..end).filter_map(|place| self.buckets.at(place));
            let mut buckets: Vec<_> = states.filter_map(|state| view_bucket(state, query, now)).collect();
            buckets.sort_by_cached_key(BucketView::urgency);
            buckets.truncate(max);
            return BucketPage { buckets, next: (end < places).then_some(end) };
        }
        let mut page = BucketPage::default();
        let mut place = query.after;
        while place < end && page.buckets.len() < max {
            let state = self.buckets.at(place);
            page.buckets.extend(state.and_then(|state| view_bucket(state, query, now)));
            place += 1;
        }
        page.next = (place < places).then_some(place);
        page
    }

    /// A shared bucket has the key of its family.
    fn shared_buckets(&self, query: &BucketQuery, max: usize, now: Time) -> BucketPage {
        let place = usize::try_from(query.after).unwrap_or(usize::MAX);
        let mut families = self.buckets.families().names().skip(place);
        let found = families.by_ref().take(max).filter_map(|family| self.buckets.find(family));
        let views = found.filter_map(|index| view_bucket(&self.buckets[index], query, now));
        let buckets = views.collect();
        let next = families.next().map(|_| (place + max) as u64);
        BucketPage { buckets, next }
    }

    pub(super) fn view_job(&self, job: &Job) -> JobView {
        let lane = self.lane(job.lane);
        let rare = job.rare.as_deref();
        let due_at = match job.phase {
            Phase::Pending { due } | Phase::HeldBack { since: due, .. } => Some(due),
            _ => None,
        };
        let lease = if let Phase::Processing { lease } = job.phase { Some(lease) } else { None };
        let at = lease.and_then(|lease| self.leases.get(lease)?.upstream);
        let (dropped, served) = match job.phase {
            Phase::Finished { dropped, served, .. } => (dropped, served),
            _ => (None, None),
        };
        JobView {
            id: job.id,
            lane: lane.name.clone(),
            tenant: lane.tenants[job.tenant].name.clone(),
            level: job.level,
            key: rare.and_then(|rare| rare.key.clone()),
            cache_key: job.cache_key().cloned(),
            status: job.status(),
            served,
            dropped,
            created_at: job.created_at,
            expires_at: job.expires_at,
            due_at,
            attempts: job.attempts,
            upstream: job.upstream.map(|upstream| self.upstream(upstream).name.clone()),
            external: job.submission().and_then(|submission| submission.external.clone()),
            lease,
            at: at.map(|at| self.upstream(at).name.clone()),
            last_failure: rare.and_then(|rare| rare.failure.clone()),
            payload: job.payload.clone(),
            result: rare.and_then(|rare| rare.result.clone()),
            timeline: self.timeline(job),
            dead_letter: lane.dead.get(job.id).is_some(),
        }
    }

    fn timeline(&self, job: &Job) -> Vec<Event<Name>> {
        let name = |upstream: &UpstreamIx| self.upstream(*upstream).name.clone();
        let mut timeline = vec![Event { at: job.created_at, kind: EventKind::Accepted }];
        timeline
            .extend(job.timeline().iter().map(|event| Event { at: event.at, kind: event.kind.map(name) }));
        if let Phase::Finished { at, status, .. } = job.phase {
            timeline.push(Event { at, kind: EventKind::Ended(status) });
        }
        timeline
    }

    /// All lanes.
    pub fn lanes(&self, now: Time) -> Vec<LaneView> {
        (0..self.lanes.len())
            .map(|lane| self.view_lane(LaneIx(u32::try_from(lane).unwrap_or(u32::MAX)), now))
            .collect()
    }

    /// One lane.
    pub fn lane_view(&self, name: &Name, now: Time) -> Option<LaneView> {
        self.lane_by_name.get(name).map(|lane| self.view_lane(*lane, now))
    }

    fn view_lane(&self, index: LaneIx, now: Time) -> LaneView {
        let lane = self.lane(index);
        let Outlook { held, last_start, will_expire } = self.outlook(index, now);
        LaneView {
            name: lane.name.clone(),
            paused: lane.paused,
            paused_since: lane.holds.paused_since().filter(|_| lane.paused),
            queued: [0, 1, 2].map(|level: usize| lane.levels[level].queued + lane.levels[level].aside),
            pending: (lane.due.len() + lane.held_back.len()) as u64,
            processing: lane.processing,
            waiting_bytes: lane.waiting_bytes,
            finished: lane.finished.len() as u64,
            dead_letters: lane.dead.len() as u64,
            oldest_dead_letter: lane.dead.after(0).next().map(|(_, _, letter)| letter.moved_at),
            dead_letters_until: lane.dead.next_expiry(),
            top_code: lane.dead.by_code.top(),
            top_tenant: lane.dead.by_tenant.top(),
            letter_ages: lane.dead.ages,
            oldest_waiting: lane.oldest_job().map(|job| self.jobs[job].created_at),
            capacity: lane.spec.as_ref().map(|spec| spec.capacity.jobs()),
            totals: lane.totals,
            gates: self.lane_gates(lane, now),
            chain: lane.spec.iter().flat_map(|spec| spec.chain.names()).cloned().collect(),
            ttl: lane.spec.as_ref().and_then(|spec| spec.ttl),
            held,
            last_start,
            will_expire,
        }
    }

    pub(super) fn lane_gates(&self, lane: &Lane, now: Time) -> Vec<GateView> {
        let slot_free_at = self.leases.next_expiry();
        lane.spec.as_ref().map_or(Vec::new(), |spec| lane.gates.view(&spec.gates, now, slot_free_at))
    }

    /// All upstreams.
    pub fn upstreams(&self, now: Time) -> Vec<UpstreamView> {
        self.upstreams.iter().filter_map(|upstream| self.upstream_view(&upstream.name, now)).collect()
    }

    /// One upstream.
    pub fn upstream_view(&self, name: &Name, now: Time) -> Option<UpstreamView> {
        let index = *self.upstream_by_name.get(name)?;
        let upstream = self.upstream(index);
        let (spec, slot_free_at) = (upstream.spec.as_ref(), self.leases.next_expiry());
        let mut view = UpstreamView::of(name, spec, &upstream.gates, now, slot_free_at);
        self.show_calls(index, &mut view, now);
        Some(view)
    }

    pub(super) fn upstream_gates(&self, index: UpstreamIx, now: Time) -> Vec<GateView> {
        let upstream = self.upstream(index);
        let slot_free_at = self.leases.next_expiry();
        upstream.spec.as_ref().map_or(Vec::new(), |spec| upstream.gates.view(spec, now, slot_free_at))
    }

    /// The balance of a scoped bucket, if it exists.
    pub fn bucket(&self, key: &str, now: Time) -> Option<Tokens> {
        let state = &self.buckets[self.buckets.find(key)?];
        Some(state.bucket.balance(&state.spec, now))
    }

    /// The fairness metrics of a lane's tenants. It examines a bounded number of them, even if few match.
    pub fn tenants(&self, query: &TenantQuery, now: Time) -> TenantPage {
        let Some(index) = self.lane_by_name.get(&query.lane) else { return TenantPage::default() };
        let lane = self.lane(*index);
        let next = self.next_in_turn(*index, now).map(|job| self.jobs[job].tenant);
        let mut page = TenantPage::default();
        for (examined, (index, tenant)) in lane.tenants.iter_from(TenantIx(query.after)).enumerate() {
            if examined as u64 == MAX_SCANNED || !query.busiest && page.tenants.len() == query.max {
                page.next = Some(index.0);
                break;
            }
            if is_asked_for(&tenant.name, query) {
                page.tenants.push(TenantView { next: next == Some(index), ..view_tenant(lane, index) });
            }
        }
        if query.busiest {
            page.tenants.sort_by_cached_key(TenantView::urgency);
            page.tenants.truncate(query.max);
        }
        page
    }

    /// A dead letter of any lane.
    pub fn dead_letter(&self, job: JobId) -> Option<DeadLetterView> {
        self.lanes.iter().find_map(|lane| self.dead_letter_view(&lane.name, job))
    }

    /// A dead letter of a lane.
    pub fn dead_letter_view(&self, lane: &Name, job: JobId) -> Option<DeadLetterView> {
        let state = self.lane(*self.lane_by_name.get(lane)?);
        state.dead.get(job).map(|letter| Self::view_letter(state, job, letter))
    }
}

fn is_asked_for(tenant: &str, query: &TenantQuery) -> bool {
    let fits = |names: &Vec<Arc<str>>| names.iter().any(|pattern| matches(pattern, tenant));
    tenant != EVERYONE && query.names.as_ref().is_none_or(fits)
}

/// A tenant, with the rounds of the level at which it was served last.
fn view_tenant(lane: &Lane, index: TenantIx) -> TenantView {
    let tenant = &lane.tenants[index];
    let rounds = |level: &Level| {
        let last_turn = tenant.level(*level).and_then(|level| level.last_turn);
        last_turn.map(|last| lane.levels[*level as usize].turns.turn - last)
    };
    let in_a_row = lane
        .levels
        .iter()
        .filter(|level| level.turns.current == Some(index))
        .map(|level| level.turns.in_a_row);
    let fairness = lane.spec.as_ref().and_then(|spec| spec.fairness.as_ref());
    TenantView {
        last_processed: tenant.last_processed,
        total_processed: tenant.processed,
        consecutive_batch: in_a_row.max().unwrap_or_default(),
        waiting: tenant.waiting,
        processing: tenant.processing,
        weight: fairness.map_or(1, |fairness| fairness.weight(&tenant.name)),
        ..TenantView::of(tenant.name.clone(), Level::ALL.iter().filter_map(rounds).min())
    }
}

/// The view of a bucket, if it matches the query.
fn view_bucket(state: &ScopedBucket, query: &BucketQuery, now: Time) -> Option<BucketView> {
    let ScopedBucket { key, spec, bucket, .. } = state;
    let id = BucketId::parse(key)?;
    let fits = query.upstream.as_ref().is_none_or(|upstream| id.upstream == *upstream)
        && query.policy.as_ref().is_none_or(|policy| id.policy == *policy);
    let (refill_micro, refill_ms) = spec.refill();
    fits.then(|| BucketView {
        id,
        available: bucket.balance(spec, now),
        capacity: spec.capacity(),
        refill: Tokens::from_micro(i64::try_from(refill_micro).unwrap_or(i64::MAX)),
        period: Span::from_millis(refill_ms),
        held: bucket.held(),
        closed_until: Some(bucket.closed_until()).filter(|until| *until > now),
        spent_last_minute: state.spent_last_minute(now),
        credited_last_minute: state.credited_last_minute(now),
    })
}
