//! The upstream of a fleet, which counts calls itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use tokio::time::Instant;

/// The lane and the upstream that get [`CALLS`] calls in total.
pub(super) const SCARCE: &str = "scarce";
/// Few enough to be used up soon: a takeover that granted any of them again would be noticed.
const CALLS: usize = 20;
/// The lane and the upstream that get [`PER_MINUTE`] calls in any 60 s.
pub(super) const METERED: &str = "metered";
/// Few enough to be used up in the shortest test.
const PER_MINUTE: usize = 10;
const MINUTE: Duration = Duration::from_mins(1);
/// The lane and the upstream that get [`SLOTS`] calls at the same time.
pub(super) const NARROW: &str = "narrow";
const SLOTS: usize = 2;
/// How long a call of [`NARROW`] takes: long enough that the load needs more slots than there are.
const NARROW_CALL: Duration = Duration::from_millis(100);
/// The lanes with a limit. More jobs wait in them than a test has time for.
pub(super) const LIMITED: [&str; 3] = [SCARCE, METERED, NARROW];
/// How many jobs may wait in each of them. Without a bound they would pile up in the long forms, where an unoptimised build
/// takes seconds to read them.
const MAX_WAITING: usize = 200;

/// A call as the upstream sees it.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// The process that made it.
    by: String,
    /// When it arrived.
    at: Instant,
}

/// The calls of each path, in order.
pub(super) type Calls = BTreeMap<String, Vec<Call>>;

/// See the module.
pub(super) struct Counter {
    server: FakeUpstream,
    calls: Arc<Mutex<Calls>>,
}

impl Counter {
    pub(super) async fn start() -> Self {
        let calls = Arc::<Mutex<Calls>>::default();
        let counted = calls.clone();
        let server = FakeUpstream::start(Behaviour::by(move |seen| {
            let by = seen.headers["x-process"].to_str().unwrap().to_owned();
            let call = Call { by, at: Instant::now() };
            counted.lock().unwrap().entry(seen.path.clone()).or_default().push(call);
            let takes = if is_of(NARROW, &seen.path) { NARROW_CALL } else { Duration::ZERO };
            Answer::status(200).delay(takes)
        }));
        Self { server: server.await.unwrap(), calls }
    }

    /// Lanes and upstreams for the process `name`. Another number of `failures` changes the gates of every
    /// upstream, but no limit.
    pub(super) fn rules(&self, name: &str, failures: u32) -> String {
        let lane = |lane: &str, upstream: &str, capacity: usize, limit: &str| {
            format!(
                "[lanes.{lane}]\nchain = [\"{upstream}\"]\ncapacity = {capacity}\n[upstreams.{upstream}]\nurl = \"{}\"\n\
                 headers = {{ X-Process = \"{name}\" }}\nbreaker = {{ failures = {failures} }}\n{limit}\n",
                self.server.url()
            )
        };
        [
            lane("work", "up", 200_000, ""),
            lane(SCARCE, SCARCE, MAX_WAITING, &format!("rate = \"1/h\"\nburst = {CALLS}")),
            lane(METERED, METERED, MAX_WAITING, &format!("rpm = {PER_MINUTE}")),
            lane(NARROW, NARROW, MAX_WAITING, &format!("max_concurrent = {SLOTS}")),
        ]
        .concat()
    }

    pub(super) fn calls(&self) -> Calls {
        self.calls.lock().unwrap().clone()
    }

    pub(super) fn count(&self) -> usize {
        self.calls.lock().unwrap().values().map(Vec::len).sum()
    }
}

/// Whether a job with this path is of this lane.
pub(super) fn is_of(lane: &str, path: &str) -> bool {
    path.split('/').nth(1) == Some(lane)
}

/// Checks that only jobs of a killed process were called more than once.
pub(super) fn check_repeats(calls: &Calls, killed: &BTreeSet<String>) {
    for (path, calls) in calls {
        let extra: Vec<_> = calls[..calls.len() - 1].iter().map(|call| &call.by).collect();
        let distinct: BTreeSet<_> = extra.iter().collect();
        let excused = extra.iter().all(|by| killed.contains(*by)) && distinct.len() == extra.len();
        assert!(excused, "{path}: {calls:?}, and killed were {killed:?}");
    }
}

/// Checks that no limit was exceeded.
pub(super) fn check_limits(calls: &Calls) {
    let arrivals = |lane: &str| {
        let of_lane = calls.iter().filter(|(path, _)| is_of(lane, path));
        let mut arrivals: Vec<_> = of_lane.flat_map(|(_, calls)| calls).map(|call| call.at).collect();
        arrivals.sort_unstable();
        arrivals
    };
    let spent = arrivals(SCARCE).len();
    assert!(spent <= CALLS, "{spent} calls, and {CALLS} are allowed");
    for calls in arrivals(METERED).windows(PER_MINUTE + 1) {
        let within = calls[PER_MINUTE] - calls[0];
        assert!(within >= MINUTE, "{} calls within {within:?}", calls.len());
    }
    // The answer is sent after this time, so each call takes at least as long.
    for calls in arrivals(NARROW).windows(SLOTS + 1) {
        let within = calls[SLOTS] - calls[0];
        assert!(within >= NARROW_CALL, "{} calls at the same time: within {within:?}", calls.len());
    }
}
