//! Values of fields in a request, by name.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fmt::Display;

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::Fault;
use crate::config::{Check, Field};
use crate::request::RequestView;

/// A request, or a job, whose fields can be looked up.
pub(crate) struct Fields<'a> {
    request: Option<RequestView<'a>>,
    params: Option<&'a Value>,
    query: OnceCell<Vec<(String, String)>>,
    body: OnceCell<Option<Value>>,
}

impl<'a> Fields<'a> {
    pub(crate) fn of(request: impl Into<RequestView<'a>>) -> Self {
        Self::new(Some(request.into()), None)
    }

    pub(crate) fn new(request: Option<RequestView<'a>>, params: Option<&'a Value>) -> Self {
        Self { request, params, query: OnceCell::new(), body: OnceCell::new() }
    }

    /// The value of `field`; the first one if repeated.
    pub(crate) fn get(&self, field: &Field) -> Option<String> {
        match field {
            Field::Query(name) => {
                self.query().iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
            }
            Field::Header(name) => {
                Some(String::from_utf8_lossy(self.request?.headers.get(name)?).into_owned())
            }
            Field::Body(pointer) => text(self.body()?.pointer(pointer)?),
            Field::Params(pointer) => text(self.params?.pointer(pointer)?),
        }
    }

    /// Whether `field` is repeated in a query or in headers. An upstream that uses another value than
    /// [`get`](Self::get) would see a different request.
    pub(super) fn is_repeated(&self, field: &Field) -> bool {
        match field {
            Field::Query(name) => self.query().iter().filter(|(key, _)| key == name).count() > 1,
            Field::Header(name) => self.request.is_some_and(|request| request.headers.count(name) > 1),
            Field::Body(_) | Field::Params(_) => false,
        }
    }

    /// The request, if there is one.
    pub(crate) const fn request(&self) -> Option<RequestView<'a>> {
        self.request
    }

    fn query(&self) -> &[(String, String)] {
        self.query.get_or_init(|| {
            let query = self.request.and_then(|request| request.query);
            let query = query.into_iter().flat_map(|query| query.split('&'));
            let decoded = |pair: &str| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decode(name), decode(value))
            };
            query.filter(|pair| !pair.is_empty()).map(decoded).collect()
        })
    }

    /// The body, if it is JSON.
    pub(crate) fn body(&self) -> Option<&Value> {
        self.body.get_or_init(|| serde_json::from_slice(self.request?.body).ok()).as_ref()
    }

    /// Adds all faults that `rules` find. If they name query, body or params fields, no other fields are accepted
    /// there.
    pub(super) fn check(&self, rules: &[(Field, Check)], faults: &mut Vec<Fault>) {
        for (field, check) in rules {
            match self.get(field).filter(|value| !value.is_empty()) {
                None => faults.push(Fault::new(field.to_string(), "is missing")),
                Some(value) => {
                    let problem = check.verify(&value).err();
                    faults.extend(problem.map(|problem| Fault::new(field.to_string(), problem)));
                }
            }
        }
        self.check_query(rules, faults);
        check_members(self.body(), Field::Body, rules, faults);
        check_members(self.params, Field::Params, rules, faults);
    }

    fn check_query(&self, rules: &[(Field, Check)], faults: &mut Vec<Fault>) {
        let allowed: BTreeSet<&str> = rules.iter().filter_map(|(field, _)| in_query(field)).collect();
        if allowed.is_empty() {
            return;
        }
        let mut seen = BTreeSet::new();
        for (name, _) in self.query() {
            let problem = if !allowed.contains(name.as_str()) {
                format!("is not accepted here: send only {}", listed(&allowed))
            } else if !seen.insert(name) {
                "is given more than once".to_owned()
            } else {
                continue;
            };
            faults.push(Fault::new(Field::Query(name.clone()).to_string(), problem));
        }
    }
}

/// Adds a fault for each member of an object that `rules` do not name.
fn check_members(
    object: Option<&Value>,
    place: fn(String) -> Field,
    rules: &[(Field, Check)],
    faults: &mut Vec<Fault>,
) {
    let here = |pointer: &String, field: &Field| place(pointer.clone()) == *field;
    let named = rules.iter().filter_map(|(field, _)| match field {
        Field::Body(pointer) | Field::Params(pointer) if here(pointer, field) => member(pointer),
        _ => None,
    });
    let allowed: BTreeSet<String> = named.collect();
    let Some(Value::Object(members)) = object.filter(|_| !allowed.is_empty()) else {
        return;
    };
    for name in members.keys().filter(|name| !allowed.contains(*name)) {
        let problem = format!("is not accepted here: send only {}", listed(&allowed));
        let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        faults.push(Fault::new(place(pointer).to_string(), problem));
    }
}

fn in_query(field: &Field) -> Option<&str> {
    match field {
        Field::Query(name) => Some(name),
        _ => None,
    }
}

/// The top-level member that `pointer` names; in pointers (RFC 6901) `~1` is a slash and `~0` a tilde.
fn member(pointer: &str) -> Option<String> {
    Some(pointer.split('/').nth(1)?.replace("~1", "/").replace("~0", "~"))
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn decode(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

pub(super) fn listed<N: Display>(names: impl IntoIterator<Item = N>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
