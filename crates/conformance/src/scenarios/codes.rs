//! How retries after a failure go, by code.

use eclusa_core::gate::CallResult;
use eclusa_core::{Advanced, CallFailure, Grant, Outcome, Replayed, Store};

use crate::harness::{Harness, Open};
use crate::rules::{UP, chain, failure, free, id, job, name, secs, upstream};

fn failed(code: &str) -> CallFailure {
    CallFailure { code: Some(code.into()), ..failure("refused") }
}

async fn retry<S: Store>(q: &Harness<S>, grant: &Grant, code: &str) {
    let outcome = Outcome::Retry { after: secs(1), failure: failed(code) };
    q.settle(grant.lease, CallResult::Failed, outcome).await;
    q.pass(secs(1));
}

fn codes(rows: &[(&str, u64, u64, u64)]) -> Vec<(String, u64, u64, u64)> {
    rows.iter().map(|(code, seen, cured, again)| ((*code).to_owned(), *seen, *cured, *again)).collect()
}

pub async fn a_code_is_counted_with_what_a_retry_did<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    q.accept([job(1), job(2)]).await;
    retry(&q, &q.next().await, "409").await;
    // The other job fails permanently with 503.
    q.dead(&q.next().await).await;
    retry(&q, &q.next().await, "409").await;
    assert_eq!(q.codes(UP).await, codes(&[("409", 2, 0, 1), ("503", 1, 0, 0)]));
    q.done(&q.next().await).await;
    assert_eq!(q.codes(UP).await, codes(&[("409", 2, 1, 1), ("503", 1, 0, 0)]));
}

pub async fn success_at_another_upstream_does_not_count_for_a_code<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", free()), ("b", free())], |_| {}));
    q.accept([job(1), job(2)]).await;
    let grant = q.next().await;
    assert_eq!(q.advance(&grant, CallResult::Failed).await, Advanced::To(name("b")));
    q.done(&grant).await;
    let grant = q.next().await;
    assert_eq!(q.advance(&grant, CallResult::Failed).await, Advanced::To(name("b")));
    retry(&q, &grant, "409").await;
    assert_eq!(q.codes("a").await, codes(&[("503", 2, 0, 0)]), "never tried there again");
    q.done(&q.next().await).await;
    assert_eq!(q.codes("a").await, codes(&[("503", 2, 1, 0)]));
    assert_eq!(q.codes("b").await, codes(&[("409", 1, 0, 0)]));
}

pub async fn a_replayed_letter_is_a_retry_of_its_code<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    q.accept([job(1), job(2)]).await;
    for _ in 0..2 {
        let outcome = Outcome::Dead(failed("423"));
        q.settle(q.next().await.lease, CallResult::Rejected, outcome).await;
    }
    for (letter, replay) in [(1, 11), (2, 12)] {
        assert_eq!(q.replay(letter, replay).await, Replayed::As(id(replay), Vec::new()));
    }
    q.done(&q.next().await).await;
    let outcome = Outcome::Dead(failed("424"));
    q.settle(q.next().await.lease, CallResult::Rejected, outcome).await;
    assert_eq!(q.codes(UP).await, codes(&[("423", 2, 1, 1), ("424", 1, 0, 0)]));
}
