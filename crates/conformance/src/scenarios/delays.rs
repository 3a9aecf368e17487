//! Delayed jobs.

use eclusa_core::{Status, Store};

use crate::harness::{Harness, Open};
use crate::rules::{delayed, job, low, millis, plain, secs};

pub async fn a_delayed_job_is_pending_until_it_is_due<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([delayed(secs(30), job(1))]).await;
    let view = q.job(1).await;
    assert_eq!((view.status, view.due_at), (Status::Pending, Some(q.now() + secs(30))));
    let answer = q.dispatch(10).await;
    assert_eq!((answer.grants.len(), answer.next), (0, q.now() + secs(30)));
    q.pass(millis(29_999));
    assert_eq!(q.starts(10).await, []);
    q.pass(millis(1));
    assert_eq!(q.starts(10).await, [1]);
}

pub async fn a_scheduled_job_queues_as_if_created_when_due<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([delayed(secs(30), job(1)), job(2)]).await;
    q.pass(secs(30));
    q.sweep().await;
    q.accept([job(3)]).await;
    assert_eq!(q.starts(10).await, [2, 1, 3]);
}

pub async fn scheduled_jobs_queue_in_the_order_in_which_they_are_due<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([delayed(secs(30), job(1)), delayed(secs(10), job(2)), delayed(secs(20), job(3))]).await;
    q.pass(secs(60));
    assert_eq!(q.starts(10).await, [2, 3, 1]);
}

pub async fn the_sweeper_queues_due_jobs<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([delayed(secs(30), low(1))]).await;
    assert_eq!(q.sweep().await.next, q.now() + secs(30));
    q.pass(secs(30));
    q.sweep().await;
    assert_eq!(q.status(1).await, Status::Queued);
    let view = q.lane().await;
    assert_eq!((view.queued, view.pending), ([0, 0, 1], 0));
}

pub async fn a_delayed_job_can_be_cancelled<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([delayed(secs(30), job(1))]).await;
    q.cancel(1).await;
    q.pass(secs(30));
    assert_eq!(q.starts(10).await, []);
}
