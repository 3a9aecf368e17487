//! Dead letters that are sent again automatically.

use eclusa_core::gate::{CallResult, GateSpecs};
use eclusa_core::{DeadLetterSpec, Grant, Outcome, RedriveSpec, Spec, Store};

use crate::harness::{Harness, Open};
use crate::rules::{UP, breaker, chain, failure, free, job, secs, via};

const AFTER: u64 = 600;

fn redriving(upstreams: &[(&str, GateSpecs)], times: u32) -> Spec {
    chain(upstreams, |lane| {
        let redrive = RedriveSpec::new(secs(AFTER), times, vec!["5xx".into()]).expect("a rule that can be");
        lane.dead_letters = Some(DeadLetterSpec::default().with_redrive(Some(redrive)));
    })
}

async fn bury<S: Store>(q: &Harness<S>, numbers: std::ops::RangeInclusive<u128>) {
    for number in numbers {
        q.accept([job(number)]).await;
        let grant = q.next().await;
        q.dead(&grant).await;
    }
}

/// What is sent after a sweep.
async fn wave<S: Store>(q: &Harness<S>) -> Vec<Grant> {
    q.sweep().await;
    q.take(100).await
}

fn sent(grants: &[Grant]) -> Vec<String> {
    grants.iter().map(|grant| String::from_utf8_lossy(&grant.payload).into_owned()).collect()
}

pub async fn one_letter_goes_first_and_the_others_follow_after_its_success<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &redriving(&[(UP, free())], 3));
    bury(&q, 1..=4).await;
    let letter = q.all_letters().await.remove(0);
    assert_eq!((letter.letter.redrives, letter.next_redrive), (0, Some(q.now() + secs(AFTER))));
    assert_eq!(q.sweep().await.next, q.now() + secs(AFTER));
    q.pass(secs(AFTER - 1));
    assert_eq!(sent(&wave(&q).await), Vec::<String>::new());
    q.pass(secs(1));
    let canary = wave(&q).await;
    assert_eq!(sent(&canary), ["1"], "one goes first");
    assert_eq!(sent(&wave(&q).await), Vec::<String>::new(), "and the others wait for it");
    q.done(&canary[0]).await;
    let rest = wave(&q).await;
    assert_eq!(sent(&rest), ["2", "3", "4"]);
    for grant in &rest {
        q.done(grant).await;
    }
    assert_eq!(q.letters().await, []);
}

pub async fn when_the_first_fails_again_all_wait_again_and_another_goes_first<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &redriving(&[(UP, free())], 3));
    bury(&q, 1..=3).await;
    q.pass(secs(AFTER));
    let canary = wave(&q).await;
    q.dead(&canary[0]).await;
    let letters = q.all_letters().await;
    let seen: Vec<_> = letters.iter().map(|view| (view.letter.redrives, view.next_redrive)).collect();
    let next = Some(q.now() + secs(AFTER));
    assert_eq!(seen, [(1, next), (0, next), (0, next)]);
    q.pass(secs(AFTER - 1));
    assert_eq!(sent(&wave(&q).await), Vec::<String>::new());
    q.pass(secs(1));
    let canary = wave(&q).await;
    assert_eq!(sent(&canary), ["2"], "one letter that cannot be cured does not hold up the others");
    q.done(&canary[0]).await;
    assert_eq!(sent(&wave(&q).await), ["3", "1"]);
}

pub async fn a_failure_among_the_followers_holds_the_rest<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &redriving(&[(UP, free())], 3));
    bury(&q, 1..=2).await;
    q.pass(secs(AFTER));
    let canary = wave(&q).await;
    q.done(&canary[0]).await;
    let rest = wave(&q).await;
    q.dead(&rest[0]).await;
    bury(&q, 3..=3).await;
    q.pass(secs(AFTER - 1));
    assert_eq!(sent(&wave(&q).await), Vec::<String>::new());
    q.pass(secs(1));
    assert_eq!(wave(&q).await.len(), 1, "a canary again");
}

pub async fn a_letter_is_redriven_up_to_its_limit<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &redriving(&[(UP, free())], 2));
    bury(&q, 1..=1).await;
    for redrives in 1..=2 {
        q.pass(secs(AFTER));
        let grants = wave(&q).await;
        assert_eq!(sent(&grants), ["1"]);
        assert_eq!(q.all_letters().await[0].letter.redrives, redrives);
        q.dead(&grants[0]).await;
    }
    assert_eq!(q.all_letters().await[0].next_redrive, None);
    q.pass(secs(10 * AFTER));
    assert_eq!(sent(&wave(&q).await), Vec::<String>::new());
    assert_eq!(q.letters().await, [1]);
}

pub async fn only_letters_with_the_listed_codes_are_redriven<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &redriving(&[(UP, free())], 3));
    q.accept([job(1), job(2)]).await;
    for code in [Some("550-5.1.1"), None] {
        let lease = q.next().await.lease;
        let failure = eclusa_core::CallFailure { code: code.map(Into::into), ..failure("refused") };
        q.settle(lease, CallResult::Rejected, Outcome::Dead(failure)).await;
    }
    q.pass(secs(AFTER));
    assert_eq!(sent(&wave(&q).await), Vec::<String>::new());
    assert!(q.all_letters().await.iter().all(|letter| letter.next_redrive.is_none()));
}

pub async fn letters_wait_while_the_breaker_is_open<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &redriving(&[(UP, breaker(1, secs(AFTER + 60)))], 3));
    bury(&q, 1..=1).await;
    q.record(UP, CallResult::Failed).await;
    q.pass(secs(AFTER));
    assert_eq!(q.sweep().await.replayed, []);
    q.pass(secs(60));
    let canary = wave(&q).await;
    assert_eq!(sent(&canary), ["1"], "it is the probe");
    q.done(&canary[0]).await;
    assert_eq!(q.letters().await, []);
}

pub async fn each_chain_has_its_own_canary<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &redriving(&[(UP, free()), ("smtp", free())], 3));
    for number in 1..=4 {
        q.accept([via(&[if number % 2 == 0 { UP } else { "smtp" }], job(number))]).await;
        let grant = q.next().await;
        q.dead(&grant).await;
    }
    q.pass(secs(AFTER));
    let canaries = wave(&q).await;
    assert_eq!(canaries.len(), 2);
    let failed = canaries.iter().find(|grant| &*grant.payload == b"1").expect("the first by smtp");
    q.dead(failed).await;
    let other = canaries.iter().find(|grant| &*grant.payload == b"2").expect("the first by ses");
    q.done(other).await;
    assert_eq!(sent(&wave(&q).await), ["4"], "the other chain waits");
}

pub async fn a_replay_by_hand_does_not_count_as_a_redrive<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &redriving(&[(UP, free())], 1));
    bury(&q, 1..=1).await;
    q.replay(1, 101).await;
    q.pass(secs(AFTER));
    let grants = wave(&q).await;
    assert_eq!(grants.len(), 1, "it is being replayed already");
    q.dead(&grants[0]).await;
    let letter = q.all_letters().await.remove(0);
    assert_eq!((letter.letter.redrives, letter.next_redrive), (0, Some(q.now() + secs(AFTER))));
    q.pass(secs(AFTER));
    assert_eq!(wave(&q).await.len(), 1);
}
