//! Repeated requests are one job.

use eclusa_core::{Enqueued, NewJob, Status, Store};

use crate::harness::{Harness, Open};
use crate::rules::{high, id, job, keyed, lane, lasting, plain, secs};

const DAY: u64 = 86_400;

/// Another job with the payload of job 1.
fn twin(number: u128) -> NewJob {
    NewJob { payload: job(1).payload, ..job(number) }
}

pub async fn the_same_id_is_the_same_job<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    assert_eq!(q.put(job(1)).await, Enqueued::Existing(id(1)));
    let grant = q.next().await;
    assert_eq!(q.put(high(1)).await, Enqueued::Existing(id(1)));
    q.done(&grant).await;
    assert_eq!(q.put(job(1)).await, Enqueued::Existing(id(1)));
    assert_eq!(q.starts(10).await, []);
    assert_eq!(q.lane().await.totals.accepted, 1);
}

pub async fn the_same_key_and_payload_return_the_first_job<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([keyed("order-7", job(1))]).await;
    assert_eq!(q.put(keyed("order-7", twin(2))).await, Enqueued::Existing(id(1)));
    assert_eq!(q.find(2).await, None);
    assert_eq!(q.job(1).await.key.as_deref(), Some("order-7"));
}

pub async fn the_same_key_with_another_payload_is_a_conflict<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([keyed("order-7", job(1))]).await;
    assert_eq!(q.put(keyed("order-7", job(2))).await, Enqueued::Conflict(id(1)));
    assert_eq!(q.starts(10).await, [1]);
}

pub async fn a_fingerprint_distinguishes_requests_instead_of_the_payload<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    let printed = |print, job| keyed("order-7", NewJob { fingerprint: Some(print), ..job });
    q.accept([printed(7, job(1))]).await;
    assert_eq!(q.put(printed(7, job(2))).await, Enqueued::Existing(id(1)), "only a header differs");
    assert_eq!(q.put(printed(8, twin(3))).await, Enqueued::Conflict(id(1)));
}

pub async fn another_key_is_another_job<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([keyed("order-7", job(1)), keyed("order-8", twin(2)), twin(3)]).await;
    assert_eq!(q.starts(10).await, [1, 2, 3]);
}

pub async fn a_key_lasts_a_day_though_its_job_is_removed<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.keep.max = 0));
    q.accept([keyed("order-7", job(1))]).await;
    q.serve(1).await;
    assert_eq!(q.find(1).await, None);
    q.pass(secs(DAY - 1));
    q.sweep().await;
    assert_eq!(q.put(keyed("order-7", twin(2))).await, Enqueued::Existing(id(1)));
    q.pass(secs(1));
    q.sweep().await;
    assert!(q.put(keyed("order-7", twin(3))).await.is_accepted());
}

pub async fn a_key_lasts_as_long_as_its_job<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([keyed("order-7", job(1))]).await;
    for _ in 0..3 {
        q.pass(secs(DAY));
        q.sweep().await;
        assert_eq!(q.put(keyed("order-7", twin(2))).await, Enqueued::Existing(id(1)));
    }
    assert_eq!(q.status(1).await, Status::Queued);
}

pub async fn a_key_holds_when_its_job_was_dropped<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([keyed("order-7", lasting(secs(1), job(1)))]).await;
    q.pass(secs(2));
    q.sweep().await;
    assert_eq!(q.put(keyed("order-7", twin(2))).await, Enqueued::Existing(id(1)));
}

pub async fn a_refused_job_leaves_no_key<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.capacity = crate::rules::capacity(1)));
    q.accept([job(9)]).await;
    assert_eq!(q.put(keyed("order-7", job(1))).await, Enqueued::QueueFull);
    q.serve(1).await;
    assert!(q.put(keyed("order-7", job(1))).await.is_accepted());
}

pub async fn twins_in_one_batch_are_one_job<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    let answers = q.put_all([keyed("k", job(1)), keyed("k", twin(2)), keyed("k", job(3)), job(1)]).await;
    assert!(answers[0].is_accepted());
    assert_eq!(
        answers[1..],
        [Enqueued::Existing(id(1)), Enqueued::Conflict(id(1)), Enqueued::Existing(id(1))]
    );
}
