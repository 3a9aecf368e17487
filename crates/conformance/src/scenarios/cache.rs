//! Cached answers.

use eclusa_core::gate::CallResult;
use eclusa_core::{
    Advanced, CacheSpec, Enqueued, EventKind, Fallback, ServedBy, Settled, Spec, Status, Store,
};

use crate::harness::{Harness, Open, ends};
use crate::rules::{
    UP, breaker, cache, caching, capacity, chain, delayed, free, gates, id, job, keyed, lane, millis,
    one_per, plain, secs, slots, via, wants,
};

/// Two upstreams with breakers that open for half a minute at the first failure.
fn two_breakers() -> Spec {
    let brittle = || breaker(1, secs(30));
    chain(&[("ses", brittle()), ("smtp", brittle())], |lane| lane.cache = Some(cache()))
}

pub async fn a_fresh_answer_is_served_at_intake_without_a_job<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.ask(wants("cpf:1", job(1)), "700").await;
    q.pass(secs(20));
    let cached = q.cached(wants("cpf:1", job(2))).await;
    assert_eq!((&*cached.answer, cached.stale), (&b"700"[..], None));
    assert_eq!((cached.fresh_for, cached.stale_for), (secs(40), secs(0)));
    assert_eq!(q.find(2).await, None);
    let totals = q.lane().await.totals;
    assert_eq!((totals.accepted, totals.cache_hits, totals.answered_at_intake), (1, 1, 1));
}

pub async fn an_answer_is_fresh_until_its_time_is_over<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.ask(wants("cpf:1", job(1)), "700").await;
    q.pass(millis(59_999));
    assert_eq!(q.cached(wants("cpf:1", job(2))).await.fresh_for, millis(1));
    q.pass(millis(1));
    assert!(q.put(wants("cpf:1", job(3))).await.is_accepted());
}

pub async fn another_key_or_none_is_another_request<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.ask(wants("cpf:1", job(1)), "700").await;
    q.accept([wants("cpf:2", job(2)), job(3)]).await;
    assert_eq!(q.starts(10).await, [2, 3]);
    assert_eq!(q.job(2).await.cache_key.as_deref(), Some("cpf:2"));
}

pub async fn a_lane_without_a_cache_ignores_the_key<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.ask(wants("cpf:1", job(1)), "700").await;
    q.accept([wants("cpf:1", job(2)), wants("cpf:1", job(3))]).await;
    assert_eq!(q.starts(10).await, [2, 3]);
    assert_eq!(q.job(2).await.cache_key, None);
}

pub async fn the_newest_answer_counts<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.ask(wants("cpf:1", job(1)), "700").await;
    q.pass(secs(60));
    q.ask(wants("cpf:1", job(2)), "710").await;
    let cached = q.cached(wants("cpf:1", job(3))).await;
    assert_eq!((&*cached.answer, cached.fresh_for), (&b"710"[..], secs(60)));
}

pub async fn only_success_is_kept<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.accept([wants("cpf:1", job(1))]).await;
    q.fails(&q.next().await, CallResult::Rejected).await;
    q.accept([wants("cpf:1", job(2))]).await;
    q.done(&q.next().await).await;
    assert!(q.put(wants("cpf:1", job(3))).await.is_accepted(), "there was no answer to keep");
}

pub async fn a_repeat_is_the_first_job_even_if_its_answer_is_kept<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.ask(wants("cpf:1", keyed("order-7", job(1))), "700").await;
    let repeat = eclusa_core::NewJob { payload: job(1).payload, ..wants("cpf:1", keyed("order-7", job(2))) };
    assert_eq!(q.put(repeat).await, Enqueued::Existing(id(1)));
}

pub async fn an_answer_needs_no_room_in_the_lane<S: Store>(open: Open<S>) {
    let spec = lane(|lane| (lane.cache, lane.capacity) = (Some(cache()), capacity(1)));
    let q = Harness::new(open, &spec);
    q.ask(wants("cpf:1", job(1)), "700").await;
    q.accept([job(2)]).await;
    assert_eq!(q.put(job(3)).await, Enqueued::QueueFull);
    q.cached(wants("cpf:1", job(4))).await;
}

pub async fn a_scheduled_job_is_served_from_the_cache_when_it_is_due<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(one_per(secs(30))));
    q.accept([wants("cpf:1", delayed(secs(30), job(1)))]).await;
    q.ask(wants("cpf:1", job(3)), "700").await;
    q.accept([wants("cpf:1", delayed(secs(95), job(2)))]).await;
    assert_eq!(q.status(1).await, Status::Pending, "it is not yet time");
    q.pass(secs(30));
    let answer = q.dispatch(10).await;
    assert_eq!((answer.grants.len(), ends(&answer.ended)), (0, vec![(1, "cache")]));
    let view = q.job(1).await;
    assert_eq!((view.status, view.served, view.attempts), (Status::Completed, Some(ServedBy::Cache), 0));
    assert_eq!(view.result.as_deref(), Some(&b"700"[..]));
    assert!(view.timeline.iter().any(|event| event.kind == EventKind::Served(ServedBy::Cache)));
    assert_eq!(q.upstream(UP).await.tokens, Some(eclusa_core::Tokens::ONE), "nothing was taken");
    let totals = q.lane().await.totals;
    assert_eq!((totals.completed, totals.cache_hits, totals.answered_at_intake), (1, 1, 0));
    q.pass(secs(65));
    assert_eq!(q.starts(10).await, [2], "the answer is too old by now");
}

pub async fn a_call_that_timed_out_or_failed_ends_with_a_stale_answer<S: Store>(open: Open<S>) {
    let causes = [
        (CallResult::TimedOut, Fallback::Timeout),
        (CallResult::Failed, Fallback::Error),
        (CallResult::Unreachable, Fallback::Connection),
    ];
    for (result, fallback) in causes {
        let q = Harness::new(open, &caching(breaker(1, secs(30))));
        q.ask(wants("cpf:1", job(1)), "700").await;
        q.pass(secs(659));
        q.accept([wants("cpf:1", job(2))]).await;
        let (settled, ended) = q.fails(&q.next().await, result).await;
        assert_eq!(settled, Settled::Ended(Status::Completed));
        assert_eq!(ended, [(2, fallback.as_str())]);
        let view = q.job(2).await;
        assert_eq!(view.served, Some(ServedBy::Stale(fallback)));
        assert_eq!(view.result.as_deref(), Some(&b"700"[..]));
        assert!(view.last_failure.is_some(), "why it came to that");
        assert_eq!(q.letters().await, []);
        assert_eq!(q.upstream(UP).await.failures, 1, "the gates hear what really happened");
        let totals = q.lane().await.totals;
        assert_eq!((totals.completed, totals.failed, totals.fallbacks), (1, 0, 1));
    }
}

pub async fn a_stale_answer_is_served_when_the_whole_chain_has_failed<S: Store>(open: Open<S>) {
    let q =
        Harness::new(open, &chain(&[("ses", free()), ("smtp", free())], |lane| lane.cache = Some(cache())));
    q.ask(wants("cpf:1", job(1)), "700").await;
    q.pass(secs(61));
    q.accept([wants("cpf:1", job(2))]).await;
    let grant = q.next().await;
    assert!(matches!(q.advance(&grant, CallResult::Failed).await, Advanced::To(_)));
    assert_eq!(q.status(2).await, Status::Processing, "another may know");
    assert_eq!(q.advance_from(grant.lease, "smtp", CallResult::TimedOut).await, Advanced::Exhausted);
    assert_eq!(q.fails(&grant, CallResult::TimedOut).await.1, [(2, "timeout")]);
}

pub async fn a_stale_answer_replaces_a_retry<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.ask(wants("cpf:1", job(1)), "700").await;
    q.pass(secs(60));
    q.accept([wants("cpf:1", job(2))]).await;
    let settled = q.retry(&q.next().await, CallResult::Failed, secs(5)).await;
    assert_eq!(settled, Settled::Ended(Status::Completed));
}

pub async fn a_rejected_or_throttled_request_gets_no_stale_answer<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.ask(wants("cpf:1", job(1)), "700").await;
    q.pass(secs(60));
    for (number, result) in [(2, CallResult::Rejected), (3, CallResult::Throttled)] {
        q.accept([wants("cpf:1", job(number))]).await;
        let (settled, ended) = q.fails(&q.next().await, result).await;
        assert_eq!((settled, ended), (Settled::Ended(Status::Failed), vec![(number, "dead")]));
    }
    q.accept([wants("cpf:1", job(4))]).await;
    let settled = q.retry(&q.next().await, CallResult::Throttled, secs(1)).await;
    assert_eq!(settled, Settled::RetryAt(q.now() + secs(1)));
}

pub async fn an_expired_answer_is_not_served_for_an_error<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(free()));
    q.ask(wants("cpf:1", job(1)), "700").await;
    q.pass(secs(660));
    q.accept([wants("cpf:1", job(2))]).await;
    assert_eq!(q.fails(&q.next().await, CallResult::Failed).await.1, [(2, "dead")]);
}

pub async fn without_stale_if_error_an_answer_expires_with_its_freshness<S: Store>(open: Open<S>) {
    let strict = CacheSpec::new(secs(60), secs(0)).expect("a cache that can be");
    let q = Harness::new(open, &lane(|lane| lane.cache = Some(strict)));
    q.ask(wants("cpf:1", job(1)), "700").await;
    q.pass(secs(60));
    q.accept([wants("cpf:1", job(2))]).await;
    assert_eq!(q.fails(&q.next().await, CallResult::Failed).await.1, [(2, "dead")]);
}

pub async fn with_every_breaker_open_a_stale_answer_is_served_at_intake<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &two_breakers());
    q.ask(wants("cpf:1", job(1)), "700").await;
    q.pass(secs(61));
    q.record("ses", CallResult::Failed).await;
    q.accept([wants("cpf:1", via(&["smtp"], job(2)))]).await;
    q.record("smtp", CallResult::Failed).await;
    let cached = q.cached(wants("cpf:1", job(3))).await;
    assert_eq!((&*cached.answer, cached.stale), (&b"700"[..], Some(Fallback::CircuitOpen)));
    assert_eq!((cached.fresh_for, cached.stale_for), (secs(0), secs(1)));
    let totals = q.lane().await.totals;
    assert_eq!((totals.accepted, totals.fallbacks, totals.answered_at_intake), (2, 1, 1));
    q.pass(secs(30));
    assert!(q.put(wants("cpf:1", job(4))).await.is_accepted(), "a probe may go");
}

pub async fn with_one_breaker_closed_a_request_is_sent<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &two_breakers());
    q.ask(wants("cpf:1", job(1)), "700").await;
    q.pass(secs(61));
    q.record("ses", CallResult::Failed).await;
    q.accept([wants("cpf:1", job(2))]).await;
    assert_eq!(q.next().await.upstream.as_str(), "smtp");
}

pub async fn with_every_breaker_open_waiting_jobs_end_with_a_stale_answer<S: Store>(open: Open<S>) {
    let rules = gates(slots(1), |gates| gates.breaker = breaker(1, secs(30)).breaker);
    let q = Harness::new(open, &caching(rules));
    q.ask(wants("cpf:1", job(1)), "700").await;
    q.pass(secs(61));
    q.accept([job(2), job(3), wants("cpf:2", job(4)), wants("cpf:1", job(5))]).await;
    let grant = q.next().await;
    assert_eq!(grant.job, id(2));
    q.fails(&grant, CallResult::Failed).await;
    let answer = q.dispatch(10).await;
    assert_eq!(answer.grants, []);
    assert_eq!(ends(&answer.ended), [(5, "breaker_aberto")], "those before it have no answer");
    assert_eq!(q.job(5).await.served, Some(ServedBy::Stale(Fallback::CircuitOpen)));
    assert_eq!(q.lane().await.queued, [0, 2, 0]);
}

pub async fn a_sweep_serves_stale_answers_too_but_not_in_a_paused_lane<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(breaker(1, secs(30))));
    q.ask(wants("cpf:1", job(1)), "700").await;
    q.pass(secs(61));
    q.accept([wants("cpf:1", job(2))]).await;
    q.record(UP, CallResult::Failed).await;
    q.pause("mail", true).await;
    assert_eq!(q.sweep().await.ended, []);
    assert_eq!(q.dispatch(1).await.ended, []);
    q.pause("mail", false).await;
    assert_eq!(ends(&q.sweep().await.ended), [(2, "breaker_aberto")]);
}

pub async fn a_job_in_backoff_gets_a_stale_answer_when_the_breaker_opens<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(breaker(1, secs(30))));
    q.ask(wants("cpf:1", job(1)), "700").await;
    q.pass(secs(61));
    q.accept([wants("cpf:1", job(2)), wants("cpf:1", delayed(secs(5), job(3)))]).await;
    q.retry(&q.next().await, CallResult::Throttled, secs(20)).await;
    q.record(UP, CallResult::Failed).await;
    assert_eq!(ends(&q.dispatch(10).await.ended), [(2, "breaker_aberto")], "the other is not yet due");
}

pub async fn a_running_job_continues_when_the_breaker_opens<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(breaker(1, secs(30))));
    q.ask(wants("cpf:1", job(1)), "700").await;
    q.pass(secs(61));
    q.accept([wants("cpf:1", job(2))]).await;
    let grant = q.next().await;
    q.record(UP, CallResult::Failed).await;
    assert_eq!(q.dispatch(10).await.ended, []);
    assert_eq!(q.status(2).await, Status::Processing);
    assert_eq!(ends(&q.answered(grant.lease, "710").await.1), [(2, "completed")]);
}

pub async fn stale_answers_beyond_one_verbs_limit_come_with_the_next<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &caching(breaker(1, secs(30))));
    q.ask(wants("cpf:1", job(1)), "700").await;
    q.pass(secs(61));
    q.accept((2..=251).map(|number| wants("cpf:1", job(number)))).await;
    q.record(UP, CallResult::Failed).await;
    let first = q.dispatch(10).await;
    assert_eq!((first.ended.len(), first.next), (100, q.now()));
    let second = q.sweep().await;
    assert_eq!((second.ended.len(), second.next), (100, q.now()));
    let third = q.sweep().await;
    assert_eq!((third.ended.len(), third.next > q.now()), (50, true));
    assert_eq!(q.lane().await.totals.fallbacks, 250);
}

pub async fn answers_are_bounded_and_the_oldest_is_evicted_first<S: Store>(open: Open<S>) {
    let small = cache().bounded(2, 1 << 20).expect("more than zero");
    let q = Harness::new(open, &lane(|lane| lane.cache = Some(small)));
    for (number, key) in (1..).zip(["a", "b", "c"]) {
        q.ask(wants(key, job(number)), "x").await;
    }
    q.cached(wants("b", job(4))).await;
    q.cached(wants("c", job(5))).await;
    assert!(q.put(wants("a", job(6))).await.is_accepted());
}

pub async fn the_bytes_of_answers_are_bounded<S: Store>(open: Open<S>) {
    let small = cache().bounded(100, 25).expect("more than zero");
    let q = Harness::new(open, &lane(|lane| lane.cache = Some(small)));
    q.ask(wants("a", job(1)), "0123456789").await;
    q.ask(wants("b", job(2)), "0123456789").await;
    q.ask(wants("c", job(3)), "0123456789").await;
    q.cached(wants("b", job(4))).await;
    assert!(q.put(wants("a", job(5))).await.is_accepted());
    q.ask(wants("d", job(6)), "larger than all the room there is").await;
    q.cached(wants("c", job(7))).await;
    assert!(q.put(wants("d", job(8))).await.is_accepted());
}

pub async fn a_sweep_removes_expired_answers_and_says_when<S: Store>(open: Open<S>) {
    let spec = lane(|lane| (lane.cache, lane.keep.max) = (Some(cache()), 0));
    let q = Harness::new(open, &spec);
    q.ask(wants("cpf:1", job(1)), "700").await;
    assert_eq!(q.sweep().await.next, q.now() + secs(660));
    q.pass(secs(660));
    assert_eq!(q.sweep().await.next, eclusa_core::Time::NEVER);
}
