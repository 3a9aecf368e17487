//! Jobs that failed permanently.

use eclusa_core::gate::CallResult;
use eclusa_core::{
    DeadLetterSpec, Grant, LetterFilter, LetterQuery, Level, NewJob, Replayed, Settled, Spec, Status, Store,
    TrimReason,
};

use crate::harness::{Harness, Open};
use crate::rules::{
    UP, bucket, capacity, high, hold, holding, id, job, keyed, lane, low, name, plain, secs, upstream,
};

fn keeping(ttl_secs: u64, max: u64) -> Spec {
    lane(|lane| lane.dead_letters = Some(DeadLetterSpec::new(secs(ttl_secs), max).expect("more than zero")))
}

/// Makes dead letters of these jobs.
async fn bury<S: Store>(q: &Harness<S>, jobs: impl IntoIterator<Item = u128>) {
    for number in jobs {
        q.accept([job(number)]).await;
        let grant = q.next().await;
        assert_eq!(q.dead(&grant).await, Settled::Ended(Status::Failed));
    }
}

pub async fn a_dead_letter_keeps_what_is_needed_to_understand_and_repeat<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    let enqueued_at = q.now();
    q.accept([NewJob { tenant: "acme".into(), ..keyed("outbox-1", high(1)) }]).await;
    let grant = q.next().await;
    q.retry(&grant, CallResult::Failed, secs(1)).await;
    q.pass(secs(1));
    let grant = q.next().await;
    q.dead(&grant).await;
    let view = q.all_letters().await.remove(0);
    assert_eq!((view.job, view.lane), (id(1), name("mail")));
    let letter = view.letter;
    assert_eq!(
        (letter.key.as_deref(), &*letter.tenant, &*letter.payload),
        (Some("outbox-1"), "acme", &b"1"[..])
    );
    assert_eq!((letter.level, letter.chain, letter.failed_attempts), (Level::High, vec![name(UP)], 2));
    assert_eq!((letter.enqueued_at, letter.moved_at), (enqueued_at, q.now()));
    assert_eq!((letter.ttl, letter.replay), (secs(7 * 86_400), None));
    assert_eq!(
        (letter.last_failure.reason.as_str(), letter.last_failure.code.as_deref()),
        ("refused", Some("503"))
    );
    assert_eq!((letter.last_failure.at, letter.last_failure.upstream), (q.now(), Some(name(UP))));
}

pub async fn a_job_says_whether_it_has_a_dead_letter<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    bury(&q, [1, 2]).await;
    assert!(q.job(1).await.dead_letter);
    assert!(q.discard(2).await);
    assert_eq!((q.job(2).await.status, q.job(2).await.dead_letter), (Status::Failed, false));
}

pub async fn a_lane_without_dead_letters_keeps_none<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.dead_letters = None));
    bury(&q, [1]).await;
    assert_eq!(q.letters().await, []);
    assert_eq!(q.status(1).await, Status::Failed);
}

pub async fn a_dead_letter_is_removed_when_it_expires<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &keeping(60, 10));
    bury(&q, [1]).await;
    q.pass(secs(30));
    bury(&q, [2]).await;
    assert!(q.sweep().await.next <= q.now() + secs(30));
    q.pass(secs(30));
    let swept = q.sweep().await;
    assert_eq!(swept.dead_letters, [(name("mail"), id(1), TrimReason::Expired)]);
    assert_eq!(q.letters().await, [2]);
    assert_eq!(q.lane().await.totals.dead_trimmed, 0);
}

pub async fn the_oldest_letters_over_the_cap_are_removed_and_counted<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &keeping(3_600, 2));
    bury(&q, [1, 2, 3, 4]).await;
    assert_eq!(q.sweep().await.dead_letters.len(), 2);
    assert_eq!(q.letters().await, [3, 4]);
    let totals = q.lane().await.totals;
    assert_eq!((totals.dead, totals.dead_trimmed), (4, 2));
}

pub async fn letters_are_listed_oldest_first_and_by_page<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    bury(&q, 1..=5).await;
    let filter = LetterFilter::default();
    let page = q.letter_page(LetterQuery { filter: filter.clone(), after: None, max: 2 }).await;
    assert_eq!(page.letters.iter().map(|letter| letter.job.0).collect::<Vec<_>>(), [1, 2]);
    let rest = q.letter_page(LetterQuery { filter, after: page.next, max: 10 }).await;
    assert_eq!(rest.letters.iter().map(|letter| letter.job.0).collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(rest.next, None);
}

pub async fn a_letter_stays_until_its_replay_succeeds<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    bury(&q, [1]).await;
    assert_eq!(q.replay(1, 101).await, Replayed::As(id(101), vec![]));
    assert_eq!(q.all_letters().await[0].letter.replay, Some(id(101)));
    let grant = q.next().await;
    assert_eq!((grant.job, &*grant.payload, grant.attempt), (id(101), &b"1"[..], 1));
    assert_eq!(q.letters().await, [1]);
    q.done(&grant).await;
    assert_eq!(q.letters().await, []);
}

pub async fn a_failed_replay_leaves_one_letter_with_the_new_failure<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    bury(&q, [1]).await;
    q.replay(1, 101).await;
    let grant = q.next().await;
    q.dead(&grant).await;
    assert_eq!(q.letters().await, [1]);
    let letter = q.all_letters().await.remove(0).letter;
    assert_eq!((letter.replay, letter.failed_attempts, letter.last_failure.at), (None, 2, q.now()));
    assert_eq!(q.replay(1, 102).await, Replayed::As(id(102), vec![]), "it can be replayed again");
}

pub async fn a_running_replay_is_not_started_twice<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    bury(&q, [1]).await;
    q.replay(1, 101).await;
    assert_eq!(q.replay(1, 102).await, Replayed::As(id(101), vec![]));
    assert_eq!(q.starts(10).await, [101]);
    assert_eq!(q.replay(1, 103).await, Replayed::As(id(101), vec![]));
}

pub async fn a_cancelled_replay_leaves_the_letter<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    bury(&q, [1]).await;
    q.replay(1, 101).await;
    q.cancel(101).await;
    assert_eq!(q.all_letters().await[0].letter.replay, None);
}

pub async fn a_replay_needs_room_in_the_lane<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.capacity = capacity(1)));
    bury(&q, [1]).await;
    q.accept([high(2)]).await;
    assert_eq!(q.replay(1, 101).await, Replayed::QueueFull);
    assert_eq!(q.letters().await, [1]);
    assert_eq!(q.starts(10).await, [2]);
    assert_eq!(q.replay(1, 101).await, Replayed::As(id(101), vec![]));
}

pub async fn a_replay_keeps_the_level_tenant_and_chain<S: Store>(open: Open<S>) {
    let two = crate::rules::chain(&[(UP, crate::rules::free()), ("smtp", crate::rules::free())], |_| {});
    let q = Harness::new(open, &two);
    q.accept([crate::rules::via(&["smtp"], NewJob { tenant: "other".into(), ..low(1) })]).await;
    let grant = q.next().await;
    q.dead(&grant).await;
    q.replay(1, 101).await;
    let Grant { tenant, level, upstream, .. } = q.next().await;
    assert_eq!((&*tenant, level, upstream), ("other", Level::Low, name("smtp")));
}

pub async fn a_replay_takes_from_the_scoped_buckets_of_the_job<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(crate::rules::free()));
    let scoped = || hold(UP, "cpf:1", bucket(1, 1, secs(3_600)), 1);
    q.accept([holding(scoped(), job(1))]).await;
    let grant = q.next().await;
    q.dead(&grant).await;
    q.replay(1, 101).await;
    assert_eq!(q.starts(10).await, [], "the bucket is empty");
    q.pass(secs(3_600));
    assert_eq!(q.starts(10).await, [101]);
}

pub async fn a_discarded_letter_is_gone<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    bury(&q, [1, 2]).await;
    assert!(q.discard(1).await);
    assert!(!q.discard(1).await);
    assert_eq!(q.letters().await, [2]);
    assert_eq!(q.replay(1, 101).await, Replayed::Unknown);
}

pub async fn a_letter_discarded_during_its_replay_does_not_come_back_unless_that_fails<S: Store>(
    open: Open<S>,
) {
    let q = Harness::new(open, &plain());
    bury(&q, [1]).await;
    q.replay(1, 101).await;
    assert!(q.discard(1).await);
    let grant = q.next().await;
    q.dead(&grant).await;
    assert_eq!(q.letters().await, [101], "the failure is not lost");
}

pub async fn a_letter_outlives_its_job<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.keep.max = 0));
    bury(&q, [1]).await;
    assert_eq!(q.find(1).await, None);
    assert_eq!(q.replay(1, 101).await, Replayed::As(id(101), vec![]));
    assert_eq!(q.serve(10).await, [101]);
    assert_eq!(q.letters().await, []);
    assert!(q.put(job(1)).await.is_accepted());
}

pub async fn a_replay_does_not_bring_back_the_old_rule_of_a_bucket<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    let (wide, narrow) = (bucket(100, 100, secs(1)), bucket(1, 1, secs(3_600)));
    q.accept([holding(hold(UP, "cpf:1", wide, 1), job(1))]).await;
    let grant = q.next().await;
    q.dead(&grant).await;
    q.accept((2..=4).map(|n| holding(hold(UP, "cpf:1", narrow, 1), job(n)))).await;
    assert_eq!(q.starts(1).await, [2]);
    q.replay(1, 101).await;
    q.pass(secs(5));
    assert_eq!(q.starts(10).await, [], "the narrow rule is in force");
}

pub async fn a_letter_remains_though_its_bucket_has_become_too_small<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(crate::rules::free()));
    q.accept([holding(hold(UP, "cpf:1", bucket(5, 1, secs(1)), 3), job(1))]).await;
    let grant = q.next().await;
    q.accept([holding(hold(UP, "cpf:1", bucket(1, 1, secs(1)), 1), job(2))]).await;
    q.dead(&grant).await;
    assert_eq!(q.letters().await, [1]);
    assert_eq!(q.replay(1, 101).await, Replayed::As(id(101), Vec::new()));
    assert_eq!(q.starts(10).await, [], "the call held more than there can be now");
    q.pass(secs(3));
    assert_eq!(q.serve(10).await, [2]);
    q.pass(secs(1));
    assert_eq!(q.starts(10).await, [101], "for as much as there can be");
}
