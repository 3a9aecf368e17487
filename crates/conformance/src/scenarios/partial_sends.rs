//! A call that delivers part of a job: the next worker gets only what is left.

use eclusa_core::gate::CallResult;
use eclusa_core::{Advance, Advanced, Grant, Outcome, Payload, Settled, Settlement, Status, Store};

use crate::harness::{Harness, LEASE, Open};
use crate::rules::{UP, chain, failure, free, id, job, name, plain, secs};

fn left() -> Payload {
    b"the rest"[..].into()
}

async fn payload_of_letter<S: Store>(q: &Harness<S>) -> Option<Payload> {
    q.letter(1).await.map(|view| view.letter.payload)
}

/// The call delivered a part, and the job continues with this outcome.
async fn partly<S: Store>(q: &Harness<S>, grant: &Grant, outcome: Outcome) -> Settled {
    let report = CallResult::Failed.into();
    q.settle_fully(Settlement { lease: grant.lease, report, outcome, answer: None, unsent: Some(left()) })
        .await
        .0
}

pub async fn a_retry_sends_what_is_left<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let again = || Outcome::Retry { after: secs(1), failure: failure("busy") };
    assert!(matches!(partly(&q, &q.next().await, again()).await, Settled::RetryAt(_)));
    q.pass(secs(1));
    let grant = q.next().await;
    assert_eq!((&grant.payload, grant.attempt), (&left(), 2));
    // A replaced payload stays until it is replaced again.
    assert!(matches!(q.settle(grant.lease, CallResult::Failed, again()).await, Settled::RetryAt(_)));
    q.pass(secs(1));
    assert_eq!(q.next().await.payload, left());
}

pub async fn an_advanced_job_sends_what_is_left_also_after_a_takeover<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("first", free()), ("second", free())], |_| {}));
    q.accept([job(1)]).await;
    let Grant { lease, upstream, .. } = q.next().await;
    let report = CallResult::Failed.into();
    let ask = Advance { lease, upstream, report, failure: failure("busy"), unsent: Some(left()) };
    assert_eq!(q.advance_fully(ask).await, Advanced::To(name("second")));
    q.pass(LEASE);
    assert_eq!(q.next().await.payload, left());
}

pub async fn a_dead_letter_and_its_replay_hold_what_is_left<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let dead = Outcome::Dead(failure("refused"));
    assert_eq!(partly(&q, &q.next().await, dead).await, Settled::Ended(Status::Failed));
    assert_eq!(payload_of_letter(&q).await, Some(left()));
    q.replay(1, 2).await;
    let grant = q.next().await;
    assert_eq!((&grant.payload, grant.job, &grant.upstream), (&left(), id(2), &name(UP)));
}

pub async fn a_partial_replay_leaves_the_rest_in_its_letter<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    q.dead(&q.next().await).await;
    q.replay(1, 2).await;
    partly(&q, &q.next().await, Outcome::Dead(failure("refused"))).await;
    assert_eq!(q.letters().await, [1]);
    assert_eq!(payload_of_letter(&q).await, Some(left()));
}

pub async fn what_is_left_under_a_stale_lease_changes_nothing<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let stale = q.next().await;
    q.pass(LEASE);
    let grant = q.next().await;
    assert_eq!(partly(&q, &stale, Outcome::Release).await, Settled::Stale);
    assert_eq!(q.job(1).await.payload, grant.payload);
    assert_ne!(grant.payload, left());
}
