//! What a store shows to those who only look.

use eclusa_core::gate::{BreakerState, CallResult};
use eclusa_core::{JobQuery, MAX_BATCH, Span, Status, Store, Tokens};

use crate::harness::{Harness, Open};
use crate::rules::{LANE, UP, breaker, free, gates, id, job, millis, name, of, plain, rate, secs, upstream};

fn all() -> JobQuery {
    JobQuery { max: MAX_BATCH, ..JobQuery::default() }
}

/// The numbers of the jobs that fit, page by page.
async fn search<S: Store>(q: &Harness<S>, query: JobQuery) -> Vec<u128> {
    let mut found = Vec::new();
    let mut after = Some(0);
    while let Some(from) = after {
        let page = q.jobs(JobQuery { after: from, ..query.clone() }).await;
        assert!(page.jobs.len() <= query.max.min(MAX_BATCH), "more than asked for");
        found.extend(page.jobs.iter().map(|view| view.id.0));
        after = page.next;
    }
    found.sort_unstable();
    found
}

pub async fn jobs_are_found_by_lane_tenant_and_status<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([of("acme", 1), of("bolt", 2), of("acme", 3), of("bolt", 4)]).await;
    q.serve(1).await;
    q.take(1).await;
    assert_eq!(search(&q, all()).await, [1, 2, 3, 4]);
    let tenant = Some("bolt".into());
    assert_eq!(search(&q, JobQuery { tenant: tenant.clone(), ..all() }).await, [2, 4]);
    assert_eq!(search(&q, JobQuery { status: Some(Status::Completed), ..all() }).await, [1]);
    assert_eq!(search(&q, JobQuery { tenant, status: Some(Status::Queued), ..all() }).await, [2, 4]);
    assert_eq!(search(&q, JobQuery { lane: Some(name(LANE)), ..all() }).await, [1, 2, 3, 4]);
    assert_eq!(search(&q, JobQuery { lane: Some(name("nowhere")), ..all() }).await, []);
}

pub async fn jobs_come_in_pages<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept((1..=250).map(job)).await;
    assert_eq!(search(&q, JobQuery { max: 7, ..all() }).await, (1..=250).collect::<Vec<_>>());
    assert_eq!(q.jobs(JobQuery { max: 1_000, ..all() }).await.jobs.len(), MAX_BATCH);
    let nothing = q.jobs(JobQuery { max: 0, ..all() }).await;
    assert_eq!((nothing.jobs.len(), nothing.next), (0, Some(0)));
    assert_eq!(q.jobs(JobQuery { after: u64::MAX, ..all() }).await.next, None);
}

pub async fn a_wait_shows_a_job_that_ended_and_one_that_did_not_in_time<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let waiting = q.wait(1, Span::ZERO, false).await.expect("the job is known");
    assert_eq!((waiting.id, waiting.status), (id(1), Status::Queued));
    q.serve(1).await;
    let ended = q.wait(1, secs(60), false).await;
    assert_eq!(ended, Some(q.job(1).await));
    assert!(ended.is_some_and(|job| job.status == Status::Completed));
}

pub async fn an_unknown_job_is_not_waited_for_unless_it_is_coming<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    assert_eq!(q.wait(1, secs(60), false).await, None);
    assert_eq!(q.wait(1, Span::ZERO, true).await, None);
}

pub async fn who_follows_a_job_is_told_what_is_new_at_once<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    assert_eq!(q.follow(1, 0, secs(60)).await.expect("it was accepted").lines(), 1);
    assert_eq!(q.follow(1, 1, Span::ZERO).await.expect("nothing is new").lines(), 1);
    let grant = q.next().await;
    let running = q.follow(1, 1, secs(60)).await.expect("it started");
    assert_eq!((running.status, running.lines()), (Status::Processing, 2));
    q.done(&grant).await;
    let ended = q.follow(1, 99, secs(60)).await.expect("it has ended");
    assert_eq!((ended.status, ended.lines()), (Status::Completed, 3));
    assert_eq!(q.follow(2, 0, secs(60)).await, None);
}

pub async fn a_dead_letter_is_found_without_its_lane<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1), job(2)]).await;
    q.dead(&q.next().await).await;
    let letter = q.letter(1).await.expect("it is there");
    assert_eq!((letter.job, letter.lane), (id(1), name(LANE)));
    assert_eq!(q.letter(2).await, None);
}

pub async fn a_lane_says_how_old_its_oldest_dead_letter_is<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1), job(2)]).await;
    assert_eq!(q.lane().await.oldest_dead_letter, None);
    q.dead(&q.next().await).await;
    let first = q.now();
    q.pass(secs(5));
    q.dead(&q.next().await).await;
    assert_eq!(q.lane().await.oldest_dead_letter, Some(first));
    q.discard(1).await;
    assert_eq!(q.lane().await.oldest_dead_letter, Some(q.now()));
}

pub async fn an_upstream_shows_its_breaker<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(breaker(1, secs(30))));
    let shown = async || {
        let view = q.upstream(UP).await.breaker.expect("it has one");
        (view.state, view.opened, view.half_opened, view.closed)
    };
    assert_eq!(shown().await, (BreakerState::Closed, 0, 0, 0));
    q.call_ends(UP, CallResult::Failed).await;
    assert_eq!(shown().await, (BreakerState::Open, 1, 0, 0));
    q.pass(secs(30));
    let probe = q.call(UP).await;
    assert_eq!(shown().await, (BreakerState::HalfOpen, 1, 1, 0));
    q.settle(probe, CallResult::Success, eclusa_core::Outcome::Release).await;
    assert_eq!(shown().await, (BreakerState::Closed, 1, 1, 1));
}

pub async fn an_upstream_shows_what_its_bucket_holds<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(rate(1, 5)));
    assert_eq!(q.upstream(UP).await.tokens, Some(Tokens::whole(5)));
    q.call(UP).await;
    assert_eq!(q.upstream(UP).await.tokens, Some(Tokens::whole(4)));
    let q = Harness::new(open, &upstream(gates(free(), |_| {})));
    assert_eq!((q.upstream(UP).await.tokens, q.upstream(UP).await.breaker), (None, None));
}

pub async fn an_upstream_shows_how_many_calls_began_in_the_last_minute<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept((1..=20).map(job)).await;
    q.serve(20).await;
    q.pass(secs(45));
    q.call_ends(UP, CallResult::Failed).await;
    let mut seen = vec![q.upstream(UP).await.starts_last_minute];
    for wait in [14_999, 1, 44_999, 1] {
        q.pass(millis(wait));
        seen.push(q.upstream(UP).await.starts_last_minute);
    }
    assert_eq!(seen, [21, 21, 1, 1, 0], "each counts for exactly sixty seconds");
}
