use super::*;
use crate::engine::Restorer;
use crate::engine::record::Record;
use crate::gate::{BreakerSpec, CallResult, GateSpecs};
use crate::ids::{JobId, LeaseId, Name};
use crate::job::NewJob;
use crate::layout::append_record;
use crate::spec::{Chain, LaneSpec, Spec, UpstreamSpec};
use crate::verbs::{
    Admission, Admit, Dispatch, GateTransition, HistoryOf, HistoryQuery, HistoryView, LanePoint, Outcome,
    Report, Settlement, UpstreamPoint,
};

const OPEN_FOR: Span = Span::from_secs(30);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A time in the minute with this number, counted from the first.
fn at(minute: u64, secs: u64) -> Time {
    start_of(28_000_000) + Span::from_secs(minute * 60 + secs)
}

/// Two lanes, and an upstream whose breaker opens after two failures.
fn engine() -> Engine {
    let lane = |lane| {
        let mut rules = LaneSpec::new(name(lane), Chain::new(vec![name("up")]).unwrap());
        rules.keep.max = 0;
        rules
    };
    let mut gates = GateSpecs::default();
    gates.breaker = Some(BreakerSpec::new(2, OPEN_FOR, 1).unwrap());
    let spec = Spec::new(vec![lane("a"), lane("b")], vec![UpstreamSpec::new(name("up"), gates)]).unwrap();
    Engine::new(&spec)
}

fn enqueue(engine: &mut Engine, lane: &str, ids: std::ops::Range<u128>, now: Time) {
    engine.now(now);
    engine.enqueue(ids.map(|id| NewJob::new(JobId(id), name(lane), "acme", *b"x")).collect(), now);
}

fn start(engine: &mut Engine, lane: &str, max: usize, now: Time) -> Vec<LeaseId> {
    engine.now(now);
    let (lane, lease, nonce) = (name(lane), Span::from_secs(600), now.as_millis());
    let ask = Dispatch { lane, max, lease, nonce, wait: Span::ZERO, denied: None };
    engine.dispatch(&ask, now).grants.iter().map(|grant| grant.lease).collect()
}

fn settle(engine: &mut Engine, lease: LeaseId, report: Report, now: Time) {
    engine.now(now);
    let settlement = Settlement { lease, report, outcome: Outcome::Done, answer: None, unsent: None };
    engine.settle(vec![settlement], now);
}

fn sweep(engine: &mut Engine, now: Time) {
    engine.now(now);
    engine.sweep(now);
}

fn answered(status: u16, took_ms: u64) -> Report {
    let result = if status < 500 { CallResult::Success } else { CallResult::Failed };
    Report { status: Some(status), took: Some(Span::from_millis(took_ms)), ..Report::from(result) }
}

fn lane_history(engine: &Engine, of: HistoryOf, minutes: u32, now: Time) -> (Time, Vec<LanePoint>) {
    match engine.history(&HistoryQuery { of, minutes }, now) {
        HistoryView::Lanes { from, points } => (from, points),
        HistoryView::Upstream { .. } => panic!("lanes were asked for"),
    }
}

fn lane(engine: &Engine, lane: &str, minutes: u32, now: Time) -> Vec<LanePoint> {
    lane_history(engine, HistoryOf::Lanes(vec![name(lane)]), minutes, now).1
}

fn upstream(engine: &Engine, minutes: u32, now: Time) -> (Vec<UpstreamPoint>, Vec<GateTransition>) {
    match engine.history(&HistoryQuery { of: HistoryOf::Upstream(name("up")), minutes }, now) {
        HistoryView::Upstream { points, transitions, .. } => (points, transitions),
        HistoryView::Lanes { .. } => panic!("an upstream was asked for"),
    }
}

/// Accepted, started, completed, and those that wait and are processed at the end.
fn counts(point: &LanePoint) -> (u64, u64, u64, Option<u64>, Option<u64>) {
    (point.accepted, point.started, point.completed, point.waiting, point.processing)
}

fn saved(engine: &mut Engine) -> Vec<u8> {
    let mut chunk = Engine::begin_chunk();
    engine.save_changes(&mut chunk).unwrap();
    chunk
}

fn restored(chunks: &[Vec<u8>]) -> Engine {
    let mut restorer = Restorer::default();
    chunks.iter().for_each(|chunk| restorer.apply(chunk).unwrap());
    restorer.finish(7).unwrap()
}

#[test]
fn a_minute_becomes_a_point_when_it_is_over() {
    let mut engine = engine();
    enqueue(&mut engine, "a", 0..3, at(0, 10));
    let leases = start(&mut engine, "a", 2, at(0, 20));
    settle(&mut engine, leases[0], answered(200, 40), at(0, 30));
    let running = lane(&engine, "a", 2, at(0, 59));
    assert_eq!(
        running.iter().map(counts).collect::<Vec<_>>(),
        [(0, 0, 0, Some(0), Some(0)), (3, 2, 1, Some(1), Some(1))]
    );

    settle(&mut engine, leases[1], answered(200, 40), at(1, 0));
    let (from, points) = lane_history(&engine, HistoryOf::Lanes(vec![name("a")]), 2, at(1, 59));
    assert_eq!(from, at(0, 0));
    assert_eq!(
        points.iter().map(counts).collect::<Vec<_>>(),
        [(3, 2, 1, Some(1), Some(1)), (0, 0, 1, Some(1), Some(0))]
    );
    let wait = points[0].wait.expect("two jobs started");
    assert!(wait.p50.as_millis().abs_diff(10_000) < 1_300, "{wait:?}");
    assert_eq!(points[1].wait, None, "none started");
    assert_eq!(lane(&engine, "b", 2, at(1, 59)), lane(&engine, "unknown", 2, at(1, 59)));
}

#[test]
fn a_minute_that_no_verb_has_closed_is_read_as_if_it_were() {
    let mut engine = engine();
    enqueue(&mut engine, "a", 0..3, at(0, 10));
    let before = lane(&engine, "a", 10, at(3, 0));
    assert_eq!(counts(&before[9]), (0, 0, 0, Some(3), Some(0)), "the jobs still wait");
    sweep(&mut engine, at(3, 0));
    assert_eq!(lane(&engine, "a", 10, at(3, 0)), before);
    assert_eq!(lane(&engine, "a", 1, at(3, 0)), before[9..]);
}

#[test]
fn how_many_jobs_waited_is_unknown_while_no_process_ran() {
    let mut engine = engine();
    enqueue(&mut engine, "a", 0..3, at(2, 10));
    sweep(&mut engine, at(5, 0));
    sweep(&mut engine, at(6, 0));
    for id in 0..3 {
        engine.cancel(JobId(id), at(6, 0));
    }
    sweep(&mut engine, at(7, 0));
    sweep(&mut engine, at(8, 0));
    let waiting = |minutes| {
        lane(&engine, "a", minutes, at(10, 0)).iter().map(|point| point.waiting).collect::<Vec<_>>()
    };
    let all = [Some(0), Some(0), Some(3), None, None, Some(3), Some(0), Some(0), Some(0), Some(0), Some(0)];
    assert_eq!(waiting(11), all);
    assert_eq!(waiting(8), all[3..], "the minute before the range says that jobs waited");
}

#[test]
fn lanes_are_added_up_and_only_all_of_them_have_quantiles() {
    let mut engine = engine();
    enqueue(&mut engine, "a", 0..2, at(0, 10));
    enqueue(&mut engine, "b", 2..7, at(0, 10));
    start(&mut engine, "a", 2, at(0, 10));
    start(&mut engine, "b", 2, at(0, 40));
    for now in [at(0, 50), at(1, 0)] {
        sweep(&mut engine, now);
        let first = |of| lane_history(&engine, of, 2, now).1.into_iter().find(|point| point.accepted > 0);
        let all = first(HistoryOf::AllLanes).unwrap();
        assert_eq!(counts(&all), (7, 4, 0, Some(3), Some(4)));
        let both = first(HistoryOf::Lanes(vec![name("a"), name("b"), name("unknown")])).unwrap();
        assert_eq!((counts(&both), both.wait), (counts(&all), None));
        let wait = all.wait.unwrap();
        assert!(wait.p50 < Span::from_secs(1) && wait.p95 > Span::from_secs(25), "{wait:?}");
    }
}

#[test]
fn scheduled_jobs_and_retries_do_not_count_as_waits() {
    let mut engine = engine();
    let job = NewJob::new(JobId(1), name("a"), "acme", *b"x");
    engine.now(at(0, 0));
    engine.enqueue(vec![NewJob { delay: Span::from_secs(30), ..job }], at(0, 0));
    assert_eq!(start(&mut engine, "a", 1, at(0, 30)).len(), 1);
    let point = &lane(&engine, "a", 1, at(0, 59))[0];
    assert_eq!((point.started, point.wait), (1, None));
}

#[test]
fn requests_of_direct_lanes_are_counted_when_they_end() {
    let mut engine = engine();
    engine.now(at(0, 0));
    for (number, status) in [(1, 200), (2, 404), (3, 502)] {
        let ask = Admit {
            lane: Some(name("b")),
            tenant: None,
            chain: Vec::new(),
            holds: Vec::new(),
            correlation: None,
            lease: Span::from_secs(10),
            nonce: number,
            after: None,
            probe: true,
        };
        let Admission::Granted { lease, .. } = engine.admit(&ask, at(0, 1)).admission else {
            panic!("it is denied")
        };
        settle(&mut engine, lease, answered(status, 5), at(0, 2));
    }
    let point = &lane(&engine, "b", 1, at(0, 59))[0];
    assert_eq!((point.requests, point.failed_requests, point.started), (3, 1, 0));
}

#[test]
fn calls_are_counted_by_status_and_rare_ones_together() {
    let mut engine = engine();
    engine.now(at(0, 0));
    for status in 0..20_u16 {
        for _ in 0..=status {
            let report = answered(200 + status, 100);
            let index = *engine.upstream_by_name.get(&name("up")).unwrap();
            engine.count_call(index, &report, at(0, 1));
        }
    }
    engine.record(&name("up"), CallResult::TimedOut, at(0, 2));
    sweep(&mut engine, at(1, 0));
    let point = upstream(&engine, 2, at(1, 0)).0.remove(0);
    assert_eq!((point.calls, point.errors), (211, 1));
    assert_eq!(point.statuses.len(), 9);
    assert_eq!(point.statuses[0], (CallStatus::Status(215), 16), "those from 216 on came too late");
    assert_eq!(point.statuses.last().map(|(status, _)| *status), Some(CallStatus::Other));
    assert_eq!(point.statuses.iter().map(|(_, calls)| calls).sum::<u64>(), 211);
    assert!(point.latency.is_some_and(|both| both.p95.as_millis().abs_diff(100) < 13));
}

#[test]
fn a_restart_keeps_everything_but_what_the_running_minute_timed() {
    let mut engine = engine();
    enqueue(&mut engine, "a", 0..9, at(0, 10));
    let leases = start(&mut engine, "a", 3, at(0, 20));
    settle(&mut engine, leases[0], answered(200, 40), at(0, 30));
    settle(&mut engine, leases[1], answered(200, 40), at(1, 5));
    enqueue(&mut engine, "b", 10..12, at(1, 6));
    start(&mut engine, "a", 1, at(1, 7));
    let mut restored = restored(&[saved(&mut engine)]);
    let now = at(2, 0);
    sweep(&mut engine, now);
    sweep(&mut restored, now);
    let (was, is) = (lane(&engine, "a", 3, now), lane(&restored, "a", 3, now));
    assert_eq!(was[0], is[0], "it was finished");
    assert_eq!((counts(&was[1]), counts(&is[1])), (counts(&is[1]), (0, 1, 1, Some(5), Some(2))));
    assert!(was[1].wait.is_some() && is[1].wait.is_none());
    assert_eq!(lane(&engine, "b", 3, now), lane(&restored, "b", 3, now));
    let (was, is) = (upstream(&engine, 3, now).0, upstream(&restored, 3, now).0);
    assert_eq!((was[0].calls, &was[0]), (1, &is[0]));
    assert_eq!((was[1].calls, is[1].calls), (1, 0));
}

#[test]
fn a_journal_from_before_the_history_begins_with_the_next_minute() {
    let mut engine = engine();
    enqueue(&mut engine, "a", 0..9, at(0, 10));
    let mut older = Engine::begin_chunk();
    for record in engine.snapshot().unwrap() {
        let mut chunk = Engine::begin_chunk();
        chunk.extend_from_slice(&record);
        let mut running = false;
        crate::layout::read_records(&chunk, |read| running |= matches!(read, Record::RunningMinute(_)))
            .unwrap();
        if !running {
            older.extend_from_slice(&record);
        }
    }
    let mut restored = restored(&[older]);
    sweep(&mut restored, at(3, 0));
    enqueue(&mut restored, "a", 9..10, at(3, 1));
    sweep(&mut restored, at(4, 0));
    let accepted: Vec<_> = lane(&restored, "a", 5, at(4, 0)).iter().map(|point| point.accepted).collect();
    assert_eq!(accepted, [0, 0, 0, 1, 0], "what was accepted before is not known by minute");
}

#[test]
fn nothing_is_written_while_nothing_happens() {
    let mut engine = engine();
    enqueue(&mut engine, "a", 0..1, at(0, 10));
    engine.cancel(JobId(0), at(0, 11));
    let first = saved(&mut engine);
    sweep(&mut engine, at(1, 0));
    assert!(engine.has_changes(), "a point");
    let second = saved(&mut engine);
    for minute in 2..100 {
        sweep(&mut engine, at(minute, 0));
        assert!(!engine.has_changes(), "minute {minute}");
    }
    enqueue(&mut engine, "a", 1..2, at(100, 0));
    let third = saved(&mut engine);
    let restored = restored(&[first, second, third]);
    let accepted =
        |now| lane(&restored, "a", 101, now).iter().map(|point| point.accepted).collect::<Vec<_>>();
    assert_eq!((accepted(at(100, 1))[0], accepted(at(100, 1))[100]), (1, 1), "each in its minute");
}

#[test]
fn what_is_kept_is_bounded_by_a_day_and_the_same_after_a_restart() {
    let mut engine = engine();
    let mut chunks = Vec::new();
    for minute in 0..u64::from(MAX_MINUTES) * 2 + 100 {
        let (id, now) = (u128::from(minute), at(minute, 0));
        enqueue(&mut engine, "a", id..id + 1, now);
        // The other lane is not used any more after an hour.
        if minute < 60 {
            enqueue(&mut engine, "b", 1_000_000 + id..1_000_001 + id, now);
        }
        let leases = start(&mut engine, "a", 1, now);
        settle(&mut engine, leases[0], answered(200, 40), now);
        chunks.push(saved(&mut engine));
    }
    let kept = |engine: &Engine| {
        let lanes = engine.history.lanes.iter().map(|series| series.points.len());
        let upstreams = engine.history.upstreams.iter().map(|series| series.points.len());
        (lanes.chain(upstreams).collect::<Vec<_>>(), engine.history.all.len())
    };
    let day = MAX_MINUTES as usize;
    // Jobs wait in the other lane, so it has points as well.
    assert_eq!(kept(&engine), (vec![day; 3], day));
    assert_eq!(kept(&restored(&chunks)), kept(&engine));
    assert!(restored(&chunks).snapshot().unwrap() == engine_with_epoch(engine, 7).snapshot().unwrap());
}

/// Every restart begins a new epoch.
fn engine_with_epoch(mut engine: Engine, epoch: u64) -> Engine {
    engine.leases.epoch = epoch;
    engine
}

#[test]
fn points_of_a_lane_that_is_not_used_any_more_are_forgotten_with_the_day() {
    let mut engine = engine();
    enqueue(&mut engine, "b", 0..1, at(0, 0));
    engine.cancel(JobId(0), at(0, 1));
    for minute in 1..=u64::from(MAX_MINUTES) {
        let id = u128::from(minute);
        enqueue(&mut engine, "a", id..id + 1, at(minute, 0));
    }
    assert_eq!(engine.history.lanes[1].points.len(), 1);
    sweep(&mut engine, at(u64::from(MAX_MINUTES) + 1, 0));
    assert_eq!(engine.history.lanes[1].points.len(), 0);
}

#[test]
fn the_last_transitions_of_an_upstream_survive_a_restart() {
    let mut engine = engine();
    let mut chunks = vec![saved(&mut engine)];
    for minute in 0..120 {
        for _ in 0..2 {
            engine.record(&name("up"), CallResult::Failed, at(minute, 0));
        }
        engine.reset(&name("up"), at(minute, 10));
        chunks.push(saved(&mut engine));
    }
    let kinds = |engine: &Engine, minutes| {
        let transitions = upstream(engine, minutes, at(119, 59)).1;
        transitions.into_iter().map(|one| (one.at, one.kind)).collect::<Vec<_>>()
    };
    let opened = GateChangeKind::BreakerOpened { failures: 2, lasts: OPEN_FOR };
    assert_eq!(kinds(&engine, 1), [(at(119, 0), opened), (at(119, 10), GateChangeKind::BreakerClosed)]);
    assert_eq!(kinds(&engine, MAX_MINUTES).len() as u64, MAX_TRANSITIONS);
    let mut again = restored(&chunks);
    assert_eq!(kinds(&again, MAX_MINUTES), kinds(&engine, MAX_MINUTES));
    again.reset(&name("up"), at(119, 20));
    again.record(&name("up"), CallResult::Failed, at(119, 20));
    again.record(&name("up"), CallResult::Failed, at(119, 20));
    chunks.push(saved(&mut again));
    assert_eq!(kinds(&restored(&chunks), 1).len(), 3, "numbers go on where they were");
}

/// So the day of a lane takes 75 KB of memory and, if it is busy, 50 KB of the journal; half of that if it is quiet.
#[test]
fn a_point_is_small() {
    assert_eq!(size_of::<LaneMinute>(), 52);
    let bytes = |record: &Record| {
        let mut bytes = Vec::new();
        append_record(record, &mut bytes).unwrap();
        bytes.len()
    };
    let busy = LaneMinute {
        minute: 29_000_000,
        accepted: 60_000,
        started: 60_000,
        completed: 60_000,
        failed: 600,
        dropped: 600,
        requests: 0,
        failed_requests: 0,
        waiting: 100_000,
        processing: 500,
        wait: Some(QuantilesMs { p50: 20_000, p95: 90_000 }),
    };
    assert_eq!(bytes(&Record::LaneMinute { lane: Some(300), point: busy }), 35);
    let quiet = LaneMinute { minute: 29_000_000, accepted: 7, completed: 7, ..LaneMinute::default() };
    assert_eq!(bytes(&Record::LaneMinute { lane: Some(3), point: quiet }), 17);
    let statuses = (0..8).map(|status| (CallStatus::Status(500 + status), 1_000));
    let statuses = statuses.chain([(CallStatus::Other, 1_000)]).collect();
    let latency = Some(QuantilesMs { p50: 2_000, p95: 9_000 });
    let point = UpstreamMinute { minute: 29_000_000, calls: 9_000, errors: 9_000, statuses, latency };
    assert_eq!(bytes(&Record::UpstreamMinute { upstream: 3, point }), 59);
}
