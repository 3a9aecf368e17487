//! Jobs whose end is reported by another job, in a separate lane.

use eclusa_core::gate::{CallResult, GateSpecs};
use eclusa_core::{
    CALLBACKS, Callback, Chain, Enqueued, Grant, JobView, LaneSpec, NewJob, Outcome, Spec, Status, Store,
    UpstreamSpec,
};

use crate::harness::{Harness, Open};
use crate::rules::{LANE, UP, id, job, name, plain, secs};

/// A lane in addition to the one that delivers callbacks.
fn with_callbacks(edit: impl FnOnce(&mut LaneSpec), callbacks: impl FnOnce(&mut LaneSpec)) -> Spec {
    let chain = || Chain::new(vec![name(UP)]).expect("a chain that can be");
    let (mut own, mut theirs) = (LaneSpec::new(name(LANE), chain()), LaneSpec::new(name(CALLBACKS), chain()));
    edit(&mut own);
    callbacks(&mut theirs);
    let upstream = UpstreamSpec::new(name(UP), GateSpecs::default());
    Spec::new(vec![own, theirs], vec![upstream]).expect("rules that fit together")
}

fn called_back(number: u128) -> NewJob {
    NewJob { callback: Some("https://app.example.com/done".into()), ..job(number) }
}

async fn callbacks<S: Store>(q: &Harness<S>) -> Vec<(Grant, JobView)> {
    let sent = |grant: Grant| {
        let callback = Callback::decode(&grant.payload).expect("a callback");
        assert_eq!(&*callback.url, "https://app.example.com/done");
        (grant, callback.job)
    };
    q.dispatch_from(CALLBACKS, 100).await.grants.into_iter().map(sent).collect()
}

pub async fn the_end_of_a_job_is_reported_by_a_separate_job<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &with_callbacks(|_| {}, |_| {}));
    q.accept([called_back(1), called_back(2), called_back(3), job(4)]).await;
    assert_eq!(callbacks(&q).await, [], "nothing has ended");
    let first = q.next().await;
    q.answered(first.lease, "answer").await;
    let second = q.next().await;
    q.dead(&second).await;
    q.cancel(3).await;
    let last = q.next().await;
    q.done(&last).await;
    let sent = callbacks(&q).await;
    let ends: Vec<_> = sent.iter().map(|(_, job)| (job.id, job.status)).collect();
    let expected = [(id(1), Status::Completed), (id(2), Status::Failed), (id(3), Status::Cancelled)];
    assert_eq!(ends, expected, "the fourth has no callback");
    assert_eq!(sent[0].1, q.job(1).await);
    assert_eq!(sent[1].1.last_failure, q.job(2).await.last_failure);
    assert!(sent.iter().all(|(grant, _)| &*grant.tenant == "acme"));
    for (grant, _) in &sent {
        q.done(grant).await;
    }
    assert_eq!(callbacks(&q).await, [], "each is sent once");
}

pub async fn a_job_removed_as_it_ends_is_reported_whole<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &with_callbacks(|lane| lane.keep.max = 0, |_| {}));
    q.accept([called_back(1)]).await;
    let grant = q.next().await;
    let (_, ended) = q.answered(grant.lease, "answer").await;
    let [(_, sent)] = &callbacks(&q).await[..] else { panic!("not one callback") };
    assert_eq!(sent.result.as_deref(), Some(&b"answer"[..]));
    assert_eq!(ended[0].forgotten.as_deref(), Some(sent));
}

pub async fn an_expired_or_evicted_job_is_reported_too<S: Store>(open: Open<S>) {
    let capacity = eclusa_core::Capacity::new(1, 1 << 20).expect("room for one");
    let q = Harness::new(open, &with_callbacks(|lane| lane.capacity = capacity, |_| {}));
    q.accept([NewJob { level: eclusa_core::Level::Low, ..called_back(1) }]).await;
    q.press(NewJob { ttl: Some(secs(5)), level: eclusa_core::Level::High, ..called_back(2) }).await;
    q.pass(secs(6));
    q.sweep().await;
    let ends: Vec<_> = callbacks(&q).await.into_iter().map(|(_, job)| (job.id, job.dropped)).collect();
    let (preempted, expired) = (eclusa_core::DropReason::Preempted, eclusa_core::DropReason::TtlExpired);
    assert_eq!(ends, [(id(1), Some(preempted)), (id(2), Some(expired))]);
}

pub async fn a_callback_that_fails_permanently_is_a_dead_letter<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &with_callbacks(|_| {}, |_| {}));
    q.accept([called_back(1)]).await;
    let grant = q.next().await;
    q.done(&grant).await;
    let (grant, _) = callbacks(&q).await.pop().expect("one callback");
    let (failure, report) = (crate::rules::failure("refused"), CallResult::Rejected);
    q.settle(grant.lease, report, Outcome::Dead(failure)).await;
    let letter = q.letter(grant.job.0).await.expect("it is kept");
    assert_eq!((letter.lane.as_str(), letter.letter.failed_attempts), (CALLBACKS, 1));
    assert!(Callback::decode(&letter.letter.payload).is_ok());
}

pub async fn callbacks_without_room_are_dropped_and_reported<S: Store>(open: Open<S>) {
    let capacity = eclusa_core::Capacity::new(1, 1 << 20).expect("room for one");
    let q = Harness::new(open, &with_callbacks(|_| {}, |lane| lane.capacity = capacity));
    q.accept([called_back(1), called_back(2)]).await;
    q.cancel(1).await;
    let ended = match q.try_cancel(2).await {
        eclusa_core::Cancelled::Yes(ended) => ended,
        other => panic!("{other:?}"),
    };
    assert_eq!(ended.job, id(2), "a cancellation also reports its own end");
    assert_eq!(callbacks(&q).await.len(), 1);
    let totals: Vec<_> = q.lanes().await.iter().map(|lane| lane.totals.refused).collect();
    assert_eq!(totals, [0, 1]);
}

pub async fn a_job_with_an_invalid_callback_is_refused<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    let Enqueued::Invalid(error) = q.put(called_back(1)).await else { panic!("it is refused") };
    assert_eq!(error.field, "callbackUrl");
}
