//! Invalid input is refused with its field and changes nothing.

use eclusa_core::{Enqueued, NewJob, Span, Store, Time};

use crate::harness::{Harness, Open};
use crate::rules::{UP, bucket, chain, free, hold, holding, id, job, lasting, name, plain, secs, via};

async fn refused<S: Store>(q: &Harness<S>, job: NewJob) -> String {
    match q.put(job).await {
        Enqueued::Invalid(error) => error.field,
        other => panic!("{other:?}"),
    }
}

pub async fn invalid_jobs_are_refused_with_their_field<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[(UP, free()), ("smtp", free())], |_| {}));
    assert_eq!(refused(&q, lasting(Span::ZERO, job(1))).await, "ttl");
    assert_eq!(refused(&q, via(&["nobody"], job(1))).await, "chain");
    assert_eq!(refused(&q, via(&[], job(1))).await, "chain");
    assert_eq!(refused(&q, via(&[UP, UP], job(1))).await, "chain");
    let elsewhere = hold("smtp", "cpf:1", bucket(1, 1, secs(1)), 1);
    assert_eq!(refused(&q, via(&[UP], holding(elsewhere, job(1)))).await, "holds");
    let scoped = || hold(UP, "cpf:1", bucket(9, 1, secs(1)), 1);
    let twice = NewJob { holds: vec![scoped(), scoped()], ..job(1) };
    assert_eq!(refused(&q, twice).await, "holds");
    assert_eq!(q.find(1).await, None);
    assert_eq!(q.lane().await.totals.accepted, 0);
    assert!(q.put(job(1)).await.is_accepted());
}

pub async fn a_job_for_an_unknown_lane_is_refused<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    assert_eq!(q.put(NewJob { lane: name("nowhere"), ..job(1) }).await, Enqueued::UnknownLane);
}

pub async fn an_invalid_job_does_not_affect_the_others_of_its_batch<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    let answers = q.put_all([job(1), lasting(Span::ZERO, job(2)), job(3)]).await;
    assert!(answers[0].is_accepted() && answers[2].is_accepted());
    assert!(matches!(answers[1], Enqueued::Invalid(_)));
    assert_eq!(q.starts(10).await, [1, 3]);
}

pub async fn a_dispatch_of_an_unknown_lane_returns_nothing<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let answer = q.dispatch_from("nowhere", 10).await;
    assert_eq!((answer.grants.len(), answer.next), (0, Time::NEVER));
    assert_eq!(q.replay_in("nowhere", 1, 2).await, eclusa_core::Replayed::Unknown);
    assert!(!q.discard(1).await);
}

pub async fn unknown_letters_and_jobs_are_reported_as_unknown<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    assert_eq!(q.replay(1, 2).await, eclusa_core::Replayed::Unknown);
    assert_eq!(q.find(1).await, None);
    assert_eq!(q.try_cancel(1).await, eclusa_core::Cancelled::Unknown);
    assert!(q.why_unknown(1).await);
    assert_eq!(id(1), job(1).id);
}

pub async fn times_in_the_far_future_do_not_overflow<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    let for_ever = Span::from_millis(u64::MAX);
    q.accept([lasting(for_ever, job(1)), NewJob { delay: for_ever, ..job(2) }]).await;
    let grant = q.next().await;
    assert!(q.extend(grant.lease, for_ever).await);
    q.pass(secs(3_600));
    assert_eq!(q.take(10).await, []);
    q.sweep().await;
    q.done(&grant).await;
}
