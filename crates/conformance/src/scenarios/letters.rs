//! Dead letters that match a filter: listed, counted, discarded; and edited replays.

use eclusa_core::gate::{CallResult, GateSpecs};
use eclusa_core::{
    CALLBACKS, CallFailure, Callback, Chain, CountLetters, DeadLetterSpec, HashKey, LaneSpec, LetterBy,
    LetterCursor, LetterFilter, LetterQuery, NewJob, Outcome, Replay, Replayed, Report, Settled, Settlement,
    Spec, Status, Store, TREND_HOURS, UpstreamSpec,
};

use crate::harness::{Harness, Open};
use crate::rules::{LANE, UP, bucket, failure, hold, id, job, keyed, lane, name, of, plain, secs};

fn two_lanes() -> Spec {
    let spec =
        |lane: &str| LaneSpec::new(name(lane), Chain::new(vec![name(UP)]).expect("a chain that can be"));
    let upstream = UpstreamSpec::new(name(UP), GateSpecs::default());
    Spec::new(vec![spec(LANE), spec("app")], vec![upstream]).expect("rules that fit together")
}

/// A job that failed permanently with this code.
async fn bury<S: Store>(q: &Harness<S>, job: NewJob, code: Option<&str>) {
    let lane = job.lane.to_string();
    q.accept([job]).await;
    let lease = q.dispatch_from(&lane, 1).await.grants[0].lease;
    let failure = CallFailure { code: code.map(Into::into), ..failure("refused") };
    q.settle(lease, CallResult::Rejected, Outcome::Dead(failure)).await;
}

fn find(filter: LetterFilter) -> LetterQuery {
    LetterQuery { filter, after: None, max: 100 }
}

async fn found<S: Store>(q: &Harness<S>, filter: LetterFilter) -> Vec<u128> {
    q.letter_page(find(filter)).await.letters.iter().map(|letter| letter.job.0).collect()
}

async fn counts<S: Store>(q: &Harness<S>, filter: LetterFilter, by: LetterBy) -> Vec<(String, u64)> {
    let step =
        q.count_letters(CountLetters { filter, by, after: None, idle: false, trend_until: None }).await;
    assert_eq!(step.next, None);
    step.counts.into_iter().map(|(key, count)| (key.to_string(), count)).collect()
}

/// Five letters: 1 and 2 of acme, 3 of bolt a minute later, 4 without a code, 5 in the other lane.
async fn five<S: Store>(q: &Harness<S>) {
    bury(q, job(1), Some("550")).await;
    bury(q, job(2), Some("421")).await;
    q.pass(secs(60));
    bury(q, of("bolt", 3), Some("503")).await;
    bury(q, of("gold-1", 4), None).await;
    bury(q, NewJob { lane: name("app"), ..job(5) }, Some("550")).await;
}

pub async fn letters_are_found_by_lane_tenant_code_and_age<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &two_lanes());
    let begun = q.now();
    five(&q).await;
    let any = LetterFilter::default;
    assert_eq!(found(&q, any()).await, [5, 1, 2, 3, 4], "by lane, in each the oldest first");
    assert_eq!(found(&q, LetterFilter { lanes: Some(vec![name(LANE)]), ..any() }).await, [1, 2, 3, 4]);
    assert_eq!(found(&q, LetterFilter { lanes: Some(vec![]), ..any() }).await, []);
    assert_eq!(found(&q, LetterFilter { tenant: Some("bolt".into()), ..any() }).await, [3]);
    let tenants = Some(vec!["gold-*".into(), "bolt".into()]);
    assert_eq!(found(&q, LetterFilter { tenants, ..any() }).await, [3, 4]);
    assert_eq!(found(&q, LetterFilter { code: Some("550".into()), ..any() }).await, [5, 1]);
    assert_eq!(found(&q, LetterFilter { code: Some("5xx".into()), ..any() }).await, [5, 1, 3]);
    assert_eq!(found(&q, LetterFilter { code: Some("none".into()), ..any() }).await, [4]);
    assert_eq!(found(&q, LetterFilter { until: Some(begun), ..any() }).await, [1, 2]);
    assert_eq!(found(&q, LetterFilter { since: Some(q.now()), ..any() }).await, [5, 3, 4]);
}

pub async fn letters_are_counted_by_code_tenant_and_lane<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &two_lanes());
    five(&q).await;
    let own =
        |counts: &[(&str, u64)]| counts.iter().map(|(key, n)| ((*key).to_owned(), *n)).collect::<Vec<_>>();
    let any = LetterFilter::default;
    let by_code = counts(&q, any(), LetterBy::Code).await;
    assert_eq!(by_code, own(&[("421", 1), ("503", 1), ("550", 2), ("none", 1)]));
    assert_eq!(counts(&q, any(), LetterBy::Lane).await, own(&[("app", 1), (LANE, 4)]));
    let refused = LetterFilter { code: Some("550".into()), ..any() };
    assert_eq!(counts(&q, refused, LetterBy::Tenant).await, own(&[("acme", 2)]));
}

pub async fn a_lane_says_which_code_and_tenant_most_letters_have<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &two_lanes());
    five(&q).await;
    bury(&q, of("bolt", 6), Some("503")).await;
    bury(&q, of("bolt", 7), None).await;
    let view = q.lane().await;
    assert_eq!((view.top_code, view.top_tenant), (Some(("503".into(), 2)), Some(("bolt".into(), 3))));
    q.discard_all(find(LetterFilter { tenant: Some("bolt".into()), ..LetterFilter::default() })).await;
    let view = q.lane().await;
    assert_eq!((view.top_code, view.top_tenant), (Some(("421".into(), 1)), Some(("acme".into(), 2))));
}

pub async fn letters_of_the_last_day_are_counted_by_hour<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &two_lanes());
    bury(&q, job(9), Some("503")).await;
    q.pass(secs(86_400 - 3_600 - 60));
    five(&q).await;
    q.pass(secs(3_600));
    bury(&q, job(6), Some("550")).await;
    let counted = async |until| {
        let (filter, by) = (LetterFilter::default(), LetterBy::Code);
        let step =
            q.count_letters(CountLetters { filter, by, after: None, idle: false, trend_until: until }).await;
        step.trends.into_iter().map(|(code, hours)| (code.to_string(), hours)).collect::<Vec<_>>()
    };
    let trend = |ends: [u64; 2]| [vec![0; TREND_HOURS - 2], ends.to_vec()].concat();
    let expected =
        [("421", trend([1, 0])), ("503", trend([1, 0])), ("550", trend([2, 1])), ("none", trend([1, 0]))];
    let expected = expected.map(|(code, hours)| (code.to_owned(), hours));
    assert_eq!(counted(Some(q.now())).await, expected, "the oldest was written a day ago");
    assert_eq!(counted(None).await, []);
}

pub async fn matching_letters_are_discarded_by_page<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    for number in 1..=5 {
        bury(&q, job(number), Some(if number == 3 { "421" } else { "550" })).await;
    }
    let filter = LetterFilter { code: Some("550".into()), ..LetterFilter::default() };
    let page = q.discard_all(LetterQuery { max: 2, ..find(filter.clone()) }).await;
    assert_eq!(page.gone, [(name(LANE), id(1)), (name(LANE), id(2))]);
    assert!(matches!(page.next, Some(LetterCursor { ref lane, .. }) if *lane == name(LANE)));
    let rest = q.discard_all(LetterQuery { after: page.next, ..find(filter) }).await;
    assert_eq!((rest.gone.len(), rest.next), (2, None));
    assert_eq!(q.letters().await, [3]);
}

pub async fn an_edited_replay_replaces_the_payload_of_its_letter<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    let scoped = || hold(UP, "cpf:1", bucket(5, 1, secs(1)), 1);
    let correlation = Some(HashKey::new(7).correlation("E1"));
    q.accept([NewJob { holds: vec![scoped()], correlation, ..keyed("outbox-1", job(1)) }]).await;
    let grant = q.next().await;
    q.dead(&grant).await;
    let edit = |holds| {
        let edit = NewJob { payload: b"edited"[..].into(), holds, ..job(9) };
        Replay { lane: name(LANE), letter: id(1), id: id(101), edit: Some(Box::new(edit)) }
    };
    let elsewhere = hold("nowhere", "cpf:1", bucket(5, 1, secs(1)), 1);
    assert!(matches!(q.replay_fully(edit(vec![elsewhere])).await, Replayed::Invalid(_)));
    assert_eq!(q.all_letters().await[0].letter.replay, None, "the letter stays as it is");
    assert_eq!(q.replay_fully(edit(vec![])).await, Replayed::As(id(101), vec![]));
    let grant = q.next().await;
    assert_eq!((grant.job, &*grant.payload, &*grant.tenant), (id(101), &b"edited"[..], "acme"));
    assert_eq!(q.job(101).await.key.as_deref(), Some("outbox-1"), "it is still the same message");
    q.dead(&grant).await;
    let letter = q.all_letters().await.remove(0);
    assert_eq!((letter.job, &*letter.letter.payload, letter.letter.holds), (id(1), &b"edited"[..], vec![]));
    q.replay(1, 102).await;
    let grant = q.next().await;
    assert_eq!(&*grant.payload, b"edited");
    q.done(&grant).await;
    assert_eq!(q.letters().await, []);
}

pub async fn a_replay_waits_as_long_as_its_letter_is_kept<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.ttl = Some(secs(10))));
    bury(&q, job(1), None).await;
    q.replay(1, 101).await;
    q.pass(secs(3_600));
    assert_eq!(q.starts(10).await, [101]);
}

pub async fn the_end_of_a_replay_is_reported_like_that_of_the_first_job<S: Store>(open: Open<S>) {
    let chain = || Chain::new(vec![name(UP)]).expect("a chain that can be");
    let lanes = [LANE, CALLBACKS].map(|lane| LaneSpec::new(name(lane), chain()));
    let upstream = UpstreamSpec::new(name(UP), GateSpecs::default());
    let q = Harness::new(open, &Spec::new(lanes.into(), vec![upstream]).expect("rules that fit together"));
    let with_callback =
        NewJob { callback: Some("https://app.example.com/done".into()), ..keyed("outbox-1", job(1)) };
    bury(&q, with_callback, Some("550")).await;
    q.replay(1, 101).await;
    let grant = q.next().await;
    q.done(&grant).await;
    let grants = q.dispatch_from(CALLBACKS, 10).await.grants;
    let callbacks: Vec<_> = grants.iter().filter_map(|grant| Callback::decode(&grant.payload).ok()).collect();
    let ends: Vec<_> =
        callbacks.iter().map(|one| (one.job.id, one.job.key.as_deref(), one.job.status)).collect();
    let key = Some("outbox-1");
    assert_eq!(ends, [(id(1), key, Status::Failed), (id(101), key, Status::Completed)]);
}

/// The upstream refused a call; the job would be a dead letter.
async fn refuse<S: Store>(q: &Harness<S>, status: u16) -> Settled {
    let lease = q.next().await.lease;
    let report = Report { status: Some(status), ..CallResult::Rejected.into() };
    let outcome = Outcome::Dead(failure("refused"));
    q.settle_fully(Settlement { lease, report, outcome, answer: None, unsent: None }).await.0
}

pub async fn a_4xx_that_the_caller_waited_for_leaves_no_letter_if_the_lane_says_so<S: Store>(open: Open<S>) {
    let waited = |number| NewJob { caller_waits: Some(secs(10)), ..job(number) };
    for answers in [true, false] {
        let rule = DeadLetterSpec::default().with_answers(answers);
        let q = Harness::new(open, &lane(|lane| lane.dead_letters = Some(rule.clone())));
        q.accept([waited(1), job(2), waited(3), waited(4)]).await;
        for status in [404, 404, 501] {
            assert_eq!(refuse(&q, status).await, Settled::Ended(Status::Failed));
        }
        q.pass(secs(11));
        refuse(&q, 404).await;
        let left: &[u128] = if answers { &[1, 2, 3, 4] } else { &[2, 3, 4] };
        assert_eq!(
            q.letters().await,
            left,
            "nobody waited for 2, 3 is no refusal, nobody waits for 4 any more"
        );
        assert_eq!(q.status(1).await, Status::Failed);
    }
}
