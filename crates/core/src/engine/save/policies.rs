//! Records of limits by scope.

use std::sync::Arc;

use super::super::Engine;
use super::super::buckets::ScopedBucket;
use super::super::debits::Debit;
use super::super::jobs::Job;
use super::super::leases::Lease;
use super::super::record::Record;
use super::Writer;
use crate::charge::Terms;
use crate::ids::LeaseId;

impl Engine {
    pub(super) fn save_policies(&mut self, writer: &mut Writer<'_>) {
        if std::mem::take(&mut self.hash_key_unsaved) {
            self.hash_key.iter().for_each(|key| writer.write(&Record::HashKey(*key)));
        }
        let families = self.buckets.families_mut();
        families.drain_changes(|family, terms| writer.write(&terms_record(family, terms)));
        self.buckets.drain_changes(|key, bucket| {
            writer.write(&bucket.map_or_else(|| Record::BucketGone(key.clone()), bucket_record));
        });
        self.debits.drain_changes(|correlation, debit| {
            let debit = debit.map(|debit| Record::Debit { correlation, debit: debit.clone() });
            writer.write(&debit.unwrap_or(Record::DebitGone(correlation)));
        });
    }

    pub(super) fn forget_policy_changes(&mut self) {
        self.hash_key_unsaved = false;
        self.buckets.families_mut().drain_changes(|_, _| {});
        self.buckets.drain_changes(|_, _| {});
        self.debits.drain_changes(|_, _| {});
    }

    pub(super) fn policy_records(&self) -> impl Iterator<Item = Record> {
        let debit = |(correlation, debit): (_, &Debit)| Record::Debit { correlation, debit: debit.clone() };
        let terms = self.buckets.families().iter().map(|(family, terms)| terms_record(family, terms));
        let buckets = self.buckets.iter().map(bucket_record);
        terms.chain(buckets).chain(self.debits.iter().map(debit)).chain(self.hash_key.map(Record::HashKey))
    }
}

fn bucket_record(state: &ScopedBucket) -> Record {
    Record::Bucket { key: state.key.clone(), spec: state.spec, bucket: state.bucket }
}

fn terms_record(family: &Arc<str>, terms: &Arc<Terms>) -> Record {
    Record::Terms { family: family.clone(), terms: terms.clone() }
}

pub(super) fn job_correlation(job: &Job) -> Option<Record> {
    job.correlation().map(|correlation| Record::JobCorrelation { id: job.id, correlation })
}

pub(super) fn lease_correlation(id: LeaseId, lease: &Lease) -> Option<Record> {
    lease.correlation.map(|correlation| Record::LeaseCorrelation { id, correlation })
}
