//! A payer that guesses keys is stopped; a payer that pays is not.

use futures_util::future::join_all;

use super::server::{Dict, PARTICIPANT, USER, USER_V2};
use super::{COMPANY, PERSON, equal, lookup, pay, single};

/// 100 tokens, 20 for each miss.
#[tokio::test]
async fn a_person_who_guesses_is_stopped_after_five_misses() {
    let dict = Dict::start('A', 1).await;
    let program = single(&dict, "A").await;
    for guess in 0..5 {
        let missed =
            lookup(&program, PERSON, &format!("{guess}0000@example.com"), &format!("E{guess}")).await;
        assert_eq!(missed.status, 404, "{guess}");
        equal(&program, &dict, USER, PERSON).await;
    }
    for guess in 5..20 {
        let stopped =
            lookup(&program, PERSON, &format!("{guess}0000@example.com"), &format!("E{guess}")).await;
        assert_eq!((stopped.status, dict.lookups()), (429, 5), "{guess}");
        assert!((500..=600).contains(&stopped.header("retry-after").parse::<u32>().unwrap()));
    }
    // Other kinds of keys and other payers have separate tokens.
    let found = lookup(&program, PERSON, "12345678909", "E20").await;
    assert_eq!(found.status, 200);
    assert_eq!(lookup(&program, "98765432100", "a@example.com", "E21").await.status, 200);
    equal(&program, &dict, PARTICIPANT, "").await;
    assert_eq!((dict.lookups(), dict.refused()), (7, vec![]));
}

/// However many guesses are in flight at the same time.
#[tokio::test]
async fn guesses_at_once_are_stopped_after_as_many_misses() {
    let dict = Dict::start('A', 2).await;
    let program = single(&dict, "A").await;
    for (payer, misses) in [(PERSON, 5), (COMPANY, 50)] {
        let before = dict.lookups();
        let ids: Vec<String> = (0..80).map(|guess| format!("{payer}{guess}")).collect();
        let guesses =
            ids.iter().map(|id| lookup(&program, payer, "00000000-0000-0000-0000-000000000000", id));
        let answers: Vec<u16> = join_all(guesses).await.iter().map(|answer| answer.status).collect();
        let missed = answers.iter().filter(|status| **status == 404).count();
        assert_eq!((missed, dict.lookups() - before), (misses, misses), "{payer} {answers:?}");
        assert!(answers.iter().all(|status| matches!(status, 404 | 429)), "{answers:?}");
        equal(&program, &dict, USER_V2, payer).await;
    }
    assert_eq!(dict.refused(), Vec::<&str>::new());
}

/// Twice as many lookups as there are tokens, each paid: the balance does not change.
#[tokio::test]
async fn a_person_who_pays_is_never_stopped() {
    let dict = Dict::start('A', 3).await;
    let program = single(&dict, "A").await;
    for payment in 0..200 {
        let id = format!("E{payment}");
        let found = lookup(&program, PERSON, "+5511987654321", &id).await;
        assert_eq!(found.status, 200, "{payment}: {}", found.text());
        pay(&program, &dict, &id).await;
    }
    equal(&program, &dict, USER, PERSON).await;
    assert!(dict.tokens(USER, PERSON).0 > 98.0);
    assert_eq!(dict.refused(), Vec::<&str>::new());
}
