//! Reads only which things records are about: cleaning a journal reads all of it again and again.

use super::{RecordLayout, each_layout};
use crate::engine::ProcessId;
use crate::engine::refresh::Mention;
use crate::ids::{JobId, LeaseId, Name};
use crate::layout::LayoutError;
use crate::layout::convert::Layout;
use crate::layout::shared::LeaseIdLayout;
use crate::policy::Correlation;

/// The things that the records of `chunk` are about, except those that they say are gone.
pub(crate) fn read_mentions(chunk: &[u8]) -> Result<Vec<Mention>, LayoutError> {
    let mut mentions = Vec::new();
    each_layout(chunk, |record| {
        mentions.extend(mention(record)?);
        Ok(())
    })?;
    Ok(mentions)
}

fn mention(record: RecordLayout<'_>) -> Result<Option<Mention>, LayoutError> {
    let lease = |id: LeaseIdLayout| Layout::<LeaseId>::into_domain(id).map(Mention::Lease);
    Ok(Some(match record {
        RecordLayout::Meta { .. } => Mention::Meta,
        RecordLayout::Lane(lane) => Mention::Lane(lane.number),
        RecordLayout::Upstream { number, .. } => Mention::Upstream(number),
        RecordLayout::Tenant(tenant) => Mention::Tenant(tenant.lane, tenant.name.into()),
        RecordLayout::Job(job) => Mention::Job(JobId(job.id)),
        RecordLayout::JobCorrelation { id, .. } | RecordLayout::JobCallback { id, .. } => {
            Mention::Job(JobId(id))
        }
        RecordLayout::JobState { id, .. } | RecordLayout::JobSubmission { id, .. } => {
            Mention::JobState(JobId(id))
        }
        RecordLayout::Lease(id, _) | RecordLayout::LeaseCorrelation { id, .. } => lease(id)?,
        RecordLayout::Bucket { key, .. } => Mention::Bucket(key.into()),
        RecordLayout::Dead { lane, number, .. } | RecordLayout::DeadCorrelation { lane, number, .. } => {
            Mention::DeadLetter(lane, number)
        }
        RecordLayout::Key { lane, key, .. } => Mention::Key(lane, key.into()),
        RecordLayout::Cache { lane, key, .. } => Mention::Cache(lane, key.into()),
        RecordLayout::LaneRules { number, .. } => Mention::LaneRules(number),
        RecordLayout::UpstreamRules { number, .. } => Mention::UpstreamRules(number),
        RecordLayout::Registration { process, .. } => Mention::Registration(ProcessId(process)),
        RecordLayout::Terms { family, .. } => Mention::Terms(family.into()),
        RecordLayout::Debit { correlation, .. } => Mention::Debit(Correlation(correlation)),
        RecordLayout::HashKey(_) => Mention::HashKey,
        RecordLayout::Schedule { name, .. } => Mention::Schedule(Layout::<Name>::into_domain(name)?),
        RecordLayout::Alert { key, .. } => Mention::Alert(key.into_domain()?),
        RecordLayout::AlertsResolved(_) => Mention::AlertsResolved,
        RecordLayout::AlertMeters(_) => Mention::AlertMeters,
        RecordLayout::AlertHistory { lane, .. } => Mention::AlertHistory(lane),
        RecordLayout::Bulk(bulk) => Mention::Bulk(JobId(bulk.id)),
        RecordLayout::RedriveState { lane, chain, .. } => {
            Mention::RedriveState(lane, Layout::<Vec<Name>>::into_domain(chain)?)
        }
        RecordLayout::Code { upstream, code, .. } => Mention::Code(upstream, code.into()),
        RecordLayout::LaneMinute { lane, point } => Mention::LaneMinute(lane, point.minute()),
        RecordLayout::UpstreamMinute { upstream, point } => Mention::UpstreamMinute(upstream, point.minute()),
        RecordLayout::GateChange { upstream, number, .. } => Mention::GateChange(upstream, number),
        RecordLayout::RunningMinute(_) => Mention::RunningMinute,
        RecordLayout::LaneHolds { lane, .. } => Mention::LaneHolds(lane),
        RecordLayout::UpstreamFailure { upstream, .. } => Mention::UpstreamFailure(upstream),
        RecordLayout::AlertGone(_)
        | RecordLayout::TenantGone { .. }
        | RecordLayout::JobGone(_)
        | RecordLayout::LeaseGone(_)
        | RecordLayout::BucketGone(_)
        | RecordLayout::DeadGone { .. }
        | RecordLayout::KeyGone { .. }
        | RecordLayout::CacheGone { .. }
        | RecordLayout::DebitGone(_)
        | RecordLayout::BulkGone(_)
        | RecordLayout::RedriveStateGone { .. }
        | RecordLayout::CodeGone { .. }
        | RecordLayout::RegistrationGone(_) => return Ok(None),
    }))
}
