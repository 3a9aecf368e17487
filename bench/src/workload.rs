//! What is measured: life cycles of jobs with a payload of 200 bytes, in groups of 100.

use std::sync::Arc;

use eclusa_core::gate::{CallResult, GateSpecs};
use eclusa_core::{
    CallFailure, Capacity, Chain, Dispatch, FailureReason, JobId, LaneSpec, LeaseId, Name, NewJob, Outcome,
    Settlement, Span, Spec, SpecError, UpstreamSpec,
};

use crate::Failed;

/// Jobs per call: the most that one call takes.
pub(crate) const GROUP: usize = eclusa_core::MAX_BATCH;

/// Bytes that each job carries.
pub(crate) const PAYLOAD: usize = 200;

/// A load to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    /// Jobs that wait throughout.
    pub(crate) waiting: usize,
    pub(crate) tenants: usize,
    /// Leases that stay open between two groups.
    pub(crate) in_flight: usize,
}

pub(crate) const WAITING: [usize; 2] = [1_000, 1_000_000];
pub(crate) const TENANTS: [usize; 2] = [1, 100_000];
pub(crate) const IN_FLIGHT: [usize; 2] = [10, 10_000];

/// One lane to one upstream without limits, so that nothing but the cost of the rules is measured.
pub(crate) fn spec() -> Result<Spec, Failed> {
    spec_with(|_| {})
}

/// The spec with other rules for the lane.
pub(crate) fn spec_with(edit: impl FnOnce(&mut LaneSpec)) -> Result<Spec, Failed> {
    let upstream = UpstreamSpec::new(name("upstream")?, GateSpecs::default());
    let mut lane = LaneSpec::new(name("lane")?, Chain::new(vec![name("upstream")?])?);
    lane.capacity = Capacity::new(10_000_000, 1 << 40)?;
    edit(&mut lane);
    Spec::new(vec![lane], vec![upstream]).map_err(|errors| format!("{errors:?}").into())
}

fn name(text: &str) -> Result<Name, SpecError> {
    Name::new(text)
}

/// Makes the calls of one client.
pub(crate) struct Workload {
    lane: Name,
    tenants: Arc<[Arc<str>]>,
    client: u64,
    made: u64,
    /// Payloads are cut from this. Random by default, so that they cannot be compressed.
    text: Arc<[u8]>,
    payload: usize,
}

impl Workload {
    pub(crate) fn new(tenants: Arc<[Arc<str>]>, client: u64) -> Result<Self, SpecError> {
        Ok(Self { lane: name("lane")?, tenants, client, made: 0, text: random_text(), payload: PAYLOAD })
    }

    /// Sets the payload size in bytes.
    pub(crate) fn with_payload(self, bytes: usize) -> Self {
        Self { payload: bytes, ..self }
    }

    /// Makes payloads of words, which can be compressed as mail can.
    pub(crate) fn with_words(self) -> Self {
        Self { text: words(), ..self }
    }

    /// New jobs, of tenants in no particular order.
    pub(crate) fn jobs(&mut self, count: usize) -> Vec<NewJob> {
        (0..count).map(|_| self.job()).collect()
    }

    fn job(&mut self) -> NewJob {
        self.made += 1;
        let id = u128::from(self.client) << 64 | u128::from(self.made);
        let spread = (self.made + self.client).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let tenant = usize::try_from(spread).unwrap_or_default() % self.tenants.len();
        let at =
            usize::try_from(spread.wrapping_mul(31)).unwrap_or_default() % (self.text.len() - self.payload);
        let payload = &self.text[at..at + self.payload];
        NewJob::new(JobId(id), self.lane.clone(), &self.tenants[tenant], payload)
    }

    pub(crate) fn ask(&self) -> Dispatch {
        Dispatch {
            lane: self.lane.clone(),
            max: GROUP,
            lease: Span::from_secs(3_600),
            nonce: fastrand::u64(..),
            wait: Span::ZERO,
            denied: None,
        }
    }
}

const TEXT_BYTES: usize = 4 << 20;

/// Text of a vocabulary of 2,000 words.
fn words() -> Arc<[u8]> {
    let mut random = fastrand::Rng::with_seed(2);
    let mut word = || -> String { (0..random.usize(2..10)).map(|_| random.lowercase()).collect() };
    let vocabulary: Vec<String> = (0..2_000).map(|_| word() + " ").collect();
    let mut text = Vec::new();
    while text.len() < TEXT_BYTES {
        text.extend_from_slice(vocabulary[random.usize(..vocabulary.len())].as_bytes());
    }
    text.into()
}

fn random_text() -> Arc<[u8]> {
    let mut random = fastrand::Rng::with_seed(1);
    (0..TEXT_BYTES).map(|_| random.alphanumeric() as u8).collect()
}

/// The names of `count` tenants.
pub(crate) fn tenants(count: usize) -> Arc<[Arc<str>]> {
    (0..count).map(|n| format!("tenant-{n}").into()).collect()
}

/// The job under `lease` succeeded.
pub(crate) fn done(lease: LeaseId) -> Settlement {
    Settlement {
        lease,
        report: CallResult::Success.into(),
        outcome: Outcome::Done,
        answer: None,
        unsent: None,
    }
}

/// The job under `lease` failed permanently.
pub(crate) fn dead(lease: LeaseId) -> Settlement {
    let (reason, code) = (FailureReason::fixed("550 5.1.1 no such mailbox"), Some("550".into()));
    let failure = CallFailure { reason, code, upstream: None };
    Settlement { outcome: Outcome::Dead(failure), report: CallResult::Rejected.into(), ..done(lease) }
}
