//! Which buckets a request takes tokens from.

use super::*;
use crate::config::Config;

const KEY: HashKey = HashKey::new(7);

const RULES: &str = r#"
[upstreams.dict]
url = "http://dict"
[[upstreams.dict.policies]]
name = "USER"
match = { method = ["GET"], path = "/entries/{key}", vars = { key = '^(.+@.+|\+\d+)$' } }
scope = "header:PI-PayerId"
classes = [
  { name = "PF", scope = '^\d{11}$', capacity = 100, refill = "2/min", credit = { payment = 1 } },
  { name = "PJ", scope = '^[0-9A-Z]{12}\d{2}$', capacity = 1000, refill = "20/min", credit = { payment = 2 } },
]
cost = { "200" = 1, "404" = 20, default = 0 }
hold = "worst"
correlation = "header:PI-EndToEndId"
[[upstreams.dict.policies]]
name = "PSP"
match = { method = ["GET"], path = "/entries/{key}" }
capacity = 50
refill = "2/min"
[[upstreams.dict.policies]]
name = "LIST_WITH_ROLE"
match = [{ path = "/claims", query = { IsDonor = true } }, { path = "/claims", query = { IsClaimer = '^true$' } }]
capacity = 200
refill = "40/min"
[[upstreams.dict.policies]]
name = "LIST_WITHOUT_ROLE"
match = { path = "/claims", query = { IsDonor = false, IsClaimer = false } }
capacity = 50
refill = "10/min"
[upstreams.llm]
url = "http://llm"
[[upstreams.llm.policies]]
name = "TOKENS"
scope = "body:/user"
capacity = 1000
refill = "1000/min"
hold = "body:/max_tokens"
[[upstreams.llm.policies]]
name = "TENANT"
scope = "tenant"
match = { headers = { X-Model = '^big' } }
capacity = 5
refill = "1/day"
"#;

fn upstreams() -> BTreeMap<Name, UpstreamConfig> {
    Config::parse("eclusa.toml", RULES, &|_: &str| None).unwrap().upstreams
}

fn request(method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Request {
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    Request {
        method: method.into(),
        path: path.into(),
        query: query.map(Into::into),
        headers: headers.iter().map(|(name, value)| ((*name).into(), value.as_bytes().to_vec())).collect(),
        body: body.into(),
    }
}

fn taken(chain: &[&str], subject: Subject<'_>) -> Result<Takes, Vec<Fault>> {
    let upstreams = upstreams();
    let chain: Vec<Name> = chain.iter().map(|name| Name::new(name).unwrap()).collect();
    let limited: Vec<_> = chain.iter().map(|name| (name, upstreams[name].policies())).collect();
    takes(&limited, subject, KEY)
}

/// Policy, class and tokens of each bucket that is taken from.
fn names(takes: &Takes) -> Vec<(String, i64)> {
    let name = |hold: &Hold| {
        let id = BucketId::parse(hold.bucket()).unwrap();
        let class = id.class.map_or(String::new(), |class| format!("/{class}"));
        (format!("{}{class}", id.policy), hold.tokens().as_micro() / 1_000_000)
    };
    takes.holds.iter().map(name).collect()
}

fn policies(target: &str, headers: &[(&str, &str)]) -> Vec<String> {
    let request = request("GET", target, headers, "");
    let takes = taken(&["dict"], Subject::new(&request, "acme")).unwrap();
    names(&takes).into_iter().map(|(name, _)| name).collect()
}

const PF: (&str, &str) = ("pi-payerid", "12345678901");

#[test]
fn all_policies_that_match_apply_at_once() {
    let headers = [PF, ("pi-endtoendid", "E1")];
    let lookup = request("GET", "/entries/a@b.c", &headers, "");
    let takes = taken(&["dict"], Subject::new(&lookup, "acme")).unwrap();
    assert_eq!(names(&takes), [("USER/PF".into(), 20), ("PSP".into(), 1)]);
    assert_eq!(takes.correlation, Some(KEY.correlation("E1")));
    let bucket = BucketId::parse(takes.holds[0].bucket()).unwrap();
    assert_eq!(bucket.scope, Some(KEY.scope("12345678901")));
    assert!(!format!("{takes:?}").contains("12345678901"), "no identifier in what is stored or logged");
    let company = request("GET", "/entries/a@b.c", &[("pi-payerid", "12ABC34501DE35")], "");
    let takes = taken(&["dict"], Subject::new(&company, "acme")).unwrap();
    assert_eq!((names(&takes)[0].0.as_str(), takes.correlation), ("USER/PJ", None));
}

#[test]
fn method_path_variables_query_and_headers_decide() {
    for (target, expected) in [
        ("/entries/12345678901", &["PSP"][..]),
        ("/entries/%2B5511987654321", &["USER/PF", "PSP"]),
        ("//entries//a@b.c/", &["USER/PF", "PSP"]),
        ("/%65ntries/a@b.c", &["USER/PF", "PSP"]),
        ("/entries", &[]),
        ("/entries/a/b", &[]),
        ("/claims?IsDonor=false", &["LIST_WITH_ROLE"]),
        ("/claims/?IsClaimer=true", &["LIST_WITH_ROLE"]),
        ("/claims?IsClaimer=false", &[]),
        ("/claims?Status=OPEN", &["LIST_WITHOUT_ROLE"]),
    ] {
        assert_eq!(policies(target, &[PF]), expected, "{target}");
    }
    let post = request("POST", "/entries/a@b.c", &[], "");
    assert_eq!(taken(&["dict"], Subject::new(&post, "acme")), Ok(Takes::default()));
}

#[test]
fn a_request_without_a_scope_value_is_refused() {
    let said = |headers: &[(&str, &str)]| {
        let lookup = request("GET", "/entries/a@b.c", headers, "");
        let faults = taken(&["dict"], Subject::new(&lookup, "acme")).unwrap_err();
        faults.into_iter().map(|fault| format!("{} {}", fault.field, fault.problem)).collect::<Vec<_>>()
    };
    assert_eq!(said(&[]), ["header.pi-payerid is missing: policy USER counts by it"]);
    assert_eq!(said(&[("pi-payerid", "")]), said(&[]));
    let unfit = said(&[("pi-payerid", "987")]);
    assert_eq!(unfit, ["header.pi-payerid fits no class of policy USER (PF, PJ)"], "and not the value");
}

#[test]
fn a_hold_may_come_from_the_body_and_a_scope_from_the_tenant() {
    let ask = |body: &str| {
        let request = request("POST", "/v1/chat", &[("x-model", "big-1")], body);
        let takes = taken(&["llm"], Subject::new(&request, "acme"));
        takes.map(|takes| (names(&takes), takes.holds[1].bucket().to_owned()))
    };
    let tenant = format!("llm/TENANT//{}", KEY.scope("acme"));
    let holds = |tokens| Ok((vec![("TOKENS".to_owned(), tokens), ("TENANT".to_owned(), 1)], tenant.clone()));
    assert_eq!(ask(r#"{"user":"u1","max_tokens":300}"#), holds(300));
    assert_eq!(ask(r#"{"user":"u1"}"#), holds(1));
    assert_eq!(ask(r#"{"user":"u1","max_tokens":null}"#), holds(1));
    for (wrong, problem) in [
        (r#"{"user":"u1","max_tokens":"many"}"#, "must be a number: policy TOKENS takes as many tokens"),
        (
            r#"{"user":"u1","max_tokens":1001}"#,
            "must be above 0 and at most 1000, the capacity of policy TOKENS",
        ),
        (
            r#"{"user":"u1","max_tokens":0}"#,
            "must be above 0 and at most 1000, the capacity of policy TOKENS",
        ),
    ] {
        assert_eq!(ask(wrong), Err(vec![Fault::new("body./max_tokens", problem)]), "{wrong}");
    }
    assert_eq!(ask("{}").unwrap_err()[0].field, "body./user");
}

#[test]
fn a_chain_takes_at_each_of_its_upstreams() {
    let request = request("GET", "/entries/1", &[], r#"{"user":"u1"}"#);
    let takes = taken(&["dict", "llm"], Subject::new(&request, "acme")).unwrap();
    assert_eq!(names(&takes), [("PSP".into(), 1), ("TOKENS".into(), 1)]);
    let only = takes.at(&[Name::new("llm").unwrap()]);
    assert_eq!(only, takes.holds[1..]);
}

#[test]
fn scope_and_hold_may_be_given_separately_from_the_request() {
    let lookup = request("GET", "/entries/a@b.c", &[], "");
    let given =
        Subject { scope: Some("12345678901"), hold: Some(Tokens::whole(7)), ..Subject::new(&lookup, "acme") };
    let takes = taken(&["dict"], given).unwrap();
    assert_eq!(names(&takes), [("USER/PF".into(), 7), ("PSP".into(), 7)]);
    assert!(takes.holds[0].bucket().ends_with(&KEY.scope("12345678901").to_string()));
    let much = Subject { hold: Some(Tokens::whole(60)), ..given };
    assert_eq!(taken(&["dict"], much).unwrap_err()[0].field, "hold");
}
