//! Buckets that only some jobs take from, and the lines that wait for them.

use eclusa_core::gate::Reason;
use eclusa_core::{NewJob, Outcome, Store};

use crate::harness::{Harness, LEASE, Open};
use crate::rules::{
    UP, answered, bucket, charging, closing, free, high, hold, holding, job, low, millis, of, secs, upstream,
};

pub async fn a_retry_after_of_a_scoped_bucket_closes_only_that_bucket<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let scoped = |key| hold(UP, key, bucket(100, 1, secs(1)), 1);
    q.accept([holding(scoped("cpf:1"), job(1))]).await;
    let grant = q.next().await;
    q.settle(grant.lease, closing(secs(30), Some("cpf:1")), Outcome::Done).await;
    q.accept([holding(scoped("cpf:1"), job(2)), holding(scoped("cpf:2"), job(3)), job(4)]).await;
    assert_eq!(q.serve(10).await, [3, 4]);
    assert_eq!(q.reason(2).await, Some(Reason::UpstreamRetryAfter));
    q.pass(secs(30));
    assert_eq!(q.starts(10).await, [2]);
}

pub async fn a_line_denied_by_its_own_bucket_is_passed_by_others<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let scoped = |key| hold(UP, key, bucket(1, 1, secs(60)), 1);
    q.accept([
        holding(scoped("x"), job(1)),
        holding(scoped("x"), job(2)),
        holding(scoped("y"), job(3)),
        job(4),
    ])
    .await;
    assert_eq!(q.serve(10).await, [1, 3, 4]);
    q.pass(secs(60));
    assert_eq!(q.starts(10).await, [2]);
}

pub async fn many_lines_at_one_bucket_get_no_more_than_it_has<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let shared = || hold(UP, "shared", bucket(2, 1, secs(1)), 1);
    q.accept((1..=20).map(|n| holding(shared(), crate::rules::of(&format!("t{n}"), n)))).await;
    let mut started = q.serve(100).await;
    assert_eq!(started, [1, 2]);
    for _ in 0..18 {
        q.pass(secs(1));
        let next = q.serve(100).await;
        assert_eq!(next.len(), 1);
        started.extend(next);
    }
    assert_eq!(started, (1..=20).collect::<Vec<_>>());
}

pub async fn the_answer_settles_a_hold_to_its_real_cost<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let terms = charging(&[("404", 20)]);
    let scoped = || hold(UP, "cpf:1", bucket(10, 1, secs(1)), 1).under(terms.clone());
    q.accept((1..=9).map(|n| holding(scoped(), job(n)))).await;
    let grant = q.next().await;
    q.settle(grant.lease, answered(404), Outcome::Done).await;
    assert_eq!(q.starts(10).await, [], "the bucket is 10 in debt");
    q.pass(secs(10));
    assert_eq!(q.starts(10).await, [], "the debt is paid and nothing more");
    q.pass(secs(1));
    assert_eq!(q.starts(10).await, [2]);
}

pub async fn a_hold_that_cost_nothing_is_returned<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let terms = charging(&[("5xx", 0)]);
    let scoped = || hold(UP, "cpf:1", bucket(1, 1, secs(3_600)), 1).under(terms.clone());
    q.accept((1..=3).map(|n| holding(scoped(), job(n)))).await;
    let grant = q.next().await;
    assert_eq!(q.starts(10).await, []);
    q.settle(grant.lease, answered(503), Outcome::Done).await;
    assert_eq!(q.starts(10).await, [2], "a parked line hears of it");
}

/// Takes five tokens from an empty bucket that gains one a second, while others keep asking for one.
async fn five_tokens_are_waited_for<S: Store>(q: &Harness<S>, big: NewJob, small: impl Fn(u128) -> NewJob) {
    let scoped = |tokens| hold(UP, "cpf:1", bucket(5, 1, secs(1)), tokens);
    q.accept([holding(scoped(5), of("first", 1))]).await;
    assert_eq!(q.serve(10).await, [1]);
    q.accept([holding(scoped(5), big)]).await;
    for second in 0..5 {
        assert_eq!(q.starts(10).await, [], "second {second}");
        q.accept([holding(scoped(1), small(10 + second))]).await;
        assert_eq!(q.starts(10).await, [], "second {second}");
        q.pass(secs(1));
    }
    assert_eq!(q.serve(10).await, [2]);
    q.pass(secs(1));
    assert_eq!(q.starts(10).await, [10]);
}

pub async fn a_large_hold_is_not_starved_by_small_ones_of_lower_levels<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    five_tokens_are_waited_for(&q, high(2), low).await;
}

pub async fn a_large_hold_is_not_starved_by_small_ones_of_tenants_that_came_later<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    five_tokens_are_waited_for(&q, of("big", 2), |number| of("small", number)).await;
}

pub async fn a_scoped_hold_of_an_unsent_call_is_returned<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    q.accept([holding(hold(UP, "cpf:1", bucket(5, 1, secs(3_600)), 5), job(1))]).await;
    let grant = q.next().await;
    q.release(&grant).await;
    assert_eq!(q.starts(10).await, [1]);
}

pub async fn a_scoped_hold_of_a_lost_call_stays_spent<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    q.accept([holding(hold(UP, "cpf:1", bucket(1, 1, secs(3_600)), 1), job(1))]).await;
    let _lost = q.next().await;
    q.pass(LEASE);
    assert_eq!(q.starts(10).await, []);
    q.pass(secs(3_600));
    assert_eq!(q.starts(10).await, [1]);
}

pub async fn a_line_continues_when_settlements_leave_enough<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let scoped = || hold(UP, "cpf:1", bucket(1, 10, secs(1)), 1);
    q.accept([holding(scoped(), job(1)), holding(scoped(), job(2))]).await;
    let grant = q.next().await;
    q.pass(millis(300));
    assert_eq!(q.starts(10).await, [], "the first call holds the only token");
    q.done(&grant).await;
    assert_eq!(q.starts(10).await, [], "and has spent it");
    q.pass(millis(99));
    assert_eq!(q.starts(10).await, []);
    q.pass(millis(1));
    assert_eq!(q.starts(10).await, [2]);
}

pub async fn a_new_rule_applies_from_when_it_arrived<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    q.accept([holding(hold(UP, "cpf:1", bucket(2, 1, secs(3_600)), 2), job(1))]).await;
    assert_eq!(q.serve(10).await, [1]);
    q.pass(secs(60));
    q.accept([holding(hold(UP, "cpf:1", bucket(2, 2, secs(1)), 2), job(2))]).await;
    assert_eq!(q.starts(10).await, [], "in a minute it has gained next to nothing");
    q.pass(secs(1));
    assert_eq!(q.starts(10).await, [2]);
}
