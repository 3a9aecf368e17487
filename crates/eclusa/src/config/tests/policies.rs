//! Valid policies.

use eclusa_core::gate::BucketSpec;
use eclusa_core::{Name, Span, Tokens};

use super::read;
use crate::config::*;

fn policies(text: &str, variables: &[(&str, &str)]) -> Vec<Policy> {
    let file = format!("[upstreams.dict]\nurl = \"https://dict.example\"\n{text}");
    let config = read(&file, variables).unwrap_or_else(|errors| panic!("{errors}"));
    config.upstreams[&Name::new("dict").unwrap()].policies().to_vec()
}

fn bucket(capacity: u32, refill: u32, secs: u64) -> BucketSpec {
    BucketSpec::new(capacity, refill, Span::from_secs(secs)).unwrap()
}

#[test]
fn a_policy_by_header_with_classes_costs_and_credits() {
    let read = policies(
        r#"
[[upstreams.dict.policies]]
name = "ENTRIES_READ_USER_ANTISCAN"
match = { method = ["GET"], path = "/entries/{key}", vars = { key = '^(.+@.+|\+\d+)$' } }
scope = "header:PI-PayerId"
classes = [
  { name = "PF", scope = '^\d{11}$', capacity = 100, refill = "2/min", credit = { payment = 1 } },
  { name = "PJ", scope = '^[0-9A-Z]{12}\d{2}$', capacity = 1000, refill = "20/min", credit = { payment = 2 } },
]
cost = { "200" = 1, "404" = 20, default = 0 }
hold = "worst"
correlation = "header:PI-EndToEndId"
credit_within = "12h"
alert_below = 0.2
"#,
        &[],
    );
    let [policy] = &read[..] else { panic!("{read:?}") };
    assert_eq!(policy.scope, ScopeSource::Field(Field::Header("pi-payerid".into())));
    assert_eq!(policy.hold, HoldRule::Tokens(Tokens::whole(20)));
    assert_eq!(policy.correlation, Some(Field::Header("pi-endtoendid".into())));
    assert_eq!(policy.alert_below, Some(20));
    let [only] = &policy.matches[..] else { panic!("{policy:?}") };
    assert_eq!(only.methods, ["GET"]);
    assert!(only.path.as_ref().unwrap().has("key"));
    assert!(only.vars[0].1.fits("a@b.c") && only.vars[0].1.fits("+5511987654321"));
    assert!(!only.vars[0].1.fits("12345678901"));
    let [pf, pj] = &policy.classes[..] else { panic!("{policy:?}") };
    assert_eq!((pf.bucket, pj.bucket), (bucket(100, 2, 60), bucket(1_000, 20, 60)));
    assert_eq!(pj.refill, (20, Span::from_secs(60)));
    assert!(pj.scope.as_ref().unwrap().fits("12ABC34501DE35"));
    let credit = pj.terms.credit.as_ref().unwrap();
    assert_eq!(
        (credit.tokens("payment"), credit.within()),
        (Some(Tokens::whole(2)), Span::from_secs(43_200))
    );
    assert_eq!(pf.terms.charge, pj.terms.charge);
}

#[test]
fn a_class_is_selected_by_the_environment() {
    let text = r#"
[[upstreams.dict.policies]]
name = "PARTICIPANT"
class = "${DICT_CATEGORY:-H}"
classes = [
  { name = "A", capacity = 50000, refill = "25000/min" },
  { name = "H", capacity = 50, refill = "2/min" },
]
cost = { default = 1 }
credit = { payment = 1 }
correlation = "header:PI-EndToEndId"
"#;
    for (variables, name, spec) in
        [(&[][..], "H", bucket(50, 2, 60)), (&[("DICT_CATEGORY", "A")], "A", bucket(50_000, 25_000, 60))]
    {
        let read = policies(text, variables);
        let [class] = &read[0].classes[..] else { panic!("{read:?}") };
        assert_eq!((class.name.as_ref().unwrap().as_str(), class.bucket), (name, spec));
        assert!(class.terms.credit.is_some(), "the policy's own serves all classes");
    }
}

#[test]
fn a_policy_needs_no_more_than_a_name_a_capacity_and_a_refill() {
    let read = policies(
        r#"
[[upstreams.dict.policies]]
name = "FILES"
capacity = 200
refill = "40/day"
[[upstreams.dict.policies]]
name = "TOKENS"
scope = "tenant"
capacity = 10000
refill = "10000/min"
cost = { from = "body:/usage/total_tokens", "429" = 0, default = 1 }
hold = "body:/max_tokens"
match = [{ query = { role = true } }, { query = { role = false }, headers = { X-Kind = '^a' } }]
"#,
        &[],
    );
    let [files, tokens] = &read[..] else { panic!("{read:?}") };
    assert_eq!((files.matches.len(), &files.scope), (0, &ScopeSource::Upstream));
    assert_eq!(files.hold, HoldRule::Tokens(Tokens::ONE));
    assert_eq!((files.classes[0].name.as_ref(), files.classes[0].bucket), (None, bucket(200, 40, 86_400)));
    assert!(!files.reads_bodies() && tokens.reads_bodies());
    assert_eq!(tokens.classes[0].terms.charge.source().unwrap().as_ref(), "body:/usage/total_tokens");
    assert_eq!(tokens.hold, HoldRule::Body(Field::Body("/max_tokens".into())));
    let [with, without] = &tokens.matches[..] else { panic!("{tokens:?}") };
    assert_eq!(with.query, [("role".to_owned(), Presence::There)]);
    assert_eq!(without.query, [("role".to_owned(), Presence::Absent)]);
    assert_eq!(without.headers[0].0, "x-kind");
}

#[test]
fn reconcile_has_a_path_and_a_format() {
    let policy = "[[upstreams.dict.policies]]\nname = \"LOOKUPS\"\ncapacity = 1\nrefill = \"1/s\"\n";
    let reconcile = |text: &str| {
        let file = format!("[upstreams.dict]\nurl = \"https://dict.example\"\nreconcile = {text}\n{policy}");
        let config = read(&file, &[("ISPB", "12345678")]).unwrap_or_else(|errors| panic!("{errors}"));
        config.upstreams[&Name::new("dict").unwrap()].reconcile().cloned().unwrap()
    };
    let dict = reconcile(
        r#"{ path = "/policies/", every = "1m", headers = { PI-RequestingParticipant = "${ISPB}" }, format = "dict-xml" }"#,
    );
    assert_eq!(dict.path, StatePath { path: "/policies/".into(), query: None });
    assert_eq!((dict.every.as_secs(), dict.format), (60, StateFormat::DictXml));
    assert_eq!(
        (dict.headers[0].0.as_str(), dict.headers[0].1.to_str().ok()),
        ("pi-requestingparticipant", Some("12345678"))
    );
    let json = reconcile(r#"{ path = "/v1/policies?cursor=0", format = "json" }"#);
    assert_eq!(json.path, StatePath { path: "/v1/policies".into(), query: Some("cursor=0".into()) });
    assert_eq!((json.every.as_secs(), json.format, json.headers), (30, StateFormat::Json, vec![]));
}
