//! Direct lanes: sent at once, or 429 with the time until there are enough tokens.

use eclusa::fake::{Answer, Behaviour, FakeUpstream};

use super::{COMPANY, DICT, PERSON, balance, is_nowhere, lookup, settles_to, start};

#[tokio::test]
async fn a_scanner_is_stopped_after_five_misses_and_others_are_not() {
    let upstream = FakeUpstream::start(Answer::status(404)).await.unwrap();
    let program = start(&upstream.url(), DICT).await;
    for miss in 0..5 {
        assert_eq!(lookup(&program, PERSON, "E1").await.status, 404, "{miss}");
    }
    settles_to(&program, "USER", PERSON, 0).await;
    settles_to(&program, "PSP", "", 5_000 - 5 * 3).await;
    let denied = lookup(&program, PERSON, "E2").await;
    assert_eq!((denied.status, denied.json()["reason"].as_str()), (429, Some("rate_limit")));
    assert_eq!(denied.json()["violated-policies"], serde_json::json!(["USER"]));
    // Twenty tokens take a day, minus the time that has passed.
    let wait: u64 = denied.header("retry-after").parse().unwrap();
    assert!((86_000..=86_400).contains(&wait), "{wait}");
    assert_eq!(denied.header("ratelimit"), format!("\"USER\";r=0;t={wait}"));
    assert_eq!(denied.header("ratelimit-policy"), "\"USER\";q=100;w=432000");
    assert_eq!(lookup(&program, COMPANY, "E3").await.status, 404, "another has a bucket of its own");
    assert_eq!(upstream.requests().len(), 6);
    for secret in [PERSON, COMPANY] {
        assert!(!denied.text().contains(secret));
        is_nowhere(&program, secret);
    }
}

/// Every answer reports the remaining limit of the policy that allows the fewest further calls. The upstream's own limit
/// headers are not passed on then.
#[tokio::test]
async fn a_response_reports_what_is_left_here() {
    let theirs = Answer::status(200).header("ratelimit", "\"theirs\";r=9;t=1");
    let upstream = FakeUpstream::start(theirs.header("ratelimit-policy", "\"theirs\";q=9")).await.unwrap();
    let program = start(&upstream.url(), DICT).await;
    let answer = lookup(&program, PERSON, "E1").await;
    assert_eq!(answer.header("ratelimit"), "\"USER\";r=80;t=86400", "as if it cost what it holds");
    assert_eq!(answer.header("ratelimit-policy"), "\"USER\";q=100;w=432000");
    let list = program.get("/proxy/fast/claims").await;
    assert_eq!(list.header("ratelimit"), "\"LISTS\";r=19;t=14400");
    let unlimited = program.get("/proxy/fast/other").await;
    assert_eq!(unlimited.header("ratelimit"), "\"theirs\";r=9;t=1", "no limit of ours applies");
}

#[tokio::test]
async fn a_response_settles_the_hold() {
    let answers = [200, 404, 500].map(Answer::status);
    let upstream = FakeUpstream::start(Behaviour::script(answers)).await.unwrap();
    let program = start(&upstream.url(), DICT).await;
    for (status, user, psp) in [(200, 999, 4_999), (404, 979, 4_996), (500, 979, 4_996)] {
        assert_eq!(lookup(&program, COMPANY, "E1").await.status, status);
        settles_to(&program, "USER", COMPANY, user).await;
        settles_to(&program, "PSP", "", psp).await;
    }
    assert_eq!(balance(&program, "LISTS", "").await, 20, "it did not match");
}

#[tokio::test]
async fn a_request_that_does_not_say_whose_it_is_is_refused() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&upstream.url(), DICT).await;
    let missing = program.get("/proxy/fast/entries/a").await;
    assert_eq!(
        (missing.status, missing.json()["errors"][0]["field"].as_str()),
        (422, Some("header.pi-payerid"))
    );
    let unfit = lookup(&program, "987654", "E1").await;
    assert_eq!(unfit.status, 422);
    assert!(unfit.text().contains("fits no class of policy USER (PF, PJ)"), "{}", unfit.text());
    assert!(!unfit.text().contains("987654"));
    assert_eq!(upstream.requests().len(), 0);
    assert_eq!(program.get("/proxy/fast/other").await.status, 200, "no policy matches");
}

#[tokio::test]
async fn a_word_to_stay_away_closes_only_the_bucket_that_it_was_said_to() {
    let behaviour = Behaviour::by(|seen| match seen.headers.get("pi-payerid") {
        Some(payer) if payer == PERSON => Answer::status(429).header("retry-after", "300"),
        _ => Answer::status(200),
    });
    let upstream = FakeUpstream::start(behaviour).await.unwrap();
    let program = start(&upstream.url(), DICT).await;
    let throttled = lookup(&program, PERSON, "E1").await;
    assert_eq!(throttled.header("retry-after"), "300");
    assert_eq!(throttled.header("ratelimit"), "\"USER\";r=0;t=300");
    let path = format!("/v1/policies/USER?scope={PERSON}");
    program.until(&path, |answer| answer.json()["closedUntil"].is_string()).await;
    let denied = lookup(&program, PERSON, "E2").await;
    assert_eq!(denied.status, 429);
    assert_eq!(upstream.requests().len(), 1, "it was not sent");
    assert_eq!(lookup(&program, COMPANY, "E3").await.status, 200);
}
