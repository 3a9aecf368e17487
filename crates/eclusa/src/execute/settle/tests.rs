//! The whole table of the design: which codes retry, what counts against an upstream, what may be sent twice.

use CallResult::{Failed, NotSent, Rejected, Success, Throttled, TimedOut, Unknown, Unreachable};
use eclusa_core::retry::OnAmbiguous;

use super::*;

/// The outcome for a job, with the wait in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    DoneUncached,
    Retry(u64),
    Dead,
    Release,
}

/// Whether another upstream is tried: always, only if the call may be repeated, or never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Always,
    IfRepeatable,
    Never,
}

use Fate::{Dead, Done, DoneUncached, Release, Retry};
use Next::{Always, IfRepeatable, Never};

/// Five attempts, one second after the first, without jitter.
fn policy(on_ambiguous: OnAmbiguous) -> RetryPolicy {
    let policy = RetryPolicy::new(5, Span::from_secs(1), Span::from_secs(60), 0).unwrap();
    policy.on_ambiguous(on_ambiguous)
}

fn judged(end: CallEnd, close: Option<u64>, codes: &ExtraCodes) -> Judged {
    let called = Called { close: close.map(Span::from_secs), ..end.into() };
    Judged::new(Name::new("up").unwrap(), &called, codes)
}

fn fate(judged: &Judged, on_ambiguous: OnAmbiguous, number: u32) -> Fate {
    let attempt = Attempt { job: JobId(7), number, seed: 1, keyed: false };
    match judged.outcome(&policy(on_ambiguous), attempt) {
        Outcome::Done => Done,
        Outcome::DoneUncached => DoneUncached,
        Outcome::Retry { after, failure } => {
            assert_eq!(failure, judged.failure());
            Retry(after.as_millis() / 1_000)
        }
        Outcome::Dead(failure) => {
            assert_eq!(failure, judged.failure());
            Dead
        }
        Outcome::Release => Release,
        other => panic!("no call means {other:?}"),
    }
}

fn next(judged: &Judged) -> Next {
    match (judged.may_go_on(true), judged.may_go_on(false)) {
        (true, true) => Always,
        (true, false) => IfRepeatable,
        (false, false) => Never,
        (false, true) => panic!("repeatable calls go on whenever others do"),
    }
}

fn why() -> String {
    "why".into()
}

/// How a call ended, with its Retry-After in seconds; the result for the gates; the outcome for a job if ambiguous
/// calls are sent again, and if not; whether another upstream is tried.
type Row = (CallEnd, Option<u64>, CallResult, Fate, Fate, Next);

fn table() -> Vec<Row> {
    use CallEnd::{Abandoned, Answered, Broken, Invalid, NotMade, SessionRefused, TooLarge};
    let session = |code| SessionRefused { code, enhanced: None, text: why() };
    vec![
        (Answered(200), None, Success, Done, Done, Never),
        (Answered(204), None, Success, Done, Done, Never),
        // `RateLimit: "burst";r=0;t=30` may come with a success too.
        (Answered(200), Some(30), Success, Done, Done, Never),
        (Answered(301), None, Success, Done, Done, Never),
        (Answered(302), None, Success, DoneUncached, DoneUncached, Never),
        (Answered(400), None, Rejected, Dead, Dead, Never),
        (Answered(403), Some(30), Rejected, Dead, Dead, Never),
        (Answered(404), None, Rejected, Dead, Dead, Never),
        (Answered(422), None, Rejected, Dead, Dead, Never),
        (Answered(408), None, TimedOut, Retry(1), Retry(1), Always),
        (Answered(425), None, Failed, Retry(1), Retry(1), Always),
        (Answered(429), None, Throttled, Retry(1), Retry(1), Always),
        (Answered(429), Some(30), Throttled, Retry(30), Retry(30), Always),
        (Answered(500), None, Failed, Retry(1), Retry(1), Always),
        (Answered(501), None, Rejected, Dead, Dead, Never),
        (Answered(503), None, Failed, Retry(1), Retry(1), Always),
        (Answered(503), Some(30), Failed, Retry(30), Retry(30), Always),
        // Codes that HTTP does not define are not successes.
        (Answered(799), None, Failed, Retry(1), Retry(1), Always),
        (TooLarge { status: 200, max: 10 }, None, Rejected, Dead, Dead, Never),
        (TooLarge { status: 503, max: 10 }, None, Failed, Retry(1), Retry(1), Always),
        // No connection, refused or not in time: nothing was sent, but it counts for the breaker.
        (CallEnd::NotSent(why()), None, Unreachable, Retry(1), Retry(1), Always),
        (Invalid(why()), None, NotSent, Dead, Dead, Never),
        // The server refuses everybody, or the account: not the fault of the message.
        (session(554), None, Failed, Retry(1), Retry(1), Always),
        (session(535), None, Failed, Retry(1), Retry(1), Always),
        (session(421), None, Throttled, Retry(1), Retry(1), Always),
        (CallEnd::TimedOut(why()), None, TimedOut, Retry(1), Dead, IfRepeatable),
        (Broken(why()), None, Failed, Retry(1), Dead, IfRepeatable),
        (Broken(why()), Some(30), Failed, Retry(30), Dead, IfRepeatable),
        // A released permit, and a job for which no slot was left.
        (NotMade, None, NotSent, Release, Release, Never),
        // The caller of a direct lane went away, or the process ends.
        (Abandoned { sent: true }, None, Unknown, Release, Dead, Never),
        (Abandoned { sent: false }, None, Unknown, Release, Release, Never),
    ]
}

#[test]
fn every_end_of_a_call_has_one_meaning_for_gates_jobs_and_chains() {
    for (end, close, result, retried, stopped, goes_on) in table() {
        let judged = judged(end.clone(), close, &ExtraCodes::default());
        let closes = judged.report.retry_after.as_ref().map(|close| close.wait);
        assert_eq!((judged.report.result, closes), (result, close.map(Span::from_secs)), "{end:?}");
        let fates = (fate(&judged, OnAmbiguous::Retry, 1), fate(&judged, OnAmbiguous::Stop, 1));
        assert_eq!((fates, next(&judged)), ((retried, stopped), goes_on), "{end:?}");
        assert!(!judged.judgement.reason.is_empty(), "{end:?}");
    }
}

#[test]
fn an_incomplete_answer_is_an_error_if_its_status_is_one() {
    for end in [CallEnd::Broken(why()), CallEnd::TimedOut(why()), CallEnd::TooLarge { status: 503, max: 10 }]
    {
        assert_eq!(end.clone().after_head(503), CallEnd::Answered(503));
        assert_eq!(end.clone().after_head(200), end);
    }
}

#[test]
fn the_last_attempt_is_not_repeated() {
    for (end, close, _, retried, ..) in table() {
        let judged = judged(end.clone(), close, &ExtraCodes::default());
        let expected = if matches!(retried, Retry(_)) { Dead } else { retried };
        assert_eq!(fate(&judged, OnAmbiguous::Retry, 5), expected, "{end:?}");
    }
}

#[test]
fn the_wait_grows_until_the_upstream_asks_for_more() {
    let waits = |close| {
        let judged = judged(CallEnd::Answered(503), close, &ExtraCodes::default());
        [1, 2, 3, 4].map(|number| fate(&judged, OnAmbiguous::Retry, number))
    };
    assert_eq!(waits(None), [1, 2, 4, 8].map(Retry));
    assert_eq!(waits(Some(3)), [3, 3, 4, 8].map(Retry));
}

#[test]
fn the_extra_codes_of_the_upstream_apply() {
    let codes = ExtraCodes { retryable: vec!["404".into()], permanent: vec!["429".into()] };
    let judge = |status| {
        let judged = judged(CallEnd::Answered(status), None, &codes);
        (judged.report.result, fate(&judged, OnAmbiguous::Retry, 1), next(&judged))
    };
    assert_eq!(judge(404), (Failed, Retry(1), Always));
    assert_eq!(judge(429), (Rejected, Dead, Never));
}

#[test]
fn a_failure_has_a_reason_an_upstream_and_a_code() {
    let failure = |end| {
        let failure = judged(end, None, &ExtraCodes::default()).failure();
        assert_eq!(failure.upstream.unwrap().as_str(), "up");
        (failure.reason.as_str().to_owned(), failure.code.map(|code| code.to_string()))
    };
    let expected = |reason: &str, code: &str| (reason.to_owned(), Some(code.to_owned()));
    assert_eq!(failure(CallEnd::Answered(404)), expected("answered 404 Not Found", "404"));
    assert_eq!(failure(CallEnd::NotSent(why())), expected("why", "connect_failed"));
    assert_eq!(failure(CallEnd::Invalid(why())), expected("why", "invalid_request"));
    assert_eq!(failure(CallEnd::TimedOut(why())), expected("why", "timeout"));
    assert_eq!(failure(CallEnd::Broken(why())), expected("why", "connection_broken"));
    let large = failure(CallEnd::TooLarge { status: 200, max: 10 });
    assert_eq!(large, expected("answered 200 OK, with more than 10 bytes", "response_too_large"));
    assert_eq!(failure(CallEnd::Broken(String::new())).0, "failed without a reason");
}

/// The Retry-After applies to the key, whose gate enforces it.
#[test]
fn with_several_keys_a_job_does_not_wait_for_the_throttled_one() {
    let throttled = judged(CallEnd::Answered(429), Some(30), &ExtraCodes::default());
    let attempt = |keyed| Attempt { job: JobId(7), number: 1, seed: 1, keyed };
    let wait = |keyed| match throttled.outcome(&policy(OnAmbiguous::Retry), attempt(keyed)) {
        Outcome::Retry { after, .. } => after.as_millis(),
        other => panic!("{other:?}"),
    };
    assert_eq!((wait(false), wait(true)), (30_000, 1_000));
}
