//! Results that an upstream reports for a job it works on, by webhook or poll.

use eclusa_core::gate::{CallResult, Reason};
use eclusa_core::{
    Advanced, Completed, Completion, Grant, JobQuery, MAX_BATCH, Outcome, Polling, Settled, Spec, Status,
    Store,
};

use crate::harness::{Harness, LEASE, Open, ends};
use crate::rules::{
    UP, breaker, chain, cooldown, failure, free, id, job, lasting, millis, name, secs, slots, upstream,
};

const NEXT: &str = "fal";

/// The upstream accepted the job under this id, and is polled if it reports nothing.
fn taken_in(external: &str, next: bool) -> Outcome {
    let poll = Some(Polling { after: secs(30), every: secs(10) });
    Outcome::Awaiting { timeout: secs(600), external: Some(external.into()), next, poll }
}

async fn submitted<S: Store>(q: &Harness<S>, grant: &Grant, external: &str, next: bool) {
    let settled = q.settle(grant.lease, CallResult::Success, taken_in(external, next)).await;
    assert!(matches!(settled, Settled::Awaiting(_)), "{settled:?}");
}

/// The upstream completed the job.
fn success(number: u128) -> Completion {
    Completion {
        job: id(number),
        upstream: name(UP),
        external: None,
        message: None,
        report: CallResult::Success.into(),
        outcome: Outcome::Done,
        next: false,
        answer: Some(b"image".as_slice().into()),
    }
}

/// The upstream failed the job, and the lane has no attempt left.
fn failed(number: u128) -> Completion {
    let outcome = Outcome::Dead(failure("no GPU"));
    Completion { report: CallResult::Failed.into(), outcome, answer: None, ..success(number) }
}

/// The upstream failed the job, and the job advances along its chain.
fn failed_for_next(number: u128) -> Completion {
    Completion { next: true, ..failed(number) }
}

fn called(external: &str, completion: Completion) -> Completion {
    Completion { external: Some(external.into()), ..completion }
}

fn message(message: u64, completion: Completion) -> Completion {
    Completion { message: Some(message), ..completion }
}

async fn find<S: Store>(q: &Harness<S>, external: &str) -> Vec<u128> {
    let query = JobQuery { external: Some(external.into()), max: MAX_BATCH, ..JobQuery::default() };
    q.jobs(query).await.jobs.iter().map(|job| job.id.0).collect()
}

fn two() -> Spec {
    chain(&[(UP, slots(1)), (NEXT, slots(1))], |_| {})
}

pub async fn a_job_is_found_by_its_id_at_the_upstream<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[(UP, free())], |lane| lane.keep.max = 1));
    q.accept([job(1), job(2)]).await;
    submitted(&q, &q.next().await, "ext-1", false).await;
    submitted(&q, &q.next().await, "ext-2", false).await;
    assert_eq!(q.job(1).await.external.as_deref(), Some("ext-1"));
    assert_eq!((find(&q, "ext-1").await, find(&q, "ext-2").await), (vec![1], vec![2]));
    assert_eq!(find(&q, "ext").await, []);
    q.complete(success(1)).await;
    assert_eq!(find(&q, "ext-1").await, [1], "also when it has ended");
    q.complete(success(2)).await;
    assert_eq!(find(&q, "ext-1").await, [], "it is forgotten with the job");
}

pub async fn a_report_of_the_upstream_ends_an_awaiting_job<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(slots(1)));
    q.accept([job(1), job(2)]).await;
    submitted(&q, &q.next().await, "ext-1", false).await;
    let (completed, ended) = q.complete(success(1)).await;
    assert_eq!(completed, Completed::Settled(Settled::Ended(Status::Completed)));
    assert_eq!(ends(&ended), [(1, "completed")]);
    assert_eq!(q.job(1).await.result.as_deref(), Some(&b"image"[..]));
    assert_eq!(q.starts(10).await, [2], "its slot is free");
}

pub async fn a_repeated_or_foreign_report_changes_nothing<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &two());
    q.accept([job(1)]).await;
    assert_eq!(q.complete(success(7)).await.0, Completed::Unknown);
    assert_eq!(q.complete(success(1)).await.0, Completed::NotAwaited(Status::Queued));
    submitted(&q, &q.next().await, "ext-1", false).await;
    let elsewhere = Completion { upstream: name(NEXT), ..success(1) };
    let older = called("ext-0", failed(1));
    let no_end = Completion { outcome: Outcome::Release, ..success(1) };
    for completion in [elsewhere, older, no_end] {
        assert_eq!(q.complete(completion).await.0, Completed::NotAwaited(Status::Processing));
    }
    q.complete(called("ext-1", success(1))).await;
    let (again, ended) = q.complete(called("ext-1", failed(1))).await;
    assert_eq!((again, ended), (Completed::NotAwaited(Status::Completed), Vec::new()));
    assert_eq!(q.upstream(UP).await.in_flight, 0);
}

pub async fn one_message_counts_once_also_for_a_later_attempt<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    q.accept([job(1)]).await;
    submitted(&q, &q.next().await, "ext-1", false).await;
    let retry = Outcome::Retry { after: secs(1), failure: failure("no GPU") };
    let completion = message(99, Completion { outcome: retry, ..failed(1) });
    let settled = Settled::RetryAt(q.now() + secs(1));
    assert_eq!(q.complete(completion.clone()).await.0, Completed::Settled(settled));
    assert_eq!(q.complete(completion.clone()).await.0, Completed::NotAwaited(Status::Pending));
    q.pass(secs(1));
    let again = q.next().await;
    assert_eq!(
        (again.attempt, q.complete(completion.clone()).await.0),
        (2, Completed::NotAwaited(Status::Processing))
    );
    submitted(&q, &again, "ext-2", false).await;
    assert_eq!(q.complete(completion).await.0, Completed::NotAwaited(Status::Processing));
    assert_eq!(find(&q, "ext-1").await, [], "it is called otherwise now");
    let done = message(100, success(1));
    assert_eq!(q.complete(done).await.0, Completed::Settled(Settled::Ended(Status::Completed)));
}

pub async fn a_report_before_the_submits_answer_counts_with_it<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(slots(1)));
    q.accept([job(1), job(2)]).await;
    let grant = q.next().await;
    assert_eq!(q.complete(called("ext-1", success(1))).await.0, Completed::Kept);
    assert_eq!(q.complete(called("ext-1", failed(1))).await.0, Completed::NotAwaited(Status::Processing));
    assert_eq!(q.status(1).await, Status::Processing);
    let settled = q.settle(grant.lease, CallResult::Success, taken_in("ext-1", false)).await;
    assert_eq!(settled, Settled::Ended(Status::Completed));
    let view = q.job(1).await;
    assert_eq!((view.result.as_deref(), view.external.as_deref()), (Some(&b"image"[..]), Some("ext-1")));
    assert_eq!(q.starts(10).await, [2]);
}

pub async fn a_report_about_an_older_submit_does_not_count_for_a_new_one<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.complete(called("ext-0", failed(1))).await;
    submitted(&q, &grant, "ext-1", false).await;
    assert_eq!(q.status(1).await, Status::Processing);
    q.complete(called("ext-1", success(1))).await;
    assert_eq!(q.status(1).await, Status::Completed);
}

pub async fn a_report_counts_even_if_the_submits_answer_was_lost<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &two());
    q.accept([job(1), job(2), job(3)]).await;
    let grant = q.next().await;
    q.complete(success(1)).await;
    assert_eq!(q.advance(&grant, CallResult::TimedOut).await, Advanced::Exhausted);
    assert_eq!(
        q.fails(&grant, CallResult::TimedOut).await,
        (Settled::Ended(Status::Completed), vec![(1, "completed")])
    );
    let _vanishes = q.next().await;
    q.complete(success(2)).await;
    q.pass(LEASE);
    assert_eq!(ends(&q.sweep().await.ended), [(2, "completed")]);
    assert_eq!(q.job(2).await.result.as_deref(), Some(&b"image"[..]));
    let grant = q.next().await;
    q.complete(failed(3)).await;
    q.cancel(3).await;
    assert_eq!(q.settle(grant.lease, CallResult::Success, taken_in("ext-3", false)).await, Settled::Released);
    assert_eq!(q.status(3).await, Status::Cancelled);
}

pub async fn a_reported_failure_advances_along_the_chain<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &two());
    q.accept([job(1)]).await;
    submitted(&q, &q.next().await, "ext-1", true).await;
    let (completed, ended) = q.complete(failed_for_next(1)).await;
    assert_eq!((completed, ended), (Completed::Settled(Settled::Requeued), Vec::new()));
    let grant = q.next().await;
    assert_eq!((grant.upstream.as_str(), grant.attempt), (NEXT, 1), "no attempt is spent");
    submitted(&q, &grant, "ext-2", true).await;
    let completion = Completion { upstream: name(NEXT), ..failed_for_next(1) };
    let (completed, ended) = q.complete(completion).await;
    assert_eq!(completed, Completed::Settled(Settled::Ended(Status::Failed)), "all were tried");
    assert_eq!(ends(&ended), [(1, "dead")]);
}

pub async fn a_failure_reported_only_to_the_store_advances_along_the_chain<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &two());
    q.accept([job(1)]).await;
    let _vanishes = q.next().await;
    assert_eq!(q.complete(failed_for_next(1)).await.0, Completed::Kept);
    q.pass(LEASE);
    assert_eq!(q.sweep().await.ended, []);
    let grant = q.next().await;
    assert_eq!((grant.upstream.as_str(), grant.attempt), (NEXT, 1));
}

pub async fn an_expired_job_does_not_advance_along_the_chain<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &two());
    q.accept([lasting(secs(5), job(1))]).await;
    submitted(&q, &q.next().await, "ext-1", true).await;
    q.pass(secs(6));
    assert_eq!(q.complete(failed_for_next(1)).await.0, Completed::Settled(Settled::Ended(Status::Failed)));
}

pub async fn a_timeout_advances_along_the_chain<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &two());
    q.accept([job(1)]).await;
    submitted(&q, &q.next().await, "ext-1", true).await;
    q.pass(secs(600));
    assert_eq!(q.sweep().await.ended, []);
    let grant = q.next().await;
    assert_eq!((grant.upstream.as_str(), grant.attempt), (NEXT, 1));
    let last = q.job(1).await.last_failure.expect("it is known");
    assert!(last.reason.as_str().contains("report back"));
}

pub async fn only_a_report_of_the_upstream_resets_its_errors<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(cooldown()));
    q.accept([job(1), job(2)]).await;
    q.call_ends(UP, CallResult::Failed).await;
    q.pass(secs(10));
    submitted(&q, &q.next().await, "ext-1", false).await;
    let errors = async || q.upstream(UP).await.gates[0].level;
    assert_eq!(errors().await, 1, "a submit says nothing of the work");
    q.complete(failed(1)).await;
    assert_eq!(errors().await, 2);
    assert_eq!(q.reason(2).await, Some(Reason::Cooldown));
    q.pass(secs(30));
    submitted(&q, &q.next().await, "ext-2", false).await;
    q.complete(success(2)).await;
    assert_eq!(errors().await, 0);
}

pub async fn a_submit_stays_the_probe_until_the_upstream_reports<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(breaker(1, secs(30))));
    q.accept([job(1), job(2)]).await;
    q.call_ends(UP, CallResult::Failed).await;
    q.pass(secs(30));
    submitted(&q, &q.next().await, "ext-1", false).await;
    q.pass(secs(60));
    assert_eq!(q.starts(10).await, [], "one probe is out");
    assert_eq!(q.reason(2).await, Some(Reason::CircuitOpen));
    q.complete(success(1)).await;
    assert_eq!(q.starts(10).await, [2]);
}

pub async fn a_cancelled_jobs_slot_comes_free_when_the_upstream_reports<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(slots(1)));
    q.accept([job(1), job(2)]).await;
    submitted(&q, &q.next().await, "ext-1", false).await;
    q.cancel(1).await;
    assert_eq!(q.starts(10).await, []);
    for _ in 0..2 {
        assert_eq!(q.complete(success(1)).await.0, Completed::NotAwaited(Status::Cancelled));
    }
    assert_eq!((q.upstream(UP).await.in_flight, q.job(1).await.result), (0, None));
    assert_eq!(q.starts(10).await, [2]);
}

pub async fn a_silent_upstream_is_polled_by_one_process_at_a_time<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    q.accept([job(1), job(2)]).await;
    submitted(&q, &q.next().await, "ext-1", false).await;
    q.pass(secs(5));
    submitted(&q, &q.next().await, "ext-2", false).await;
    q.pass(millis(24_999));
    assert_eq!(q.due(UP, secs(60), &[]).await, []);
    q.pass(millis(1));
    assert_eq!(q.due(UP, secs(60), &[]).await, [(1, "ext-1".to_owned())]);
    assert_eq!(q.due(UP, secs(60), &[]).await, [], "it is claimed");
    q.pass(secs(5));
    assert_eq!(q.due(UP, secs(60), &[1]).await, [(2, "ext-2".to_owned())]);
    q.pass(secs(10));
    assert_eq!(q.due(UP, secs(60), &[]).await, [(1, "ext-1".to_owned())], "ten seconds after it was asked");
    q.pass(secs(49));
    q.complete(success(2)).await;
    assert_eq!(q.due(UP, secs(60), &[2, 7]).await, [], "one is claimed, the other has ended");
    q.pass(secs(11));
    assert_eq!(
        q.due(UP, secs(60), &[]).await,
        [(1, "ext-1".to_owned())],
        "the process that had it did not come back"
    );
    assert_eq!(q.due("nowhere", secs(60), &[1]).await, []);
    assert_eq!(q.due(UP, secs(60), &[]).await, []);
    q.cancel(1).await;
    q.pass(secs(60));
    assert_eq!(q.due(UP, secs(60), &[]).await, []);
}
