use eclusa_core::gate::{BreakerState, BreakerView, GateView};
use eclusa_core::{AlertKey, AlertRule, Condition, LetterAges, Name, Severity, Totals};

use super::*;

const NOW: Time = Time::from_millis(1_763_301_720_000);

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn after(seconds: u64) -> Time {
    NOW + Span::from_secs(seconds)
}

/// A lane through which a job has gone.
fn lane(called: &str, waiting: u64) -> LaneView {
    LaneView {
        name: name(called),
        paused: false,
        paused_since: None,
        queued: [0, waiting, 0],
        pending: 0,
        processing: 0,
        waiting_bytes: 0,
        finished: 0,
        dead_letters: 0,
        oldest_dead_letter: None,
        dead_letters_until: None,
        top_code: None,
        top_tenant: None,
        letter_ages: LetterAges::default(),
        oldest_waiting: None,
        capacity: None,
        totals: Totals { accepted: 1, ..Totals::default() },
        gates: Vec::new(),
        chain: Vec::new(),
        ttl: None,
        held: None,
        last_start: None,
        will_expire: 0,
    }
}

fn held(called: &str, waiting: u64, reason: Reason, until: Option<Time>) -> LaneView {
    let hold = LaneHold { reason, upstream: Some(name("bureau")), until };
    LaneView { held: Some(hold), last_start: Some(after(30)), ..lane(called, waiting) }
}

fn bureau(gate: Option<GateView>) -> UpstreamView {
    UpstreamView {
        name: name("bureau"),
        in_flight: 0,
        failures: 0,
        degraded_until: None,
        breaker: None,
        tokens: None,
        starts_last_minute: 0,
        gates: gate.into_iter().collect(),
        pace: None,
        errors_last_minute: 0,
        latency: None,
        last_failure: None,
    }
}

fn seen<'a>(lanes: &'a [LaneView], upstreams: &'a [UpstreamView]) -> Overview<'a> {
    Overview {
        lanes,
        upstreams,
        alerts: &[],
        peers: &[],
        owner: None,
        ack: Some(Ack::Fsync),
        per_second: 12.34,
        answered: false,
        now: NOW,
    }
}

fn status(lanes: &[LaneView], upstreams: &[UpstreamView]) -> ServiceStatus {
    seen(lanes, upstreams).status()
}

fn said(lanes: &[LaneView]) -> (String, String) {
    let window =
        GateView { reason: Reason::Window, denies_until: Some(after(8)), level: 60, limit: Some(60) };
    let Remark { code, text, .. } = status(lanes, &[bureau(Some(window))]).remark;
    (code, text)
}

#[test]
fn a_held_lane_says_what_holds_it_and_when_the_last_job_starts() {
    let (code, text) = said(&[lane("render", 3), held("score", 22, Reason::Window, Some(after(8)))]);
    assert_eq!(code, "held");
    assert_eq!(
        text,
        "`bureau` has used its 60 requests for this minute: 22 jobs wait, the last starts at 14:02:30 UTC."
    );
    let whole = status(&[lane("render", 3), held("score", 1, Reason::Window, None)], &[]);
    assert_eq!(
        whole.remark.text,
        "`bureau` has used its requests for this minute: 1 job waits, it starts at 14:02:30 UTC."
    );
    assert_eq!(whole.remark.args["lane"], "score");
    assert!(whole.remark.args.get("opensAt").is_none());
    assert_eq!(whole.also[0].code, "rest_flows");
}

#[test]
fn the_worst_lane_gives_the_sentence() {
    let long = Some(after(60));
    let paused = LaneView { paused: true, ..lane("paused", 900) };
    let (small, large) = (held("a", 5, Reason::Window, long), held("b", 7, Reason::Cooldown, long));
    let gone = held("gone", 1, Reason::RulesGone, None);
    let codes = |lanes: &[LaneView]| said(lanes).0;
    assert!(said(&[small.clone(), large.clone()]).1.contains("7 jobs"));
    assert_eq!(codes(&[paused.clone(), large.clone()]), "held");
    assert_eq!(codes(&[paused.clone(), large, gone]), "rules_gone");
    assert_eq!(codes(&[paused]), "paused");
}

#[test]
fn what_is_not_held_up_flows() {
    assert_eq!(said(&[LaneView { totals: Totals::default(), ..lane("a", 0) }]).0, "fresh");
    assert_eq!(said(&[]).0, "fresh");
    let soon = LaneView { last_start: Some(after(1)), ..held("a", 5, Reason::Window, Some(after(1))) };
    let in_turn = held("b", 5, Reason::Behind, Some(after(60)));
    let empty = held("c", 0, Reason::Window, Some(after(60)));
    assert_eq!(said(&[soon, in_turn, empty]), ("flows".into(), "Everything flows, 12.3/s.".into()));
    assert_eq!(status(&[lane("a", 0)], &[]).remark.args["perSecond"], 12.3);
}

#[test]
fn every_reason_that_holds_a_lane_has_a_sentence_of_its_own() {
    let reasons: Vec<Reason> = Reason::ALL.into_iter().filter(|reason| stops(*reason)).collect();
    let texts: std::collections::BTreeSet<String> =
        reasons.iter().map(|reason| said(&[held("score", 2, *reason, Some(after(60)))]).1).collect();
    assert_eq!(texts.len(), reasons.len(), "{texts:#?}");
}

#[test]
fn what_needs_a_person_is_listed_with_its_page() {
    let open = BreakerView { state: BreakerState::Open, opened: 1, half_opened: 0, closed: 0 };
    let broken = UpstreamView { breaker: Some(open), degraded_until: Some(after(30)), ..bureau(None) };
    let letters = LaneView {
        dead_letters: 14,
        dead_letters_until: Some(after(86_400)),
        top_code: Some(("550".into(), 12)),
        top_tenant: Some(("globex".into(), 13)),
        ..lane("email", 0)
    };
    let paused = LaneView { paused: true, paused_since: Some(NOW), ..lane("score", 0) };
    let needs = status(&[letters, paused], &[broken]).needs;
    let listed: Vec<(&str, &str)> = needs
        .iter()
        .map(|need| (need.remark.code.as_str(), need.link.as_deref().unwrap_or_default()))
        .collect();
    let pages = [
        ("breaker_open", "#/upstreams/bureau"),
        ("dead_letters", "#/dead-letters?lane=email"),
        ("paused", "#/lanes/score"),
    ];
    assert_eq!(listed, pages);
    assert_eq!(
        needs[1].remark.text,
        "14 dead letters in lane `email`: 12 with code 550, 13 from `globex`; the oldest is kept until 2025-11-17 14:02 UTC."
    );
    assert_eq!(needs[1].remark.args["until"], "2025-11-17T14:02:00.000Z");
    assert_eq!(needs[2].since, iso(NOW), "since it is paused");
    let hot = GateView { reason: Reason::Cooldown, denies_until: Some(after(23)), level: 2, limit: None };
    let needs = status(&[], &[bureau(Some(hot))]).needs;
    assert_eq!(needs[0].remark.text, "`bureau` cools down until 14:02:23 UTC after 2 errors.");
}

#[test]
fn it_says_what_accepted_means() {
    let owner = OwnerSeen { id: "7".into(), epoch: 1, since: NOW };
    let said = |ack| {
        let also = Overview { owner: Some(&owner), ack, ..seen(&[], &[]) }.status().also;
        (also[0].args["ack"].as_str().unwrap().to_owned(), also[0].text.clone())
    };
    assert_eq!(said(Some(Ack::Write)).1, "0 processes, accepted means written to the journal.");
    assert_eq!(said(None), ("memory".into(), "0 processes, accepted means in memory.".into()));
}

#[test]
fn a_hold_that_is_about_to_end_flows() {
    let lanes = [LaneView { last_start: Some(after(8)), ..held("score", 5, Reason::Window, Some(after(8))) }];
    let code = |seconds| Overview { now: after(seconds), ..seen(&lanes, &[]) }.status().remark.code;
    assert_eq!((code(6), code(7)), ("held".into(), "flows".into()), "time alone changes it");
}

#[test]
fn jobs_that_wait_long_are_not_flowing_because_the_next_one_starts_soon() {
    let waits = held("score", 16, Reason::RateLimit, Some(after(1)));
    let (code, text) = said(&[waits]);
    assert_eq!(code, "held");
    assert_eq!(text, "`bureau` has no tokens left: 16 jobs wait, the last starts at 14:02:30 UTC.");
}

#[test]
fn other_lanes_that_wait_are_counted() {
    let long = Some(after(60));
    let lanes = ["a", "b", "c"].map(|name| held(name, 5, Reason::Window, long));
    let texts = [1, 2, 3].map(|count| status(&lanes[..count], &[]).remark.text);
    assert!(texts[0].ends_with("14:02:30 UTC."), "{texts:#?}");
    assert!(texts[1].ends_with("14:02:30 UTC; 1 other lane waits."), "{texts:#?}");
    assert!(texts[2].ends_with("14:02:30 UTC; 2 other lanes wait."), "{texts:#?}");
    assert_eq!(status(&lanes, &[]).remark.args["others"], 2);
}

fn firing(rule: AlertRule, lane: Option<&str>, upstream: Option<&str>) -> Alert {
    let key = AlertKey {
        rule,
        severity: Severity::Critical,
        lane: lane.map(name),
        upstream: upstream.map(name),
        policy: None,
        tenant: None,
    };
    let condition = Condition { key, value_micros: 14_000_000, threshold_micros: 10_000_000 };
    Alert { condition, since: NOW, resolved: None }
}

#[test]
fn an_alert_makes_the_row_of_its_thing_more_serious_instead_of_replacing_it() {
    let open = BreakerView { state: BreakerState::Open, opened: 1, half_opened: 0, closed: 0 };
    let broken = UpstreamView { breaker: Some(open), degraded_until: Some(after(30)), ..bureau(None) };
    let spare = UpstreamView { name: name("spare"), ..bureau(None) };
    let letters = LaneView {
        dead_letters: 14,
        oldest_dead_letter: Some(after(0)),
        chain: vec![name("bureau"), name("spare")],
        ..lane("email", 0)
    };
    let alerts = [
        firing(AlertRule::BreakerOpen, None, Some("bureau")),
        firing(AlertRule::DeadLetters, Some("email"), None),
        firing(AlertRule::DeadLetterRate, Some("email"), None),
    ];
    let (lanes, upstreams) = ([letters], [broken, spare]);
    let needs = Overview { alerts: &alerts, ..seen(&lanes, &upstreams) }.status().needs;
    let shown: Vec<(&str, &str)> =
        needs.iter().map(|need| (need.remark.code.as_str(), need.severity.as_str())).collect();
    assert_eq!(shown, [("breaker_open", "critical"), ("dead_letters", "critical"), ("alert", "critical")]);
    assert_eq!(
        needs[0].remark.text,
        "The breaker of `bureau` is open, tried again at 14:02:30 UTC; `spare` steps in."
    );
    assert_eq!(needs[0].since, iso(NOW), "since the alert fires");
    assert_eq!(needs[1].link.as_deref(), Some("#/dead-letters?lane=email"));
}

/// Every sentence with its arguments. The dashboard's tests read the same file: in English it says the same.
#[test]
fn the_sentences_are_those_of_the_list_that_the_dashboard_reads() {
    let until = Some(after(60));
    let limited = |reason, limit| GateView { reason, denies_until: until, level: 0, limit: Some(limit) };
    let mut all = vec![
        status(&[], &[]).remark,
        status(&[lane("a", 0)], &[]).remark,
        Overview { per_second: 0.0, ..seen(&[lane("a", 0)], &[]) }.status().remark,
        store_lost().remark,
        status(&[LaneView { paused: true, ..lane("score", 22) }], &[]).remark,
        status(&[LaneView { paused: true, ..lane("score", 1) }], &[]).remark,
        status(&[held("score", 1, Reason::RulesGone, None)], &[]).remark,
    ];
    for reason in Reason::ALL.into_iter().filter(|reason| stops(*reason) && *reason != Reason::RulesGone) {
        for (waiting, limit) in [(22, 60), (1, 1)] {
            let upstream = bureau(Some(limited(reason, limit)));
            all.push(status(&[held("score", waiting, reason, until)], &[upstream]).remark);
        }
        let mut own = held("score", 2, reason, None);
        own.held.as_mut().unwrap().upstream = None;
        let other = held("other", 1, reason, until);
        let whole = status(&[LaneView { last_start: None, ..own }, other], &[]);
        all.push(whole.remark);
    }
    let whole = status(&[lane("render", 3), held("score", 1, Reason::Window, None)], &[]);
    all.extend(whole.also);
    let peer = |id: &str| Peer {
        id: id.into(),
        role: "all".into(),
        rules: "r".into(),
        differs: 0,
        differing: Vec::new(),
        leaving: false,
    };
    for (peers, ack) in [
        (vec![peer("gw-1")], Some(Ack::Fsync)),
        (vec![peer("gw-1"), peer("gw-2")], Some(Ack::Write)),
        (vec![peer("gw-1"), peer("gw-2")], Some(Ack::Replicate)),
        (vec![peer("gw-1")], None),
    ] {
        let owner = OwnerSeen { id: "gw-2".into(), epoch: 1, since: NOW };
        let also = Overview { peers: &peers, owner: Some(&owner), ack, ..seen(&[], &[]) }.status().also;
        all.extend(also);
    }
    let list = json!({ "now": iso(NOW), "sentences": all });
    let text = serde_json::to_string_pretty(&list).unwrap() + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/api/status/sentences.json");
    if std::env::var_os("ECLUSA_WRITE_GOLDEN").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
}
