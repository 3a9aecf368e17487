//! Processes that lose contact, continue with their shares of the limits and reconnect: together they never exceed a
//! limit as the upstream counts it, neither during the outage nor afterwards.

use eclusa_core::gate::{BucketSpec, CallResult, GateSpecs, Share, WindowSpec};
use eclusa_core::{
    Admission, Admit, BucketOf, Chain, Engine, FallbackCall, FallbackLog, LaneSpec, LastSeen, LeaseId, Name,
    Outcome, Settlement, Span, Spec, StartCounts, Time, Tokens, TokensTaken, UpstreamSpec,
};
use proptest::collection::vec;
use proptest::prelude::*;

const LEASE: Span = Span::from_secs(10);

/// Time since the previous step, how many calls are requested then, and how long each takes; in ms.
type Wish = (u64, usize, u64);

#[derive(Debug, Clone)]
struct Limits {
    slots: u32,
    per_minute: u32,
    /// Capacity, and tokens per second.
    bucket: (u32, u32),
    of_lane: bool,
}

#[derive(Debug, Clone, Copy)]
struct Call {
    lease: LeaseId,
    began: u64,
    ends: u64,
}

/// An engine and the calls that it admitted.
struct Process {
    engine: Engine,
    calls: Vec<Call>,
    settled: usize,
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn at(ms: u64) -> Time {
    Time::from_millis(1_700_000_000_000 + ms)
}

fn rules(limits: &Limits) -> Spec {
    let mut gates = GateSpecs::default().with_slots("max_concurrent", limits.slots).unwrap();
    gates.window = Some(WindowSpec::per_minute(limits.per_minute).unwrap());
    gates.bucket = Some(BucketSpec::new(limits.bucket.0, limits.bucket.1, Span::from_secs(1)).unwrap());
    let mut lane = LaneSpec::new(name("lane"), Chain::new(vec![name("up")]).unwrap());
    let (lanes, ups) =
        if limits.of_lane { (gates, GateSpecs::default()) } else { (GateSpecs::default(), gates) };
    lane.gates = lanes;
    Spec::new(vec![lane], vec![UpstreamSpec::new(name("up"), ups)]).unwrap()
}

impl Process {
    fn new(engine: Engine) -> Self {
        Self { engine, calls: Vec::new(), settled: 0 }
    }

    /// Reports the calls that have ended, each at its end but not before `from`.
    fn settle(&mut self, from: u64, now: u64) {
        self.calls[self.settled..].sort_by_key(|call| call.ends);
        while let Some(call) = self.calls.get(self.settled).filter(|call| call.ends <= now) {
            let (lease, report) = (call.lease, CallResult::Success.into());
            let settlement =
                Settlement { lease, report, outcome: Outcome::Release, answer: None, unsent: None };
            self.engine.settle(vec![settlement], at(call.ends.max(from)));
            self.settled += 1;
        }
    }

    fn wish(&mut self, from: u64, now: u64, (_, count, takes): Wish) {
        self.settle(from, now);
        for _ in 0..count {
            let ask = Admit {
                lane: Some(name("lane")),
                tenant: None,
                chain: vec![],
                holds: vec![],
                correlation: None,
                lease: LEASE,
                nonce: 1,
                after: None,
                probe: true,
            };
            let Admission::Granted { lease, .. } = self.engine.admit(&ask, at(now)).admission else { break };
            self.calls.push(Call { lease, began: now, ends: now + takes });
        }
    }
}

fn fallback_log(
    share: Share,
    left: &[(BucketOf, Tokens)],
    calls: &[Call],
    lost: u64,
    now: u64,
) -> FallbackLog {
    let ago = |ms: u64| Span::from_millis(now - ms);
    let call = |call: &Call| FallbackCall {
        lane: Some(name("lane")),
        tenant: None,
        upstream: name("up"),
        holds: Vec::new(),
        correlation: None,
        began: ago(call.began),
        lease: (call.ends > now).then_some((call.lease, LEASE)),
        ended: (call.ends <= now).then(|| ago(call.ends)),
    };
    let calls = calls.iter().map(call).collect();
    FallbackLog { share, since: ago(lost), left: left.to_vec(), calls, reports: Vec::new() }
}

/// Checks all calls against an upstream with these limits.
fn check(limits: &Limits, mut calls: Vec<Call>) -> Result<(), TestCaseError> {
    calls.sort_by_key(|call| call.began);
    let (capacity, per_second) = (u64::from(limits.bucket.0), u64::from(limits.bucket.1));
    for (last, call) in calls.iter().enumerate() {
        let now = call.began;
        let before = &calls[..=last];
        let running = before.iter().filter(|call| call.ends > now).count();
        prop_assert!(running <= limits.slots as usize, "{running} at a time at {now}");
        let places = before.iter().filter(|call| call.ends + 60_000 > now).count();
        prop_assert!(places <= limits.per_minute as usize, "{places} places in the window at {now}");
        for (first, earlier) in before.iter().enumerate() {
            let gained = per_second * (now - earlier.began);
            let spent = (last - first + 1) as u64 * 1_000;
            prop_assert!(spent <= capacity * 1_000 + gained, "{spent} from {} to {now}", earlier.began);
        }
    }
    Ok(())
}

fn wishes(most: usize) -> impl Strategy<Value = Vec<Wish>> {
    vec((prop_oneof![0..300_u64, 0..9_000_u64], 1..8_usize, 0..9_000_u64), 0..most)
}

fn limits() -> impl Strategy<Value = Limits> {
    let many = 100..200_u32;
    (
        prop_oneof![1..9_u32, many.clone()],
        prop_oneof![1..30_u32, many.clone()],
        (1..30_u32, 1..12_u32),
        any::<bool>(),
    )
        .prop_map(|(slots, per_minute, bucket, of_lane)| Limits { slots, per_minute, bucket, of_lane })
}

proptest! {
    #![proptest_config(crate::config(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/regressions/fallback.txt")))]

    #[test]
    fn limits_hold_during_an_outage_and_after_it(
        limits in limits(),
        before in wishes(6),
        alone in vec(wishes(25), 1..5),
        after in wishes(25),
    ) {
        let spec = rules(&limits);
        let mut owner = Process::new(Engine::new(&spec));
        let mut now = 0;
        for wish in before {
            now += wish.0;
            owner.wish(0, now, wish);
        }
        let lost = now;
        let count = u32::try_from(alone.len()).unwrap();
        let mut all = Vec::new();
        let mut fallback_logs = Vec::new();
        let back = lost + alone.iter().map(|wishes| wishes.iter().map(|wish| wish.0).sum()).max().unwrap_or(0);
        for (number, wishes) in (0..).zip(alone) {
            let share = Share::new(number, count).unwrap();
            let (lanes, upstreams) = (owner.engine.lanes(at(lost)), owner.engine.upstreams(at(lost)));
            let buckets = owner.engine.not_full_buckets(at(lost));
            let (started, taken) = (StartCounts::new(), TokensTaken::new());
            let seen = LastSeen { share, lanes, upstreams, buckets, started, taken };
            let engine = Engine::fallback(&spec, &seen, (1 << 63) + u64::from(number), LEASE, at(lost));
            let left = engine.own_buckets(at(lost));
            let mut process = Process::new(engine);
            let mut now = lost;
            for wish in wishes {
                now += wish.0;
                process.wish(0, now, wish);
            }
            fallback_logs.push(fallback_log(share, &left, &process.calls, lost, back));
            all.extend(process.calls);
        }
        // Calls that ended under the owner's own leases are reported first, then those of the lost processes.
        owner.settle(back, back);
        fallback_logs.into_iter().for_each(|fallback_log| owner.engine.catch_up(fallback_log, at(back)));
        let calls = std::mem::take(&mut owner.calls).into_iter().chain(all);
        let (running, over) = calls.partition::<Vec<_>, _>(|call| call.ends > back);
        owner.calls = running;
        owner.settled = 0;
        now = back;
        for wish in after {
            now += wish.0;
            owner.wish(back, now, wish);
        }
        check(&limits, owner.calls.into_iter().chain(over).collect())?;
    }
}
