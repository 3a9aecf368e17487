//! Paces against upstreams whose limit they do not know.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

fn spec() -> PaceSpec {
    PaceSpec::new(Span::from_millis(1_000), Span::from_millis(50), Span::from_secs(60)).unwrap()
}

fn now() -> Time {
    Time::from_millis(5_000)
}

#[test]
fn one_start_per_interval() {
    let mut pace = Pace::new(&spec());
    let now = now();
    assert_eq!(pace.admits(now), Ok(()));
    pace.take(&spec(), now);
    let next = Time::from_millis(6_000);
    assert_eq!(pace.admits(now), Err(NotUntil::new(Reason::Pace, next)));
    assert_eq!(pace.admits(next), Ok(()));
}

#[test]
fn the_interval_adapts_within_its_bounds() {
    let mut pace = Pace::new(&spec());
    pace.report(&spec(), CallResult::Success, None, now());
    assert_eq!(pace.interval(), Span::from_millis(900));
    pace.report(&spec(), CallResult::TimedOut, None, now());
    assert_eq!(pace.interval(), Span::from_millis(1_350));
    pace.report(&spec(), CallResult::Throttled, None, now());
    assert_eq!(pace.interval(), Span::from_millis(2_700));
    pace.report(&spec(), CallResult::Rejected, None, now());
    assert_eq!(pace.interval(), Span::from_millis(2_700));
    (0..100).for_each(|_| pace.report(&spec(), CallResult::Success, None, now()));
    assert_eq!(pace.interval(), Span::from_millis(50));
    (0..100).for_each(|_| pace.report(&spec(), CallResult::Throttled, None, now()));
    assert_eq!(pace.interval(), Span::from_secs(60));
}

#[test]
fn bounds_that_cross_are_refused() {
    let ms = Span::from_millis;
    assert_eq!(PaceSpec::new(ms(10), ms(20), ms(30)).unwrap_err().field, "pace.initial");
    assert_eq!(PaceSpec::new(ms(10), ms(0), ms(30)).unwrap_err().field, "pace.min");
}

/// An upstream whose limit the pace does not know.
trait Hidden {
    /// The result and duration of a call that arrives at `ms`.
    fn call(&mut self, ms: u64) -> (CallResult, u64);
}

/// A token bucket with a rate per second that changes at given times, and a small burst.
struct Limit {
    per_second: Vec<(u64, f64)>,
    tokens: f64,
    at: u64,
}

impl Limit {
    fn new(per_second: &[(u64, f64)]) -> Self {
        Self { per_second: per_second.to_vec(), tokens: 5.0, at: 0 }
    }

    fn rate(&self, ms: u64) -> f64 {
        self.per_second.iter().rev().find(|(from, _)| *from <= ms).unwrap().1
    }
}

impl Hidden for Limit {
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a few minutes")]
    fn call(&mut self, ms: u64) -> (CallResult, u64) {
        self.tokens = (self.tokens + (ms - self.at) as f64 * self.rate(ms) / 1_000.0).min(5.0);
        self.at = ms;
        if self.tokens < 1.0 {
            return (CallResult::Throttled, 20);
        }
        self.tokens -= 1.0;
        (CallResult::Success, 80 + ms * 7 % 40)
    }
}

/// A server that accepts everything and answers one call after the other: too many make it slow.
struct Server {
    busy_until: f64,
    per_second: f64,
}

impl Hidden for Server {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small"
    )]
    fn call(&mut self, ms: u64) -> (CallResult, u64) {
        self.busy_until = self.busy_until.max(ms as f64) + 1_000.0 / self.per_second;
        let took = (self.busy_until - ms as f64) as u64 + 50;
        if took > 5_000 { (CallResult::TimedOut, 5_000) } else { (CallResult::Success, took) }
    }
}

#[derive(Debug, Default)]
struct CallLog {
    starts: Vec<u64>,
    ends: Vec<(u64, CallResult, u64)>,
    rates: Vec<u64>,
}

impl CallLog {
    fn count(&self, range: std::ops::Range<u64>, result: CallResult) -> f64 {
        let fits = |(ms, end, _): &&(u64, CallResult, u64)| range.contains(ms) && *end == result;
        f64::from(u32::try_from(self.ends.iter().filter(fits).count()).unwrap())
    }

    /// Successes a second.
    fn goodput(&self, range: std::ops::Range<u64>) -> f64 {
        self.count(range.clone(), CallResult::Success) * 1_000.0
            / f64::from(u32::try_from(range.end - range.start).unwrap())
    }

    /// The share of calls that were refused.
    fn refused(&self, range: std::ops::Range<u64>) -> f64 {
        let [refused, done] =
            [CallResult::Throttled, CallResult::Success].map(|end| self.count(range.clone(), end));
        refused / (refused + done)
    }

    fn mean_latency(&self, range: std::ops::Range<u64>) -> u64 {
        let took: Vec<u64> =
            self.ends.iter().filter(|(ms, ..)| range.contains(ms)).map(|(.., took)| *took).collect();
        took.iter().sum::<u64>() / took.len() as u64
    }
}

/// Starts a call whenever the pace allows it.
fn run(spec: &PaceSpec, upstream: &mut dyn Hidden, for_ms: u64) -> CallLog {
    let (mut pace, mut seen) = (Pace::new(spec), CallLog::default());
    let mut under_way: VecDeque<(u64, CallResult, u64)> = VecDeque::new();
    for ms in 1..for_ms {
        let now = Time::from_millis(ms);
        under_way.make_contiguous().sort_by_key(|(at, ..)| *at);
        while let Some((_, result, took)) = under_way.pop_front_if(|(at, ..)| *at <= ms) {
            pace.report(spec, result, Some(Span::from_millis(took)), now);
            seen.ends.push((ms, result, took));
        }
        while pace.admits(now).is_ok() {
            pace.take(spec, now);
            let (result, took) = upstream.call(ms);
            under_way.push_back((ms + took, result, took));
            seen.starts.push(ms);
        }
        if ms % 1_000 == 0 {
            seen.rates.push(pace.view().rate_micro);
        }
    }
    seen
}

fn plain() -> PaceSpec {
    PaceSpec::new(Span::from_millis(1_000), Span::from_millis(2), Span::from_secs(60)).unwrap()
}

fn adaptive() -> PaceSpec {
    plain().adaptive(true)
}

#[test]
fn a_steady_limit_is_found_and_nearly_used_up_with_few_refusals() {
    for limit in [4.0, 20.0, 50.0, 130.0] {
        let hidden = || Limit::new(&[(0, limit)]);
        let (learned, fixed) =
            (run(&adaptive(), &mut hidden(), 180_000), run(&plain(), &mut hidden(), 180_000));
        let settled = 60_000..180_000;
        let (good, refused) = (learned.goodput(settled.clone()) / limit, learned.refused(settled.clone()));
        let (fixed_good, fixed_refused) = (fixed.goodput(settled.clone()) / limit, fixed.refused(settled));
        println!("{limit}: {good:.3} {refused:.4}; plain {fixed_good:.3} {fixed_refused:.4}");
        assert!(good >= 0.9, "{good:.3} of {limit}/s, {:?}", learned.rates);
        assert!(refused <= 0.02, "{refused:.4} refused at {limit}/s");
        assert!(refused < fixed_refused / 2.0, "plain: {fixed_refused:.4}");
    }
}

#[test]
fn a_limit_that_changes_is_followed() {
    let mut hidden = Limit::new(&[(0, 40.0), (90_000, 80.0), (180_000, 20.0)]);
    let seen = run(&adaptive(), &mut hidden, 270_000);
    let doubled = seen.goodput(110_000..180_000) / 80.0;
    assert!(doubled >= 0.9, "{doubled:.3} after the limit doubled, {:?}", seen.rates);
    let quartered = seen.goodput(200_000..270_000) / 20.0;
    assert!(quartered >= 0.9, "{quartered:.3} after the limit fell, {:?}", seen.rates);
    let after_the_fall = seen.count(180_000..200_000, CallResult::Throttled);
    assert!(after_the_fall < 150.0, "{after_the_fall} refused until the lower limit was found");
}

#[test]
fn high_latency_lowers_the_rate() {
    let server = || Server { busy_until: 0.0, per_second: 50.0 };
    let (learned, fixed) = (run(&adaptive(), &mut server(), 180_000), run(&plain(), &mut server(), 180_000));
    let settled = 60_000..180_000;
    let good = learned.goodput(settled.clone()) / 50.0;
    assert!(good >= 0.9, "{good:.3}, {:?}", learned.rates);
    let latency = learned.mean_latency(settled.clone());
    assert!(latency < 250, "{latency} ms where an idle server takes 70");
    assert!(learned.count(settled.clone(), CallResult::TimedOut) < 1.0);
    let (fixed_good, fixed_timeouts) =
        (fixed.goodput(settled.clone()) / 50.0, fixed.count(0..180_000, CallResult::TimedOut));
    println!("{good:.3} {latency} ms; plain {fixed_good:.3}, {fixed_timeouts} timeouts");
    assert!(fixed_good < good && fixed_timeouts > 0.0, "plain: {fixed_good:.3}, {fixed_timeouts} timeouts");
}

/// An upstream that only became slower is not slowed down further.
#[test]
fn latency_that_does_not_fall_with_the_rate_is_the_new_floor() {
    struct Slower;
    impl Hidden for Slower {
        fn call(&mut self, ms: u64) -> (CallResult, u64) {
            (CallResult::Success, if ms < 60_000 { 50 } else { 400 })
        }
    }
    let spec = PaceSpec::new(Span::from_millis(100), Span::from_millis(20), Span::from_secs(60)).unwrap();
    let seen = run(&spec.adaptive(true), &mut Slower, 180_000);
    let last = *seen.rates.last().unwrap();
    assert!(last > 45_000_000, "{:?}", seen.rates);
}

#[test]
fn one_burst_of_refusals_is_one_signal() {
    let (spec, at) = (adaptive(), |ms: u64| Time::from_millis(1_000_000 + ms));
    let mut pace = Pace::new(&spec);
    let took = |ms| Some(Span::from_millis(ms));
    (0..50).for_each(|n| pace.report(&spec, CallResult::Throttled, took(100), at(n)));
    assert_eq!(pace.view().rate_micro, 850_000);
    pace.report(&spec, CallResult::Throttled, took(1_500), at(1_200));
    assert_eq!(pace.view().rate_micro, 850_000, "it began before the decrease");
    pace.report(&spec, CallResult::Throttled, took(100), at(1_200));
    assert_eq!(pace.view().rate_micro, 595_000, "the decrease did not help");
}

#[test]
fn an_unused_rate_does_not_grow() {
    let spec = adaptive();
    let mut pace = Pace::new(&spec);
    for start in 1..100 {
        let now = Time::from_millis(start * 5_000);
        pace.take(&spec, now);
        pace.report(&spec, CallResult::Success, Some(Span::from_millis(50)), now + Span::from_millis(50));
    }
    assert_eq!(pace.view().rate_micro, 1_000_000);
}

#[test]
fn an_occasional_failure_is_no_signal() {
    let spec = adaptive();
    let mut pace = Pace::new(&spec);
    for (n, now) in (1..200).map(|n| (n, Time::from_millis(n * 1_000))) {
        pace.take(&spec, now);
        let result = if n % 20 == 0 { CallResult::Failed } else { CallResult::Success };
        pace.report(&spec, result, Some(Span::from_millis(50)), now);
    }
    assert!(pace.learned.unwrap().knee.is_none());
    (0..2).for_each(|_| pace.report(&spec, CallResult::Failed, None, Time::from_millis(200_000)));
    assert!(pace.learned.unwrap().knee.is_some());
}

#[test]
fn a_pace_that_becomes_adaptive_continues_from_its_interval() {
    let mut pace = Pace::new(&plain());
    pace.report(&plain(), CallResult::Throttled, None, Time::from_millis(1));
    pace.fit(&adaptive());
    assert_eq!(pace.view(), PaceView { rate_micro: 500_000, adaptive: true, floor_latency: None });
    pace.fit(&plain());
    assert_eq!((pace.interval(), pace.learned), (Span::from_millis(2_000), None));
}

fn result() -> impl Strategy<Value = CallResult> {
    prop_oneof![
        6 => Just(CallResult::Success),
        1 => Just(CallResult::Throttled),
        1 => Just(CallResult::Failed),
        1 => Just(CallResult::TimedOut),
        1 => Just(CallResult::Rejected),
        1 => Just(CallResult::Unknown),
    ]
}

proptest! {
    /// In every case, two starts are at least `min` and at most `max` apart.
    #[test]
    fn a_pace_never_leaves_its_bounds(
        [min, more, most] in [1_u64..100, 0..1_000, 0..100_000],
        steps in proptest::collection::vec((result(), proptest::option::of(0..20_000_u64), 0..3_000_u64), 1..200),
    ) {
        let ms = Span::from_millis;
        let spec = PaceSpec::new(ms(min + more), ms(min), ms(min + more + most)).unwrap().adaptive(true);
        let mut pace = Pace::new(&spec);
        let (mut now, mut last) = (Time::from_millis(1_000), None);
        for (result, took, wait) in steps {
            now = now + ms(wait);
            if pace.admits(now).is_ok() {
                prop_assert!(last.is_none_or(|last| now.since(last) >= ms(min)));
                pace.take(&spec, now);
                prop_assert!(pace.next_at >= now + ms(min));
                prop_assert!(pace.next_at <= now + ms(min + more + most));
                last = Some(now);
            }
            pace.report(&spec, result, took.map(ms), now);
            prop_assert!(pace.interval() >= ms(min) && pace.interval() <= ms(min + more + most));
        }
    }
}
