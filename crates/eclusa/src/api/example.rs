//! A job that a lane accepts, for a newcomer to send first.
//!
//! It begins as the simplest job of its kind. Intake says what is wrong with it, and what it lacks is added.

use eclusa_core::JobId;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::model::JobRequest;
use crate::config::{Accept, Check, Config, Field, LaneConfig, Mode, PathSegment, Targets, UpstreamConfig};
use crate::intake::{self, DEFAULT_TENANT, Fault};
use crate::policy::{self, Subject};

/// How often the job is corrected. Each time adds everything that intake has said.
const ROUNDS: usize = 8;
/// Values to try for a field that may have any value, or one that fits a class of a policy.
const VALUES: [&str; 4] = ["x", "1", CPF, CNPJ];
const CPF: &str = "05227892180";
const CNPJ: &str = "12ABC34501DE35";
/// All characters except those that are unreserved in an address (RFC 3986).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A job that the lane accepts, as `POST /v1/lanes/{lane}/jobs` reads it; `None` if none was found.
pub(super) fn example(lane: &LaneConfig, config: &Config) -> Option<Value> {
    let mut job = simplest(lane, config.into());
    for value in VALUES.iter().cycle().take(ROUNDS) {
        let faults = faults(&job, lane, config)?;
        if faults.is_empty() {
            return Some(job);
        }
        for fault in faults {
            correct(&mut job, &fault.field, lane, value)?;
        }
    }
    None
}

fn simplest(lane: &LaneConfig, targets: Targets<'_>) -> Value {
    let upstream = lane.upstreams().next().and_then(|name| targets.upstreams.get(name));
    let has_template = |upstream: &UpstreamConfig| upstream.http().is_some_and(|http| http.request.is_some());
    match upstream {
        Some(upstream) if upstream.is_mail() => json!({ "message": {
            "from": "sender@example.com", "to": "receiver@example.com", "subject": "The first job", "text": "Hello" } }),
        Some(upstream) if has_template(upstream) && lane.mode == Mode::Queue => json!({ "params": {} }),
        _ => json!({ "request": { "path": "/" } }),
    }
}

/// What is wrong with the job; `None` if it cannot be read.
fn faults(job: &Value, lane: &LaneConfig, config: &Config) -> Option<Vec<Fault>> {
    let submission = JobRequest::read(job).ok()?;
    let found = if lane.mode == Mode::Direct {
        let request = submission.request?;
        intake::check((&request).into(), lane)
            .and_then(|chain| policy::check(&config.upstreams, chain, Subject::new(&request, DEFAULT_TENANT)))
    } else {
        submission.check(JobId(0), lane, config.into()).and_then(|checked| {
            let subject = Subject::of_job(checked.request(), &checked.shaped, checked.tenant());
            policy::check(&config.upstreams, &checked.chain, subject)
        })
    };
    Some(found.err().unwrap_or_default())
}

/// Adds what is missing at `field`; `None` if that is not known.
fn correct(job: &mut Value, field: &str, lane: &LaneConfig, value: &str) -> Option<()> {
    match (field, Field::parse(field)) {
        ("id", _) => put(job, &["id"], "first-job"),
        ("request", _) => put(job, &["request", "path"], "/"),
        ("method", _) => put(job, &["request", "method"], lane.accept.methods.first()?),
        ("path", _) => put(job, &["request", "path"], &path(&lane.accept)?),
        (_, Some(field)) => {
            let value = value_of(&field, lane).unwrap_or(value);
            match &field {
                Field::Query(name) => put(job, &["request", "query", name], value),
                Field::Header(name) => put(job, &["request", "headers", name], value),
                Field::Body(pointer) => put_at(job, &["request", "body"], pointer, value),
                Field::Params(pointer) => put_at(job, &["params"], pointer, value),
            }
        }
        _ => None,
    }
}

/// The value that the field must have, if there is a rule for it.
fn value_of<'a>(field: &Field, lane: &'a LaneConfig) -> Option<&'a str> {
    if let Some(chains) = lane.chains.as_ref().filter(|chains| chains.by == *field) {
        return chains.chains.keys().next().map(String::as_str);
    }
    match lane.validate.iter().find(|(checked, _)| checked == field)?.1 {
        Check::Cpf => Some(CPF),
        Check::Cnpj => Some(CNPJ),
        Check::Required => None,
    }
}

/// The first path that the lane accepts, with `x` for its variables.
fn path(accept: &Accept) -> Option<String> {
    let segments = accept.paths.first()?.segments.iter().map(|segment| match segment {
        PathSegment::Text(text) => utf8_percent_encode(text, ENCODED).to_string(),
        PathSegment::Var(_) => "x".to_owned(),
    });
    Some(format!("/{}", segments.collect::<Vec<_>>().join("/")))
}

/// Puts a value at a JSON pointer below `base`.
fn put_at(job: &mut Value, base: &[&str], pointer: &str, value: &str) -> Option<()> {
    let names: Vec<String> =
        pointer.split('/').skip(1).map(|name| name.replace("~1", "/").replace("~0", "~")).collect();
    let path: Vec<&str> = base.iter().copied().chain(names.iter().map(String::as_str)).collect();
    put(job, &path, value)
}

/// Sets the member at `path`; `None` if something on the way is not an object.
fn put(job: &mut Value, path: &[&str], value: &str) -> Option<()> {
    let mut at = job;
    for name in path {
        if at.is_null() {
            *at = json!({});
        }
        at = at.as_object_mut()?.entry(*name).or_insert(Value::Null);
    }
    *at = value.into();
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of lane `work` with these lines in its config, and upstreams `up` and `mail`.
    fn example_of(lane: &str, upstream: &str) -> Option<Value> {
        let text = format!(
            "[server]\npublic_url = \"http://h\"\n[lanes.work]\n{lane}\n[upstreams.up]\nurl = \"http://127.0.0.1:9\"\n{upstream}\n\
             [upstreams.mail]\nkind = \"smtp\"\nurl = \"smtp://127.0.0.1:25\"\n"
        );
        let config = Config::parse("test", &text, &|_| None).unwrap();
        let (_, lane) = config.lanes.iter().next().unwrap();
        example(lane, &config)
    }

    #[test]
    fn it_is_as_simple_as_the_lane_allows() {
        let request = |more: Value| {
            let mut request = json!({ "path": "/" });
            request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({ "request": request })
        };
        let accept = r#"accept = { methods = ["PUT", "POST"], paths = ["/a b/{id}"] }"#;
        let validate =
            r#"validate = { "query.cpf" = "cpf", "header.x-org" = "cnpj", "body./a/b" = "required" }"#;
        let chains = r#"chains = { fast = ["up"] }
            chain_by = "body:/model""#;
        for (lane, expected) in [
            (r#"chain = ["up"]"#.to_owned(), request(json!({}))),
            (format!("chain = [\"up\"]\n{accept}"), request(json!({ "method": "PUT", "path": "/a%20b/x" }))),
            (
                format!("chain = [\"up\"]\n{validate}"),
                request(
                    json!({ "query": { "cpf": CPF }, "headers": { "x-org": CNPJ }, "body": { "a": { "b": "x" } } }),
                ),
            ),
            (chains.to_owned(), request(json!({ "body": { "model": "fast" } }))),
            (
                "mode = \"direct\"\nchain = [\"up\"]\nvalidate = { \"header.x-id\" = \"required\" }"
                    .to_owned(),
                request(json!({ "headers": { "x-id": "x" } })),
            ),
        ] {
            assert_eq!(example_of(&lane, ""), Some(expected), "{lane}");
        }
    }

    #[test]
    fn lanes_that_send_mail_get_a_message() {
        let job = example_of("chain = [\"mail\"]", "").unwrap();
        assert!(job["message"]["to"].is_string() && job["request"].is_null(), "{job}");
    }

    #[test]
    fn templates_get_their_params() {
        let template = r#"request = { path = "/{tenant}/{id}", body = { input = "{params./input/text}" } }"#;
        let expected = json!({ "id": "first-job", "params": { "input": { "text": "x" } } });
        assert_eq!(example_of("chain = [\"up\"]", template), Some(expected));
        let rest = example_of(
            "chain = [\"up\", \"plain\"]",
            &format!("{template}\n[upstreams.plain]\nurl = \"http://127.0.0.1:9\""),
        );
        assert_eq!(rest.unwrap()["request"], json!({ "path": "/" }), "the other upstream has no template");
    }

    #[test]
    fn limits_by_scope_get_a_value_of_one_of_their_classes() {
        let policy = |scope: &str| {
            format!(
                "[[upstreams.up.policies]]\nname = \"USER\"\nscope = \"header:x-payer\"\n\
                 classes = [{{ name = \"PF\", scope = '{scope}', capacity = 10, refill = \"1/day\" }}]"
            )
        };
        let of = |scope| example_of("chain = [\"up\"]", &policy(scope));
        assert_eq!(of(r"^\d{11}$").unwrap()["request"]["headers"], json!({ "x-payer": CPF }));
        assert_eq!(of("^nobody guesses this$"), None);
    }
}
