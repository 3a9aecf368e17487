//! What is kept of finished jobs.

use eclusa_core::{Cancelled, Ended, EventKind, Keep, LaneSpec, Status, Store};

use crate::harness::{Harness, Open};
use crate::rules::{cache, id, job, lane, lasting, millis, of, secs, wants};

pub async fn a_lane_that_keeps_none_removes_jobs_as_they_end<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.keep = Keep { max: 0, ..Keep::default() }));
    q.accept([job(1), job(2), job(3), lasting(secs(1), job(4))]).await;
    let grants = q.take(2).await;
    q.done(&grants[0]).await;
    q.dead(&grants[1]).await;
    q.cancel(3).await;
    q.pass(secs(2));
    q.sweep().await;
    for number in 1..=4 {
        assert_eq!(q.find(number).await, None, "job {number}");
    }
    let view = q.lane().await;
    assert_eq!((view.finished, view.totals.accepted, view.totals.completed), (0, 4, 1));
    assert!(q.put(job(1)).await.is_accepted());
}

pub async fn a_job_removed_as_it_ends_is_reported_whole<S: Store>(open: Open<S>) {
    let keeps_none = |lane: &mut LaneSpec| (lane.cache, lane.keep.max) = (Some(cache()), 0);
    let q = Harness::new(open, &lane(keeps_none));
    q.accept([wants("k", job(1)), wants("k", job(2)), job(3), lasting(secs(1), job(4))]).await;
    let grants = q.take(2).await;
    let mut ended = q.answered(grants[0].lease, "ok").await.1;
    let Cancelled::Yes(cancelled) = q.try_cancel(3).await else { panic!("it has not ended") };
    ended.push(*cancelled);
    q.pass(secs(2));
    ended.extend(q.sweep().await.ended);
    let last = |ended: &Ended| {
        let job = ended.forgotten.clone().expect("it is not kept anywhere else");
        assert_eq!(job.timeline.last().map(|event| &event.kind), Some(&EventKind::Ended(job.status)));
        (job.id.0, job.status, job.result.map(|result| result.to_vec()))
    };
    let answer = || Some(b"ok".to_vec());
    let expected = [
        (1, Status::Completed, answer()),
        (2, Status::Completed, answer()),
        (3, Status::Cancelled, None),
        (4, Status::Dropped, None),
    ];
    assert_eq!(ended.iter().map(last).collect::<Vec<_>>(), expected);
}

pub async fn a_kept_job_is_reported_in_short<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.keep.max = 1));
    q.accept([job(1), job(2)]).await;
    for grant in q.take(2).await {
        let ended = q.answered(grant.lease, "ok").await.1;
        assert_eq!(ended.iter().map(|ended| ended.forgotten.is_some()).collect::<Vec<_>>(), [false]);
    }
}

pub async fn a_lane_keeps_the_newest_finished_jobs<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.keep.max = 2));
    q.accept((1..=4).map(job)).await;
    q.serve(4).await;
    assert_eq!((q.find(1).await, q.find(2).await), (None, None));
    assert_eq!((q.status(3).await, q.status(4).await), (Status::Completed, Status::Completed));
}

pub async fn a_finished_job_is_kept_with_its_result_as_long_as_the_lane_says<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.keep = Keep { span: secs(60), max: 10 }));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.answered(grant.lease, "ok").await;
    assert_eq!(q.sweep().await.next, q.now() + secs(60));
    q.pass(millis(59_999));
    q.sweep().await;
    assert_eq!(q.job(1).await.result.as_deref(), Some(&b"ok"[..]));
    q.pass(millis(1));
    q.sweep().await;
    assert_eq!(q.find(1).await, None);
}

pub async fn waiting_and_running_jobs_are_never_removed<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.keep = Keep { span: secs(1), max: 0 }));
    q.accept([of("a", 1), of("b", 2)]).await;
    let grant = q.next().await;
    q.pass(secs(9));
    q.sweep().await;
    assert_eq!((q.status(1).await, q.status(2).await), (Status::Processing, Status::Queued));
    assert_eq!(grant.job, id(1));
}
