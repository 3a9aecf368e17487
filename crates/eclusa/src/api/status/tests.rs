use eclusa_core::gate::{BreakerView, GateView};
use eclusa_core::{LetterAges, Name, Totals};

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
        queued: [0, waiting, 0],
        pending: 0,
        processing: 0,
        waiting_bytes: 0,
        finished: 0,
        dead_letters: 0,
        oldest_dead_letter: None,
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
        "`bureau` has had its 60 requests of this minute: 22 jobs wait, the last starts at 14:02:30 UTC."
    );
    let whole = status(&[lane("render", 3), held("score", 1, Reason::Window, None)], &[]);
    assert_eq!(
        whole.remark.text,
        "`bureau` has had its requests of this minute: 1 job waits, it starts at 14:02:30 UTC."
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
    let soon = held("a", 5, Reason::Window, Some(after(1)));
    let in_turn = held("b", 5, Reason::Behind, Some(after(60)));
    let empty = held("c", 0, Reason::Window, Some(after(60)));
    assert_eq!(said(&[soon, in_turn, empty]), ("flows".into(), "Everything flows.".into()));
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
    let letters = LaneView { dead_letters: 14, ..lane("email", 0) };
    let paused = LaneView { paused: true, ..lane("score", 0) };
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
    assert_eq!(said(Some(Ack::Write)).1, "0 processes; accepted means written to the journal.");
    assert_eq!(said(None), ("memory".into(), "0 processes; accepted means in memory.".into()));
}

#[test]
fn a_hold_that_is_about_to_end_flows() {
    let lanes = [held("score", 5, Reason::Window, Some(after(8)))];
    let code = |seconds| Overview { now: after(seconds), ..seen(&lanes, &[]) }.status().remark.code;
    assert_eq!((code(6), code(7)), ("held".into(), "flows".into()), "time alone changes it");
}
