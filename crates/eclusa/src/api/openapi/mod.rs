//! The OpenAPI document: what the handlers declare, completed with what many calls share: their names, errors, keys,
//! response headers, and the methods of the proxy.

mod examples;
mod operations;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;

use self::operations::{OPERATIONS, Operation, PATH, PROXY};
use super::problem::Kind;
use super::session;

/// Tags of the calls, with descriptions.
const TAGS: [(&str, &str); 13] = [
    ("proxy", "Requests forwarded to upstreams."),
    ("jobs", "Jobs: enqueue, follow, cancel."),
    ("lanes", "Queues and their tenants."),
    ("upstreams", "Third-party APIs and the state of their gates."),
    ("breakers", "Circuit breakers, shared with workers that make their own calls."),
    ("limits", "Permits for workers that make their own calls."),
    ("session", "Signing in to the dashboard."),
    ("policies", "Token buckets by scope."),
    ("dead-letters", "Jobs that failed permanently."),
    ("webhooks", "Upstreams report how jobs ended."),
    ("alerts", "Conditions that need attention."),
    ("health", "The state of the process and the store."),
    ("docs", "This document."),
];

/// Calls whose body is optional.
const OPTIONAL_BODY: [&str; 2] = ["acquire", "replayDeadLetters"];

/// The document as it is served.
pub(super) fn complete(api: &OpenApi) -> Value {
    let mut document = serde_json::to_value(api).unwrap_or_default();
    every_method_of_the_proxy(&mut document);
    let mut errors = BTreeMap::new();
    for operation in OPERATIONS.iter().chain(&PROXY) {
        let path = document["paths"].get_mut(operation.path);
        if let Some(call) = path.and_then(|calls| calls.get_mut(operation.method)) {
            complete_call(call, operation, &mut errors);
        }
    }
    errors.insert(pascal_case(Kind::MethodNotAllowed.word()), error(&[Kind::MethodNotAllowed]));
    document["components"]["responses"] = errors.into_iter().collect::<Map<_, _>>().into();
    document["components"]["securitySchemes"] = json!({ "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A key from `[[auth.keys]]` of the config. A server without keys accepts only local programs, without a key.",
    }, "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": session::NAME,
        "description": "The cookie of `POST /v1/session`, for pages of this server. Not accepted by `/proxy`.",
    } });
    document["security"] = json!([{ "bearer": [] }, { "session": [] }]);
    examples::add(&mut document);
    document["tags"] = TAGS.iter().map(|(name, text)| json!({ "name": name, "description": text })).collect();
    document["webhooks"] = job_ended();
    document
}

fn every_method_of_the_proxy(document: &mut Value) {
    for Operation { path, method, .. } in PROXY {
        let mut call = document["paths"][path]["get"].clone();
        if matches!(method, "post" | "put" | "patch" | "delete") {
            // Generators do not support content of type `*/*`.
            let content = json!({
                "application/json": { "schema": {} },
                "application/octet-stream": { "schema": { "type": "string", "format": "binary" } },
            });
            call["requestBody"] =
                json!({ "description": "Of any type; forwarded unchanged.", "content": content });
        }
        document["paths"][path][method] = call;
    }
}

fn complete_call(call: &mut Value, operation: &Operation, errors: &mut BTreeMap<String, Value>) {
    call["operationId"] = operation.id.into();
    for parameter in call.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
        complete_parameter(parameter, operation.path);
    }
    if OPTIONAL_BODY.contains(&operation.id) {
        call["requestBody"]["required"] = false.into();
    }
    if operation.open {
        call["security"] = json!([]);
    } else if operation.path == PATH {
        call["security"] = json!([{ "bearer": [] }]);
    }
    let mut by_status: BTreeMap<u16, Vec<Kind>> = BTreeMap::new();
    for kind in kinds(call, operation) {
        let of_status = by_status.entry(kind.status().as_u16()).or_default();
        if !of_status.contains(&kind) {
            of_status.push(kind);
        }
    }
    for (status, kinds) in by_status {
        let name = kinds.iter().map(|kind| pascal_case(kind.word())).collect::<Vec<_>>().join("Or");
        call["responses"][status.to_string()] = json!({ "$ref": format!("#/components/responses/{name}") });
        errors.entry(name).or_insert_with(|| error(&kinds));
    }
    let (waits, summary) = (names_parameter(call, "Prefer"), call["summary"].clone());
    for (status, response) in call["responses"].as_object_mut().into_iter().flatten() {
        if response.get("$ref").is_none() {
            add_headers(response, status, waits, operation.path);
            if response.get("description").is_none() {
                response["description"] = summary.clone();
            }
        }
    }
}

/// What `utoipa` cannot know: parameters of our `Query` are not in the path, and none can be `null`.
fn complete_parameter(parameter: &mut Value, path: &str) {
    let name = parameter["name"].as_str().unwrap_or_default();
    if parameter["in"] == "path" && !path.contains(&format!("{{{name}}}")) {
        parameter["in"] = "query".into();
        parameter["required"] = false.into();
    }
    let schema = &mut parameter["schema"];
    let not_null =
        |options: &Value, null: Value| options.as_array()?.iter().find(|one| **one != null).cloned();
    if let Some(kind) = not_null(&schema["type"], json!("null")) {
        schema["type"] = kind;
    } else if let Some(kind) = not_null(&schema["oneOf"], json!({ "type": "null" })) {
        *schema = kind;
    }
}

/// The errors of a call: those that follow from its shape, then its own.
fn kinds(call: &Value, operation: &Operation) -> Vec<Kind> {
    // Every call refuses unknown query parameters or headers.
    let mut kinds = vec![Kind::Invalid];
    if !operation.open {
        kinds.extend([Kind::Unauthorized, Kind::Forbidden]);
    }
    if operation.path.contains('{') {
        kinds.extend([Kind::BadRequest, Kind::NotFound]);
    }
    if call.get("requestBody").is_some() {
        kinds.extend([Kind::BadRequest, Kind::TooSlow, Kind::TooLarge, Kind::TooManyBodies]);
    }
    if operation.path != "/livez" {
        kinds.push(Kind::StoreUnavailable);
    }
    kinds.extend(operation.errors);
    kinds.sort_by_key(|kind| *kind as usize);
    kinds
}

fn names_parameter(call: &Value, name: &str) -> bool {
    call["parameters"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == name))
}

/// One error status of a call, as problem details.
fn error(kinds: &[Kind]) -> Value {
    let sentence = |kind: &Kind| format!("`{}`: {}.", kind.word(), kind.title());
    let description = kinds.iter().map(sentence).collect::<Vec<_>>().join(" ");
    let examples = kinds.iter().map(|kind| {
        let example = json!({ "type": kind.urn(), "title": kind.title(), "status": kind.status().as_u16(),
            "detail": kind.title() });
        (kind.word().to_owned(), json!({ "value": example }))
    });
    let content = json!({ "application/problem+json": {
        "schema": { "$ref": "#/components/schemas/Problem" },
        "examples": examples.collect::<Map<_, _>>(),
    } });
    let mut response = json!({ "description": description, "content": content });
    let headers: &[&str] = match kinds[0].status().as_u16() {
        401 => &["WWW-Authenticate"],
        405 => &["Allow"],
        429 => &["Retry-After", "RateLimit", "RateLimit-Policy"],
        503 => &["Retry-After"],
        _ => &[],
    };
    for name in headers {
        response["headers"][name] = header(name);
    }
    response
}

fn add_headers(response: &mut Value, status: &str, waits: bool, path: &str) {
    let accepted = response.pointer("/content/application~1json/schema/$ref");
    let accepted = accepted.is_some_and(|schema| schema == "#/components/schemas/Accepted");
    let mut names = Vec::new();
    if accepted {
        names.extend(["Location", "Eclusa-Job-Id"]);
    } else if waits {
        names.push("Eclusa-Job-Id");
    }
    if waits {
        names.push("Preference-Applied");
    }
    if waits && status != "202" {
        names.push("Cache-Status");
    }
    if path.starts_with("/proxy/") && !accepted {
        names.extend(["Eclusa-Upstream", "Eclusa-Attempts", "RateLimit", "RateLimit-Policy"]);
    }
    for name in names {
        response["headers"][name] = header(name);
    }
}

/// A response header; none is in every response.
fn header(name: &str) -> Value {
    let (kind, description) = match name {
        "Allow" => ("string", "The methods of the path."),
        "Location" => ("string", "The URL of the job."),
        "Eclusa-Job-Id" => ("string", "The job's id."),
        "Eclusa-Upstream" => ("string", "The last upstream of the job."),
        "Eclusa-Attempts" => ("integer", "Attempts started."),
        "Preference-Applied" => ("string", "`wait=N`, with the seconds granted."),
        "Cache-Status" => ("string", "Where the response comes from (RFC 9211)."),
        "Retry-After" => ("integer", "Seconds after which to try again."),
        "RateLimit" => ("string", "What is left of the tightest limit."),
        "RateLimit-Policy" => ("string", "What that limit allows."),
        _ => ("string", "How to authenticate."),
    };
    json!({ "description": description, "schema": { "type": kind } })
}

/// The message posted to a job's `callbackUrl`.
fn job_ended() -> Value {
    let signed = |name: &str, description: &str| {
        json!({ "name": name, "in": "header", "required": true, "description": description,
            "schema": { "type": "string" } })
    };
    json!({ "jobEnded": { "post": {
        "operationId": "jobEnded",
        "tags": ["webhooks"],
        "summary": "A job has ended",
        "description": "Posted to the job's `callbackUrl`, signed according to Standard Webhooks.",
        "security": [],
        "parameters": [
            signed("webhook-id", "The id of the message; the same when it is retried."),
            signed("webhook-timestamp", "Seconds since 1970. Refuse messages older than five minutes."),
            signed("webhook-signature", "`v1,` and the base64 of HMAC-SHA-256 over `{webhook-id}.{webhook-timestamp}.{body}`."),
        ],
        "requestBody": { "required": true, "content": {
            "application/json": { "schema": { "$ref": "#/components/schemas/Job" } },
        } },
        "responses": {
            "2XX": { "description": "Received." },
            "410": { "description": "The receiver is gone: not retried." },
        },
    } } })
}

/// Converts `queue-full` to `QueueFull`.
fn pascal_case(word: &str) -> String {
    let capital = |part: &str| {
        let (first, rest) = part.split_at(part.len().min(1));
        first.to_uppercase() + rest
    };
    word.split('-').map(capital).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::description;

    fn operations(document: &Value) -> Vec<(String, String, Value)> {
        let paths = document["paths"].as_object().unwrap().iter();
        let calls = |(path, methods): (&String, &Value)| {
            let calls = methods.as_object().unwrap().clone().into_iter();
            let path = path.clone();
            calls.map(move |(method, call)| (method, path.clone(), call)).collect::<Vec<_>>()
        };
        paths.flat_map(calls).collect()
    }

    #[test]
    fn every_call_has_a_unique_name_and_a_known_tag() {
        let document = complete(&description());
        let calls = operations(&document);
        assert_eq!(
            calls.len(),
            OPERATIONS.len() + PROXY.len(),
            "a call is missing in OPERATIONS, or one is gone"
        );
        let mut names = BTreeSet::new();
        for (method, path, call) in &calls {
            let known = OPERATIONS.iter().chain(&PROXY).find(|one| one.method == method && one.path == path);
            assert!(known.is_some(), "{method} {path} is not in OPERATIONS");
            assert!(names.insert(call["operationId"].to_string()), "{method} {path}");
            assert!(TAGS.iter().any(|(tag, _)| call["tags"][0] == *tag), "{method} {path}: {}", call["tags"]);
        }
    }

    #[test]
    fn every_error_is_a_problem() {
        let document = complete(&description());
        for (method, path, call) in operations(&document) {
            for (status, response) in call["responses"].as_object().unwrap() {
                if status.starts_with(['4', '5']) {
                    let name = response["$ref"].as_str().unwrap_or_default().rsplit('/').next().unwrap();
                    let content = &document["components"]["responses"][name]["content"];
                    let schema = &content["application/problem+json"]["schema"]["$ref"];
                    assert_eq!(schema, "#/components/schemas/Problem", "{method} {path} {status}");
                }
            }
        }
    }

    /// What is wrong with a value according to a schema, with where.
    fn faults(document: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
        if let Some(name) = schema["$ref"].as_str() {
            return faults(document, document.pointer(&name[1..]).unwrap(), value, at);
        }
        let of = |schema: &Value, value: &Value, at: &str| faults(document, schema, value, at);
        let alternatives = schema["oneOf"].as_array().map(Vec::as_slice).unwrap_or_default();
        if !alternatives.is_empty() {
            let fits = alternatives.iter().any(|one| of(one, value, at).is_empty());
            return if fits { Vec::new() } else { vec![format!("{at}: none of oneOf: {value}")] };
        }
        if let Some(parts) = schema["allOf"].as_array() {
            return parts.iter().flat_map(|part| of(part, value, at)).collect();
        }
        let is = |kind: &Value| match kind.as_str().unwrap() {
            "null" => value.is_null(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64(),
            "number" => value.is_number(),
            "string" => value.is_string(),
            "array" => value.is_array(),
            _ => value.is_object(),
        };
        let right = match &schema["type"] {
            Value::Null => true,
            Value::Array(kinds) => kinds.iter().any(is),
            kind => is(kind),
        };
        let listed = schema["enum"].as_array().is_none_or(|words| words.contains(value));
        let time = schema["format"] != "date-time" || value.as_str().is_none_or(|text| text.ends_with('Z'));
        let mut found = Vec::new();
        if !right || !listed || !time {
            found.push(format!("{at}: {value}"));
        }
        let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
        found.extend(items.iter().flat_map(|item| of(&schema["items"], item, &format!("{at}[]"))));
        for (name, value) in value.as_object().into_iter().flatten() {
            match (schema["properties"].get(name), schema.get("additionalProperties")) {
                (Some(schema), _) | (None, Some(schema)) => {
                    found.extend(of(schema, value, &format!("{at}.{name}")));
                }
                (None, None) if schema.get("properties").is_some() => {
                    found.push(format!("{at}.{name} is unknown"));
                }
                (None, None) => {}
            }
        }
        let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
        let missing = required.iter().filter(|name| value.get(name.as_str().unwrap()).is_none());
        found.extend(missing.map(|name| format!("{at}.{name} is missing")));
        found
    }

    #[test]
    fn every_json_response_has_an_example_that_fits_its_schema() {
        let (document, mut seen) = (complete(&description()), 0);
        for (method, path, call) in operations(&document) {
            for (status, response) in call["responses"].as_object().unwrap() {
                let content = &response["content"]["application/json"];
                if !status.starts_with('2') || content.is_null() {
                    continue;
                }
                let named = content["schema"]["$ref"].as_str().and_then(|name| document.pointer(&name[1..]));
                let example =
                    content.get("example").or_else(|| named.and_then(|schema| schema.get("example")));
                let example = example.unwrap_or_else(|| panic!("{method} {path} {status} has no example"));
                // Members of the parts of `allOf` are unknown to each other.
                let mut found = faults(&document, &content["schema"], example, "");
                found.retain(|fault| path != "/v1/status" || !fault.ends_with("is unknown"));
                assert!(found.is_empty(), "{method} {path} {status}: {found:?}");
                seen += 1;
            }
        }
        assert!(seen > 50, "{seen}");
        let lane = json!({ "$ref": "#/components/schemas/Lane" });
        let wrong = json!({ "name": 7, "mode": "fast", "lastStart": "soon", "extra": 1 });
        let found = faults(&document, &lane, &wrong, "");
        for part in [
            ".name: 7",
            ".mode: \"fast\"",
            ".lastStart: \"soon\"",
            ".extra is unknown",
            "\"paused\" is missing",
        ] {
            assert!(found.iter().any(|fault| fault.contains(part)), "{part}: {found:?}");
        }
    }

    /// Whether a text lists words, as in "`ok`, or `lost` …".
    fn lists_words(text: &str) -> bool {
        let is_word = |part: &str| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        // Odd parts are between backticks.
        let parts: Vec<&str> = text.split('`').collect();
        let between = |part: &&[&str]| {
            is_word(part[0]) && is_word(part[2]) && [", ", " or ", ", or "].contains(&part[1])
        };
        parts.windows(3).skip(1).step_by(2).any(|part| between(&part))
    }

    #[test]
    fn every_closed_list_of_words_is_an_enum() {
        assert!(lists_words("What it means: `fsync`, `write` or `replicate`."));
        assert!(lists_words("`ok`, or `lost` while it does not answer."));
        assert!(!lists_words("The id (`id` or `Idempotency-Key`), or `text`."));
        let document = complete(&description());
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            for (property, schema) in schema["properties"].as_object().into_iter().flatten() {
                let text = schema["type"] == "string" || schema["type"] == json!(["string", "null"]);
                let listed = schema["description"].as_str().is_some_and(lists_words);
                assert!(!text || !listed || schema.get("enum").is_some(), "{name}.{property}: {schema}");
            }
        }
    }

    #[test]
    fn errors_that_any_call_can_have_are_documented() {
        let document = complete(&description());
        for (method, path, call) in operations(&document) {
            let has = |status: &str, kind: &str| {
                call["responses"][status]["$ref"].as_str().is_some_and(|name| name.contains(kind))
            };
            assert!(has("422", "Invalid"), "{method} {path}");
            assert_eq!(
                has("503", "TooManyBodies"),
                call.get("requestBody").is_some() || path == PATH,
                "{path}"
            );
            let bearer_only = json!([{ "bearer": [] }]);
            assert_eq!(call["security"] == bearer_only, path == PATH, "{method} {path}");
        }
        assert!(document["components"]["responses"]["MethodNotAllowed"]["headers"]["Allow"].is_object());
        assert_eq!(document["components"]["securitySchemes"]["session"]["name"], "eclusa_session");
    }

    #[test]
    fn every_reference_resolves() {
        fn references(value: &Value, found: &mut BTreeSet<String>) {
            match value {
                Value::Object(members) => {
                    found.extend(members.get("$ref").and_then(Value::as_str).map(ToOwned::to_owned));
                    members.values().for_each(|member| references(member, found));
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                _ => {}
            }
        }
        let (document, mut found) = (complete(&description()), BTreeSet::new());
        references(&document, &mut found);
        assert!(found.len() > 40, "{found:?}");
        for reference in found {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
        }
    }
}
