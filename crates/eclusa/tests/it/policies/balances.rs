//! `/v1/policies`: what it returns, and to which keys.

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::{Value, json};

use super::super::program::Program;
use super::{COMPANY, DICT, PERSON, lookup, settles_to, start};

fn named<'a>(list: &'a Value, name: &str) -> Vec<&'a Value> {
    list["policies"].as_array().unwrap().iter().filter(|policy| policy["name"] == name).collect()
}

/// The fields of a bucket that do not change all the time.
fn standing(mut bucket: Value) -> Value {
    for moving in ["spentLastMinute", "emptyInSec"] {
        bucket.as_object_mut().unwrap().remove(moving);
    }
    bucket
}

#[tokio::test]
async fn balances_are_shown_by_policy_and_scope() {
    let upstream = FakeUpstream::start(Answer::status(404)).await.unwrap();
    let program = start(&upstream.url(), DICT).await;
    let fresh = program.get("/v1/policies").await.json();
    assert_eq!(
        fresh["policies"].as_array().unwrap().len(),
        2,
        "full buckets of scopes are not known: {fresh}"
    );
    let full = json!({ "name": "PSP", "upstream": "dict", "availableTokens": 5_000, "capacity": 5_000,
        "refillTokens": 250, "refillPeriodSec": 86_400, "scope": "upstream", "class": "E" });
    assert_eq!(program.get("/v1/policies/PSP").await.json(), full);
    lookup(&program, PERSON, "E1").await;
    lookup(&program, COMPANY, "E2").await;
    settles_to(&program, "USER", PERSON, 80).await;
    settles_to(&program, "USER", COMPANY, 980).await;
    let one = program.get(&format!("/v1/policies/USER?scope={PERSON}")).await.json();
    let hash = one["scope"].as_str().unwrap().to_owned();
    assert_eq!((hash.len(), &one["class"], &one["refillTokens"]), (32, &json!("PF"), &json!(20)));
    let one = standing(one);
    assert_eq!(standing(program.get(&format!("/v1/policies/USER?scope={hash}")).await.json()), one);
    let list = program.get("/v1/policies").await.json();
    assert_eq!(named(&list, "USER").len(), 2);
    assert_eq!(named(&list, "PSP")[0]["availableTokens"], 4_994);
    assert!(!list.to_string().contains(PERSON));
    assert_eq!(named(&program.get("/v1/policies/USER").await.json(), "USER").len(), 2);
    let lowest = program.get("/v1/policies?lowest=3").await.json();
    let order: Vec<_> =
        lowest["policies"].as_array().unwrap().iter().map(|one| &one["availableTokens"]).collect();
    assert_eq!(order, [80, 980, 4_994], "{lowest}");
    let with_full = program.get("/v1/policies?lowest=100").await.json();
    assert_eq!((named(&with_full, "LISTS").len(), with_full["policies"].as_array().unwrap().len()), (1, 4));
    let of_one = program.get(&format!("/v1/policies?scope={PERSON}")).await.json();
    assert_eq!(standing(of_one["policies"][0].clone()), one);
    for (path, status) in [
        ("/v1/policies/NONE".to_owned(), 404),
        (format!("/v1/policies/USER?scope={}", "0".repeat(32)), 404),
        ("/v1/policies/USER?scope=12".to_owned(), 404),
        ("/v1/policies/USER?scopes=1".to_owned(), 422),
        ("/v1/policies?cursor=x".to_owned(), 422),
        ("/v1/policies?lowest=0".to_owned(), 422),
        ("/v1/policies?lowest=101".to_owned(), 422),
        ("/v1/policies?lowest=1&cursor=0".to_owned(), 422),
    ] {
        assert_eq!(program.get(&path).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn balances_are_returned_in_the_format_of_the_dict() {
    let program = start("http://127.0.0.1:9", DICT).await;
    let xml = [("accept", "application/xml")];
    let one = program.send("GET", "/v1/policies/LISTS", &xml, "").await;
    assert_eq!(one.header("content-type"), "application/xml");
    let policy = "<Policy><AvailableTokens>20</AvailableTokens><Capacity>20</Capacity><RefillTokens>6</RefillTokens>\
                  <RefillPeriodSec>86400</RefillPeriodSec><Name>LISTS</Name></Policy>";
    assert!(one.text().contains("<GetPolicyResponse><ResponseTime>"), "{}", one.text());
    assert!(
        one.text().contains(&format!("<Category>E</Category>{policy}</GetPolicyResponse>")),
        "{}",
        one.text()
    );
    let list = program.send("GET", "/v1/policies", &xml, "").await;
    assert!(
        list.text().contains("<ListPoliciesResponse>") && list.text().contains(policy),
        "{}",
        list.text()
    );
}

#[tokio::test]
async fn many_scopes_are_listed_in_pages() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&upstream.url(), DICT).await;
    for payer in 0..150 {
        lookup(&program, &format!("{:011}", 10_000 + payer), "E").await;
    }
    let (mut scopes, mut path) = (std::collections::BTreeSet::new(), "/v1/policies/USER".to_owned());
    loop {
        let page = program.get(&path).await.json();
        let found = page["policies"].as_array().unwrap();
        assert!(found.len() <= 100);
        scopes.extend(found.iter().map(|policy| policy["scope"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["cursor"].as_u64() else { break };
        path = format!("/v1/policies/USER?cursor={cursor}");
    }
    assert_eq!(scopes.len(), 150);
}

#[tokio::test]
async fn a_producer_may_report_events_but_not_see_balances() {
    let config = format!(
        "[[auth.keys]]\nname = \"app\"\nrole = \"producer\"\nkey = \"producer-0123456789\"\n\
         [[auth.keys]]\nname = \"eye\"\nrole = \"viewer\"\nkey = \"viewer-0123456789\"\n\
         [lanes.fast]\nmode = \"direct\"\nchain = [\"dict\"]\n[upstreams.dict]\nurl = \"http://127.0.0.1:9\"\n{DICT}"
    );
    let program = Program::start(&config, &[]).await;
    let event = json!({ "event": "payment", "correlationId": "E1" }).to_string();
    for (key, see, tell) in
        [("producer-0123456789", 403, 404), ("viewer-0123456789", 200, 403), ("none", 401, 401)]
    {
        let headers = [("authorization", &*format!("Bearer {key}"))];
        assert_eq!(program.send("GET", "/v1/policies", &headers, "").await.status, see, "{key}");
        assert_eq!(
            program.send("POST", "/v1/policies/credits", &headers, &event).await.status,
            tell,
            "{key}"
        );
    }
}
