//! Rules and operations as plain data, so that proptest can shrink them. Numbers refer to things "modulo what exists";
//! [`crate::world`] resolves them.

use eclusa_core::gate::CallResult;
use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;

/// Capacity, refill and per how many milliseconds.
pub(crate) type BucketPlan = (u32, u32, u64);

/// For how many milliseconds an answer is fresh, for how many more it is usable, and how many are kept.
pub(crate) type CachePlan = (u64, u64, u64);

#[derive(Debug, Clone, Default)]
pub(crate) struct GatePlan {
    pub(crate) window: Option<u32>,
    pub(crate) bucket: Option<BucketPlan>,
    pub(crate) slots: Option<u32>,
    /// Failures, milliseconds open, probes.
    pub(crate) breaker: Option<(u32, u64, u32)>,
    pub(crate) cooldown: bool,
    pub(crate) pace: bool,
    /// Limits per tenant of a lane.
    pub(crate) tenant_bucket: Option<BucketPlan>,
    pub(crate) tenant_slots: Option<u32>,
}

#[derive(Debug, Clone)]
pub(crate) struct LanePlan {
    pub(crate) chain: u8,
    pub(crate) capacity: u64,
    pub(crate) max_bytes: u64,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) batch: Option<u32>,
    pub(crate) gates: GatePlan,
    pub(crate) stops_when_ambiguous: bool,
    pub(crate) dead_letters: Option<u64>,
    pub(crate) keep: u64,
    pub(crate) cache: Option<CachePlan>,
}

#[derive(Debug, Clone)]
pub(crate) struct RulePlan {
    pub(crate) upstreams: Vec<GatePlan>,
    pub(crate) lanes: Vec<LanePlan>,
    /// Whether jobs take from scoped buckets.
    pub(crate) scoped: bool,
}

impl RulePlan {
    /// Whether lines may be parked at buckets; which ones are parked is not in the journal.
    pub(crate) fn parks(&self) -> bool {
        let limited =
            |lane: &LanePlan| lane.gates.tenant_bucket.is_some() || lane.gates.tenant_slots.is_some();
        self.scoped || self.lanes.iter().any(limited)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct JobPlan {
    pub(crate) lane: u8,
    pub(crate) tenant: u8,
    pub(crate) level: u8,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) delay_ms: u64,
    pub(crate) key: Option<u8>,
    pub(crate) cache_key: Option<u8>,
    pub(crate) chain: Option<u8>,
    /// Which upstream of the chain, which bucket, how many half tokens.
    pub(crate) hold: Option<(u8, u8, u8)>,
    pub(crate) bytes: u8,
    /// Sends the id of an older job again.
    pub(crate) again: Option<u16>,
}

#[derive(Debug, Clone)]
pub(crate) struct ReportPlan {
    pub(crate) result: CallResult,
    /// For the first scoped bucket it holds, in half tokens.
    pub(crate) cost: Option<u8>,
    /// The wait, and whether only its bucket is closed.
    pub(crate) close: Option<(u64, bool)>,
}

#[derive(Debug, Clone)]
pub(crate) enum OutcomePlan {
    Done(Option<u8>),
    Retry(u64),
    Dead,
    Failed,
    Release,
    Awaiting(u64),
}

/// Refers to a lease.
#[derive(Debug, Clone)]
pub(crate) enum LeasePick {
    Live(u16),
    /// One of all that were ever issued.
    Issued(u16),
    /// A live one with another epoch, number or nonce.
    MadeUp(u16, u8),
}

#[derive(Debug, Clone)]
pub(crate) enum Op {
    Wait(u64),
    Enqueue(Vec<JobPlan>),
    Dispatch {
        lane: u8,
        max: u8,
        lease_ms: u64,
    },
    /// Dispatches again after this part (of 256) of the time until its last `next`.
    Poll {
        lane: u8,
        part: u8,
    },
    Advance(LeasePick, ReportPlan),
    Extend(Vec<LeasePick>, u64),
    Settle(Vec<(LeasePick, ReportPlan, OutcomePlan)>),
    Cancel(u16),
    Admit {
        /// Under the gates of this lane, if any; with its own chain if no upstream is named.
        lane: Option<u8>,
        upstream: Option<u8>,
        hold: Option<(u8, u8)>,
        lease_ms: u64,
    },
    Record(u8, CallResult),
    Recover(u8),
    Reset(u8),
    Replay(u8, u16),
    Discard(u8, u16),
    Pause(u8, bool),
    Sweep,
    /// Ends the twin and starts another from the journal.
    Restart,
    /// Continues with an engine rebuilt from the journal.
    Reopen,
    /// Removes the oldest chunks of the journal.
    Clean(u8),
}

fn bucket() -> impl Strategy<Value = BucketPlan> {
    (1..4u32, 1..5u32, prop_oneof![Just(1_000), Just(7_000), Just(60_000)])
}

fn upstream() -> impl Strategy<Value = GatePlan> {
    let breaker = (1..4u32, prop_oneof![Just(500), Just(30_000)], 1..3u32);
    (of(1..6u32), weighted(0.3, bucket()), of(1..4u32), of(breaker), weighted(0.3, any::<bool>())).prop_map(
        |(window, bucket, slots, breaker, slow)| GatePlan {
            window,
            bucket,
            slots,
            breaker,
            cooldown: slow == Some(true),
            pace: slow == Some(false),
            ..GatePlan::default()
        },
    )
}

fn lane_gates() -> impl Strategy<Value = GatePlan> {
    let own = (weighted(0.3, 2..6u32), weighted(0.3, bucket()), weighted(0.3, 1..5u32));
    let tenants = (weighted(0.3, bucket()), weighted(0.3, 1..3u32));
    (own, tenants).prop_map(|((window, bucket, slots), (tenant_bucket, tenant_slots))| GatePlan {
        window,
        bucket,
        slots,
        tenant_bucket,
        tenant_slots,
        ..GatePlan::default()
    })
}

fn lane(gates: impl Strategy<Value = GatePlan>) -> impl Strategy<Value = LanePlan> {
    let bounds = (1..30u64, prop_oneof![3 => Just(1_000_000u64), 1 => 20..200u64]);
    let span = || prop_oneof![Just(0u64), 1..500u64, 1..60_000u64];
    let cache = weighted(0.7, (span().prop_map(|ttl| ttl + 1), span(), 1..4u64));
    let ends = (any::<bool>(), of(1..4u64), prop_oneof![Just(0), 1..4u64, Just(1_000)], cache);
    (0..6u8, bounds, of(ttl()), weighted(0.8, 1..4u32), gates, ends).prop_map(
        |(chain, (capacity, max_bytes), ttl_ms, batch, gates, (stops, dead_letters, keep, cache))| LanePlan {
            chain,
            capacity,
            max_bytes,
            ttl_ms,
            batch,
            gates,
            stops_when_ambiguous: stops,
            dead_letters,
            keep,
            cache,
        },
    )
}

/// Rules with all kinds of gates.
pub(crate) fn gated() -> impl Strategy<Value = RulePlan> {
    (vec(upstream(), 3), vec(lane(lane_gates()), 2), any::<bool>())
        .prop_map(|(upstreams, lanes, scoped)| RulePlan { upstreams, lanes, scoped })
}

/// Rules that never say "not now": what starts is decided by order alone.
pub(crate) fn open() -> impl Strategy<Value = RulePlan> {
    vec(lane(Just(GatePlan::default())), 2).prop_map(|lanes| RulePlan {
        upstreams: vec![GatePlan::default(); 3],
        lanes,
        scoped: false,
    })
}

/// Rules with many equal jobs and failing upstreams: only breakers, slots and caches.
pub(crate) fn caching() -> impl Strategy<Value = RulePlan> {
    let breaker = (1..3u32, prop_oneof![Just(500), Just(30_000)], 1..3u32);
    let upstream = (breaker, of(1..4u32)).prop_map(|(breaker, slots)| GatePlan {
        breaker: Some(breaker),
        slots,
        ..GatePlan::default()
    });
    let cache = (prop_oneof![1..500u64, 1..30_000u64], prop_oneof![Just(0), Just(600_000u64)], 1..4u64);
    let lane = (lane(Just(GatePlan::default())), cache).prop_map(|(lane, cache)| LanePlan {
        cache: Some(cache),
        ttl_ms: None,
        ..lane
    });
    (vec(upstream, 3), vec(lane, 2)).prop_map(|(upstreams, lanes)| RulePlan {
        upstreams,
        lanes,
        scoped: false,
    })
}

fn ttl() -> impl Strategy<Value = u64> {
    prop_oneof![1..2_000u64, 1..120_000u64]
}

/// A job with one of this many cache keys.
fn job(answers: u8) -> impl Strategy<Value = JobPlan> {
    let delay = prop_oneof![4 => Just(0), 1 => 1..3_000u64];
    let times = (weighted(0.3, ttl()), delay);
    let keys = (weighted(0.2, 0..4u8), weighted(0.7, 0..answers));
    let rare = (keys, weighted(0.3, 0..6u8), of((0..3u8, 0..3u8, 1..3u8)));
    (0..2u8, 0..5u8, 0..3u8, times, rare, 0..30u8, weighted(0.05, any::<u16>())).prop_map(
        |(lane, tenant, level, (ttl_ms, delay_ms), ((key, cache_key), chain, hold), bytes, again)| JobPlan {
            lane,
            tenant,
            level,
            ttl_ms,
            delay_ms,
            key,
            cache_key,
            chain,
            hold,
            bytes,
            again,
        },
    )
}

fn result() -> impl Strategy<Value = CallResult> {
    prop_oneof![
        4 => Just(CallResult::Success),
        1 => Just(CallResult::Rejected),
        1 => Just(CallResult::Throttled),
        3 => Just(CallResult::Failed),
        1 => Just(CallResult::TimedOut),
        1 => Just(CallResult::NotSent),
        1 => Just(CallResult::Unknown),
        1 => Just(CallResult::Unreachable),
    ]
}

fn report() -> impl Strategy<Value = ReportPlan> {
    (result(), weighted(0.3, 0..12u8), weighted(0.08, (0..20_000u64, any::<bool>())))
        .prop_map(|(result, cost, close)| ReportPlan { result, cost, close })
}

fn outcome() -> impl Strategy<Value = OutcomePlan> {
    prop_oneof![
        3 => of(0..9u8).prop_map(OutcomePlan::Done),
        2 => (0..30_000u64).prop_map(OutcomePlan::Retry),
        1 => Just(OutcomePlan::Dead),
        1 => Just(OutcomePlan::Failed),
        1 => Just(OutcomePlan::Release),
        1 => (0..60_000u64).prop_map(OutcomePlan::Awaiting),
    ]
}

fn pick() -> impl Strategy<Value = LeasePick> {
    prop_oneof![
        8 => any::<u16>().prop_map(LeasePick::Live),
        1 => any::<u16>().prop_map(LeasePick::Issued),
        1 => (any::<u16>(), 0..3u8).prop_map(|(lease, what)| LeasePick::MadeUp(lease, what)),
    ]
}

fn lease_ms() -> impl Strategy<Value = u64> {
    prop_oneof![1..500u64, Just(10_000), 1..60_000u64]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let wait = prop_oneof![3 => 0..50u64, 4 => 0..2_000u64, 3 => 0..70_000u64, 1 => 0..7_200_000u64];
    prop_oneof![
        6 => wait.prop_map(Op::Wait),
        6 => vec(job(4), 1..6).prop_map(Op::Enqueue),
        8 => (0..2u8, 0..8u8, lease_ms())
            .prop_map(|(lane, max, lease_ms)| Op::Dispatch { lane, max, lease_ms }),
        3 => (0..2u8, any::<u8>()).prop_map(|(lane, part)| Op::Poll { lane, part }),
        3 => (pick(), report()).prop_map(|(lease, report)| Op::Advance(lease, report)),
        1 => (vec(pick(), 1..3), lease_ms()).prop_map(|(leases, ms)| Op::Extend(leases, ms)),
        8 => vec((pick(), report(), outcome()), 1..4).prop_map(Op::Settle),
        1 => any::<u16>().prop_map(Op::Cancel),
        3 => (of(0..2u8), weighted(0.7, 0..4u8), of((0..3u8, 1..3u8)), lease_ms())
            .prop_map(|(lane, upstream, hold, lease_ms)| Op::Admit { lane, upstream, hold, lease_ms }),
        1 => (0..4u8, result()).prop_map(|(upstream, result)| Op::Record(upstream, result)),
        1 => (0..4u8).prop_map(Op::Recover),
        1 => (0..4u8).prop_map(Op::Reset),
        1 => (0..2u8, any::<u16>()).prop_map(|(lane, letter)| Op::Replay(lane, letter)),
        1 => (0..2u8, any::<u16>()).prop_map(|(lane, letter)| Op::Discard(lane, letter)),
        1 => (0..2u8, weighted(0.3, Just(()))).prop_map(|(lane, paused)| Op::Pause(lane, paused.is_some())),
        2 => Just(Op::Sweep),
        1 => Just(Op::Restart),
        1 => Just(Op::Reopen),
        1 => (1..20u8).prop_map(Op::Clean),
    ]
}

/// A long random sequence.
pub(crate) fn ops() -> impl Strategy<Value = Vec<Op>> {
    vec(op(), 1..150)
}

/// A report that usually agrees with the outcome of the job.
fn end() -> impl Strategy<Value = (ReportPlan, OutcomePlan)> {
    let plain = |result| ReportPlan { result, cost: None, close: None };
    let bad = prop_oneof![Just(CallResult::Failed), Just(CallResult::TimedOut), Just(CallResult::Throttled)];
    let failure = prop_oneof![
        (0..5_000u64).prop_map(OutcomePlan::Retry),
        Just(OutcomePlan::Dead),
        Just(OutcomePlan::Failed)
    ];
    prop_oneof![
        4 => (0..9u8).prop_map(move |bytes| (plain(CallResult::Success), OutcomePlan::Done(Some(bytes)))),
        4 => (bad, failure).prop_map(move |(result, outcome)| (plain(result), outcome)),
        1 => (report(), outcome()),
    ]
}

/// A long random sequence in which jobs have one of two cache keys, time passes slowly and workers are available.
pub(crate) fn equal_ops() -> impl Strategy<Value = Vec<Op>> {
    let wait = prop_oneof![6 => 0..500u64, 3 => 0..5_000u64, 1 => 0..60_000u64];
    let settlement = (any::<u16>(), end()).prop_map(|(lease, end)| (LeasePick::Live(lease), end.0, end.1));
    let op = prop_oneof![
        4 => wait.prop_map(Op::Wait),
        6 => vec(job(2), 1..4).prop_map(Op::Enqueue),
        8 => (0..2u8, 1..8u8).prop_map(|(lane, max)| Op::Dispatch { lane, max, lease_ms: 60_000 }),
        8 => vec(settlement, 1..3).prop_map(Op::Settle),
        2 => (0..3u8).prop_map(|upstream| Op::Record(upstream, CallResult::Failed)),
        6 => op(),
    ];
    vec(op, 1..150)
}
