//! Restoring jobs and leases.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::Engine;
use super::super::jobs::{Job, LastSettled, Phase};
use super::super::leases::{Lease, Use};
use super::super::record::{JobRecord, JobState, LeaseRecord, PhaseRecord, SettledRecord, UseRecord};
use super::super::tenant_limits::TenantHold;
use super::changes::JobCorrelations;
use super::{RestoreError, TenantsByArrival, expect, lane_at};
use crate::gate::Pass;
use crate::ids::{JobId, LeaseId};
use crate::lane::JobHold;
use crate::policy::Correlation;
use crate::table::{LaneIx, TenantIx, UpstreamIx};
use crate::timeline::Event;
use crate::tokens::Tokens;
use crate::verbs::Settled;

/// Restores waiting jobs in the order of their numbers, and finished ones in the order in which they ended.
#[expect(clippy::vec_box, reason = "records are long, and sorting would move them")]
pub(super) fn restore_jobs(
    engine: &mut Engine,
    mut jobs: Vec<Box<JobRecord>>,
    tenants: &TenantsByArrival,
    correlations: &JobCorrelations,
) -> Result<(), RestoreError> {
    jobs.sort_unstable_by_key(|job| match job.state.phase {
        PhaseRecord::Finished { number, .. } => number,
        _ => job.state.seq,
    });
    for record in jobs {
        let at = (record.lane, record.tenant);
        let Some(tenant) = tenants.get(&at).copied() else {
            return Err(RestoreError::Inconsistent(format!("the tenant of job {} is unknown", record.id)));
        };
        let correlation = correlations.get(&record.id).copied();
        restore_job(engine, *record, tenant, correlation)?;
    }
    Ok(())
}

fn restore_job(
    engine: &mut Engine,
    record: JobRecord,
    tenant: TenantIx,
    correlation: Option<Correlation>,
) -> Result<(), RestoreError> {
    let (id, lane) = (record.id, LaneIx(record.lane));
    let chain: Vec<_> = record.chain.iter().map(|upstream| UpstreamIx(*upstream)).collect();
    let known = chain.iter().all(|upstream| (upstream.0 as usize) < engine.upstreams.len());
    expect(known, || format!("an upstream of job {id} is unknown"))?;
    let state = lane_at(engine, record.lane)?;
    state.tenants.hold(tenant);
    let chain = state.group(&chain);
    let times = (record.created_at, record.expires_at);
    let payload = record.payload;
    let mut job = Job::new(id, lane, tenant, record.level, record.state.seq, times, chain, payload);
    let keys = (record.key, record.cache_key);
    let JobRecordParts { phase, result_bytes } = fill(&mut job, record.state, keys, record.replay_of);
    if !matches!(phase, PhaseRecord::Finished { .. }) && !record.holds.is_empty() {
        job.rare().holds = Some(restore_holds(engine, id, &record.holds)?);
    }
    if correlation.is_some() {
        job.rare().correlation = correlation;
    }
    if record.waited_until.is_some() {
        job.rare().waited_until = record.waited_until;
    }
    if record.callback.is_some() {
        job.rare().callback = record.callback;
    }
    let settled = job.settled();
    let early_bytes = record.submission.as_ref().map_or(0, |submission| submission.early_bytes());
    if let Some(submission) = record.submission {
        job.rare().submission = Some(submission);
    }
    let index = engine.jobs.restore(job);
    engine.jobs.bytes += early_bytes;
    engine.index_submission(index);
    engine.jobs.bytes += result_bytes;
    if let Some(last) = settled {
        engine.leases.remember_settled(last.lease, index);
    }
    match phase {
        PhaseRecord::Pending { due } => {
            engine.jobs[index].delayed = engine.jobs[index].attempts == 0;
            engine.wait(index, Some(due));
        }
        PhaseRecord::Queued => engine.wait(index, None),
        PhaseRecord::Coalesced => {
            let waiter = engine.jobs[index].waiter(index);
            engine.lane_mut(lane).enter(&waiter);
            engine.join_aside(index);
        }
        PhaseRecord::Processing(lease, record) => {
            engine.jobs[index].phase = Phase::Processing { lease };
            engine.begin_processing(index);
            let awaiting = record.used_by == UseRecord::Awaiting;
            let used_by = if awaiting { Use::Awaiting(index) } else { Use::Job(index, lane) };
            let correlation = engine.jobs[index].correlation();
            restore_lease(engine, lease, &record, used_by, correlation)?;
            engine.start_polling(index);
        }
        PhaseRecord::Finished { at, number, status, dropped, served } => {
            engine.jobs[index].phase = Phase::Finished { at, number, status, dropped, served };
            let jobs = &engine.jobs;
            let finished = &mut engine.lanes[lane.0 as usize].finished;
            finished.restore(at, index, |job| jobs[job].end_number());
        }
    }
    Ok(())
}

struct JobRecordParts {
    phase: PhaseRecord,
    result_bytes: u64,
}

fn fill(
    job: &mut Job,
    state: JobState,
    (key, cache_key): (Option<Arc<str>>, Option<Arc<str>>),
    replay_of: Option<JobId>,
) -> JobRecordParts {
    job.tried = state.tried;
    job.attempts = state.attempts;
    job.lost = state.lost;
    job.upstream = state.upstream.map(UpstreamIx);
    let result_bytes = state.result.as_ref().map_or(0, |result| result.len() as u64);
    let timeline: Vec<_> = state
        .timeline
        .into_iter()
        .map(|event| Event { at: event.at, kind: event.kind.map(|number| UpstreamIx(*number)) })
        .collect();
    if key.is_some()
        || cache_key.is_some()
        || replay_of.is_some()
        || state.failure.is_some()
        || state.result.is_some()
    {
        let rare = job.rare();
        rare.key = key;
        rare.cache_key = cache_key;
        rare.replay_of = replay_of;
        rare.failure = state.failure;
        rare.result = state.result;
    }
    if !timeline.is_empty() || state.settled.is_some() {
        let past = job.past();
        past.timeline = timeline;
        past.settled = state.settled.map(|(lease, how)| LastSettled { lease, how: settled(how) });
    }
    JobRecordParts { phase: state.phase, result_bytes }
}

fn settled(record: SettledRecord) -> Settled {
    match record {
        SettledRecord::Ended(status) => Settled::Ended(status),
        SettledRecord::RetryAt(at) => Settled::RetryAt(at),
        SettledRecord::Requeued => Settled::Requeued,
        SettledRecord::Awaiting(lease) => Settled::Awaiting(lease),
    }
}

fn restore_holds(
    engine: &mut Engine,
    job: JobId,
    holds: &[(u32, Arc<str>, Tokens)],
) -> Result<Arc<[JobHold]>, RestoreError> {
    let mut restored = Vec::with_capacity(holds.len());
    for (upstream, key, tokens) in holds {
        let bucket = engine.buckets.find(key);
        let problem = || RestoreError::Inconsistent(format!("bucket {key:?} of job {job} is unknown"));
        let bucket = bucket.ok_or_else(problem)?;
        engine.buckets.add_user(bucket);
        restored.push(JobHold { upstream: UpstreamIx(*upstream), bucket, tokens: *tokens });
    }
    Ok(restored.into())
}

/// Restores leases without a job.
pub(super) fn restore_leases(
    engine: &mut Engine,
    leases: BTreeMap<LeaseId, Option<LeaseRecord>>,
    correlations: &BTreeMap<LeaseId, Correlation>,
) -> Result<(), RestoreError> {
    for (id, record) in leases {
        let Some(record) = record else { continue };
        let lane = record.lane.map(LaneIx);
        let later = record.used_by == UseRecord::LaterCall;
        let used_by = if later { Use::LaterCall(lane) } else { Use::Call(lane) };
        restore_lease(engine, id, &record, used_by, correlations.get(&id).copied())?;
    }
    Ok(())
}

fn restore_lease(
    engine: &mut Engine,
    id: LeaseId,
    record: &LeaseRecord,
    used_by: Use,
    correlation: Option<Correlation>,
) -> Result<(), RestoreError> {
    let mut holds = Vec::with_capacity(record.holds.len());
    for (key, tokens) in &record.holds {
        let problem = || RestoreError::Inconsistent(format!("bucket {key:?} of lease {id} is unknown"));
        let bucket = engine.buckets.find(key).ok_or_else(problem)?;
        engine.buckets.hold_again(bucket, *tokens);
        holds.push((bucket, *tokens));
    }
    let mut find = |key: &Arc<str>| {
        let problem = || RestoreError::Inconsistent(format!("bucket {key:?} of lease {id} is unknown"));
        engine.buckets.find(key).ok_or_else(problem)
    };
    let rate = record.tenant_rate.as_ref().map(&mut find).transpose()?;
    let slot = record.tenant_slot.as_ref().map(find).transpose()?;
    if let Some(rate) = rate {
        engine.buckets.add_user(rate);
    }
    if let Some(slot) = slot {
        engine.buckets.hold_again(slot, Tokens::ONE);
    }
    let tenant = TenantHold { rate, slot };
    if let Some(lane) = used_by.lane() {
        lane_at(engine, lane.0)?.gates.restore_call(Pass::default());
    }
    let upstream = record.upstream.map(UpstreamIx);
    if let Some(upstream) = upstream {
        for index in engine.gates_at(upstream) {
            engine.upstreams[index.0 as usize].gates.restore_call(record.pass);
        }
    }
    let LeaseRecord { pass, expires, .. } = *record;
    engine.leases.restore(id, Lease { used_by, upstream, pass, holds, tenant, correlation, expires });
    Ok(())
}
