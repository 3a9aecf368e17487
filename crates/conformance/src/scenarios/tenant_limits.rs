//! Limits that apply to each tenant of a lane separately.

use std::num::NonZeroU32;

use eclusa_core::gate::{CallResult, NotUntil, QuotaOf, Reason};
use eclusa_core::{
    Admission, Advanced, GateOwner, LeaseId, NewJob, Outcome, Patterns, Settled, Span, Spec, Store, Tokens,
};

use super::why::shut;
use crate::harness::{Harness, LEASE, Open};
use crate::rules::{LANE, bucket, chain, free, lane, lasting, millis, name, of, secs};

/// One lane in which tenants that match a pattern may start `count` jobs per span, given as `(pattern, count, span)`.
fn rates(rates: &[(&str, u32, Span)]) -> Spec {
    let rule =
        |(pattern, count, per): &(&str, u32, Span)| ((*pattern).to_owned(), bucket(*count, *count, *per));
    lane(|lane| lane.tenant_limits.rate = rates.iter().map(rule).collect())
}

fn at_once(slots: u32) -> Patterns<NonZeroU32> {
    Patterns::of_all(NonZeroU32::new(slots).expect("more than zero"))
}

fn concurrency(slots: u32) -> Spec {
    lane(|lane| lane.tenant_limits.concurrency = at_once(slots))
}

fn jobs(tenant: &str, first: u128, count: u128) -> impl Iterator<Item = NewJob> {
    (first..first + count).map(move |n| of(tenant, n))
}

pub async fn a_tenant_at_its_rate_is_passed_by_others<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &rates(&[("*", 2, secs(10))]));
    q.accept(jobs("a", 1, 5).chain(jobs("b", 10, 3))).await;
    let answer = q.dispatch(10).await;
    assert_eq!(answer.grants.iter().map(|grant| grant.job.0).collect::<Vec<_>>(), [1, 2, 10, 11]);
    assert_eq!(answer.next, q.now() + secs(5));
    let denied = answer.denied.expect("one waits");
    assert_eq!((denied.reason, denied.upstream), (Reason::RateLimit, None));
    for grant in &answer.grants {
        q.done(grant).await;
    }
    q.pass(secs(5));
    assert_eq!(q.serve(10).await, [12, 3], "the turn of the one was not over");
    q.pass(millis(4_999));
    assert_eq!(q.serve(10).await, []);
    q.pass(millis(1));
    assert_eq!(q.serve(10).await, [4]);
}

pub async fn why_names_the_tenant_and_the_time<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &rates(&[("a", 1, secs(10))]));
    q.accept(jobs("a", 1, 3).chain(jobs("b", 10, 1))).await;
    assert_eq!(q.starts(10).await, [1, 10]);
    let why = q.why(2).await;
    assert_eq!((why.reason, why.of_tenant.as_deref()), (Some(Reason::RateLimit), Some("a")));
    let opens = Some(q.now() + secs(10));
    assert_eq!((why.eta, why.until), (opens, opens));
    assert_eq!(shut(&why.gates), [(GateOwner::Tenant("a".into()), Reason::RateLimit, opens)]);
    assert_eq!(q.why(3).await.eta, Some(q.now() + secs(20)));
}

pub async fn the_most_specific_pattern_sets_the_limit<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &rates(&[("*", 3, secs(60)), ("acme", 1, secs(60)), ("acme-*", 2, secs(60))]));
    let all = jobs("acme", 1, 5).chain(jobs("acme-eu", 10, 5)).chain(jobs("other", 20, 5));
    q.accept(all).await;
    assert_eq!(q.starts(100).await, [1, 10, 11, 20, 21, 22]);
}

pub async fn a_tenant_that_waited_at_its_limit_keeps_its_place<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &rates(&[("slow", 1, secs(60))]));
    q.accept(jobs("slow", 1, 2)).await;
    assert_eq!(q.serve(10).await, [1]);
    q.accept(jobs("b", 100, 9).chain(jobs("c", 200, 9))).await;
    assert_eq!(q.serve(12).await.len(), 12);
    q.pass(secs(60));
    assert!(q.serve(4).await.contains(&2), "others had their turns meanwhile");
}

pub async fn running_calls_of_a_tenant_are_bounded<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &concurrency(2));
    q.accept(jobs("a", 1, 5).chain(jobs("b", 10, 1))).await;
    let grants = q.take(10).await;
    assert_eq!(grants.iter().map(|grant| grant.job.0).collect::<Vec<_>>(), [1, 2, 10]);
    let why = q.why(3).await;
    assert_eq!((why.reason, why.of_tenant.as_deref()), (Some(Reason::Concurrency), Some("a")));
    assert_eq!(why.until, None, "nobody knows when a call ends");
    let tenant = GateOwner::Tenant("a".into());
    assert_eq!(shut(&why.gates), [(tenant, Reason::Concurrency, Some(q.now() + LEASE))]);
    assert_eq!(q.tenant("a").await.processing, 2);
    assert_eq!(q.tenant("a").await.waiting, 3);
    q.done(&grants[0]).await;
    assert_eq!(q.starts(10).await, [3]);
    assert_eq!(q.starts(10).await, []);
}

pub async fn a_slot_comes_back_however_the_call_ends<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &concurrency(1));
    q.accept(jobs("a", 1, 6)).await;
    let first = q.next().await;
    assert_eq!(q.retry(&first, CallResult::Failed, secs(100)).await, Settled::RetryAt(q.now() + secs(100)));
    let second = q.next().await;
    assert_eq!(q.release(&second).await, Settled::Requeued);
    let second = q.next().await;
    assert_eq!((second.job.0, q.starts(9).await), (2, vec![]));
    q.dead(&second).await;
    let third = q.next().await;
    q.cancel(third.job.0).await;
    assert_eq!(q.starts(9).await, [], "its call may still be under way");
    assert_eq!(q.settle(third.lease, CallResult::Success, Outcome::Done).await, Settled::Released);
    assert_eq!(q.starts(9).await, [4]);
    q.pass(LEASE);
    assert_eq!(q.starts(9).await, [4], "its worker vanished");
    q.pass(LEASE);
    assert_eq!(q.starts(1).await, [4]);
}

pub async fn a_job_keeps_its_slot_along_the_chain<S: Store>(open: Open<S>) {
    let rules =
        chain(&[("one", free()), ("two", free())], |lane| lane.tenant_limits.concurrency = at_once(1));
    let q = Harness::new(open, &rules);
    q.accept(jobs("a", 1, 2)).await;
    let first = q.next().await;
    assert_eq!(q.advance(&first, CallResult::Failed).await, Advanced::To(name("two")));
    assert_eq!(q.starts(9).await, []);
    q.done(&first).await;
    assert_eq!(q.starts(9).await, [2]);
}

pub async fn a_call_that_was_never_sent_gives_its_token_back<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &rates(&[("*", 1, secs(60))]));
    q.accept(jobs("a", 1, 2)).await;
    let first = q.next().await;
    assert_eq!(q.starts(9).await, []);
    q.release(&first).await;
    assert_eq!(q.starts(9).await, [1]);
    assert_eq!(q.starts(9).await, []);
}

pub async fn without_fairness_others_still_pass<S: Store>(open: Open<S>) {
    let rules = lane(|lane| {
        lane.fairness = None;
        lane.tenant_limits.rate = Patterns::of_all(bucket(2, 2, secs(10)));
    });
    let q = Harness::new(open, &rules);
    q.accept(jobs("a", 1, 4).chain(jobs("b", 10, 3)).chain(jobs("a", 20, 1))).await;
    assert_eq!(q.serve(100).await, [1, 2, 10, 11]);
    q.pass(secs(5));
    assert_eq!(q.serve(100).await, [3, 12]);
    q.pass(secs(20));
    assert_eq!(q.serve(100).await, [4, 20]);
}

pub async fn urgent_jobs_of_a_tenant_go_first<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &rates(&[("*", 1, secs(10))]));
    q.accept(jobs("a", 1, 3)).await;
    assert_eq!(q.serve(9).await, [1]);
    q.accept([NewJob { level: eclusa_core::Level::High, ..of("a", 9) }]).await;
    assert_eq!(q.starts(9).await, []);
    q.pass(secs(10));
    assert_eq!(q.serve(9).await, [9]);
    q.pass(secs(10));
    assert_eq!(q.serve(9).await, [2]);
}

pub async fn a_job_that_waits_at_a_limit_expires_like_any_other<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &rates(&[("*", 1, secs(60))]));
    q.accept([of("a", 1), lasting(secs(5), of("a", 2)), of("a", 3)]).await;
    assert_eq!(q.serve(9).await, [1]);
    assert!(q.why(2).await.will_expire);
    q.pass(secs(60));
    let answer = q.dispatch(9).await;
    assert_eq!(answer.grants.iter().map(|grant| grant.job.0).collect::<Vec<_>>(), [3]);
    assert_eq!(crate::harness::ends(&answer.ended), [(2, "ttl_expired")]);
}

pub async fn many_tenants_at_their_limit_do_not_block_others<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &rates(&[("flood-*", 1, secs(3_600))]));
    let flood =
        (0..150).flat_map(|n| [of(&format!("flood-{n}"), 2 * n), of(&format!("flood-{n}"), 2 * n + 1)]);
    q.accept(flood).await;
    let mut started = 0;
    loop {
        let answer = q.dispatch(100).await;
        started += answer.grants.len();
        if answer.next > q.now() {
            break;
        }
    }
    assert_eq!(started, 150);
    q.accept([of("free", 9_999)]).await;
    assert_eq!(q.starts(9).await, [9_999]);
}

async fn admitted<S: Store>(q: &Harness<S>, tenant: &str) -> Result<LeaseId, NotUntil> {
    match q.admit_for(LANE, tenant).await {
        Admission::Granted { lease, .. } => Ok(lease),
        Admission::Denied { denial, .. } => Err(denial),
        other => panic!("{other:?}"),
    }
}

pub async fn tenant_limits_apply_to_direct_calls<S: Store>(open: Open<S>) {
    let rules = lane(|lane| {
        lane.tenant_limits.rate = Patterns::of_all(bucket(3, 3, secs(30)));
        lane.tenant_limits.concurrency = at_once(2);
    });
    let q = Harness::new(open, &rules);
    let Admission::Granted { lease: first, quota, .. } = q.admit_for(LANE, "a").await else {
        panic!("the first is granted")
    };
    let quota = quota.expect("there is a limit");
    assert_eq!((quota.of, quota.remaining), (QuotaOf::Tenant(name(LANE)), Tokens::whole(2)));
    admitted(&q, "a").await.expect("a second slot");
    assert_eq!(admitted(&q, "a").await.map_err(|denial| denial.reason), Err(Reason::Concurrency));
    admitted(&q, "b").await.expect("another tenant");
    q.settle(first, CallResult::Success, Outcome::Release).await;
    let third = admitted(&q, "a").await.expect("a slot came free");
    q.settle(third, CallResult::Success, Outcome::Release).await;
    assert_eq!(admitted(&q, "a").await, Err(NotUntil::new(Reason::RateLimit, q.now() + secs(10))));
    q.pass(secs(10));
    admitted(&q, "a").await.expect("a token was gained");
}
