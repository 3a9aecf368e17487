//! Events that credit tokens: once, and only for a call that cost some.

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::{Value, json};

use super::super::program::{Answer as Response, Program};
use super::{COMPANY, DICT, PERSON, lookup, settles_to, start};

async fn pays(program: &Program, id: &str) -> Response {
    program.post("/v1/policies/credits", &json!({ "event": "payment", "correlationId": id })).await
}

#[tokio::test]
async fn a_payment_counts_once_under_all_policies_of_its_lookup() {
    let upstream = FakeUpstream::start(Answer::status(404)).await.unwrap();
    let program = start(&upstream.url(), DICT).await;
    lookup(&program, PERSON, "E1").await;
    settles_to(&program, "USER", PERSON, 80).await;
    settles_to(&program, "PSP", "", 4_997).await;
    let reported = pays(&program, "E1").await;
    assert_eq!((reported.status, reported.json()), (200, json!({ "credited": 2.0, "repeated": false })));
    settles_to(&program, "USER", PERSON, 81).await;
    settles_to(&program, "PSP", "", 4_998).await;
    let again = pays(&program, "E1").await;
    assert_eq!((again.status, again.json()), (200, json!({ "credited": 0.0, "repeated": true })));
    settles_to(&program, "USER", PERSON, 81).await;
    assert_eq!(pays(&program, "E9").await.status, 404);
}

#[tokio::test]
async fn a_batch_gets_an_answer_each() {
    let upstream = FakeUpstream::start(Answer::status(404)).await.unwrap();
    let program = start(&upstream.url(), DICT).await;
    lookup(&program, COMPANY, "E1").await;
    settles_to(&program, "USER", COMPANY, 980).await;
    settles_to(&program, "PSP", "", 4_997).await;
    let event = |event: &str, id: &str| json!({ "event": event, "correlationId": id });
    let batch = json!({ "credits": [event("payment", "E1"), event("payment", "E1"), event("refund", "E1"), event("payment", "E2")] });
    let reported = program.post("/v1/policies/credits", &batch).await;
    assert_eq!(reported.status, 200);
    let reported = reported.json()["credits"].clone();
    assert_eq!(
        reported[0],
        json!({ "credited": 3.0, "repeated": false }),
        "two for a company, one for the participant"
    );
    assert_eq!(reported[1]["repeated"], true);
    assert_eq!((&reported[2]["status"], &reported[3]["status"]), (&json!(404), &json!(404)));
    settles_to(&program, "USER", COMPANY, 982).await;
}

#[tokio::test]
async fn an_invalid_event_is_refused() {
    let program = start("http://127.0.0.1:9", DICT).await;
    let many: Vec<Value> = vec![json!({ "event": "payment", "correlationId": "E" }); 1_001];
    for wrong in [json!({}), json!({ "event": "payment" }), json!({ "credits": many }), json!([])] {
        let reported = program.post("/v1/policies/credits", &wrong).await;
        assert!(matches!(reported.status, 400 | 422), "{} {}", reported.status, reported.text());
    }
}
