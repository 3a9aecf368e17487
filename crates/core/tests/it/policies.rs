//! The figures of the DICT's policies, in simulated time.

use std::sync::Arc;

use eclusa_core::gate::{BucketSpec, CallResult, GateSpecs, Reason};
use eclusa_core::{
    Admission, Admit, BucketId, BucketQuery, BucketView, CREDIT_WITHIN, Chain, Charge, Credit, CreditRule,
    Credited, Engine, HashKey, Hold, LaneSpec, Name, Outcome, Report, Settlement, Span, Spec, Terms, Time,
    Tokens, UpstreamSpec,
};

const START: Time = Time::from_millis(1_700_000_000_000);
const MINUTE: Span = Span::from_secs(60);
const DAY: Span = Span::from_secs(86_400);
const KEY: HashKey = HashKey::new(0x5eed);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn engine() -> Engine {
    let lane = LaneSpec::new(name("lookups"), Chain::new(vec![name("dict")]).unwrap());
    let upstream = UpstreamSpec::new(name("dict"), GateSpecs::default());
    Engine::new(&Spec::new(vec![lane], vec![upstream]).unwrap())
}

/// A policy from the table of the manual.
struct Policy {
    bucket: BucketId,
    spec: BucketSpec,
    terms: Arc<Terms>,
    hold: Tokens,
}

impl Policy {
    fn new(policy: &str, capacity: u32, refill: u32, per: Span, costs: &[(&str, u32)]) -> Self {
        let on =
            |charge: Charge, (status, cost): &(&str, u32)| charge.on(status, Tokens::whole(*cost)).unwrap();
        let charge = costs.iter().fold(Charge::default(), on);
        Self {
            bucket: BucketId { upstream: name("dict"), policy: name(policy), class: None, scope: None },
            spec: BucketSpec::new(capacity, refill, per).unwrap(),
            terms: Arc::new(Terms { charge, credit: None }),
            hold: Tokens::ONE,
        }
    }

    fn class(mut self, class: &str, scope: &str, payment: u32) -> Self {
        (self.bucket.class, self.bucket.scope) = (Some(name(class)), Some(KEY.scope(scope)));
        self.crediting(payment)
    }

    fn crediting(mut self, payment: u32) -> Self {
        let credit = CreditRule::new(&[("payment", Tokens::whole(payment))], CREDIT_WITHIN).unwrap();
        self.terms = Arc::new(Terms { charge: self.terms.charge.clone(), credit: Some(credit) });
        self
    }

    fn worst(mut self) -> Self {
        self.hold = self.terms.charge.worst().unwrap();
        self
    }

    fn hold(&self) -> Hold {
        let hold = Hold::new(name("dict"), &self.bucket.key(), self.spec, self.hold).unwrap();
        hold.under(self.terms.clone())
    }

    /// Its balance; full if the engine does not store it.
    fn left(&self, engine: &Engine, now: Time) -> Tokens {
        engine.bucket(&self.bucket.key(), now).unwrap_or(self.spec.capacity())
    }
}

const USER: [(&str, u32); 3] = [("200", 1), ("404", 20), ("default", 0)];
const PARTICIPANT: [(&str, u32); 3] = [("200", 1), ("404", 3), ("default", 0)];
const OTHERS: [(&str, u32); 2] = [("500", 0), ("default", 1)];

fn pf() -> Policy {
    Policy::new("ENTRIES_READ_USER_ANTISCAN", 100, 2, MINUTE, &USER).class("PF", "12345678901", 1)
}

fn pj() -> Policy {
    Policy::new("ENTRIES_READ_USER_ANTISCAN", 1_000, 20, MINUTE, &USER).class("PJ", "12ABC34501DE35", 2)
}

fn psp(capacity: u32, refill: u32) -> Policy {
    Policy::new("ENTRIES_READ_PARTICIPANT_ANTISCAN", capacity, refill, MINUTE, &PARTICIPANT).crediting(1)
}

/// Makes a call under `policies` that is answered with `status`; otherwise returns when it may be made.
fn call(engine: &mut Engine, policies: &[&Policy], id: &str, status: u16, now: Time) -> Result<(), Time> {
    let ask = Admit {
        lane: None,
        tenant: None,
        chain: vec![name("dict")],
        holds: policies.iter().map(|policy| policy.hold()).collect(),
        correlation: Some(KEY.correlation(id)),
        lease: Span::from_secs(10),
        nonce: 0,
        after: None,
        probe: true,
    };
    match engine.admit(&ask, now).admission {
        Admission::Granted { lease, .. } => {
            let report = Report { status: Some(status), ..CallResult::Success.into() };
            engine.settle(
                vec![Settlement { lease, report, outcome: Outcome::Release, answer: None, unsent: None }],
                now,
            );
            Ok(())
        }
        Admission::Denied { denial, .. } => {
            assert_eq!(denial.reason, Reason::RateLimit);
            Err(denial.at)
        }
        other => panic!("{other:?}"),
    }
}

fn pays(engine: &mut Engine, id: &str, now: Time) -> Credited {
    engine.credit(&[Credit { event: "payment".into(), correlation: KEY.correlation(id) }], now).remove(0)
}

/// A bucket that is used again before it is full is checked too early; it must still be removed later.
#[test]
fn a_bucket_is_removed_when_it_is_full_however_often_it_was_used() {
    let (mut engine, pf) = (engine(), pf());
    let at = |seconds| START + Span::from_secs(seconds);
    call(&mut engine, &[&pf], "a", 200, START).unwrap();
    call(&mut engine, &[&pf], "b", 200, at(20)).unwrap();
    let mut kept = |seconds| {
        engine.sweep(at(seconds));
        engine.bucket(&pf.bucket.key(), at(seconds)).is_some()
    };
    assert_eq!([30, 31, 59].map(&mut kept), [true; 3], "a token comes in 30 seconds");
    assert!(!kept(60));
}

/// Every policy with fixed numbers: name, refill per minute, size. A call costs 1, unless the answer is 500.
const FIXED: [(&str, u32, u32); 30] = [
    ("ENTRIES_WRITE", 1_200, 36_000),
    ("ENTRIES_UPDATE", 600, 600),
    ("CLAIMS_READ", 600, 18_000),
    ("CLAIMS_WRITE", 1_200, 36_000),
    ("CLAIMS_LIST_WITH_ROLE", 40, 200),
    ("CLAIMS_LIST_WITHOUT_ROLE", 10, 50),
    ("SYNC_VERIFICATIONS_WRITE", 10, 50),
    ("CIDS_FILES_READ", 10, 50),
    ("CIDS_EVENTS_LIST", 20, 100),
    ("CIDS_ENTRIES_READ", 1_200, 36_000),
    ("INFRACTION_REPORTS_READ", 600, 18_000),
    ("INFRACTION_REPORTS_WRITE", 1_200, 36_000),
    ("INFRACTION_REPORTS_LIST_WITH_ROLE", 40, 200),
    ("INFRACTION_REPORTS_LIST_WITHOUT_ROLE", 10, 50),
    ("KEYS_CHECK", 70, 70),
    ("REFUNDS_READ", 1_200, 36_000),
    ("REFUNDS_WRITE", 2_400, 72_000),
    ("REFUND_LIST_WITH_ROLE", 40, 200),
    ("REFUND_LIST_WITHOUT_ROLE", 10, 50),
    ("FRAUD_MARKERS_READ", 600, 18_000),
    ("FRAUD_MARKERS_WRITE", 1_200, 36_000),
    ("FRAUD_MARKERS_LIST", 600, 18_000),
    ("PERSONS_STATISTICS_READ", 12_000, 36_000),
    ("POLICIES_READ", 60, 200),
    ("POLICIES_LIST", 6, 20),
    ("ENTRIES_STATISTICS_READ_A", 25_000, 50_000),
    ("ENTRIES_STATISTICS_READ_E", 2_500, 5_000),
    ("ENTRIES_STATISTICS_READ_F", 250, 500),
    ("ENTRIES_STATISTICS_READ_G", 25, 250),
    ("ENTRIES_STATISTICS_READ_H", 2, 50),
];

#[test]
fn every_fixed_policy_gives_its_size_and_then_its_refill() {
    for (policy, refill, size) in FIXED {
        let (mut engine, policy) = (engine(), Policy::new(policy, size, refill, MINUTE, &OTHERS));
        for _ in 0..size {
            call(&mut engine, &[&policy], "", 200, START).unwrap();
        }
        // 60,000 ms for `refill` tokens, rounded up to the next millisecond.
        let next = START + Span::from_millis(60_000_u64.div_ceil(u64::from(refill)));
        assert_eq!(call(&mut engine, &[&policy], "", 200, START), Err(next), "{}", policy.bucket.policy);
        let minute = START + MINUTE;
        let granted =
            (0..=size).take_while(|_| call(&mut engine, &[&policy], "", 503, minute).is_ok()).count();
        assert_eq!(granted, refill.min(size) as usize, "a 503 costs 1 too: {}", policy.bucket.policy);
        let later = minute + MINUTE;
        assert!(
            (0..100).all(|_| call(&mut engine, &[&policy], "", 500, later).is_ok()),
            "a 500 costs nothing"
        );
    }
}

#[test]
fn the_categories_of_participants_give_their_size_and_their_refill() {
    for (refill, size) in [
        (25_000, 50_000),
        (20_000, 40_000),
        (15_000, 30_000),
        (8_000, 16_000),
        (2_500, 5_000),
        (250, 500),
        (25, 250),
        (2, 50),
    ] {
        let (mut engine, policy) = (engine(), psp(size, refill));
        let misses = (0..size).take_while(|_| call(&mut engine, &[&policy], "", 404, START).is_ok()).count();
        assert_eq!(misses, size.div_ceil(3) as usize, "each miss costs 3, the last may leave a debt");
        let debt = u64::from(size.div_ceil(3) * 3 - size);
        let enough = START + Span::from_millis(((debt + 1) * 60_000).div_ceil(u64::from(refill)));
        assert_eq!(call(&mut engine, &[&policy], "", 200, START), Err(enough));
        assert_eq!(call(&mut engine, &[&policy], "", 200, enough - Span::from_millis(1)), Err(enough));
        assert_eq!(call(&mut engine, &[&policy], "", 200, enough), Ok(()));
    }
}

#[test]
fn a_scanner_is_stopped_after_five_misses_and_gets_one_call_every_ten_minutes() {
    for user in [pf(), pf().worst()] {
        let mut engine = engine();
        let psp = psp(50_000, 25_000);
        for miss in 0..5 {
            assert_eq!(call(&mut engine, &[&user, &psp], "", 404, START), Ok(()), "miss {miss}");
        }
        let enough = user.spec.time_to_gain(user.hold);
        assert_eq!(call(&mut engine, &[&user, &psp], "", 404, START), Err(START + enough));
        assert_eq!(psp.left(&engine, START), Tokens::whole(50_000 - 15), "a denied call takes nothing");
        // A scanner that waits as long as requested gets one call about every ten minutes.
        let (mut now, mut misses) = (START, 0);
        while now < START + Span::from_secs(3_600) {
            match call(&mut engine, &[&user, &psp], "", 404, now) {
                Ok(()) => misses += 1,
                Err(at) => now = at,
            }
        }
        assert_eq!(misses, if user.hold == Tokens::ONE { 6 } else { 5 }, "120 tokens come in an hour");
    }
}

#[test]
fn a_company_that_scans_is_stopped_after_fifty_misses() {
    let (mut engine, user) = (engine(), pj());
    let misses = (0..1_000).take_while(|_| call(&mut engine, &[&user], "", 404, START).is_ok()).count();
    assert_eq!(misses, 50);
}

#[test]
fn a_user_who_pays_after_each_lookup_is_never_stopped() {
    for (user, gain) in [(pf(), 1), (pj(), 2)] {
        let (mut engine, psp) = (engine(), psp(50, 2));
        let mut now = START;
        for n in 0..10_000 {
            let id = format!("E{n}");
            assert_eq!(call(&mut engine, &[&user, &psp], &id, 200, now), Ok(()), "lookup {n}");
            now = now + Span::from_millis(5);
            let Credited::Buckets(given) = pays(&mut engine, &id, now) else { panic!("lookup {n}") };
            assert_eq!(given.len(), 2, "the person's and the participant's");
            assert!(given.iter().all(|(_, tokens)| *tokens <= Tokens::whole(gain)));
            assert_eq!(pays(&mut engine, &id, now), Credited::Repeated);
        }
        assert_eq!(user.left(&engine, now), user.spec.capacity(), "and never above the capacity");
    }
}

#[test]
fn a_user_who_never_pays_has_a_hundred_lookups_and_two_per_minute() {
    let (mut engine, user) = (engine(), pf());
    let lookups = (0..1_000).take_while(|_| call(&mut engine, &[&user], "", 200, START).is_ok()).count();
    assert_eq!(lookups, 100);
    let month = 30 * 24 * 60_u64;
    let mut later = 0;
    for minute in 1..=month {
        let now = START + Span::from_secs(60 * minute);
        later += (0..10).take_while(|_| call(&mut engine, &[&user], "", 200, now).is_ok()).count() as u64;
    }
    assert_eq!(later, 2 * month);
}

#[test]
fn slow_refills_keep_every_fraction_over_months() {
    let forty_a_day = Policy::new("CIDS_FILES_WRITE", 200, 40, DAY, &OTHERS);
    let one_a_minute = Policy::new("ONE", 5, 1, MINUTE, &OTHERS);
    let sixty_one_in_an_hour = Policy::new("ODD", 7, 61, Span::from_secs(3_600), &OTHERS);
    for (policy, per_day) in [(forty_a_day, 40), (one_a_minute, 1_440), (sixty_one_in_an_hour, 1_464)] {
        let mut engine = engine();
        while call(&mut engine, &[&policy], "", 200, START).is_ok() {}
        let (mut now, mut granted) = (START, 0_u64);
        let end = START + Span::from_secs(90 * 86_400);
        // Also read every 7 minutes and 13 ms, which must neither lose nor add a fraction.
        while let Err(at) = call(&mut engine, &[&policy], "", 200, now) {
            let look = now + Span::from_millis(420_013);
            now = at.min(look);
            if now >= end {
                break;
            }
            if now == at {
                assert_eq!(call(&mut engine, &[&policy], "", 200, now), Ok(()), "at the reported time");
                granted += 1;
            }
        }
        assert!((90 * per_day - 1..=90 * per_day).contains(&granted), "{granted} in 90 days");
    }
}

#[test]
fn a_clock_that_steps_back_or_stops_adds_no_tokens() {
    let (mut engine, policy) = (engine(), Policy::new("KEYS_CHECK", 70, 70, MINUTE, &OTHERS));
    let mut granted = 0;
    for step in 0..1_000_u64 {
        // Two steps forward, one back, within the same minute.
        let now = START + Span::from_millis((step % 3) * 20_000);
        granted += usize::from(call(&mut engine, &[&policy], "", 200, now).is_ok());
    }
    assert!((70..=70 + 47).contains(&granted), "{granted} in forty seconds");
}

#[test]
fn changed_numbers_keep_the_balance_while_tokens_are_held() {
    let (mut engine, old) = (engine(), pf().worst());
    for _ in 0..2 {
        call(&mut engine, &[&old], "", 404, START).unwrap();
    }
    let ask = |policy: &Policy| Admit {
        lane: None,
        tenant: None,
        chain: vec![name("dict")],
        holds: vec![policy.hold()],
        correlation: None,
        lease: MINUTE,
        nonce: 0,
        after: None,
        probe: true,
    };
    let Admission::Granted { lease, .. } = engine.admit(&ask(&old), START).admission else {
        panic!("60 are left")
    };
    let wider = Policy { spec: BucketSpec::new(200, 4, MINUTE).unwrap(), ..pf().worst() };
    let charge = Charge::default().on("200", Tokens::whole(5)).unwrap().on("404", Tokens::whole(20)).unwrap();
    let wider = Policy { terms: Arc::new(Terms { charge, credit: None }), ..wider };
    let half = START + Span::from_secs(30);
    let Admission::Granted { lease: other, .. } = engine.admit(&ask(&wider), half).admission else {
        panic!("41 are left")
    };
    assert_eq!(wider.left(&engine, half), Tokens::whole(21), "half a minute counted under the old rule");
    let report = || Report { status: Some(200), ..CallResult::Success.into() };
    let settle =
        |lease| Settlement { lease, report: report(), outcome: Outcome::Release, answer: None, unsent: None };
    engine.settle(vec![settle(lease), settle(other)], half);
    assert_eq!(wider.left(&engine, half), Tokens::whole(51), "both cost what the new rule says");
    let narrow = Policy { spec: BucketSpec::new(20, 2, MINUTE).unwrap(), ..pf().worst() };
    assert!(matches!(engine.admit(&ask(&narrow), half).admission, Admission::Granted { .. }));
    assert_eq!(narrow.left(&engine, half), Tokens::ZERO, "cut to what it can hold");
}

/// At the pace of the last minute; a bucket that gains as fast as it is spent never runs out.
#[test]
fn a_bucket_predicts_when_it_will_be_empty() {
    let mut engine = engine();
    let policy = pf();
    let view = |engine: &Engine, now| {
        let scope = policy.bucket.scope;
        engine.buckets(&BucketQuery { scope, max: 1, ..BucketQuery::default() }, now).buckets.remove(0)
    };
    let start = START + Span::from_millis(60_000 - START.as_millis() % 60_000);
    let tokens = |view: &BucketView| (view.available.as_micro(), view.spent_last_minute.as_micro());
    for _ in 0..2 {
        call(&mut engine, &[&policy], "E", 404, start).unwrap();
    }
    let busy = view(&engine, start);
    assert_eq!(tokens(&busy), (60_000_000, 40_000_000));
    assert_eq!(busy.empty_in(), Some(Span::from_millis(94_736)), "60 at 40 less 2 a minute");
    let half = view(&engine, start + Span::from_secs(90));
    assert_eq!(tokens(&half), (63_000_000, 20_000_000));
    assert_eq!(half.empty_in(), Some(Span::from_secs(210)));
    let idle = view(&engine, start + Span::from_secs(120));
    assert_eq!((tokens(&idle).1, idle.empty_in()), (0, None));
    let later = start + Span::from_secs(120);
    let cautious = Policy { hold: Tokens::ONE, ..pf() };
    while call(&mut engine, &[&cautious], "E", 404, later).is_ok() {}
    let empty = view(&engine, later);
    assert_eq!((tokens(&empty), empty.empty_in()), ((-16_000_000, 80_000_000), Some(Span::ZERO)));
}

#[test]
fn credits_are_counted_and_delay_when_a_bucket_is_empty() {
    let mut engine = engine();
    let policy = pj();
    let start = START + Span::from_millis(60_000 - START.as_millis() % 60_000);
    let view = |engine: &Engine| {
        let scope = policy.bucket.scope;
        engine.buckets(&BucketQuery { scope, max: 1, ..BucketQuery::default() }, start).buckets.remove(0)
    };
    for id in ["E1", "E2"] {
        call(&mut engine, &[&policy], id, 404, start).unwrap();
    }
    let before = view(&engine);
    assert_eq!(
        (before.credited_last_minute, before.empty_in()),
        (Tokens::ZERO, Some(Span::from_secs(48 * 60)))
    );
    engine.credit(&[Credit { event: "payment".into(), correlation: KEY.correlation("E1") }], start);
    let after = view(&engine);
    assert_eq!((after.available, after.credited_last_minute), (Tokens::whole(962), Tokens::whole(2)));
    assert_eq!(after.empty_in(), Some(Span::from_millis(3_206_666)), "962 at 40 less 20 and 2 a minute");
}

#[test]
fn debts_are_most_urgent_then_what_runs_out_then_what_has_the_least_left() {
    let bucket = |available, spent| BucketView {
        id: pf().bucket,
        available: Tokens::from_micro(available),
        capacity: Tokens::whole(100),
        refill: Tokens::whole(2),
        period: MINUTE,
        held: Tokens::ZERO,
        closed_until: None,
        spent_last_minute: Tokens::whole(spent),
        credited_last_minute: Tokens::ZERO,
    };
    let ordered = [(-1, 0), (0, 0), (50_000_000, 52), (90_000_000, 52), (10_000_000, 0), (20_000_000, 2)];
    let urgencies = ordered.map(|(available, spent)| bucket(available, spent).urgency());
    assert!(urgencies.is_sorted_by(|before, after| before < after));
}
