//! The line is the FIFO unit; the lane counts what waits and what runs.

use eclusa_core::gate::CallResult;
use eclusa_core::{EventKind, FailureNote, Status, Store};

use crate::harness::{Harness, Open};
use crate::rules::{chain, delayed, failure, free, high, job, low, name, of, plain, secs, slots, via};

pub async fn a_line_is_first_in_first_out<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept((1..=250).map(job)).await;
    let mut served = Vec::new();
    for _ in 0..3 {
        served.extend(q.starts(100).await);
    }
    assert_eq!(served, (1..=250).collect::<Vec<_>>());
}

pub async fn one_dispatch_returns_at_most_the_requested_number_and_never_over_a_hundred<S: Store>(
    open: Open<S>,
) {
    let q = Harness::new(open, &plain());
    q.accept((1..=250).map(job)).await;
    assert_eq!(q.take(0).await, []);
    assert_eq!(q.take(3).await.len(), 3);
    let answer = q.dispatch(1_000).await;
    assert_eq!(answer.grants.len(), 100);
    assert_eq!(answer.next, q.now(), "there is more: ask again at once");
}

pub async fn an_idle_lane_has_no_next_time<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    let answer = q.dispatch(10).await;
    assert_eq!((answer.grants.len(), answer.next), (0, eclusa_core::Time::NEVER));
}

pub async fn a_blocked_line_is_passed_by_lines_with_other_chains<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("full", slots(1)), ("free", free())], |_| {}));
    q.accept([
        via(&["full"], job(1)),
        via(&["full"], job(2)),
        via(&["free"], job(3)),
        via(&["full"], job(4)),
    ])
    .await;
    let grants = q.take(10).await;
    assert_eq!(crate::harness::numbers(&grants), [1, 3]);
    q.done(&grants[0]).await;
    assert_eq!(q.starts(10).await, [2], "order within the line is kept");
}

pub async fn the_lane_counts_what_waits_runs_and_ended<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([high(1), job(2), job(3), low(4), delayed(secs(60), job(5)), low(6)]).await;
    let view = q.lane().await;
    assert_eq!((view.queued, view.pending, view.processing), ([1, 2, 2], 1, 0));
    assert_eq!(view.waiting_bytes, 6);
    let grants = q.take(3).await;
    q.done(&grants[0]).await;
    q.dead(&grants[1]).await;
    q.cancel(4).await;
    let view = q.lane().await;
    assert_eq!((view.queued, view.pending, view.processing), ([0, 0, 1], 1, 1));
    assert_eq!((view.waiting_bytes, view.finished, view.dead_letters), (2, 3, 1));
    let totals = view.totals;
    assert_eq!(
        (totals.accepted, totals.completed, totals.failed, totals.cancelled, totals.dead),
        (6, 1, 1, 1, 1)
    );
}

pub async fn every_job_ends_once_and_the_counts_add_up<S: Store>(open: Open<S>) {
    let rules = crate::rules::lane(|lane| lane.capacity = crate::rules::capacity(20));
    let q = Harness::new(open, &rules);
    for n in 1..=30 {
        q.put(if n % 3 == 0 { high(n) } else { crate::rules::lasting(secs(5), low(n)) }).await;
    }
    let grants = q.take(6).await;
    q.done(&grants[0]).await;
    q.dead(&grants[1]).await;
    q.retry(&grants[2], CallResult::Failed, secs(1)).await;
    q.release(&grants[3]).await;
    q.cancel(grants[4].job.0).await;
    q.pass(secs(20));
    q.sweep().await;
    while let Some(grant) = q.take(1).await.pop() {
        q.done(&grant).await;
    }
    let view = q.lane().await;
    let t = view.totals;
    assert_eq!((view.queued, view.pending, view.processing, view.waiting_bytes), ([0; 3], 0, 0, 0));
    assert_eq!(t.accepted, t.completed + t.failed + t.cancelled + t.expired + t.preempted);
    assert_eq!(t.accepted + t.refused, 30);
    let mut ended = 0;
    for n in 1..=30 {
        ended += u32::from(q.find(n).await.is_some_and(|job| job.status.is_final()));
    }
    assert_eq!(u64::from(ended), t.accepted);
}

pub async fn a_job_shows_its_history<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([of("acme", 1)]).await;
    let start = q.now();
    q.pass(secs(1));
    let grant = q.next().await;
    q.retry(&grant, CallResult::Failed, secs(2)).await;
    q.pass(secs(2));
    let grant = q.next().await;
    q.answered(grant.lease, "answer").await;
    let view = q.job(1).await;
    let history: Vec<_> =
        view.timeline.iter().map(|event| (event.at.since(start), event.kind.clone())).collect();
    let expected = [
        (secs(0), EventKind::Accepted),
        (secs(1), EventKind::Started(name("ses"))),
        (secs(1), EventKind::Failed(name("ses"), Some(FailureNote::of(&failure("unavailable")).into()))),
        (secs(1), EventKind::RetryAt(start + secs(3))),
        (secs(3), EventKind::Started(name("ses"))),
        (secs(3), EventKind::Ended(Status::Completed)),
    ];
    assert_eq!(history, expected);
    assert_eq!(view.result.as_deref(), Some(&b"answer"[..]));
    assert_eq!((view.attempts, view.upstream), (2, Some(name("ses"))));
}
