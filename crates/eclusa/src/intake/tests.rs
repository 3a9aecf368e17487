//! What intake accepts and refuses.

use std::sync::Arc;

use eclusa_core::{JobId, Level, Name, Span};

use super::*;
use crate::config::Config;

const UPSTREAM: &str = "[upstreams.bureau]\nurl = \"http://bureau\"\n";

fn config(text: &str) -> Config {
    Config::parse("test.toml", text, &|_| None).unwrap()
}

fn rules(lane: &str) -> Arc<LaneConfig> {
    let config = config(&format!("[lanes.score]\nchain = [\"bureau\"]\n{lane}\n{UPSTREAM}"));
    config.lanes.into_values().next().unwrap()
}

fn submission(query: &str) -> Submission {
    let request = Request {
        method: "GET".into(),
        path: "/score".into(),
        query: Some(query.into()),
        headers: Vec::new(),
        body: Vec::new(),
    };
    Submission {
        key: None,
        tenant: "acme".into(),
        priority: None,
        kind: None,
        delay: Span::ZERO,
        ttl: None,
        params: None,
        request: Some(request),
        message: None,
        callback: None,
        trace: None,
    }
}

fn job(submission: Submission, rules: &LaneConfig) -> Result<NewJob, Vec<Fault>> {
    let checked = submission.check(JobId(1), rules, (&config(UPSTREAM)).into())?;
    Ok(checked.into_job(&Name::new("score").unwrap()))
}

fn faults(query: &str, rules: &LaneConfig) -> Vec<String> {
    let faults = job(submission(query), rules).err().unwrap_or_default();
    faults.into_iter().map(|fault| format!("{}: {}", fault.field, fault.problem)).collect()
}

#[test]
fn only_validated_fields_are_accepted_and_each_once() {
    let rules = rules("validate = { \"query.cpf\" = \"cpf\" }");
    assert_eq!(faults("cpf=05227892180", &rules), [""; 0]);
    assert_eq!(faults("", &rules), ["query.cpf: is missing"]);
    assert_eq!(
        faults("cpf=05227892180&priority=high", &rules),
        ["query.priority: is not accepted here: send only `cpf`"]
    );
    assert_eq!(faults("cpf=05227892180&cpf=05227892180", &rules), ["query.cpf: is given more than once"]);
    let wrong = faults("cpf=05227892181", &rules);
    assert!(wrong.len() == 1 && !wrong[0].contains("05227892181"), "{wrong:?}");
}

#[test]
fn names_with_slashes_and_tildes_are_escaped_as_in_pointers() {
    let rules = rules("validate = { \"body./a~1b\" = \"required\", \"body./c~01\" = \"required\" }");
    let wrong = |body: &str| {
        let mut submission = submission("");
        submission.request.as_mut().unwrap().body = body.into();
        let faults = job(submission, &rules).err().unwrap_or_default();
        faults.into_iter().map(|fault| fault.field).collect::<Vec<_>>()
    };
    assert_eq!(wrong(r#"{"a/b": 1, "c~1": 2}"#), [""; 0]);
    assert_eq!(wrong(r#"{"a/b": 1, "c~1": 2, "a~1b": 3, "c/": 4}"#), ["body./a~01b", "body./c~1"]);
}

#[test]
fn a_type_sets_the_priority_unless_the_caller_does() {
    let rules = rules("types = { update = \"high\" }");
    let typed = |kind: &str, priority| Submission { kind: Some(kind.into()), priority, ..submission("") };
    assert_eq!(typed("update", None).level(&rules), Level::High);
    assert_eq!(typed("other", None).level(&rules), Level::Normal);
    assert_eq!(typed("update", Some(Level::Low)).level(&rules), Level::Low);
}

#[test]
fn a_cache_key_needs_all_its_fields() {
    let rules = rules("cache = { key = \"{query.cpf}\", ttl = \"60s\" }");
    let key = |query| job(submission(query), &rules).unwrap().cache_key;
    assert!(key("cpf=1").is_some());
    assert_eq!(key("other=1"), None);
}

#[test]
fn cache_keys_differ_by_method_and_path() {
    let key = |cache: &str, method: &str, path: &str| {
        let rules = rules(&format!("cache = {{ key = \"{{query.cpf}}\", ttl = \"60s\", {cache} }}"));
        let mut submission = submission("cpf=1");
        let request = submission.request.as_mut().unwrap();
        (request.method, request.path) = (method.into(), path.into());
        job(submission, &rules).unwrap().cache_key.map(|key| key.to_string())
    };
    assert_eq!(key("", "GET", "").as_deref(), Some("GET  1"));
    assert_ne!(key("", "GET", ""), key("", "GET", "/other"));
    assert_eq!(key("", "POST", ""), None);
    let both = "methods = [\"GET\", \"POST\"]";
    assert!(key(both, "POST", "").is_some());
    assert_ne!(key(both, "GET", ""), key(both, "POST", ""));
    let all = "key_scope = \"all\"";
    assert_eq!(key(all, "GET", "").as_deref(), Some("1"));
    assert_eq!(key(all, "GET", "/other").as_deref(), Some("1"));
    assert_eq!(key(all, "POST", ""), None);
}

/// An upstream that uses the last value would answer for another person than the key names.
#[test]
fn a_repeated_name_makes_no_cache_key() {
    let rules = rules("cache = { key = \"{query.person}\", ttl = \"60s\" }");
    let key = |query| job(submission(query), &rules).unwrap().cache_key;
    assert!(key("person=1&other=2").is_some());
    assert_eq!(key("person=1&person=2"), None);
}

#[test]
fn a_job_without_a_request_shares_no_key_with_one_that_has_it() {
    let rules = rules("cache = { key = \"{tenant}\", ttl = \"60s\" }");
    let fields = Fields::new(None, None);
    let of_params = render(rules.cache_key.as_ref().unwrap(), &fields, "GET /score acme", None);
    let of_request = job(Submission { tenant: "acme".into(), ..submission("") }, &rules).unwrap().cache_key;
    assert_eq!(of_request.as_deref(), Some("GET /score acme"));
    assert_ne!(of_params.as_deref(), of_request.as_deref());
}

#[test]
fn only_accepted_methods_and_paths_get_in() {
    let rules = rules("accept = { methods = [\"GET\"], paths = [\"/\", \"/of/{person}\"] }");
    let wrong = |method: &str, path: &str| {
        let mut submission = submission("");
        let request = submission.request.as_mut().unwrap();
        (request.method, request.path) = (method.into(), path.into());
        let faults = job(submission, &rules).err().unwrap_or_default();
        faults.into_iter().map(|fault| format!("{}: {}", fault.field, fault.problem)).collect::<Vec<_>>()
    };
    for path in ["", "/", "/of/me"] {
        assert_eq!(wrong("GET", path), [""; 0], "{path}");
    }
    let (method, path) = (
        "method: is not accepted by this lane: use `GET`",
        "path: is not accepted by this lane: see `accept` in its config",
    );
    assert_eq!(wrong("POST", ""), [method]);
    assert_eq!(wrong("GET", "/other"), [path]);
    assert_eq!(wrong("GET", "/of/me/too"), [path]);
    assert_eq!(wrong("POST", "/other"), [method, path]);
}

#[test]
fn adjacent_values_of_a_key_stay_distinct() {
    let rules = rules("cache = { key = \"{tenant}-{query.id}\", ttl = \"60s\" }");
    let key = |tenant: &str, query| {
        let submission = Submission { tenant: tenant.into(), ..submission(query) };
        job(submission, &rules).unwrap().cache_key.unwrap()
    };
    assert_ne!(key("a", "id=b-c"), key("a-b", "id=c"));
}

#[test]
fn requests_that_a_key_cannot_distinguish_are_not_cached() {
    let rules = rules("cache = { key = \"{query.cpf}\", ttl = \"60s\" }");
    let key = |change: fn(&mut Request)| {
        let mut submission = submission("cpf=1");
        change(submission.request.as_mut().unwrap());
        job(submission, &rules).unwrap().cache_key
    };
    assert!(key(|_| ()).is_some());
    assert_eq!(key(|request| request.method = "HEAD".into()), None);
    assert_eq!(key(|request| request.headers.push(("range".into(), b"bytes=0-1".to_vec()))), None);
    assert_eq!(key(|request| request.body = b"more".to_vec()), None);
    assert_eq!(key(|request| request.headers.push(("if-none-match".into(), b"x".to_vec()))), None);
}

#[test]
fn the_same_key_of_another_tenant_is_another_payload() {
    let rules = rules("");
    let of = |tenant: &str| {
        job(Submission { tenant: tenant.into(), ..submission("") }, &rules).unwrap().fingerprint
    };
    assert_ne!(of("a"), of("b"));
}

#[test]
fn headers_do_not_change_the_payload() {
    let rules = rules("");
    let plain = job(submission("a=1"), &rules).unwrap();
    let mut traced = submission("a=1");
    traced.request.as_mut().unwrap().headers.push(("traceparent".into(), b"00-1".to_vec()));
    assert_eq!(job(traced, &rules).unwrap().fingerprint, plain.fingerprint);
    assert_ne!(job(submission("a=2"), &rules).unwrap().fingerprint, plain.fingerprint);
}

#[test]
fn invalid_names_and_times_are_reported() {
    let bad = Submission {
        tenant: String::new(),
        kind: Some("a\nb".into()),
        ttl: Some(Span::ZERO),
        ..submission("")
    };
    let fields: Vec<String> =
        job(bad, &rules("")).unwrap_err().into_iter().map(|fault| fault.field).collect();
    assert_eq!(fields, ["tenant", "type", "ttl"]);
}

const PROVIDERS: &str = "[lanes.score]\nchain_by = 'params:/model'\nchains = { flux = ['a', 'b'], other = ['b'] }\n\
    [upstreams.a]\nurl = 'http://a'\nrequest = { path = '/{params./x}' }\n[upstreams.b]\nurl = 'http://b'\n";

fn of_params(params: &str, request: bool) -> Result<Checked, Vec<Fault>> {
    let config = config(PROVIDERS);
    let mut submission = Submission { params: Some(params.into()), ..submission("") };
    submission.request = submission.request.filter(|_| request);
    submission.check(JobId(1), &config.lanes[&Name::new("score").unwrap()], (&config).into())
}

#[test]
fn params_select_the_chain_and_must_satisfy_its_templates() {
    let chain =
        |params| of_params(params, true).unwrap().chain.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(chain(r#"{"model": "flux", "x": 1}"#), ["a", "b"]);
    assert_eq!(chain(r#"{"model": "other"}"#), ["b"]);
    let faults = |params, request| {
        let faults = of_params(params, request).err().unwrap_or_default();
        faults.into_iter().map(|fault| format!("{} {}", fault.field, fault.problem)).collect::<Vec<_>>()
    };
    let known = "send one of `flux`, `other`";
    assert_eq!(faults("{}", true), [format!("params./model is missing: it selects the upstreams; {known}")]);
    assert_eq!(
        faults(r#"{"model": 1}"#, true),
        [format!("params./model has a value without a chain; {known}")]
    );
    assert_eq!(faults(r#"{"model": "flux"}"#, true), ["params./x is missing, but upstream `a` needs it"]);
    assert_eq!(
        faults(r#"{"model": "flux", "x": 1}"#, false),
        ["request is missing: upstream `b` has no template that builds it from `params`"]
    );
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    assert!(faults(&deep, true).iter().any(|fault| fault.contains("levels deep")));
}

#[test]
fn only_validated_params_are_accepted() {
    let rules = rules("validate = { \"params./cpf\" = \"cpf\" }");
    let fields = |params: &str| {
        let submission = Submission { params: Some(params.into()), ..submission("") };
        let faults = job(submission, &rules).err().unwrap_or_default();
        faults.into_iter().map(|fault| fault.field).collect::<Vec<_>>()
    };
    assert_eq!(fields(r#"{"cpf": "05227892180"}"#), [""; 0]);
    assert_eq!(fields(r#"{"cpf": "05227892181", "more": 1}"#), ["params./cpf", "params./more"]);
}

#[test]
fn the_same_key_with_other_params_is_another_payload() {
    let of = |params: Option<&str>| {
        let submission = Submission { params: params.map(Into::into), ..submission("") };
        job(submission, &rules("")).unwrap().fingerprint
    };
    assert_ne!(of(Some("1")), of(Some("2")));
    assert_ne!(of(Some("1")), of(None));
}
