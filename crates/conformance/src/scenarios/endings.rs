//! Every verb lists the jobs it ended, once and in order.

use eclusa_core::gate::CallResult;
use eclusa_core::retry::{OnAmbiguous, RetryPolicy};
use eclusa_core::{Cancelled, End, Outcome, Settled, Settlement, Status, Store};

use crate::harness::{Harness, LEASE, Open, ends};
use crate::rules::{LANE, UP, capacity, failure, high, id, job, lane, lasting, low, name, plain, secs};

/// A lane whose jobs end when their worker vanishes.
fn sends_once() -> eclusa_core::Spec {
    lane(|lane| lane.retry = RetryPolicy::default().on_ambiguous(OnAmbiguous::Stop))
}

pub async fn an_end_names_the_tenant_and_the_result<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([high(1)]).await;
    let came = q.now();
    q.pass(secs(3));
    let grant = q.next().await;
    let (settled, ended) = q.answered(grant.lease, "ok").await;
    assert_eq!(settled, Settled::Ended(Status::Completed));
    let [ended] = ended.as_slice() else { panic!("{ended:?}") };
    assert_eq!((ended.job, &ended.lane, &*ended.tenant), (id(1), &name(LANE), "acme"));
    assert_eq!((ended.level, ended.attempts, ended.created_at), (eclusa_core::Level::High, 1, came));
    assert_eq!(ended.end, End::Completed);
}

pub async fn a_settlement_lists_the_jobs_it_ends_and_no_others<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept((1..=4).map(job)).await;
    let grants = q.take(4).await;
    let why = || failure("refused");
    let outcomes = [
        Outcome::Retry { after: secs(5), failure: why() },
        Outcome::Failed(why()),
        Outcome::Release,
        Outcome::Dead(why()),
    ];
    let mut ended = Vec::new();
    for (grant, outcome) in grants.iter().zip(outcomes) {
        let report = CallResult::Rejected.into();
        let settlement = Settlement { lease: grant.lease, report, outcome, answer: None, unsent: None };
        ended.extend(q.settle_fully(settlement).await.1);
    }
    assert_eq!(ends(&ended), [(2, "failed"), (4, "dead")]);
    assert_eq!(ended[0].end, End::Failed { failure: why().at(q.now()), dead_letter: false });
}

pub async fn an_enqueue_lists_evicted_and_refused_jobs<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.capacity = capacity(1)));
    q.accept([low(1)]).await;
    assert_eq!(q.press(job(2)).await.1, [(1, "preempted")]);
    assert_eq!(q.press(low(3)).await.1, [(3, "queue_full")]);
}

pub async fn a_sweep_lists_lost_and_expired_jobs<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &sends_once());
    q.accept([job(1), lasting(secs(5), job(2))]).await;
    q.take(1).await;
    q.pass(LEASE);
    let swept = q.sweep().await;
    assert_eq!(ends(&swept.ended), [(1, "dead"), (2, "ttl_expired")]);
    assert_eq!(q.sweep().await.ended, []);
}

pub async fn a_dispatch_lists_lost_jobs_also_of_other_lanes<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &sends_once());
    q.accept([job(1)]).await;
    q.take(1).await;
    q.pass(LEASE);
    assert_eq!(ends(&q.dispatch_from("nowhere", 1).await.ended), [(1, "dead")]);
}

pub async fn an_admission_lists_lost_jobs<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &sends_once());
    q.accept([job(1)]).await;
    q.take(1).await;
    q.pass(LEASE);
    assert_eq!(ends(&q.admit_fully(None, &[UP], Vec::new()).await.ended), [(1, "dead")]);
}

pub async fn a_cancellation_reports_the_end<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    q.next().await;
    let Cancelled::Yes(ended) = q.try_cancel(1).await else { panic!("it ran") };
    assert_eq!((ended.job, ended.attempts, ended.end), (id(1), 1, End::Cancelled));
}

pub async fn a_replay_that_fails_again_writes_no_second_letter<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    q.dead(&q.next().await).await;
    q.replay(1, 2).await;
    let outcome = Outcome::Dead(failure("refused"));
    let lease = q.next().await.lease;
    let settlement =
        Settlement { lease, report: CallResult::Rejected.into(), outcome, answer: None, unsent: None };
    assert_eq!(ends(&q.settle_fully(settlement).await.1), [(2, "failed")]);
    assert_eq!(q.letters().await, [1]);
}

pub async fn the_answer_of_a_failed_job_is_kept<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1), job(2), lasting(secs(5), job(3))]).await;
    let why = || failure("refused");
    let too_late = Outcome::Retry { after: secs(6), failure: why() };
    for outcome in [Outcome::Dead(why()), Outcome::Failed(why()), too_late] {
        let grant = q.next().await;
        let (report, answer) = (CallResult::Rejected.into(), Some(b"no such thing"[..].into()));
        q.settle_fully(Settlement { lease: grant.lease, report, outcome, answer, unsent: None }).await;
        let view = q.job(grant.job.0).await;
        assert_eq!((view.status, view.result.as_deref()), (Status::Failed, Some(&b"no such thing"[..])));
    }
}

pub async fn the_answer_of_an_attempt_that_ends_nothing_is_dropped<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let lease = q.next().await.lease;
    let outcome = Outcome::Retry { after: secs(1), failure: failure("refused") };
    let answer = Some(b"busy"[..].into());
    q.settle_fully(Settlement { lease, report: CallResult::Failed.into(), outcome, answer, unsent: None })
        .await;
    q.pass(secs(1));
    q.done(&q.next().await).await;
    assert_eq!(q.job(1).await.result, None);
}
