//! The upstreams of a chain, in order.

use std::sync::Arc;

use eclusa_core::gate::{CallResult, Reason};
use eclusa_core::{Advanced, EventKind, FailureNote, Settled, Status, Store, numbered};

use crate::harness::{Harness, LEASE, Open};
use crate::rules::{bucket, chain, failure, free, hold, holding, job, name, rpm, secs, slots, via};

pub async fn a_job_goes_to_the_first_upstream_that_admits_it<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", slots(1)), ("b", slots(1)), ("c", free())], |_| {}));
    q.accept((1..=4).map(job)).await;
    let went: Vec<_> = q.take(10).await.iter().map(|grant| grant.upstream.as_str().to_owned()).collect();
    assert_eq!(went, ["a", "b", "c", "c"]);
}

pub async fn a_failed_call_advances_to_the_next_upstream_under_the_same_lease<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", slots(1)), ("b", slots(1))], |_| {}));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    assert_eq!(q.advance(&grant, CallResult::Failed).await, Advanced::To(name("b")));
    assert_eq!((q.upstream("a").await.in_flight, q.upstream("b").await.in_flight), (0, 1));
    let view = q.job(1).await;
    assert_eq!((view.status, view.attempts), (Status::Processing, 1));
    assert_eq!((view.upstream, view.lease), (Some(name("b")), Some(grant.lease)));
    q.done(&grant).await;
    assert_eq!(q.upstream("b").await.in_flight, 0);
}

pub async fn an_advance_may_be_repeated_when_the_answer_was_lost<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", crate::rules::breaker(2, secs(30))), ("b", slots(1))], |_| {}));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    for _ in 0..3 {
        assert_eq!(q.advance(&grant, CallResult::Failed).await, Advanced::To(name("b")));
    }
    assert_eq!((q.upstream("a").await.failures, q.upstream("b").await.in_flight), (1, 1));
    for _ in 0..3 {
        assert_eq!(q.advance_from(grant.lease, "b", CallResult::Failed).await, Advanced::Exhausted);
    }
    assert_eq!(q.job(1).await.timeline.len(), 5, "accepted, started and failed twice");
}

pub async fn advancing_does_not_extend_the_lease<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", free()), ("b", free())], |_| {}));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.pass(secs(6));
    q.advance(&grant, CallResult::Failed).await;
    q.pass(secs(4));
    assert_eq!(q.sweep().await.recovered.len(), 1);
}

pub async fn when_all_were_tried_the_attempt_has_failed<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", slots(1)), ("b", slots(1))], |_| {}));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.advance(&grant, CallResult::Failed).await;
    assert_eq!(q.advance_from(grant.lease, "b", CallResult::Failed).await, Advanced::Exhausted);
    assert_eq!((q.upstream("a").await.in_flight, q.upstream("b").await.in_flight), (0, 0));
    assert_eq!(q.retry(&grant, CallResult::Failed, secs(1)).await, Settled::RetryAt(q.now() + secs(1)));
    q.pass(secs(1));
    let again = q.next().await;
    assert_eq!(
        (again.upstream, again.attempt),
        (name("a"), 2),
        "a new attempt begins at the front of the chain"
    );
}

pub async fn the_failure_that_ends_a_chain_is_noted_once<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", free()), ("b", free())], |_| {}));
    q.accept([job(1)]).await;
    for end in [Settled::RetryAt(q.now() + secs(1)), Settled::Ended(Status::Failed)] {
        let grant = q.next().await;
        q.advance(&grant, CallResult::Failed).await;
        assert_eq!(q.advance_from(grant.lease, "b", CallResult::Failed).await, Advanced::Exhausted);
        let settled = match end {
            Settled::RetryAt(_) => q.retry(&grant, CallResult::Failed, secs(1)).await,
            _ => q.dead(&grant).await,
        };
        assert_eq!(settled, end);
        q.pass(secs(1));
    }
    let pass = || {
        let started = |upstream| EventKind::Started(name(upstream));
        let note = Arc::new(FailureNote::of(&failure("unavailable")));
        let failed = |upstream| EventKind::Failed(name(upstream), Some(note.clone()));
        [started("a"), failed("a"), started("b"), failed("b")]
    };
    let events = q.job(1).await.timeline.into_iter().map(|event| event.kind);
    let events: Vec<_> = events.filter(|event| !matches!(event, EventKind::RetryAt(_))).collect();
    let expected = [[EventKind::Accepted].as_slice(), &pass(), &pass(), &[EventKind::Ended(Status::Failed)]];
    assert_eq!(events, expected.concat());
}

pub async fn a_long_history_says_how_much_it_leaves_out<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", free()), ("b", free())], |_| {}));
    q.accept([job(1)]).await;
    // Each pass notes two starts, two failures and a retry.
    for _ in 0..8 {
        let grant = q.next().await;
        q.advance(&grant, CallResult::Failed).await;
        q.advance_from(grant.lease, "b", CallResult::Failed).await;
        q.retry(&grant, CallResult::Failed, secs(1)).await;
        q.pass(secs(1));
    }
    let last = q.next().await;
    q.done(&last).await;
    let view = q.job(1).await;
    let shown: Vec<_> = numbered(&view.timeline).map(|(number, event)| (number, &event.kind)).collect();
    assert_eq!(shown[..2], [(1, &EventKind::Accepted), (23, &EventKind::Omitted(22))]);
    let rest: Vec<_> = shown[2..].iter().map(|(number, _)| *number).collect();
    assert_eq!(rest, (24..=43).collect::<Vec<_>>());
    assert_eq!(shown.last(), Some(&(43, &EventKind::Ended(Status::Completed))));
    assert_eq!(view.lines(), 43);
}

pub async fn a_settlement_after_exhaustion_reports_nothing_to_the_gates_twice<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", crate::rules::breaker(2, secs(30)))], |_| {}));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    assert_eq!(q.advance(&grant, CallResult::Failed).await, Advanced::Exhausted);
    q.retry(&grant, CallResult::Failed, secs(1)).await;
    let view = q.upstream("a").await;
    assert_eq!((view.failures, view.degraded_until), (1, None));
}

pub async fn a_busy_upstream_is_skipped_when_advancing<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", free()), ("b", slots(1)), ("c", free())], |_| {}));
    q.call("b").await;
    q.accept([job(1)]).await;
    let grant = q.next().await;
    assert_eq!(q.advance(&grant, CallResult::Failed).await, Advanced::To(name("c")));
}

pub async fn a_job_waits_for_busy_upstreams_and_does_not_repeat_the_tried_ones<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", slots(1)), ("b", slots(1))], |_| {}));
    let busy = q.call("b").await;
    q.accept([job(1)]).await;
    let grant = q.next().await;
    assert_eq!(grant.upstream, name("a"));
    let Advanced::Waits(denial) = q.advance(&grant, CallResult::Failed).await else {
        panic!("b is busy");
    };
    assert_eq!((denial.reason, denial.at), (Reason::Concurrency, q.now() + LEASE));
    let view = q.job(1).await;
    assert_eq!((view.status, view.lease), (Status::Queued, None));
    assert_eq!(view.timeline.last().map(|event| event.kind.clone()), Some(EventKind::WaitsForRest));
    assert_eq!(q.dead(&grant).await, Settled::Stale, "the lease is over");
    assert_eq!(q.take(10).await, [], "a admits, but was tried");
    q.settle(busy, CallResult::Success, eclusa_core::Outcome::Release).await;
    let grant = q.next().await;
    assert_eq!((&grant.upstream, grant.attempt), (&name("b"), 1), "still the same attempt");
    assert_eq!(q.advance(&grant, CallResult::Failed).await, Advanced::Exhausted);
}

pub async fn no_call_starts_under_an_expired_lease<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", free()), ("b", slots(1))], |_| {}));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.pass(LEASE);
    let Advanced::Waits(denial) = q.advance(&grant, CallResult::Failed).await else {
        panic!("a slot of b would be held for no time at all");
    };
    assert_eq!((denial.reason, denial.at), (Reason::NoWorker, q.now()));
    let grant = q.next().await;
    assert_eq!((&grant.upstream, grant.attempt), (&name("b"), 1), "a was tried");
}

pub async fn a_job_that_waits_for_the_rest_is_ahead_of_younger_ones<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", slots(1)), ("b", slots(1))], |_| {}));
    let busy = q.call("b").await;
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.advance(&grant, CallResult::Failed).await;
    let hogged = q.call("a").await;
    q.accept([job(2)]).await;
    q.settle(busy, CallResult::Success, eclusa_core::Outcome::Release).await;
    assert_eq!(q.starts(10).await, [1]);
    q.settle(hogged, CallResult::Success, eclusa_core::Outcome::Release).await;
    assert_eq!(q.starts(10).await, [2]);
}

pub async fn with_all_busy_a_job_waits_in_place_and_spends_no_attempt<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", rpm(1)), ("b", slots(1))], |_| {}));
    q.call("a").await;
    q.pass(secs(5));
    q.call("b").await;
    q.accept([job(1)]).await;
    let answer = q.dispatch(10).await;
    assert_eq!(answer.grants, []);
    assert!(answer.next <= q.now() + LEASE, "the earliest gate opens by then: {:?}", answer.next);
    let view = q.job(1).await;
    assert_eq!((view.status, view.attempts), (Status::Queued, 0));
    q.pass(LEASE);
    let grant = q.next().await;
    assert_eq!((grant.upstream, grant.attempt), (name("b"), 1));
}

pub async fn one_busy_chain_does_not_block_another<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", slots(1)), ("b", slots(1)), ("c", free())], |_| {}));
    q.call("a").await;
    q.call("b").await;
    q.accept([via(&["a", "b"], job(1)), via(&["b"], job(2)), via(&["b", "c"], job(3)), via(&["c"], job(4))])
        .await;
    assert_eq!(q.starts(10).await, [3, 4]);
}

pub async fn a_worker_lost_after_an_advance_does_not_make_the_job_repeat_the_first<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", free()), ("b", slots(1))], |_| {}));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.advance(&grant, CallResult::Failed).await;
    q.pass(LEASE);
    let again = q.next().await;
    assert_eq!(again.upstream, name("b"));
    assert_eq!(q.upstream("b").await.in_flight, 1);
}

pub async fn a_worker_lost_after_the_whole_chain_failed_does_not_strand_the_job<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", free()), ("b", free())], |_| {}));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.advance(&grant, CallResult::Failed).await;
    assert_eq!(q.advance_from(grant.lease, "b", CallResult::Failed).await, Advanced::Exhausted);
    q.pass(LEASE);
    let again = q.next().await;
    assert_eq!((again.upstream, again.attempt), (name("a"), 2));
}

pub async fn a_job_released_after_the_whole_chain_failed_begins_a_new_attempt<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", free())], |_| {}));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    assert_eq!(q.advance(&grant, CallResult::Failed).await, Advanced::Exhausted);
    assert_eq!(q.release(&grant).await, Settled::Requeued);
    let again = q.next().await;
    assert_eq!((again.upstream, again.attempt), (name("a"), 2));
}

pub async fn a_job_released_after_an_advance_keeps_what_it_tried<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", free()), ("b", free())], |_| {}));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.advance(&grant, CallResult::Failed).await;
    q.release(&grant).await;
    let again = q.next().await;
    assert_eq!((again.upstream, again.attempt), (name("b"), 1));
}

pub async fn holds_are_taken_only_at_the_upstream_they_belong_to<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", free()), ("b", free())], |_| {}));
    let at_a = || hold("a", "a:cpf:1", bucket(1, 1, secs(60)), 1);
    q.accept([holding(at_a(), job(1)), holding(at_a(), job(2)), holding(at_a(), job(3))]).await;
    let went: Vec<_> = q.take(10).await.iter().map(|grant| grant.upstream.as_str().to_owned()).collect();
    assert_eq!(went, ["a", "b", "b"]);
}

pub async fn a_line_at_an_empty_bucket_goes_elsewhere_though_older_lines_wait_there<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", free()), ("b", slots(1))], |_| {}));
    let at_a = || hold("a", "a:cpf:1", bucket(1, 1, secs(3_600)), 1);
    q.accept([via(&["a"], holding(at_a(), job(1)))]).await;
    assert_eq!(q.serve(10).await, [1]);
    let busy = q.call("b").await;
    q.accept([via(&["a"], holding(at_a(), job(2))), via(&["a", "b"], holding(at_a(), job(3)))]).await;
    assert_eq!(q.take(10).await, []);
    q.settle(busy, CallResult::Success, eclusa_core::Outcome::Release).await;
    q.pass(secs(1));
    let grants = q.take(10).await;
    assert_eq!(
        grants.iter().map(|grant| (grant.job.0, grant.upstream.as_str())).collect::<Vec<_>>(),
        [(3, "b")]
    );
}
