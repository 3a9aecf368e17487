//! The content of a dead letter as it is shown, and as it is sent again after an edit.

use eclusa_core::{Callback, DeadLetterView, Notice};
use serde_json::{Map, Value, json};

use super::super::model::{Alert, Job, MASK, Shown, shown, unmasked};
use super::super::problem::{Kind, Problem};
use crate::config::Field;
use crate::intake::{Fault, Submission};
use crate::model::JobRequest;
use crate::request::{Content, Envelope};

/// The parts of a job that can be edited.
const PARTS: [&str; 4] = ["type", "params", "request", "message"];

/// The fields that hold recipients.
const RECIPIENTS: [&str; 3] = ["to", "cc", "bcc"];

/// The letter's content in the form in which a job is enqueued, without what `masks` hide; `None` if that is unknown.
pub(super) fn original_data(view: &DeadLetterView, masks: Option<&[Field]>) -> Option<Value> {
    if let Ok(Callback { url, job }) = Callback::decode(&view.letter.payload) {
        // The rest of the URL may be a secret of the receiver, and the job's own lane masks its params.
        let url = url.split('?').next().unwrap_or_default();
        let job = Job { params: None, ..Job::from(job) };
        return Some(json!({ "callbackUrl": url, "job": job }));
    }
    if let Ok(notice) = Notice::decode(&view.letter.payload) {
        return Some(json!({ "alert": Alert::from(&notice.alert) }));
    }
    let envelope = Envelope::from_payload(&view.letter.payload).ok()?;
    let kind = envelope.kind.clone();
    Some(data(kind.as_deref(), shown(envelope, masks?)))
}

fn data(kind: Option<&str>, Shown { request, message, params }: Shown) -> Value {
    let mut data = json!({ "type": kind, "params": params });
    if let Some(request) = request {
        data["request"] = json!(request);
    }
    if let Some(message) = message {
        data["message"] = message;
    }
    data
}

/// The content of a letter after applying `patch` (RFC 7396). The patch is based on the masked view: a value equal to
/// what is shown changes nothing.
pub(super) fn edited(view: &DeadLetterView, patch: Value, masks: &[Field]) -> Result<Submission, Problem> {
    let refuse = |problem: &str| Err(Problem::new(Kind::Conflict, problem));
    if Callback::decode(&view.letter.payload).is_ok() || Notice::decode(&view.letter.payload).is_ok() {
        return refuse("A callback or an alert cannot be edited; replay it without a body");
    }
    let Ok(envelope) = Envelope::from_payload(&view.letter.payload) else {
        return refuse("This version cannot read the content of this letter");
    };
    let kind = envelope.kind.clone();
    let seen = data(kind.as_deref(), shown(envelope.clone(), masks));
    let whole = data(kind.as_deref(), unmasked(envelope.clone()));
    let Value::Object(mut patch) = patch else {
        let problem =
            "must be an object with the parts that change, such as {\"request\": {\"path\": \"/x\"}}";
        return Err(Problem::invalid(&[Fault::new("body", problem)]));
    };
    let mut faults = Vec::new();
    for part in patch.keys().filter(|part| !PARTS.contains(&part.as_str())) {
        let problem =
            format!("cannot be edited; only {} can", PARTS.map(|part| format!("`{part}`")).join(", "));
        faults.push(Fault::new(part.clone(), problem));
    }
    lower_header_names(&mut patch);
    drop_unchanged(&mut patch, &seen, "", &mut faults);
    if seen != data(kind.as_deref(), shown(envelope.clone(), &[])) {
        let message = patch.get("message");
        for part in
            RECIPIENTS.iter().filter(|part| message.is_some_and(|message| message.get(part).is_some()))
        {
            let problem =
                "cannot be changed by a key that does not see the whole message: it would be sent to others";
            faults.push(Fault::new(format!("message.{part}"), problem));
        }
    }
    if !faults.is_empty() {
        return Err(Problem::invalid(&faults));
    }
    let mut merged = whole.clone();
    merge(&mut merged, Value::Object(patch));
    submission(view, &envelope, &whole, merged)
}

/// Header names are stored in lower case.
fn lower_header_names(patch: &mut Map<String, Value>) {
    let headers = patch.get_mut("request").and_then(|request| request.get_mut("headers"));
    if let Some(Value::Object(headers)) = headers {
        let lower =
            std::mem::take(headers).into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
        *headers = lower.collect();
    }
}

/// Removes values from a patch that equal what is shown. A remaining mask is a fault: it would be sent literally.
fn drop_unchanged(patch: &mut Map<String, Value>, seen: &Value, at: &str, faults: &mut Vec<Fault>) {
    patch.retain(|name, value| seen.get(name) != Some(&*value));
    for (name, value) in patch.iter_mut() {
        let field = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        let masked = seen.get(name).is_some_and(has_mask);
        match value {
            Value::Object(value) if !has_mask_itself(seen.get(name)) => {
                drop_unchanged(value, seen.get(name).unwrap_or(&Value::Null), &field, faults);
            }
            value if masked && has_mask(value) => {
                let problem =
                    format!("still contains a masked value (`{MASK}`): omit it, or send the whole value");
                faults.push(Fault::new(field, problem));
            }
            _ => {}
        }
    }
}

fn has_mask_itself(value: Option<&Value>) -> bool {
    value.is_some_and(|value| value.is_string() && has_mask(value))
}

fn has_mask(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(MASK) || text.contains("%2A%2A%2A"),
        Value::Array(items) => items.iter().any(has_mask),
        Value::Object(members) => members.values().any(has_mask),
        _ => false,
    }
}

/// Merges as RFC 7396 says.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(members) = target.as_object_mut() else { return };
    for (name, value) in patch {
        if value.is_null() {
            members.remove(&name);
        } else {
            merge(members.entry(name).or_insert(Value::Null), value);
        }
    }
}

/// Converts `merged` to a submission. Parts that were not edited are sent byte for byte as before.
fn submission(
    view: &DeadLetterView,
    envelope: &Envelope,
    whole: &Value,
    mut merged: Value,
) -> Result<Submission, Problem> {
    let same = |pointer: &str| whole.pointer(pointer) == merged.pointer(pointer);
    let (same_params, same_body) = (same("/params"), same("/request/body"));
    let (same_headers, same_message) = (same("/request/headers"), same("/message"));
    let same_trace = same("/request/headers/traceparent");
    if let Some(members) = merged.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    if let Some(Value::Object(headers)) = merged.pointer_mut("/request/headers") {
        let mut faults = Vec::new();
        for (name, value) in headers {
            join(&format!("request.headers.{name}"), value, &mut faults);
        }
        if !faults.is_empty() {
            return Err(Problem::invalid(&faults));
        }
    }
    // `RawValue` can only be deserialized from text.
    let ask: JobRequest = serde_json::from_str(&merged.to_string()).map_err(|error| {
        let detail = format!("The edited job is not valid: {error}");
        Problem::new(Kind::Invalid, detail)
    })?;
    let mut made = ask.into_submission(None).map_err(|faults| Problem::invalid(&faults))?;
    let letter = &view.letter;
    made.key = letter.key.as_deref().map(ToOwned::to_owned);
    made.tenant = letter.tenant.to_string();
    made.priority = Some(letter.level);
    if same_params {
        made.params.clone_from(&envelope.params);
    }
    if let (Some(made), Content::Http(request)) = (&mut made.request, &envelope.content) {
        if same_body {
            made.body.clone_from(&request.body);
        }
        if same_headers && same_body {
            made.headers.clone_from(&request.headers);
        }
    }
    if let (true, Content::Mail(mail)) = (same_message, &envelope.content) {
        made.message = Some((**mail).clone());
    }
    // With a `traceparent` of its own it is sent as it was edited.
    if same_trace {
        made.trace = envelope.trace.as_deref().cloned();
    }
    Ok(made)
}

/// Headers are shown as lists of values, and sent as one joined value.
fn join(field: &str, value: &mut Value, faults: &mut Vec<Fault>) {
    let texts: Option<Vec<&str>> = match value {
        Value::String(text) => Some(vec![text]),
        Value::Array(values) => values.iter().map(Value::as_str).collect(),
        _ => None,
    };
    match texts {
        Some(texts) => *value = texts.join(", ").into(),
        None => faults.push(Fault::new(field, "must be text, or a list of texts")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_merged_as_the_standard_says() {
        let cases = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (mut target, patch, result) in cases {
            merge(&mut target, patch);
            assert_eq!(target, result);
        }
    }

    #[test]
    fn a_header_value_that_is_not_text_is_a_fault() {
        let joined = |mut value: Value| {
            let mut faults = Vec::new();
            join("request.headers.a", &mut value, &mut faults);
            (value, faults.into_iter().map(|fault| fault.field).collect::<Vec<_>>())
        };
        assert_eq!(joined(json!("x")), (json!("x"), vec![]));
        assert_eq!(joined(json!(["x", "y"])), (json!("x, y"), vec![]));
        for bad in [json!(["x", 7]), json!([null]), json!([["x"]]), json!(7), json!({"b": "c"})] {
            assert_eq!(joined(bad.clone()), (bad, vec!["request.headers.a".to_owned()]));
        }
    }

    #[test]
    fn a_shown_value_changes_nothing_and_a_mask_is_refused() {
        let seen =
            json!({"request": {"query": "cpf=%2A%2A%2A&a=1", "headers": {"x-key": ["***"]}, "path": "/a"}});
        let take = |patch: Value| {
            let (Value::Object(mut patch), mut faults) = (patch, Vec::new()) else { panic!("an object") };
            drop_unchanged(&mut patch, &seen, "", &mut faults);
            (Value::Object(patch), faults.into_iter().map(|fault| fault.field).collect::<Vec<_>>())
        };
        let (left, faults) = take(seen.clone());
        assert_eq!((left, faults.len()), (json!({}), 0));
        let mut changed = seen.clone();
        changed["request"]["path"] = json!("/b");
        assert_eq!(take(changed), (json!({"request": {"path": "/b"}}), vec![]));
        let (_, faults) = take(json!({"request": {"query": "cpf=%2A%2A%2A&a=2"}}));
        assert_eq!(faults, ["request.query"]);
        let (_, faults) = take(json!({"request": {"headers": {"x-key": "***"}}}));
        assert_eq!(faults, ["request.headers.x-key"]);
    }
}
