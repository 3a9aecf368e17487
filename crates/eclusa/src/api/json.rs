//! JSON bodies. A valid body is deserialized directly; an invalid one is compared with its OpenAPI schema, so that
//! everything that is wrong is reported at once.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::problem::{Kind, Problem};
use crate::config::{parse_duration, suggest};
use crate::intake::Fault;
use crate::model::job_request::span;
use crate::model::object::Object;

/// Maximum nesting depth, as in `serde_json`.
const MAX_DEPTH: usize = 127;

/// Reads JSON of any shape.
pub(super) fn any<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, Problem> {
    check_depth(text)?;
    serde_json::from_slice(text).map_err(|error| unreadable(&error))
}

/// Reads an array with items of any shape.
pub(super) fn list(text: &[u8]) -> Result<Vec<&RawValue>, Problem> {
    check_depth(text)?;
    serde_json::from_slice(text).map_err(|error| {
        if error.is_data() {
            Problem::invalid(&[Fault::new("body", "must be an array")]).in_body()
        } else {
            unreadable(&error)
        }
    })
}

/// Reads an object, or reports everything that is wrong with it.
pub(super) fn whole<T: DeserializeOwned + ToSchema>(text: &[u8]) -> Result<T, Problem> {
    match partly(text)? {
        (object, faults) if faults.is_empty() => Ok(object),
        (_, faults) => Err(Problem::invalid(&faults).in_body()),
    }
}

/// Reads an object without its invalid members, and reports everything that is wrong with it.
pub(super) fn partly<T: DeserializeOwned + ToSchema>(text: &[u8]) -> Result<(T, Vec<Fault>), Problem> {
    check_depth(text)?;
    let error = match serde_json::from_slice(text) {
        Ok(Object(object)) => return Ok((object, Vec::new())),
        Err(error) if error.is_data() => error,
        Err(error) => return Err(unreadable(&error)),
    };
    let mut value: Value = serde_json::from_slice(text).map_err(|error| unreadable(&error))?;
    let mut form = BodySchema::of::<T>();
    form.prune(&serde_json::to_value(T::schema()).unwrap_or_default(), &mut value, "");
    if form.faults.is_empty() {
        return Err(unreadable(&error));
    }
    // `RawValue` can only be deserialized from text.
    match serde_json::from_str(&value.to_string()) {
        Ok(Object(object)) => Ok((object, form.faults)),
        Err(_) => Err(Problem::invalid(&form.faults).in_body()),
    }
}

fn unreadable(error: &serde_json::Error) -> Problem {
    let kind = if error.is_data() { Kind::Invalid } else { Kind::BadRequest };
    Problem::new(kind, format!("The body is not the expected JSON: {error}"))
}

/// The OpenAPI schema of a body, and the faults found in one.
struct BodySchema {
    /// Named schemas that others refer to.
    named: BTreeMap<String, Value>,
    faults: Vec<Fault>,
}

impl BodySchema {
    fn of<T: ToSchema>() -> Self {
        let mut schemas = Vec::new();
        T::schemas(&mut schemas);
        let as_json = |(name, schema)| (name, serde_json::to_value(schema).unwrap_or_default());
        Self { named: schemas.into_iter().map(as_json).collect(), faults: Vec::new() }
    }

    /// Resolves references and nullable wrappers. Where a value may have several shapes, none is chosen: deserializing
    /// it reports what is wrong.
    fn resolve(&self, schema: &Value) -> Value {
        if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
            return self.named.get(name).map(|schema| self.resolve(schema)).unwrap_or_default();
        }
        let forms: Vec<&Value> =
            ["oneOf", "anyOf"].iter().filter_map(|of| schema[of].as_array()).flatten().collect();
        let mut other = forms.iter().filter(|form| form["type"] != "null");
        match (other.next(), other.next()) {
            (Some(only), None) => {
                let mut only = self.resolve(only);
                if forms.iter().any(|form| form["type"] == "null") && only["type"].is_string() {
                    only["type"] = Value::Array(vec![only["type"].take(), "null".into()]);
                }
                only
            }
            (Some(_), Some(_)) => Value::Null,
            (None, _) => schema.clone(),
        }
    }

    /// Removes everything invalid from `value`, which is at path `at`. Returns whether it was valid as a whole.
    fn prune(&mut self, schema: &Value, value: &mut Value, at: &str) -> bool {
        let schema = self.resolve(schema);
        let allowed: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            _ => return true,
        };
        if !allowed.iter().any(|kind| is_a(kind, value)) {
            // An example of a whole object is too long to help.
            let example = ["example", "examples"].iter().find_map(|name| schema.get(name));
            let example = example.filter(|_| !allowed.contains(&"object"));
            if example.and_then(Value::as_str).is_some_and(|example| parse_duration(example).is_ok()) {
                self.faults.extend(span(at, Some(value)).err());
                return false;
            }
            let example = example.map(|example| format!(", such as {}", example.get(0).unwrap_or(example)));
            self.wrong(at, format!("must be {}{}", in_words(&allowed), example.unwrap_or_default()));
            return false;
        }
        match value {
            Value::Object(members) => {
                self.prune_members(&schema, members, at);
                true
            }
            // Removing one item would change the meaning of a list.
            Value::Array(items) => {
                let right = |(index, item)| self.prune(&schema["items"], item, &format!("{at}[{index}]"));
                items.iter_mut().enumerate().map(right).filter(|right| !right).count() == 0
            }
            _ => true,
        }
    }

    fn prune_members(&mut self, schema: &Value, members: &mut Map<String, Value>, at: &str) {
        let below = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
        let (known, others) = (schema["properties"].as_object(), &schema["additionalProperties"]);
        members.retain(|name, value| match known.and_then(|known| known.get(name)) {
            Some(schema) => self.prune(schema, value, &below(name)),
            None if *others == false => {
                self.wrong(&below(name), unknown(name, known.into_iter().flat_map(Map::keys)));
                false
            }
            None => others.is_null() || self.prune(others, value, &below(name)),
        });
        let reported = |faults: &[Fault], field: &str| {
            let at = |fault: &Fault| {
                fault.field.strip_prefix(field).map(|rest| rest.is_empty() || rest.starts_with('['))
            };
            faults.iter().filter_map(at).any(|at| at)
        };
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if !members.contains_key(name) && !reported(&self.faults, &below(name)) {
                self.wrong(&below(name), "is missing".into());
            }
        }
    }

    fn wrong(&mut self, at: &str, problem: String) {
        self.faults.push(Fault::new(if at.is_empty() { "body" } else { at }, problem));
    }
}

/// Adds the faults in `later`, except those that only follow from members already removed.
pub(super) fn add(faults: &mut Vec<Fault>, later: Vec<Fault>) {
    let known: Vec<String> = faults.iter().filter_map(|fault| pointer(&fault.field)).collect();
    let of_item = |known: &str, place: &str| {
        known
            .strip_prefix(place)
            .and_then(|rest| rest.strip_prefix('/'))
            .is_some_and(|rest| rest.parse::<usize>().is_ok())
    };
    let follows = |fault: &Fault| {
        pointer(&fault.field).is_some_and(|place| {
            known.iter().any(|known| {
                let below = place
                    .strip_prefix(known.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
                below || of_item(known, &place)
            })
        })
    };
    faults.extend(later.into_iter().filter(|fault| !follows(fault)));
}

/// The problem text for a name that is not in `known`.
pub(super) fn unknown<'n>(name: &str, known: impl Iterator<Item = &'n String> + Clone) -> String {
    let listed = known.clone().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match suggest(name, known.map(String::as_str)) {
        Some(suggestion) => format!("is unknown; {suggestion}"),
        None => format!("is unknown; known are {listed}"),
    }
}

fn is_a(kind: &str, value: &Value) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

fn in_words(kinds: &[&str]) -> String {
    let word = |kind: &&str| match *kind {
        "boolean" => Some("`true` or `false`"),
        "integer" => Some("a whole number"),
        "number" => Some("a number"),
        "string" => Some("text"),
        "array" => Some("an array"),
        "object" => Some("an object"),
        _ => None,
    };
    kinds.iter().filter_map(word).collect::<Vec<_>>().join(" or ")
}

fn check_depth(text: &[u8]) -> Result<(), Problem> {
    // Counting all opening brackets first is cheap, and almost no body has that many.
    let opened = text.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
    if opened > MAX_DEPTH && depth(text) > MAX_DEPTH {
        let detail = format!("The JSON is nested more than {MAX_DEPTH} levels deep");
        return Err(Problem::new(Kind::BadRequest, detail));
    }
    Ok(())
}

/// The nesting depth of objects and arrays, also in invalid text. Raw values are not parsed, so nothing else bounds
/// their depth.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0_usize, 0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' | b'[' if !quoted => depth += 1,
            b'}' | b']' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// The JSON pointer (RFC 6901) to a field of the body; `None` if the field is not in the body.
pub(super) fn pointer(field: &str) -> Option<String> {
    let escape = |name: &str| name.replace('~', "~0").replace('/', "~1");
    if field.starts_with(|first: char| first.is_ascii_uppercase()) {
        return None;
    }
    if field == "body" {
        return Some(String::new());
    }
    // Fields of the inner request, as the config names them. Header names may contain dots.
    for (named, place) in [
        ("query.", "/request/query"),
        ("header.", "/request/headers"),
        ("request.headers.", "/request/headers"),
        ("message.headers.", "/message/headers"),
    ] {
        if let Some(name) = field.strip_prefix(named) {
            return Some(format!("{place}/{}", escape(name)));
        }
    }
    for (named, place) in [("body.", "/request/body"), ("params.", "/params")] {
        if let Some(pointer) = field.strip_prefix(named).filter(|rest| rest.starts_with('/')) {
            return Some(format!("{place}{pointer}"));
        }
    }
    let parts = field.split(['.', '[']).map(|part| part.trim_end_matches(']'));
    Some(parts.fold(String::new(), |pointer, part| pointer + "/" + &escape(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_do_not_count() {
        assert_eq!(depth(br#"{"a":[{"b":"[[[[\"{{{"}],"c":"\\","d":[]}"#), 3);
        assert_eq!(depth(b"]]]1"), 0);
    }

    #[test]
    fn pointers_name_the_field() {
        for (field, place) in [
            ("ttl", "/ttl"),
            ("request.path", "/request/path"),
            ("message.to[1]", "/message/to/1"),
            ("message.attachments[0].content", "/message/attachments/0/content"),
            ("message.headers.a.b/c", "/message/headers/a.b~1c"),
            ("query.cpf", "/request/query/cpf"),
            ("body./a~1b/0", "/request/body/a~1b/0"),
            ("params./input", "/params/input"),
            ("body", ""),
        ] {
            assert_eq!(pointer(field).as_deref(), Some(place), "{field}");
        }
        assert_eq!(pointer("Eclusa-Ttl"), None);
    }
}
