//! Verbs that are repeated because their answer was lost.

use eclusa_core::gate::CallResult;
use eclusa_core::{Outcome, Replayed, Settled, Settlement, Span, Status, Store};

use crate::harness::{Harness, Open, ends};
use crate::rules::{failure, id, job, lane, plain, secs};

/// Every outcome of a settlement, and how many jobs it ends.
fn outcomes() -> [(Outcome, usize); 6] {
    [
        (Outcome::Done, 1),
        (Outcome::Dead(failure("refused")), 1),
        (Outcome::Failed(failure("refused")), 1),
        (Outcome::Retry { after: secs(4), failure: failure("unavailable") }, 0),
        (Outcome::Release, 0),
        (Outcome::awaiting(secs(60)), 0),
    ]
}

pub async fn a_repeated_settlement_returns_the_same_and_changes_nothing<S: Store>(open: Open<S>) {
    for (outcome, ended) in outcomes() {
        let q = Harness::new(open, &plain());
        q.accept([job(1)]).await;
        let lease = q.next().await.lease;
        let settlement =
            Settlement { lease, report: CallResult::Success.into(), outcome, answer: None, unsent: None };
        let first = q.settle_fully(settlement.clone()).await;
        assert_eq!(first.1.len(), ended, "{settlement:?}");
        let state = async || (q.job(1).await, q.lane().await, q.upstream("ses").await);
        // Estimates move with time, so both states are of the same moment.
        q.pass(secs(1));
        let before = state().await;
        assert_eq!(q.settle_fully(settlement.clone()).await, first, "{settlement:?}");
        assert_eq!(state().await, before, "{settlement:?}");
    }
}

pub async fn a_settlement_is_remembered_until_the_next_one_of_its_job<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let first = q.next().await;
    let settled = q.retry(&first, CallResult::Failed, secs(1)).await;
    q.pass(secs(1));
    let second = q.next().await;
    assert_eq!(q.retry(&first, CallResult::Failed, secs(1)).await, settled, "though it runs again");
    assert_eq!(q.status(1).await, Status::Processing);
    q.done(&second).await;
    assert_eq!(q.retry(&first, CallResult::Failed, secs(1)).await, Settled::Stale);
}

pub async fn a_removed_job_remembers_no_settlement<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.keep.max = 0));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.done(&grant).await;
    assert_eq!(q.settle(grant.lease, CallResult::Success, Outcome::Done).await, Settled::Stale);
}

pub async fn the_end_of_an_equal_job_is_reported_once<S: Store>(open: Open<S>) {
    let rules = lane(|lane| lane.cache = eclusa_core::CacheSpec::new(secs(60), Span::ZERO).ok());
    let q = Harness::new(open, &rules);
    let equal = |number| eclusa_core::NewJob { cache_key: Some("cpf:1".into()), ..job(number) };
    q.accept([equal(1), equal(2)]).await;
    let lease = q.next().await.lease;
    assert_eq!(ends(&q.answered(lease, "700").await.1), [(1, "completed"), (2, "coalesced")]);
    assert_eq!(ends(&q.answered(lease, "700").await.1), [(1, "completed")]);
}

pub async fn a_repeated_replay_is_the_same_job_however_it_ended<S: Store>(open: Open<S>) {
    for fails in [false, true] {
        let q = Harness::new(open, &plain());
        q.accept([job(1)]).await;
        q.dead(&q.next().await).await;
        assert_eq!(q.replay(1, 101).await, Replayed::As(id(101), vec![]));
        assert_eq!(q.replay(1, 101).await, Replayed::As(id(101), vec![]));
        let grant = q.next().await;
        if fails {
            q.dead(&grant).await;
        } else {
            q.done(&grant).await;
        }
        assert_eq!(q.replay(1, 101).await, Replayed::As(id(101), vec![]));
        assert_eq!(q.starts(10).await, [], "it was not sent again");
    }
}
