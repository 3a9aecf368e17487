//! What happened in each minute. Jobs are counted across restarts. What else the running minute has counted (waits, calls) is
//! lost by a restart, so a point may have less of it. A finished minute is kept as it is.

use eclusa_core::gate::{CallResult, GateChangeKind};
use eclusa_core::{CallStatus, HistoryOf, LanePoint, MAX_MINUTES, Outcome, Quantiles, Report, Span, Store};

use crate::harness::{Harness, Open};
use crate::rules::{LANE, UP, breaker, failure, free, job, millis, name, secs, upstream};

const MINUTE: Span = secs(60);

/// Lets time pass until the next minute begins.
fn next_minute<S: Store>(q: &Harness<S>) {
    q.pass(millis(60_000 - q.now().as_millis() % 60_000));
}

/// Accepted, started, completed, failed, dropped; how many waited and were processed at the end.
type Counts = ([u64; 5], Option<(u64, u64)>);

fn counts(points: &[LanePoint]) -> Vec<Counts> {
    let each = |point: &LanePoint| {
        let jobs = [point.accepted, point.started, point.completed, point.failed, point.dropped];
        (jobs, point.waiting.zip(point.processing))
    };
    points.iter().map(each).collect()
}

const NOTHING: Counts = ([0; 5], Some((0, 0)));
const UNKNOWN: Counts = ([0; 5], None);

pub async fn jobs_are_counted_in_the_minute_of_each_event<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    next_minute(&q);
    q.accept([job(1), job(2), job(3)]).await;
    q.done(&q.next().await).await;
    q.dead(&q.next().await).await;
    let running = ([3, 2, 1, 1, 0], Some((1, 0)));
    assert_eq!(counts(&q.lane_history(2).await), [NOTHING, running]);

    next_minute(&q);
    q.accept([job(4)]).await;
    q.pass(secs(55));
    let grant = q.next().await;
    let both = [NOTHING, running, ([1, 1, 0, 0, 0], Some((1, 1)))];
    assert_eq!(counts(&q.lane_history(3).await), both);
    assert_eq!(counts(&q.history_of_lanes(HistoryOf::AllLanes, 3).await), both);
    let named = HistoryOf::Lanes(vec![name(LANE), name("unknown")]);
    assert_eq!(counts(&q.history_of_lanes(named, 3).await), both);
    let unknown = HistoryOf::Lanes(vec![name("unknown")]);
    assert_eq!(counts(&q.history_of_lanes(unknown, 2).await), [NOTHING, NOTHING]);

    next_minute(&q);
    q.sweep().await;
    q.done(&grant).await;
    assert_eq!(counts(&q.lane_history(2).await), [both[2], ([0, 0, 1, 0, 0], Some((1, 0)))]);
}

pub async fn waiting_jobs_are_unknown_for_minutes_without_a_process<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    next_minute(&q);
    q.accept([job(1)]).await;
    (0..3).for_each(|_| q.pass(MINUTE));
    let waits = ([1, 0, 0, 0, 0], Some((1, 0)));
    let running = ([0; 5], Some((1, 0)));
    assert_eq!(counts(&q.lane_history(5).await), [NOTHING, waits, UNKNOWN, UNKNOWN, running]);
    q.cancel(1).await;
    q.sweep().await;
    (0..2).for_each(|_| q.pass(MINUTE));
    q.sweep().await;
    let after = [waits, UNKNOWN, UNKNOWN, NOTHING, NOTHING, NOTHING];
    assert_eq!(counts(&q.lane_history(6).await), after, "nothing waits, so there was nothing to count");
}

pub async fn a_finished_minute_stays_as_it_is<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    next_minute(&q);
    q.accept([job(1), job(2)]).await;
    q.pass(secs(10));
    for (status, result, took) in [(200, CallResult::Success, 100), (503, CallResult::Failed, 400)] {
        let report = Report { status: Some(status), took: Some(millis(took)), ..Report::from(result) };
        let outcome = if status == 200 { Outcome::Done } else { Outcome::Dead(failure("unavailable")) };
        q.settle(q.next().await.lease, report, outcome).await;
    }
    next_minute(&q);
    q.sweep().await;
    let (lanes, (calls, _)) = (q.lane_history(2).await, q.upstream_history(UP, 2).await);
    let wait = lanes[0].wait;
    let expected = |Quantiles { p50, p95 }: Quantiles| p50 == p95 && p50.as_millis().abs_diff(10_000) < 1_300;
    assert!(wait.is_none_or(expected), "{wait:?}");
    let seen = |status| u64::from(calls[0].statuses.contains(&(CallStatus::Status(status), 1)));
    assert_eq!((calls[0].calls, calls[0].errors), (seen(200) + seen(503), seen(503)), "{calls:?}");
    assert_eq!(calls[0].statuses.len() as u64, calls[0].calls, "{calls:?}");
    for _ in 0..3 {
        q.pass(MINUTE);
        q.sweep().await;
    }
    assert_eq!(q.lane_history(5).await[0], lanes[0]);
    assert_eq!(q.upstream_history(UP, 5).await.0[0], calls[0]);
}

pub async fn a_day_is_kept<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    next_minute(&q);
    q.accept([job(1)]).await;
    q.cancel(1).await;
    for _ in 1..MAX_MINUTES {
        q.pass(MINUTE);
    }
    q.accept([job(2)]).await;
    let accepted = |points: &[LanePoint]| {
        let some = points.iter().enumerate().filter(|(_, point)| point.accepted > 0);
        some.map(|(at, _)| at).collect::<Vec<_>>()
    };
    assert_eq!(accepted(&q.lane_history(MAX_MINUTES).await), [0, MAX_MINUTES as usize - 1]);
    assert_eq!(q.lane_history(u32::MAX).await.len(), MAX_MINUTES as usize, "no more can be asked for");
    q.pass(MINUTE);
    q.sweep().await;
    assert_eq!(accepted(&q.lane_history(MAX_MINUTES).await), [MAX_MINUTES as usize - 2]);
}

pub async fn transitions_of_gates_are_kept<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(breaker(2, secs(30))));
    let began = q.now();
    q.record(UP, CallResult::Failed).await;
    q.record(UP, CallResult::Failed).await;
    q.pass(MINUTE);
    q.call_ends(UP, CallResult::Success).await;
    let kinds = async |minutes| {
        let transitions = q.upstream_history(UP, minutes).await.1;
        transitions.into_iter().map(|one| (one.upstream, one.at, one.kind)).collect::<Vec<_>>()
    };
    let opened = GateChangeKind::BreakerOpened { failures: 2, lasts: secs(30) };
    let all = [
        (name(UP), began, opened),
        (name(UP), q.now(), GateChangeKind::BreakerHalfOpened),
        (name(UP), q.now(), GateChangeKind::BreakerClosed),
    ];
    assert_eq!(kinds(3).await, all);
    assert_eq!(kinds(1).await, all[1..], "those of the minutes that were asked for");
    q.sweep().await;
    assert_eq!(kinds(3).await, all);
}
