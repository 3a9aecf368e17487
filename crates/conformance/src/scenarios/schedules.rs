//! Schedules: each scheduled time once, across the whole fleet.

use eclusa_core::{EnqueueAnswer, Enqueued, Fired, Store};

use crate::harness::{Harness, Open};
use crate::rules::{chain, job, lane, name, plain, rate, secs};

fn refused(fired: Fired) -> bool {
    matches!(fired, Fired::Submitted(answer) if matches!(answer.jobs[..], [Enqueued::QueueFull]))
}

fn accepted(fired: Fired) -> bool {
    matches!(fired, Fired::Submitted(answer) if matches!(answer.jobs[..], [Enqueued::Accepted(_)]))
}

pub async fn a_scheduled_time_is_handled_once_whichever_process_asks<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    assert_eq!(q.schedules().await, []);
    let first = q.now();
    assert!(accepted(q.fire(first, Some(1)).await));
    // Another process creates another id for the same scheduled time.
    assert_eq!(q.fire(first, Some(2)).await, Fired::AlreadyDone(first));
    assert_eq!(q.schedules().await, [(name("nightly"), first)]);

    q.pass(secs(60));
    let second = first + secs(60);
    assert!(accepted(q.fire(second, Some(3)).await));
    assert_eq!(
        q.fire(first + secs(30), Some(4)).await,
        Fired::AlreadyDone(second),
        "one that was passed over"
    );
    assert_eq!(q.starts(10).await, [1, 3]);
}

pub async fn a_future_scheduled_time_is_not_handled_early<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    let moment = q.now() + secs(5);
    assert_eq!(q.fire(moment, Some(1)).await, Fired::TooSoon(secs(5)));
    q.pass(secs(5));
    assert!(accepted(q.fire(moment, Some(1)).await));
}

pub async fn a_scheduled_time_can_be_skipped_without_a_job<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    let moment = q.now();
    assert_eq!(q.fire(moment, None).await, Fired::Submitted(EnqueueAnswer::default()));
    assert_eq!(q.fire(moment, Some(1)).await, Fired::AlreadyDone(moment));
    assert_eq!(q.starts(10).await, []);
}

pub async fn a_scheduled_time_whose_job_would_be_late_is_not_handled<S: Store>(open: Open<S>) {
    let q = Harness::new(
        open,
        &chain(&[("a", rate(1, 1))], |lane| {
            lane.in_time = true;
            lane.ttl = Some(secs(1));
        }),
    );
    q.accept([job(1), job(2)]).await;
    let Fired::Submitted(answer) = q.fire(q.now(), Some(3)).await else { panic!("it was not done before") };
    assert!(matches!(answer.jobs[..], [Enqueued::NotInTime { .. }]) && answer.jobs[0].is_refused());
    assert_eq!(q.schedules().await, []);
}

pub async fn a_scheduled_time_whose_job_is_refused_is_not_handled<S: Store>(open: Open<S>) {
    let full = eclusa_core::Capacity::new(1, 1 << 20).expect("room for one");
    let q = Harness::new(open, &lane(|lane| lane.capacity = full));
    let first = q.now();
    assert!(accepted(q.fire(first, Some(1)).await));
    q.pass(secs(60));
    let second = q.now();
    assert!(refused(q.fire(second, Some(2)).await));
    assert_eq!(q.schedules().await, [(name("nightly"), first)]);
    assert_eq!(q.starts(1).await, [1]);
    assert!(accepted(q.fire(second, Some(2)).await));
}
