//! A full lane: which jobs are evicted and which are refused.

use eclusa_core::gate::CallResult;
use eclusa_core::{Capacity, Chain, DropReason, Enqueued, Level, NewJob, Settled, Spec, Status, Store};

use crate::harness::{Harness, Open};
use crate::rules::{capacity, chain, delayed, free, high, id, job, lane, low, name, of, secs, slots, via};

fn room_for(jobs: u64) -> Spec {
    lane(|lane| lane.capacity = capacity(jobs))
}

fn low_of(tenant: &str, n: u128) -> NewJob {
    NewJob { level: Level::Low, ..of(tenant, n) }
}

pub async fn a_new_low_job_is_refused_when_the_lane_is_full<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &room_for(2));
    q.accept([low(1), low(2)]).await;
    assert_eq!(q.press(low(3)).await, (false, vec![(3, "queue_full")]));
    assert_eq!(q.find(3).await, None);
    assert_eq!(q.lane().await.totals.refused, 1);
}

pub async fn capacity_is_the_sum_over_the_three_levels<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &room_for(3));
    q.accept([high(1), job(2), low(3)]).await;
    assert!(!q.press(low(4)).await.0);
}

pub async fn a_new_high_job_evicts_from_low_first_and_then_from_normal<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &room_for(2));
    q.accept([job(1), low(2)]).await;
    assert_eq!(q.press(high(3)).await, (true, vec![(2, "preempted")]));
    assert_eq!(q.press(high(4)).await, (true, vec![(1, "preempted")]));
    assert_eq!(q.press(high(5)).await, (false, vec![(5, "queue_full")]));
    let evicted = q.job(2).await;
    assert_eq!((evicted.status, evicted.dropped), (Status::Dropped, Some(DropReason::Preempted)));
    assert_eq!(q.starts(10).await, [3, 4]);
}

pub async fn a_new_normal_job_evicts_from_low_only<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &room_for(2));
    q.accept([high(1), low(2)]).await;
    assert_eq!(q.press(job(3)).await, (true, vec![(2, "preempted")]));
    assert_eq!(q.press(job(4)).await, (false, vec![(4, "queue_full")]));
}

pub async fn the_newest_job_of_the_tenant_with_the_longest_backlog_is_evicted<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &room_for(4));
    q.accept([low_of("flood", 1), low_of("flood", 2), low_of("flood", 3), low_of("small", 4)]).await;
    assert_eq!(q.press(high(5)).await.1, [(3, "preempted")]);
    assert_eq!(q.press(high(6)).await.1, [(2, "preempted")]);
}

pub async fn a_job_that_was_tried_is_never_evicted<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &room_for(1));
    q.accept([low(1)]).await;
    let grant = q.next().await;
    q.retry(&grant, CallResult::Failed, secs(60)).await;
    assert!(!q.press(high(2)).await.0);
    assert_eq!(q.status(1).await, Status::Pending);
}

pub async fn a_job_released_unsent_counts_as_untried<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &room_for(1));
    q.accept([low(1)]).await;
    let grant = q.next().await;
    q.release(&grant).await;
    assert_eq!(q.press(high(2)).await, (true, vec![(1, "preempted")]));
}

pub async fn a_scheduled_job_takes_room_and_can_be_evicted<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &room_for(1));
    q.accept([delayed(secs(60), low(1))]).await;
    assert!(!q.press(low(2)).await.0);
    assert_eq!(q.press(job(3)).await, (true, vec![(1, "preempted")]));
    q.pass(secs(60));
    assert_eq!(q.starts(10).await, [3]);
}

pub async fn running_jobs_take_no_room<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &room_for(1));
    q.accept([low(1)]).await;
    let _running = q.next().await;
    q.accept([low(2)]).await;
    assert!(!q.press(low(3)).await.0);
}

pub async fn retries_and_lost_jobs_return_to_a_full_lane<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &room_for(2));
    q.accept([low(1), low(2)]).await;
    let grants = q.take(2).await;
    q.accept([low(3), low(4)]).await;
    assert!(matches!(q.retry(&grants[0], CallResult::Failed, secs(1)).await, Settled::RetryAt(_)));
    q.pass(secs(10));
    assert_eq!(q.sweep().await.recovered.len(), 1);
    assert_eq!(q.lane().await.queued, [0, 0, 4]);
    assert_eq!(q.starts(10).await, [1, 2, 3, 4]);
}

pub async fn bytes_are_bounded_too<S: Store>(open: Open<S>) {
    let small = lane(|lane| lane.capacity = Capacity::new(100, 10).expect("more than zero"));
    let q = Harness::new(open, &small);
    let sized = |len: usize, job: NewJob| NewJob { payload: vec![b'x'; len].into(), ..job };
    q.accept([sized(6, low(1)), sized(4, low(2))]).await;
    assert!(!q.press(sized(1, low(3))).await.0);
    assert_eq!(q.press(sized(11, high(4))).await, (false, vec![(4, "queue_full")]));
    assert_eq!(q.press(sized(5, high(5))).await, (true, vec![(2, "preempted"), (1, "preempted")]));
    assert_eq!(q.lane().await.waiting_bytes, 5);
}

pub async fn a_refused_job_does_not_affect_the_others_of_its_batch<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &room_for(2));
    q.accept([low(1), low(2)]).await;
    assert!(!q.press(low(3)).await.0);
    assert_eq!(q.put(low(1)).await, Enqueued::Existing(crate::rules::id(1)), "known jobs need no room");
    assert!(q.press(high(4)).await.0);
    assert_eq!(q.starts(10).await, [4, 1]);
}

pub async fn a_job_that_waits_for_the_rest_of_its_chain_protects_nobody_from_eviction<S: Store>(
    open: Open<S>,
) {
    let spec = chain(&[("ses", free()), ("smtp", slots(1))], |lane| {
        lane.chain = Chain::new(vec![name("smtp")]).expect("a chain that can be");
        lane.capacity = capacity(2);
    });
    let q = Harness::new(open, &spec);
    q.call("smtp").await;
    q.accept([low(1), via(&["ses", "smtp"], low(2))]).await;
    let grant = q.next().await;
    assert_eq!(grant.job, id(2));
    q.advance(&grant, CallResult::Failed).await;
    assert_eq!(q.press(high(3)).await, (true, vec![(1, "preempted")]));
}
