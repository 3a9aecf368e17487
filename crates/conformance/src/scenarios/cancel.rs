//! Cancelling jobs, pausing lanes.

use eclusa_core::gate::CallResult;
use eclusa_core::{Advanced, Cancelled, JobQuery, Outcome, Settled, Status, Store};

use crate::harness::{Harness, LEASE, Open};
use crate::rules::{
    UP, chain, delayed, free, high, hold, holding, job, lane, lasting, of, one_per, plain, secs, slots,
    upstream,
};

pub async fn a_waiting_job_is_cancelled_and_never_starts<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1), job(2)]).await;
    q.cancel(1).await;
    assert_eq!(q.status(1).await, Status::Cancelled);
    assert_eq!(q.starts(10).await, [2]);
    assert_eq!(q.try_cancel(1).await, Cancelled::AlreadyEnded(Status::Cancelled));
}

pub async fn unknown_and_finished_jobs_cannot_be_cancelled<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    q.serve(1).await;
    assert_eq!(q.try_cancel(1).await, Cancelled::AlreadyEnded(Status::Completed));
    assert_eq!(q.try_cancel(99).await, Cancelled::Unknown);
}

pub async fn a_cancelled_running_job_is_fenced_off_at_once<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[(UP, slots(1)), ("smtp", free())], |_| {}));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.cancel(1).await;
    let view = q.job(1).await;
    assert_eq!((view.status, view.lease), (Status::Cancelled, None));
    assert_eq!(q.advance(&grant, CallResult::Failed).await, Advanced::Stale);
    assert_eq!(q.settle(grant.lease, CallResult::Success, Outcome::Done).await, Settled::Released);
    assert_eq!(q.status(1).await, Status::Cancelled);
    let view = q.lane().await;
    assert_eq!((view.processing, view.totals.cancelled, view.totals.completed), (0, 1, 0));
}

pub async fn a_cancelled_call_keeps_its_slots_until_its_worker_releases_them<S: Store>(open: Open<S>) {
    let one = free().with_slots("concurrency", 1).expect("more than zero");
    let q = Harness::new(open, &chain(&[(UP, slots(1))], |lane| lane.gates = one));
    q.accept([job(1), job(2)]).await;
    let grant = q.next().await;
    q.cancel(1).await;
    assert_eq!(q.upstream(UP).await.in_flight, 1);
    assert_eq!(q.starts(10).await, []);
    assert_eq!(q.release(&grant).await, Settled::Released);
    assert_eq!(q.starts(10).await, [2]);
}

pub async fn a_cancelled_call_whose_worker_is_lost_releases_its_slots_with_its_lease<S: Store>(
    open: Open<S>,
) {
    let one = free().with_slots("concurrency", 1).expect("more than zero");
    let q = Harness::new(open, &chain(&[(UP, slots(1))], |lane| lane.gates = one));
    q.accept([job(1), job(2)]).await;
    let _lost = q.next().await;
    q.cancel(1).await;
    q.pass(LEASE);
    assert_eq!(q.starts(10).await, [2]);
    assert_eq!(q.status(1).await, Status::Cancelled);
}

pub async fn a_cancelled_unsent_call_returns_the_lanes_token_unless_another_was_sent<S: Store>(
    open: Open<S>,
) {
    for (goes_on, starts_left) in [(false, 1), (true, 0)] {
        let spec = chain(&[(UP, free()), ("smtp", free())], |lane| lane.gates = one_per(secs(60)));
        let q = Harness::new(open, &spec);
        q.accept([job(1), job(2)]).await;
        let grant = q.next().await;
        if goes_on {
            q.advance(&grant, CallResult::Failed).await;
        }
        q.cancel(1).await;
        assert_eq!(q.release(&grant).await, Settled::Released);
        assert_eq!(q.take(10).await.len(), starts_left);
    }
}

pub async fn cancelling_a_job_parked_at_a_bucket_leaves_the_rest_of_its_line<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let scoped = || hold(UP, "cpf:1", crate::rules::bucket(1, 1, secs(60)), 1);
    q.accept((1..=3).map(|n| holding(scoped(), job(n)))).await;
    assert_eq!(q.starts(10).await, [1]);
    q.cancel(2).await;
    q.pass(LEASE);
    assert_eq!(q.starts(10).await, [], "its lease ended and its token is spent");
    q.pass(secs(60));
    assert_eq!(q.starts(10).await, [1]);
    q.pass(LEASE);
    q.sweep().await;
    q.cancel(1).await;
    q.pass(secs(60));
    assert_eq!(q.starts(10).await, [3]);
    q.cancel(3).await;
    q.accept([holding(scoped(), job(4))]).await;
    q.pass(LEASE);
    q.sweep().await;
    q.pass(secs(60));
    assert_eq!(q.starts(10).await, [4]);
}

pub async fn a_paused_lane_accepts_jobs_but_starts_none<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    assert!(q.pause("mail", true).await);
    assert!(q.lane().await.paused);
    q.accept([job(1), high(2)]).await;
    assert_eq!(q.starts(10).await, []);
    assert!(q.pause("mail", false).await);
    assert!(!q.lane().await.paused);
    assert_eq!(q.starts(10).await, [2, 1]);
}

pub async fn a_paused_lane_still_settles_expires_and_recovers_jobs<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1), job(2), lasting(secs(5), job(3)), delayed(secs(5), job(4))]).await;
    let grants = q.take(2).await;
    q.pause("mail", true).await;
    q.done(&grants[0]).await;
    q.pass(LEASE);
    let swept = q.sweep().await;
    assert_eq!((swept.recovered, swept.ended.len()), (vec![crate::rules::id(2)], 1));
    assert_eq!(q.status(4).await, Status::Queued);
    assert_eq!(q.take(10).await, []);
    q.pause("mail", false).await;
    assert_eq!(q.starts(10).await, [2, 4]);
}

pub async fn a_paused_lane_does_not_make_the_sweeper_spin<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let scoped = || hold(UP, "cpf:1", crate::rules::bucket(1, 1, secs(60)), 1);
    q.accept((1..=2).map(|n| holding(scoped(), job(n)))).await;
    let grant = q.next().await;
    assert_eq!(q.take(10).await, [], "the line is parked at its bucket");
    q.done(&grant).await;
    q.pause("mail", true).await;
    q.pass(secs(61));
    let next = q.sweep().await.next;
    assert!(next > q.now(), "nothing is left to sweep, yet it says at once");
}

pub async fn an_unknown_lane_cannot_be_paused<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|_| {}));
    assert!(!q.pause("nowhere", true).await);
}

pub async fn matching_unfinished_jobs_are_cancelled_by_page<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept((1..=4).map(|number| of("bolt", number))).await;
    q.serve(1).await;
    let running = q.next().await;
    q.accept([of("acme", 5), of("bolt", 6)]).await;

    let query = JobQuery { tenant: Some("bolt".into()), max: 2, ..JobQuery::default() };
    let (matched, cancelled, next) = q.cancel_all(query.clone(), false).await;
    assert_eq!((matched, cancelled), (2, vec![6, 4]), "the newest first");
    let (matched, cancelled, next) = q.cancel_all(JobQuery { after: next, ..query.clone() }, false).await;
    assert_eq!((matched, cancelled), (2, vec![3, running.job.0]), "one that runs too");
    let (matched, cancelled, next) = q.cancel_all(JobQuery { after: next, ..query }, false).await;
    assert_eq!((matched, cancelled, next), (0, vec![], None), "one that completed is not cancelled");

    assert_eq!(q.status(1).await, Status::Completed);
    assert_eq!(q.lane().await.totals.cancelled, 4);
    assert_eq!(q.starts(10).await, [5]);
    let settled = q.settle(running.lease, CallResult::Success, Outcome::Done).await;
    assert_eq!(settled, Settled::Released, "its call no longer counts");
}

pub async fn a_dry_run_cancels_nothing<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept((1..=3).map(job)).await;
    let query = JobQuery { status: Some(Status::Queued), max: 2, ..JobQuery::default() };
    let (matched, cancelled, next) = q.cancel_all(query.clone(), true).await;
    assert_eq!((matched, cancelled), (2, vec![]));
    let last = q.cancel_all(JobQuery { after: next, ..query }, true).await;
    assert_eq!(last, (1, vec![], None));
    assert_eq!(q.starts(10).await, [1, 2, 3]);
}
