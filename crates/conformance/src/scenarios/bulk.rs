//! Bulk replays of dead letters.

use eclusa_core::gate::CallResult;
use eclusa_core::{
    BulkAnswer, BulkAsk, BulkStatus, BulkView, CountLetters, Grant, LetterBy, LetterFilter, Outcome,
    Replayed, Store,
};

use crate::harness::{Harness, Open};
use crate::rules::{
    LANE, capacity, failure, high, id, job, lane, low, millis, of, one_per, plain, secs, upstream,
};

const BULK: u128 = 1_000_000;

async fn bury<S: Store>(q: &Harness<S>, numbers: std::ops::RangeInclusive<u128>) {
    for number in numbers {
        q.accept([job(number)]).await;
        let grant = q.next().await;
        q.dead(&grant).await;
    }
}

async fn begin<S: Store>(q: &Harness<S>, filter: LetterFilter) -> BulkView {
    one(q.bulk(BulkAsk::Begin { id: id(BULK), filter }).await)
}

async fn show<S: Store>(q: &Harness<S>) -> BulkView {
    one(q.bulk(BulkAsk::Show(id(BULK))).await)
}

fn one(answer: BulkAnswer) -> BulkView {
    match answer {
        BulkAnswer::Replays(mut views) if views.len() == 1 => views.remove(0),
        other => panic!("{other:?}"),
    }
}

/// `total, replayed, failed, running, remaining`.
fn numbers(view: &BulkView) -> [u64; 5] {
    [view.total, view.replayed, view.failed, view.running, view.remaining]
}

/// Starts everything that may start; returns what was sent.
async fn take<S: Store>(q: &Harness<S>) -> Vec<Grant> {
    q.sweep().await;
    q.take(100).await
}

fn sent(grants: &[Grant]) -> Vec<String> {
    grants.iter().map(|grant| String::from_utf8_lossy(&grant.payload).into_owned()).collect()
}

pub async fn all_matching_letters_are_sent_again_once<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    bury(&q, 1..=5).await;
    q.accept([of("bolt", 6)]).await;
    let grant = q.next().await;
    q.dead(&grant).await;
    let begun = begin(&q, LetterFilter { tenant: Some("acme".into()), ..LetterFilter::default() }).await;
    assert_eq!((begun.status, numbers(&begun)), (BulkStatus::Running, [5, 0, 0, 0, 5]));
    bury(&q, 7..=7).await;
    let grants = take(&q).await;
    assert_eq!(sent(&grants), ["1", "2", "3", "4", "5"], "no later letters, and none that do not match");
    assert_eq!(numbers(&show(&q).await), [5, 0, 0, 5, 0]);
    for grant in &grants[..4] {
        q.done(grant).await;
    }
    q.dead(&grants[4]).await;
    let view = show(&q).await;
    assert_eq!((view.status, numbers(&view)), (BulkStatus::Done, [5, 4, 1, 0, 0]));
    assert_eq!((view.began, view.ended), (begun.began, Some(q.now())));
    assert_eq!(take(&q).await, [], "what failed again is not sent a third time");
    assert_eq!(q.letters().await, [5, 6, 7]);
    let again = begin(&q, LetterFilter::default()).await;
    assert_eq!(again, view, "the same id is the same replay");
}

pub async fn a_bulk_replay_evicts_nothing_and_continues_when_there_is_room<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.capacity = capacity(4)));
    for number in 1..=5 {
        q.accept([high(number)]).await;
        let grant = q.next().await;
        q.dead(&grant).await;
    }
    q.accept([low(11), low(12), low(13)]).await;
    begin(&q, LetterFilter::default()).await;
    let swept = q.sweep().await;
    assert_eq!((swept.ended.len(), swept.replayed.len()), (0, 1), "one place was free");
    assert!(swept.next <= q.now() + millis(100));
    let mut sent = Vec::new();
    while let Some(grant) = q.take(1).await.pop() {
        sent.push(String::from_utf8_lossy(&grant.payload).into_owned());
        q.done(&grant).await;
        assert!(q.sweep().await.replayed.len() <= 2, "half of the lane is for others");
    }
    sent.sort();
    assert_eq!(sent, ["1", "11", "12", "13", "2", "3", "4", "5"]);
    assert_eq!(show(&q).await.status, BulkStatus::Done);
}

pub async fn a_bulk_replay_is_paced_by_the_gates_of_the_lane<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(one_per(secs(10))));
    for number in 1..=3 {
        q.accept([job(number)]).await;
        let grant = q.next().await;
        q.dead(&grant).await;
        q.pass(secs(10));
    }
    begin(&q, LetterFilter::default()).await;
    for replayed in 1..=3 {
        let grants = take(&q).await;
        assert_eq!(grants.len(), 1, "one in ten seconds");
        q.done(&grants[0]).await;
        assert_eq!(show(&q).await.replayed, replayed);
        q.pass(secs(10));
    }
}

pub async fn a_stopped_bulk_replay_starts_nothing_more<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.capacity = capacity(4)));
    bury(&q, 1..=4).await;
    begin(&q, LetterFilter::default()).await;
    q.sweep().await;
    let stopped = one(q.bulk(BulkAsk::Stop(id(BULK))).await);
    assert_eq!((stopped.status, numbers(&stopped)), (BulkStatus::Stopped, [4, 0, 0, 2, 0]));
    let grants = take(&q).await;
    assert_eq!(sent(&grants), ["1", "2"], "what was in the lane goes on");
    for grant in &grants {
        q.done(grant).await;
    }
    assert_eq!(take(&q).await, []);
    assert_eq!(numbers(&show(&q).await), [4, 2, 0, 0, 0]);
    assert_eq!(q.letters().await, [3, 4]);
}

pub async fn a_count_of_idle_letters_leaves_out_those_being_replayed<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    bury(&q, 1..=3).await;
    q.replay(2, 102).await;
    for (idle, count) in [(false, 3), (true, 2)] {
        let ask = CountLetters {
            filter: LetterFilter::default(),
            by: LetterBy::Lane,
            after: None,
            idle,
            trend_until: None,
        };
        assert_eq!(q.count_letters(ask).await.counts, [(LANE.into(), count)]);
    }
}

pub async fn a_letter_that_is_replayed_already_is_left_out<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    bury(&q, 1..=3).await;
    assert_eq!(q.replay(2, 102).await, Replayed::As(id(102), vec![]));
    let begun = begin(&q, LetterFilter::default()).await;
    assert_eq!(begun.total, 2);
    assert!(q.discard(3).await);
    let grants = take(&q).await;
    assert_eq!(grants.len(), 2);
    for grant in &grants {
        q.done(grant).await;
    }
    let view = show(&q).await;
    assert_eq!(
        (view.status, numbers(&view)),
        (BulkStatus::Done, [2, 1, 0, 0, 0]),
        "one was discarded meanwhile"
    );
}

pub async fn a_replay_that_does_not_complete_counts_as_failed_and_keeps_its_letter<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    bury(&q, 1..=2).await;
    begin(&q, LetterFilter::default()).await;
    let grants = take(&q).await;
    q.cancel(grants[0].job.0).await;
    let outcome = Outcome::Failed(failure("refused"));
    q.settle(grants[1].lease, CallResult::Rejected, outcome).await;
    let view = show(&q).await;
    assert_eq!((view.status, numbers(&view)), (BulkStatus::Done, [2, 0, 2, 0, 0]));
    assert_eq!(q.letters().await, [1, 2]);
}

pub async fn twenty_bulk_replays_are_kept_and_running_ones_are_never_removed<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    bury(&q, 1..=1).await;
    let begin = async |number: u128| {
        q.pass(secs(1));
        let filter = LetterFilter { tenant: Some("nobody".into()), ..LetterFilter::default() };
        q.bulk(BulkAsk::Begin { id: id(BULK + number), filter }).await
    };
    for number in 1..=20 {
        assert_eq!(one(begin(number).await).status, BulkStatus::Running);
    }
    assert_eq!(begin(21).await, BulkAnswer::TooMany);
    q.sweep().await;
    assert_eq!(one(begin(21).await).id, id(BULK + 21), "those that are done make room");
    let BulkAnswer::Replays(all) = q.bulk(BulkAsk::List).await else { panic!("a list") };
    let ids: Vec<u128> = all.iter().map(|view| view.id.0 - BULK).collect();
    assert_eq!(ids, (2..=21).rev().collect::<Vec<_>>(), "the newest first, and the oldest is gone");
    assert_eq!(q.bulk(BulkAsk::Show(id(BULK + 1))).await, BulkAnswer::Replays(vec![]));
    assert_eq!(q.bulk(BulkAsk::Stop(id(7))).await, BulkAnswer::Replays(vec![]));
}
