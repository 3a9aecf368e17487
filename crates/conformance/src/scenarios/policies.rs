//! Limits by scope: what calls cost, which events return tokens, and how balances are shown.

use std::sync::Arc;

use eclusa_core::gate::{BucketSpec, CallResult, QuotaOf, Reason};
use eclusa_core::{
    Admission, BucketId, BucketQuery, BucketView, Corrected, Correction, Credit, CreditRule, Credited,
    HashKey, Hold, LeaseId, NewJob, Outcome, Report, RetryAfter, Scope, Span, Store, Terms, Tokens, Usage,
};

use crate::harness::{Harness, Open};
use crate::rules::{UP, answered, bucket, charging, failure, free, holding, job, name, rate, secs, upstream};

const KEY: HashKey = HashKey::new(7);
const DAY: Span = secs(86_400);

/// A person's bucket and that of the participant, as the anti-scan policies have them.
fn user(value: &str) -> (BucketId, BucketSpec) {
    let (policy, class, scope) = (name("USER_ANTISCAN"), Some(name("PF")), Some(KEY.scope(value)));
    (BucketId { upstream: name(UP), policy, class, scope }, bucket(100, 2, secs(60)))
}

fn participant() -> (BucketId, BucketSpec) {
    let policy = name("PARTICIPANT_ANTISCAN");
    (BucketId { upstream: name(UP), policy, class: None, scope: None }, bucket(50, 2, secs(60)))
}

fn terms(miss: u32) -> Arc<Terms> {
    let charge = charging(&[("200", 1), ("404", miss), ("default", 0)]).charge.clone();
    let credit = CreditRule::new(&[("payment", Tokens::ONE)], DAY).expect("a rule that can be");
    Arc::new(Terms { charge, credit: Some(credit) })
}

fn hold_of((id, spec): &(BucketId, BucketSpec), tokens: u32, terms: Arc<Terms>) -> Hold {
    let hold = Hold::new(id.upstream.clone(), &id.key(), *spec, Tokens::whole(tokens));
    hold.expect("a hold that fits its bucket").under(terms)
}

/// What a lookup for `value` holds.
fn lookup(value: &str) -> Vec<Hold> {
    vec![hold_of(&user(value), 20, terms(20)), hold_of(&participant(), 3, terms(3))]
}

fn payment(id: &str) -> Credit {
    Credit { event: "payment".into(), correlation: KEY.correlation(id) }
}

async fn admitted<S: Store>(q: &Harness<S>, holds: Vec<Hold>, correlation: Option<&str>) -> LeaseId {
    match q.admit_correlated(UP, holds, correlation.map(|id| KEY.correlation(id))).await {
        Admission::Granted { lease, .. } => lease,
        denied => panic!("{denied:?}"),
    }
}

/// Makes a lookup that is answered with `status`.
async fn looks_up<S: Store>(q: &Harness<S>, value: &str, correlation: Option<&str>, status: u16) {
    let lease = admitted(q, lookup(value), correlation).await;
    q.settle(lease, answered(status), Outcome::Release).await;
}

async fn views<S: Store>(q: &Harness<S>, scope: Option<Scope>) -> Vec<BucketView> {
    q.buckets(BucketQuery { scope, max: 100, ..BucketQuery::default() }).await.buckets
}

/// The balance of the bucket of `value`, in whole tokens; a full one may not be stored.
async fn left<S: Store>(q: &Harness<S>, value: &str) -> i64 {
    let view = views(q, Some(KEY.scope(value))).await.pop();
    view.map_or(100, |view| view.available.as_micro() / 1_000_000)
}

async fn left_of_participant<S: Store>(q: &Harness<S>) -> i64 {
    let all = views(q, None).await;
    let view = all.into_iter().find(|view| view.id == participant().0);
    view.map_or(50, |view| view.available.as_micro() / 1_000_000)
}

pub async fn the_terms_of_a_policy_decide_what_a_settlement_costs<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let mut expected = 100;
    for (report, cost) in [
        (answered(200), 1),
        (answered(404), 20),
        (answered(503), 0),
        (CallResult::NotSent.into(), 0),
        (CallResult::TimedOut.into(), 20),
    ] {
        let lease = admitted(&q, lookup("a"), None).await;
        assert_eq!(left(&q, "a").await, expected - 20, "held");
        q.settle(lease, report.clone(), Outcome::Release).await;
        expected -= cost;
        assert_eq!(left(&q, "a").await, expected, "{report:?}");
    }
    let charge = eclusa_core::Charge::default().from_usage("body:/usage/total_tokens").expect("a source");
    let tokens = hold_of(&user("b"), 50, Arc::new(Terms { charge, credit: None }));
    let lease = admitted(&q, vec![tokens], None).await;
    let usage = Usage::BySource(vec![("body:/usage/total_tokens".into(), Tokens::whole(130))]);
    q.settle(lease, eclusa_core::Report { usage, ..answered(200) }, Outcome::Release).await;
    assert_eq!(left(&q, "b").await, -30, "more than the hold is debt");
}

pub async fn what_is_held_is_not_refilled<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let lease = admitted(&q, lookup("a"), None).await;
    for _ in 0..20 {
        q.pass(secs(9));
        assert!(q.extend(lease, secs(10)).await);
    }
    assert_eq!(left(&q, "a").await, 80);
    let held = views(&q, Some(KEY.scope("a"))).await[0].held;
    assert_eq!(held, Tokens::whole(20));
    q.settle(lease, answered(404), Outcome::Release).await;
    assert_eq!(left(&q, "a").await, 80);
    q.pass(secs(60));
    assert_eq!(left(&q, "a").await, 82);
}

pub async fn all_buckets_of_a_request_are_taken_or_none<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    for _ in 0..5 {
        looks_up(&q, "a", None, 404).await;
    }
    assert_eq!((left(&q, "a").await, left_of_participant(&q).await), (0, 35));
    let Admission::Denied { denial, quota, .. } = q.admit(UP, lookup("a")).await else {
        panic!("the bucket of the person is empty");
    };
    assert_eq!((denial.reason, denial.at), (Reason::RateLimit, q.now() + secs(600)));
    assert_eq!(quota.expect("there are limits").of, QuotaOf::Bucket(user("a").0.key()));
    assert_eq!(left_of_participant(&q).await, 35, "nothing was taken");
    looks_up(&q, "b", None, 200).await;
    let drained = hold_of(&participant(), 34, terms(3));
    let lease = admitted(&q, vec![drained], None).await;
    q.settle(lease, CallResult::Unknown, Outcome::Release).await;
    let Admission::Denied { denial, .. } = q.admit(UP, lookup("a")).await else { panic!("both are empty") };
    assert_eq!(denial.at, q.now() + secs(600), "when there is enough in the last of them");
}

pub async fn a_line_that_lacks_one_of_two_buckets_delays_no_other<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    for _ in 0..5 {
        looks_up(&q, "a", None, 404).await;
    }
    let of = |value: &str, number| NewJob { holds: lookup(value), ..job(number) };
    q.accept([of("a", 1), of("a", 2), of("b", 3), of("c", 4), job(5)]).await;
    assert_eq!(q.serve(10).await, [3, 4, 5]);
    assert_eq!(q.reason(1).await, Some(Reason::RateLimit));
    q.pass(secs(600));
    assert_eq!(q.starts(10).await, [1]);
}

pub async fn an_event_returns_tokens_once_in_every_bucket<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    looks_up(&q, "a", Some("E1"), 200).await;
    looks_up(&q, "a", Some("E2"), 404).await;
    looks_up(&q, "b", Some("E3"), 500).await;
    assert_eq!((left(&q, "a").await, left_of_participant(&q).await), (79, 46));
    let other = Credit { event: "refund".into(), ..payment("E1") };
    let answers = q.credit(vec![payment("E1"), payment("E1"), payment("E3"), payment("E9"), other]).await;
    let [Credited::Buckets(given), rest @ ..] = answers.as_slice() else { panic!("{answers:?}") };
    let mut given = given.clone();
    given.sort_by_key(|(id, _)| id.key());
    assert_eq!(given, [(participant().0, Tokens::ONE), (user("a").0, Tokens::ONE)]);
    assert_eq!(rest, [Credited::Repeated, Credited::Unknown, Credited::Unknown, Credited::Unknown]);
    assert_eq!(q.credit(vec![payment("E1")]).await, [Credited::Repeated]);
    assert_eq!((left(&q, "a").await, left_of_participant(&q).await), (80, 47));
}

pub async fn an_event_counts_only_for_a_while<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    looks_up(&q, "a", Some("E1"), 404).await;
    looks_up(&q, "a", Some("E2"), 404).await;
    q.pass(DAY);
    q.sweep().await;
    let answer = q.credit(vec![payment("E1")]).await;
    let [Credited::Buckets(given)] = answer.as_slice() else { panic!("{answer:?}") };
    assert!(given.iter().all(|(_, tokens)| *tokens == Tokens::ZERO), "the buckets are full: {given:?}");
    assert_eq!(q.credit(vec![payment("E1")]).await, [Credited::Repeated]);
    q.pass(Span::from_millis(1));
    assert_eq!(q.credit(vec![payment("E2")]).await, [Credited::Unknown]);
    q.sweep().await;
    assert_eq!(q.credit(vec![payment("E1")]).await, [Credited::Unknown]);
}

pub async fn a_job_earns_its_credit_too<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let asks = holding(hold_of(&user("a"), 1, terms(20)), job(1));
    q.accept([NewJob { correlation: Some(KEY.correlation("E1")), ..asks.clone() }]).await;
    let grant = q.next().await;
    q.settle(grant.lease, answered(404), Outcome::Done).await;
    assert_eq!(left(&q, "a").await, 80);
    let given = vec![(user("a").0, Tokens::ONE)];
    assert_eq!(q.credit(vec![payment("E1")]).await, [Credited::Buckets(given)]);
    assert_eq!(left(&q, "a").await, 81);
    // The call of a cancelled job continues and earns its credit.
    q.accept([NewJob { correlation: Some(KEY.correlation("E2")), id: crate::rules::id(2), ..asks }]).await;
    let grant = q.next().await;
    q.cancel(2).await;
    q.settle(grant.lease, answered(200), Outcome::Release).await;
    assert!(matches!(q.credit(vec![payment("E2")]).await.as_slice(), [Credited::Buckets(_)]));
}

pub async fn a_replayed_job_is_charged_and_earns_its_credit_like_the_original<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let asks = holding(hold_of(&user("a"), 20, terms(20)), job(1));
    q.accept([NewJob { correlation: Some(KEY.correlation("E1")), ..asks }]).await;
    let failed = q.next().await;
    q.settle(failed.lease, answered(500), Outcome::Dead(failure("refused"))).await;
    assert_eq!(left(&q, "a").await, 100);
    assert_eq!(q.credit(vec![payment("E1")]).await, [Credited::Unknown], "it cost nothing");
    q.replay(1, 101).await;
    let grant = q.next().await;
    assert_eq!(left(&q, "a").await, 80, "what it held");
    q.settle(grant.lease, answered(200), Outcome::Done).await;
    assert_eq!(left(&q, "a").await, 99, "by the terms of the policy");
    let given = vec![(user("a").0, Tokens::ONE)];
    assert_eq!(q.credit(vec![payment("E1")]).await, [Credited::Buckets(given)]);
}

pub async fn a_balance_is_corrected_to_what_the_upstream_counts<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let (id, spec) = user("a");
    let whole = Tokens::whole;
    let asked = |reported, when_asked| Correction {
        bucket: id.clone(),
        spec,
        reported: whole(reported),
        when_asked: whole(when_asked),
        asked_ago: Span::ZERO,
    };
    let drift = |before, after, uncertainty| Corrected {
        before: whole(before),
        after: whole(after),
        uncertainty: whole(uncertainty),
    };
    assert_eq!(q.correct(asked(40, 100)).await, drift(100, 40, 1), "one that was full here");
    let hold = hold_of(&user("a"), 20, charging(&[("404", 20)]));
    let lease = admitted(&q, vec![hold.clone()], None).await;
    assert_eq!(q.correct(asked(60, 40)).await, drift(20, 40, 21), "less what is held");
    assert_eq!(
        q.correct(asked(500, 60)).await,
        drift(40, 80, 21),
        "never above the capacity less what is held"
    );
    q.settle(lease, CallResult::NotSent, Outcome::Release).await;
    assert_eq!(left(&q, "a").await, 100);
    let debt = Tokens::from_micro(-10_000_000);
    q.accept([holding(hold, job(1))]).await;
    q.correct(Correction { reported: debt, ..asked(0, 100) }).await;
    assert_eq!(q.starts(10).await, []);
    q.correct(Correction { when_asked: debt, ..asked(20, 0) }).await;
    assert_eq!(q.starts(10).await, [1], "a line that waits hears of it");
}

pub async fn what_a_round_trip_explains_is_no_drift<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let (id, spec) = participant();
    let correct = async |reported, when_asked| {
        let (reported, when_asked, bucket) = (Tokens::whole(reported), Tokens::whole(when_asked), id.clone());
        let corrected = q
            .correct(Correction { bucket, spec, reported, when_asked, asked_ago: Span::from_millis(300) })
            .await;
        let micro = |tokens: Tokens| tokens.as_micro() / 1_000;
        (micro(corrected.before), micro(corrected.after))
    };
    assert_eq!(
        correct(49, 50).await,
        (50_000, 50_000),
        "the upstream counts whole tokens, and its bucket was refilled in between"
    );
    assert_eq!(correct(80, 50).await, (50_000, 50_000), "more than it can hold");
    let call = vec![hold_of(&participant(), 3, charging(&[("404", 3)]))];
    let lease = admitted(&q, call, None).await;
    q.settle(lease, answered(404), Outcome::Release).await;
    assert_eq!(correct(47, 50).await, (47_000, 47_000), "they had counted the call");
    assert_eq!(correct(50, 50).await, (47_000, 47_000), "they had not");
    assert_eq!(correct(40, 50).await, (47_000, 37_000), "the call may come on top");
    assert_eq!(
        correct(40, 37).await,
        (37_000, 39_990),
        "nothing was spent in between, except what may have been credited"
    );
    q.pass(secs(15));
    assert_eq!(correct(40, 40).await, (40_490, 40_490), "half a token came back");
    q.pass(secs(30));
    assert_eq!(correct(40, 41).await, (41_490, 40_000), "a whole one more than they count");
}

/// A higher balance at the upstream may include an event that was not received yet and would count twice.
pub async fn a_balance_with_credits_is_only_lowered<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let (id, spec) = participant();
    let correct = async |reported, when_asked| {
        let (reported, when_asked, bucket) = (Tokens::whole(reported), Tokens::whole(when_asked), id.clone());
        q.correct(Correction { bucket, spec, reported, when_asked, asked_ago: Span::ZERO }).await.after
    };
    looks_up(&q, "a", Some("E1"), 404).await;
    assert_eq!(correct(48, 47).await, Tokens::whole(47), "a payment that is reported next");
    assert!(matches!(q.credit(vec![payment("E1")]).await.as_slice(), [Credited::Buckets(_)]));
    assert_eq!(left_of_participant(&q).await, 48);
    let lease = admitted(&q, lookup("b"), None).await;
    assert_eq!(correct(46, 48).await, Tokens::whole(45), "they may have counted the call under way");
    assert_eq!(correct(40, 48).await, Tokens::whole(37), "but no more than it holds");
    q.settle(lease, answered(200), Outcome::Release).await;
    assert_eq!(left_of_participant(&q).await, 39);
}

pub async fn buckets_are_found_by_policy_and_by_scope<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    for value in ["a", "b", "c"] {
        looks_up(&q, value, None, 200).await;
    }
    let (mut users, mut after) = (Vec::new(), 0);
    loop {
        let policy = Some(name("USER_ANTISCAN"));
        let page = q.buckets(BucketQuery { policy, after, max: 2, ..BucketQuery::default() }).await;
        assert!(page.buckets.len() <= 2);
        users.extend(page.buckets);
        let Some(next) = page.next else { break };
        after = next;
    }
    let scopes: std::collections::BTreeSet<_> = users.iter().filter_map(|view| view.id.scope).collect();
    assert_eq!(scopes, ["a", "b", "c"].map(|value| KEY.scope(value)).into());
    let found = views(&q, Some(KEY.scope("b"))).await;
    assert_eq!(found.len(), 1);
    let BucketView { id, available, capacity, refill, period, held, closed_until, .. } = found[0].clone();
    assert_eq!((id, available, capacity), (user("b").0, Tokens::whole(99), Tokens::whole(100)));
    assert_eq!(refill.as_micro() * 60_000, 2_000_000 * i64::try_from(period.as_millis()).expect("short"));
    assert_eq!((held, closed_until), (Tokens::ZERO, None));
    let shared = BucketQuery { shared: true, max: 9, ..BucketQuery::default() };
    let page = q.buckets(shared).await;
    let ids: Vec<_> = page.buckets.into_iter().map(|view| view.id).collect();
    assert_eq!((ids, page.next), (vec![participant().0], None));
    let elsewhere = BucketQuery { upstream: Some(name("other")), max: 9, ..BucketQuery::default() };
    assert_eq!(q.buckets(elsewhere).await.buckets, []);
}

pub async fn the_buckets_closest_to_empty_are_found<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    for (value, failures) in [("a", 1), ("b", 4), ("c", 2), ("d", 3)] {
        for _ in 0..failures {
            looks_up(&q, value, None, 404).await;
        }
    }
    let policy = Some(name("USER_ANTISCAN"));
    let page = q.buckets(BucketQuery { policy, max: 3, lowest: true, ..BucketQuery::default() }).await;
    let scopes: Vec<_> = page.buckets.iter().filter_map(|view| view.id.scope).collect();
    assert_eq!((scopes, page.next), (["b", "d", "c"].map(|value| KEY.scope(value)).to_vec(), None));
}

pub async fn a_retry_after_closes_the_narrowest_bucket<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let retry_after = Some(RetryAfter { wait: secs(30), bucket: None });
    let lease = admitted(&q, lookup("a"), None).await;
    q.settle(lease, Report { retry_after: retry_after.clone(), ..answered(429) }, Outcome::Release).await;
    let Admission::Denied { denial, .. } = q.admit(UP, lookup("a")).await else { panic!("it is closed") };
    assert_eq!((denial.reason, denial.at), (Reason::UpstreamRetryAfter, q.now() + secs(30)));
    looks_up(&q, "b", None, 200).await;
    let lease = admitted(&q, vec![hold_of(&participant(), 3, terms(3))], None).await;
    q.settle(lease, Report { retry_after: retry_after.clone(), ..answered(429) }, Outcome::Release).await;
    assert!(matches!(q.admit(UP, lookup("b")).await, Admission::Denied { .. }), "theirs is closed now");
    let lease = admitted(&q, Vec::new(), None).await;
    q.settle(lease, Report { retry_after, ..answered(429) }, Outcome::Release).await;
    assert!(matches!(q.admit(UP, Vec::new()).await, Admission::Denied { .. }), "all of it is");
}

pub async fn the_first_secret_is_kept<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    assert_eq!(q.hash_key(HashKey::new(1)).await, HashKey::new(1));
    assert_eq!(q.hash_key(HashKey::new(2)).await, HashKey::new(1));
}

pub async fn an_admission_returns_the_tightest_limit<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(rate(1, 10)));
    let Admission::Granted { quota: Some(quota), .. } = q.admit(UP, lookup("a")).await else {
        panic!("everything is full");
    };
    assert_eq!((quota.of, quota.remaining), (QuotaOf::Bucket(user("a").0.key()), Tokens::whole(80)));
    assert_eq!((quota.limit, quota.enough_at), (Tokens::whole(100), q.now()));
    assert_eq!(quota.full_at, q.now() + secs(600), "if the call costs what it holds");
    let Admission::Granted { quota: Some(quota), .. } = q.admit(UP, Vec::new()).await else {
        panic!("eight are left");
    };
    let own = QuotaOf::Upstream(name(UP));
    assert_eq!((&quota.of, quota.reason, quota.remaining), (&own, Reason::RateLimit, Tokens::whole(8)));
    for _ in 0..8 {
        q.call(UP).await;
    }
    let Admission::Denied { quota: Some(quota), denial, gate: Some(gate), sooner, .. } =
        q.admit(UP, lookup("b")).await
    else {
        panic!("the rate is used up");
    };
    assert_eq!((quota.of, quota.remaining, quota.enough_at), (own, Tokens::ZERO, denial.at));
    assert_eq!((gate.reason, gate.level, gate.denies_until), (Reason::RateLimit, 0, Some(denial.at)));
    assert!(!sooner, "no call that ends gives tokens back");
}
