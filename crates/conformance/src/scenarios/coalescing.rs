//! Equal requests are sent once.

use eclusa_core::gate::{CallResult, Reason};
use eclusa_core::{NewJob, Outcome, ServedBy, Settled, Settlement, Status, Store};

use crate::harness::{Harness, LEASE, Open, ends};
use crate::rules::{
    UP, cache, caching, capacity, chain, delayed, free, high, job, lane, lasting, low, name, of, secs, slots,
    wants,
};

/// Jobs that want the same answer.
fn same(numbers: std::ops::RangeInclusive<u128>) -> impl Iterator<Item = NewJob> {
    numbers.map(|number| wants("cpf:1", job(number)))
}

pub async fn equal_requests_are_sent_once_and_all_get_the_answer<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.accept(same(1..=3)).await;
    let grants = q.take(10).await;
    assert_eq!(crate::harness::numbers(&grants), [1]);
    let (settled, ended) = q.answered(grants[0].lease, "700").await;
    assert_eq!(settled, Settled::Ended(Status::Completed));
    assert_eq!(ends(&ended), [(1, "completed"), (2, "coalesced"), (3, "coalesced")]);
    let view = q.job(3).await;
    assert_eq!((view.status, view.served), (Status::Completed, Some(ServedBy::Coalesced)));
    assert_eq!((view.attempts, view.result.as_deref()), (0, Some(&b"700"[..])));
    let totals = q.lane().await.totals;
    assert_eq!((totals.accepted, totals.completed, totals.coalesced), (3, 1, 2));
}

pub async fn the_line_continues_behind_a_job_that_is_set_aside<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.accept([wants("cpf:1", job(1)), wants("cpf:1", job(2)), wants("cpf:2", job(3)), job(4)]).await;
    assert_eq!(q.starts(10).await, [1, 3, 4]);
}

pub async fn equal_requests_of_other_lines_levels_and_chains_are_answered_too<S: Store>(open: Open<S>) {
    let spec = chain(&[(UP, slots(1)), ("smtp", free())], |lane| lane.cache = Some(cache()));
    let q = Harness::new(open, &spec);
    let via_smtp = crate::rules::via(&["smtp"], job(4));
    q.accept([wants("k", high(1)), wants("k", low(2)), wants("k", of("bolt", 3)), wants("k", via_smtp)])
        .await;
    q.accept([wants("k", delayed(secs(5), job(5)))]).await;
    let lease = q.next().await.lease;
    let ended = q.answered(lease, "x").await.1;
    assert_eq!(ends(&ended), [(1, "completed"), (3, "coalesced"), (4, "coalesced"), (2, "coalesced")]);
    assert_eq!(q.status(5).await, Status::Pending, "it was asked to start later");
}

pub async fn a_job_that_backs_off_is_answered_too<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.accept(same(1..=2)).await;
    q.retry(&q.next().await, CallResult::Failed, secs(60)).await;
    let grant = q.next().await;
    assert_eq!(ends(&q.answered(grant.lease, "700").await.1), [(2, "completed"), (1, "coalesced")]);
}

pub async fn success_without_an_answer_answers_nobody_else<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.accept(same(1..=2)).await;
    q.done(&q.next().await).await;
    assert_eq!(q.starts(10).await, [2]);
}

pub async fn an_uncacheable_answer_is_only_for_its_own_job<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.accept(same(1..=2)).await;
    let (lease, outcome) = (q.next().await.lease, Outcome::DoneUncached);
    let (report, answer) = (CallResult::Success.into(), Some(b"elsewhere"[..].into()));
    let (settled, ended) = q.settle_fully(Settlement { lease, report, outcome, answer, unsent: None }).await;
    assert_eq!(settled, Settled::Ended(Status::Completed));
    assert_eq!(ends(&ended), [(1, "completed")]);
    assert_eq!(q.job(1).await.result.as_deref(), Some(&b"elsewhere"[..]));
    assert_eq!(q.starts(10).await, [2], "it needs a call of its own");
    assert!(q.put(wants("cpf:1", job(3))).await.is_accepted());
}

pub async fn an_awaiting_job_keeps_its_equals_waiting<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.accept(same(1..=2)).await;
    let lease = q.next().await.lease;
    let awaiting = q.settle(lease, CallResult::Success, Outcome::awaiting(secs(60))).await;
    let Settled::Awaiting(lease) = awaiting else { panic!("{awaiting:?}") };
    assert_eq!(q.starts(10).await, []);
    assert_eq!(ends(&q.answered(lease, "700").await.1), [(1, "completed"), (2, "coalesced")]);
}

pub async fn more_equals_than_one_verb_answers_are_answered_by_the_next<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.accept(same(1..=360)).await;
    let lease = q.next().await.lease;
    let ended = q.answered(lease, "700").await.1;
    assert_eq!((ended.len(), ended[100].job), (101, crate::rules::id(101)));
    let given = q.dispatch_from("nowhere", 1).await;
    assert_eq!((given.ended.len(), given.next), (100, q.now()), "of whatever lane");
    let swept = q.sweep().await;
    assert_eq!((swept.ended.len(), swept.next), (100, q.now()));
    let swept = q.sweep().await;
    assert_eq!((swept.ended.len(), swept.next > q.now()), (59, true));
    assert!(swept.ended.iter().all(|ended| ended.end == eclusa_core::End::Served(ServedBy::Coalesced)));
}

pub async fn equal_jobs_get_the_answer_though_it_is_no_longer_fresh<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.accept(same(1..=150)).await;
    let lease = q.next().await.lease;
    q.answered(lease, "700").await;
    q.pass(secs(61));
    let given = q.dispatch(10).await;
    assert_eq!((given.grants.len(), given.ended.len()), (0, 49));
}

pub async fn an_answer_evicted_before_all_got_it_starts_the_next<S: Store>(open: Open<S>) {
    let one = cache().bounded(1, 1 << 20).expect("more than zero");
    let q = Harness::new(open, &lane(|lane| lane.cache = Some(one)));
    q.accept(same(1..=150).chain([wants("cpf:2", high(200))])).await;
    let grants = q.take(2).await;
    assert_eq!(q.starts(10).await, []);
    q.answered(grants[1].lease, "700").await;
    assert_eq!(q.lane().await.queued, [0, 49, 0]);
    q.answered(grants[0].lease, "800").await;
    assert_eq!(q.starts(10).await, [102], "the answer that it was owed made room for another");
}

pub async fn a_failure_starts_the_next_equal_job<S: Store>(open: Open<S>) {
    for result in [CallResult::Rejected, CallResult::Failed] {
        let q = Harness::new(open, &caching(free()));
        q.accept(same(1..=3)).await;
        let grant = q.next().await;
        assert_eq!(q.starts(10).await, []);
        assert_eq!(q.fails(&grant, result).await.1, [(1, "dead")]);
        let second = q.take(10).await;
        assert_eq!(crate::harness::numbers(&second), [2]);
        assert_eq!(ends(&q.answered(second[0].lease, "700").await.1), [(2, "completed"), (3, "coalesced")]);
    }
}

pub async fn the_most_urgent_of_those_set_aside_is_next<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.accept([wants("k", job(1))]).await;
    let grant = q.next().await;
    q.accept([wants("k", low(2)), wants("k", job(3)), wants("k", high(4)), wants("k", high(5))]).await;
    assert_eq!(q.starts(10).await, []);
    q.fails(&grant, CallResult::Failed).await;
    let second = q.next().await;
    assert_eq!(second.job.0, 4);
    assert_eq!(q.starts(10).await, []);
    q.fails(&second, CallResult::Failed).await;
    assert_eq!(q.starts(10).await, [5]);
}

pub async fn a_job_that_waits_for_a_retry_lets_the_next_start<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.accept(same(1..=2)).await;
    let grant = q.next().await;
    assert_eq!(q.starts(10).await, []);
    q.retry(&grant, CallResult::Failed, secs(5)).await;
    let second = q.next().await;
    assert_eq!(second.job.0, 2);
    q.pass(secs(5));
    assert_eq!(q.starts(10).await, [], "the first is set aside in its turn");
    assert_eq!(ends(&q.answered(second.lease, "700").await.1), [(2, "completed"), (1, "coalesced")]);
}

pub async fn a_released_lost_or_cancelled_job_lets_the_next_start<S: Store>(open: Open<S>) {
    for end in ["released", "lost", "cancelled"] {
        let q = Harness::new(open, &caching(free()));
        q.accept([wants("k", low(1)), wants("k", low(2))]).await;
        let grant = q.next().await;
        q.accept([wants("k", high(3))]).await;
        assert_eq!(q.starts(10).await, []);
        match end {
            "released" => drop(q.release(&grant).await),
            "lost" => q.pass(LEASE),
            _ => q.cancel(1).await,
        }
        assert_eq!(q.starts(10).await, [3], "{end}");
    }
}

pub async fn a_job_that_waits_for_the_rest_of_its_chain_lets_the_next_start<S: Store>(open: Open<S>) {
    let spec = chain(&[("ses", free()), ("smtp", slots(1))], |lane| lane.cache = Some(cache()));
    let q = Harness::new(open, &spec);
    q.call("smtp").await;
    q.accept(same(1..=2)).await;
    let grant = q.next().await;
    assert_eq!(q.starts(10).await, []);
    q.advance(&grant, CallResult::Failed).await;
    assert_eq!(q.starts(10).await, [2]);
}

pub async fn a_promoted_job_that_ends_lets_the_next_start<S: Store>(open: Open<S>) {
    for end in ["cancelled", "expired", "evicted"] {
        let spec = lane(|lane| (lane.cache, lane.capacity) = (Some(cache()), capacity(3)));
        let q = Harness::new(open, &spec);
        q.accept([wants("k", job(1))]).await;
        let grant = q.next().await;
        let of_bolt = |number| NewJob { tenant: "bolt".into(), ..low(number) };
        let second = wants("k", lasting(secs(5), of_bolt(2)));
        q.accept([delayed(secs(60), of_bolt(9)), second, wants("k", low(3))]).await;
        assert_eq!(q.starts(10).await, []);
        q.fails(&grant, CallResult::Failed).await;
        assert_eq!(q.reason(2).await, Some(Reason::NoWorker), "it is in its line again");
        assert_eq!(q.reason(3).await, Some(Reason::Coalesced));
        match end {
            "cancelled" => q.cancel(2).await,
            "expired" => {
                q.pass(secs(6));
                assert_eq!(ends(&q.sweep().await.ended), [(2, "ttl_expired")]);
            }
            _ => assert_eq!(q.press(high(4)).await, (true, vec![(2, "preempted")])),
        }
        assert!(q.starts(10).await.contains(&3), "{end}");
    }
}

pub async fn a_job_set_aside_counts_expires_and_can_be_cancelled_like_any_waiting_job<S: Store>(
    open: Open<S>,
) {
    let spec = lane(|lane| (lane.cache, lane.capacity) = (Some(cache()), capacity(3)));
    let q = Harness::new(open, &spec);
    q.accept([wants("k", job(1))]).await;
    let _leader = q.next().await;
    q.accept([wants("k", job(2)), wants("k", lasting(secs(5), job(3))), wants("k", low(4))]).await;
    assert_eq!(q.starts(10).await, []);
    assert_eq!((q.status(2).await, q.lane().await.queued), (Status::Queued, [0, 2, 1]));
    assert!(!q.press(low(5)).await.0);
    assert_eq!(q.press(job(6)).await, (true, vec![(4, "preempted")]));
    q.pass(secs(6));
    assert_eq!(ends(&q.sweep().await.ended), [(3, "ttl_expired")]);
    q.cancel(2).await;
    assert_eq!(q.lane().await.queued, [0, 1, 0]);
}

pub async fn why_says_coalesced_and_where_the_equal_job_is<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.accept(same(1..=1)).await;
    let grant = q.next().await;
    q.accept(same(2..=3)).await;
    for dispatched in [false, true] {
        let why = q.why(2).await;
        assert_eq!((why.reason, why.upstream), (Some(Reason::Coalesced), Some(name(UP))), "{dispatched}");
        assert_eq!((why.status, why.eta), (Status::Queued, None));
        assert_eq!(q.starts(10).await, []);
    }
    q.fails(&grant, CallResult::Failed).await;
    assert_eq!(q.reason(2).await, Some(Reason::NoWorker));
    assert_eq!(q.reason(3).await, Some(Reason::Coalesced));
}

pub async fn being_set_aside_takes_nothing_and_uses_no_turn<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(crate::rules::rpm(3)));
    q.accept([wants("k", of("acme", 1))]).await;
    let _leader = q.next().await;
    q.accept([wants("k", of("bolt", 2)), wants("k", of("bolt", 3)), of("bolt", 4), of("acme", 5)]).await;
    assert_eq!(q.starts(1).await, [5], "acme has two more of its three in a row");
    assert_eq!(q.starts(10).await, [4]);
    assert_eq!(q.tenant("bolt").await.total_processed, 1);
    assert_eq!(q.denial(UP).await.reason, Reason::Window);
}

pub async fn an_expired_equal_is_dropped_and_not_answered<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.accept([wants("k", job(1)), wants("k", lasting(secs(5), job(2)))]).await;
    let lease = q.next().await.lease;
    q.pass(secs(6));
    assert_eq!(ends(&q.answered(lease, "x").await.1), [(1, "completed"), (2, "ttl_expired")]);
}

pub async fn a_stale_answer_for_one_job_does_not_answer_its_equals<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.ask(wants("k", job(1)), "old").await;
    q.pass(secs(60));
    q.accept([wants("k", job(2)), wants("k", job(3))]).await;
    let grant = q.next().await;
    assert_eq!(q.starts(10).await, []);
    assert_eq!(q.fails(&grant, CallResult::TimedOut).await.1, [(2, "timeout")]);
    let grant = q.next().await;
    assert_eq!(ends(&q.answered(grant.lease, "new").await.1), [(3, "completed")]);
}

pub async fn a_replay_is_sent_even_if_an_answer_is_cached<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.accept([wants("k", job(1))]).await;
    q.fails(&q.next().await, CallResult::Rejected).await;
    q.ask(wants("k", job(2)), "x").await;
    q.replay(1, 3).await;
    assert_eq!(q.starts(10).await, [3]);
}
