//! High before normal before low, always.

use eclusa_core::{Level, NewJob, Store};

use crate::harness::{Harness, Open};
use crate::rules::{chain, free, high, job, low, name, of, plain, rate, secs, slots, upstream, via};

pub async fn levels_are_served_in_order_regardless_of_arrival<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([low(1), job(2), high(3), low(4), job(5), high(6)]).await;
    assert_eq!(q.starts(10).await, [3, 6, 2, 5, 1, 4]);
}

pub async fn a_late_high_job_goes_before_all_waiting_jobs<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept((1..=5).map(low)).await;
    assert_eq!(q.serve(2).await, [1, 2]);
    q.accept([high(9)]).await;
    assert_eq!(q.serve(2).await, [9, 3]);
}

pub async fn priority_goes_before_fairness<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept((1..=5).map(|n| NewJob { level: Level::High, ..of("flood", n) })).await;
    q.accept([of("small", 9)]).await;
    assert_eq!(q.starts(10).await, [1, 2, 3, 4, 5, 9]);
}

pub async fn a_high_head_that_waits_for_a_gate_gets_its_next_opening<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(rate(1, 1)));
    q.accept((1..=5).map(low)).await;
    assert_eq!(q.starts(10).await, [1]);
    q.accept([high(9)]).await;
    assert_eq!(q.starts(10).await, [], "the bucket is empty");
    q.pass(secs(1));
    assert_eq!(q.starts(10).await, [9], "the token that comes belongs to the high job");
    q.pass(secs(1));
    assert_eq!(q.starts(10).await, [2]);
}

pub async fn a_blocked_high_head_lets_lower_levels_use_other_upstreams<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("full", slots(1)), ("free", free())], |_| {}));
    q.accept([via(&["full"], job(1))]).await;
    assert_eq!(q.starts(10).await, [1]);
    q.accept([via(&["full"], high(2)), via(&["full"], low(3)), via(&["free"], low(4))]).await;
    let grants = q.take(10).await;
    assert_eq!(grants.len(), 1, "{grants:?}");
    assert_eq!((grants[0].job.0, &grants[0].upstream), (4, &name("free")));
}

pub async fn a_grant_says_what_to_send_where_and_how_long<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([NewJob { ttl: Some(secs(60)), ..high(1) }]).await;
    let grant = q.next().await;
    assert_eq!((grant.job.0, grant.level, grant.attempt), (1, Level::High, 1));
    assert_eq!((&*grant.tenant, &*grant.payload, grant.upstream.as_str()), ("acme", &b"1"[..], "ses"));
    assert_eq!(grant.lease_expires, q.now() + secs(10));
    assert_eq!(grant.expires_at, q.now() + secs(60));
    let view = q.job(1).await;
    assert_eq!((view.lease, view.attempts), (Some(grant.lease), 1));
}
