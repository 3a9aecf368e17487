//! The read side of a store.

use eclusa_core::gate::{BreakerState, CallResult};
use eclusa_core::{
    Chain, JobCursor, JobPage, JobQuery, LaneSpec, MAX_BATCH, NewJob, Span, Spec, Status, Store, Tokens,
    UpstreamSpec,
};

use crate::harness::{Harness, Open};
use crate::rules::{LANE, UP, breaker, free, gates, id, job, millis, name, of, plain, rate, secs, upstream};

fn all() -> JobQuery {
    JobQuery { max: MAX_BATCH, ..JobQuery::default() }
}

/// The numbers of the matching jobs, page by page.
async fn search<S: Store>(q: &Harness<S>, query: JobQuery) -> Vec<u128> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = q.jobs(JobQuery { after, ..query.clone() }).await;
        assert!(page.jobs.len() <= query.max.min(MAX_BATCH), "more than asked for");
        found.extend(page.jobs.iter().map(|view| view.id.0));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

pub async fn jobs_are_found_by_lane_tenant_and_status<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([of("acme", 1), of("bolt", 2), of("acme", 3), of("bolt", 4)]).await;
    q.serve(1).await;
    q.take(1).await;
    assert_eq!(search(&q, all()).await, [4, 3, 2, 1]);
    let tenant = Some("bolt".into());
    assert_eq!(search(&q, JobQuery { tenant: tenant.clone(), ..all() }).await, [4, 2]);
    assert_eq!(search(&q, JobQuery { status: Some(Status::Completed), ..all() }).await, [1]);
    assert_eq!(search(&q, JobQuery { tenant, status: Some(Status::Queued), ..all() }).await, [4, 2]);
    assert_eq!(search(&q, JobQuery { lane: Some(name(LANE)), ..all() }).await, [4, 3, 2, 1]);
    assert_eq!(search(&q, JobQuery { lane: Some(name("nowhere")), ..all() }).await, []);
}

pub async fn jobs_come_in_pages<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept((1..=250).map(job)).await;
    assert_eq!(search(&q, JobQuery { max: 7, ..all() }).await, (1..=250).rev().collect::<Vec<_>>());
    assert_eq!(q.jobs(JobQuery { max: 1_000, ..all() }).await.jobs.len(), MAX_BATCH);
    let nothing = q.jobs(JobQuery { max: 0, ..all() }).await;
    assert_eq!(nothing.jobs, []);
    assert_eq!(q.jobs(JobQuery { after: nothing.next, ..all() }).await.jobs[0].id, id(250));
    let oldest = JobCursor { created_at: q.now(), job: id(1) };
    assert_eq!(q.jobs(JobQuery { after: Some(oldest), ..all() }).await, JobPage::default());
}

pub async fn jobs_are_found_by_their_time_the_newest_first<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    let mut times = Vec::new();
    for number in [3, 1, 4, 2] {
        q.accept([job(number)]).await;
        times.push(Some(q.now()));
        q.pass(secs(1));
    }
    assert_eq!(search(&q, JobQuery { max: 1, ..all() }).await, [2, 4, 1, 3], "by time, not by id");
    assert_eq!(search(&q, JobQuery { since: times[2], ..all() }).await, [2, 4]);
    assert_eq!(search(&q, JobQuery { until: times[1], ..all() }).await, [1, 3]);
    assert_eq!(search(&q, JobQuery { since: times[1], until: times[2], ..all() }).await, [4, 1]);
    assert_eq!(search(&q, JobQuery { since: times[2], until: times[1], ..all() }).await, []);

    // Scheduled jobs queue again when they are due, but keep their creation time.
    q.accept([NewJob { delay: secs(5), ..job(5) }, job(6)]).await;
    q.pass(secs(5));
    q.sweep().await;
    assert_eq!(search(&q, JobQuery { max: 3, ..all() }).await, [6, 5, 2, 4, 1, 3]);
}

pub async fn a_job_is_found_by_the_id_its_caller_gave<S: Store>(open: Open<S>) {
    let chain = Chain::new(vec![name(UP)]).expect("a chain that can be");
    let lanes = ["a", "b"].map(|lane| LaneSpec::new(name(lane), chain.clone()));
    let upstreams = vec![UpstreamSpec::new(name(UP), free())];
    let q = Harness::new(open, &Spec::new(lanes.into(), upstreams).expect("rules that fit together"));
    let keyed = |number, lane| NewJob { lane: name(lane), key: Some("order-7".into()), ..job(number) };
    q.accept([keyed(1, "a"), keyed(2, "b"), NewJob { lane: name("b"), ..job(3) }]).await;
    let query = JobQuery { key: Some("order-7".into()), ..all() };
    assert_eq!(search(&q, query.clone()).await, [2, 1], "one of each lane");
    assert_eq!(search(&q, JobQuery { lane: Some(name("a")), ..query.clone() }).await, [1]);
    assert_eq!(search(&q, JobQuery { status: Some(Status::Failed), ..query.clone() }).await, []);
    assert_eq!(search(&q, JobQuery { key: Some("order-8".into()), ..all() }).await, []);
    let own = JobQuery { key: Some(id(3).to_string().into()), ..all() };
    assert_eq!(search(&q, own.clone()).await, [3]);
    assert_eq!(search(&q, JobQuery { lane: Some(name("a")), ..own }).await, []);
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

pub async fn an_unknown_job_is_not_waited_for_unless_allowed<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    assert_eq!(q.wait(1, secs(60), false).await, None);
    assert_eq!(q.wait(1, Span::ZERO, true).await, None);
}

pub async fn a_follower_of_a_job_gets_new_history_at_once<S: Store>(open: Open<S>) {
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
    let (shown, kept) = (q.lane().await, q.letter(1).await.expect("it is there").letter);
    assert_eq!((shown.oldest_dead_letter, shown.dead_letters_until), (Some(first), Some(first + kept.ttl)));
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
