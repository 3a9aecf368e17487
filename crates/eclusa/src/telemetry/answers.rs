//! Counts of responses of direct lanes. These requests are not jobs, so the store has no totals of them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use eclusa_core::Name;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::snapshot::counters;

/// Responses of this process by lane and status, both upstreams' and Eclusa's own.
#[derive(Debug, Default)]
pub(crate) struct AnswerMeter {
    lanes: Mutex<BTreeMap<Name, BTreeMap<u16, u64>>>,
}

impl AnswerMeter {
    /// Counts a response.
    pub(crate) fn count(&self, lane: &Name, status: u16) {
        let mut lanes = self.lock();
        // Only the first request of a lane copies its name.
        let statuses = match lanes.get_mut(lane) {
            Some(statuses) => statuses,
            None => lanes.entry(lane.clone()).or_default(),
        };
        *statuses.entry(status).or_default() += 1;
    }

    /// Counts of one lane, by status.
    pub(crate) fn of(&self, lane: &Name) -> BTreeMap<u16, u64> {
        self.lock().get(lane).cloned().unwrap_or_default()
    }

    /// The total of one lane.
    pub(crate) fn total(&self, lane: &Name) -> u64 {
        self.lock().get(lane).map_or(0, |statuses| statuses.values().sum())
    }

    /// A copy to encode as a metric.
    pub(super) fn snapshot(&self) -> AnswerCounts {
        AnswerCounts(self.lock().clone())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, BTreeMap<u16, u64>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The counts at one moment.
#[derive(Debug)]
pub(super) struct AnswerCounts(BTreeMap<Name, BTreeMap<u16, u64>>);

impl Collector for AnswerCounts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.0.iter().flat_map(|(lane, statuses)| {
            statuses.iter().map(|(status, count)| (lane.as_str(), status.to_string(), *count))
        });
        let counts: Vec<_> = counts.collect();
        let samples = counts
            .iter()
            .map(|(lane, status, count)| (vec![("lane", *lane), ("status", status.as_str())], *count));
        counters(
            &mut encoder,
            "eclusa_direct_answers",
            "Requests of direct lanes, by response status",
            samples.collect(),
        )
    }
}
