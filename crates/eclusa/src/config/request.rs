//! `request`: how a job's `params` become a request that one upstream understands.
//!
//! A template that was read can be rendered: its placeholders exist and are available where it is used. Only whether the
//! job has the parameters is checked when a job arrives.

use std::fmt;

use http::{HeaderName, HeaderValue, Method};

use super::json::Json;
use super::read::{At, FromText, Location, Show, Table, Wrong};
use super::reconcile::StatePath;
use super::template::{is_pointer, pieces};
use super::upstreams::header_entries;

const HELP: &str = "use `{params./POINTER}`, `{id}`, `{job_id}`, `{tenant}`, `{webhook_url}`, `{external_id}` or `{key}`; \
                    `{{` stands for a brace";
/// Replaces any value while the text around it is checked.
const SAMPLE: &str = "x";

/// A request with placeholders.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestTemplate {
    /// `POST` unless the config says otherwise.
    pub method: Method,
    /// Starts with `/`.
    pub path: TextTemplate,
    /// Without the `?`.
    pub query: Option<TextTemplate>,
    /// Sent instead of the upstream's `headers` of the same name.
    pub headers: Vec<(HeaderName, TextTemplate)>,
    /// The body, if any.
    pub body: Option<JsonTemplate>,
}

/// A text with placeholders.
#[derive(Clone, PartialEq, Eq)]
pub struct TextTemplate {
    /// In order.
    pub parts: Vec<TextPart>,
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextPart {
    /// Literal text.
    Text(String),
    /// A placeholder.
    Value(Placeholder),
}

/// JSON with placeholders in its strings.
#[derive(Debug, Clone, PartialEq)]
pub enum JsonTemplate {
    /// A number or a boolean.
    Plain(serde_json::Value),
    /// A string. If it is one placeholder, it is replaced by the value itself, whatever its JSON type.
    Text(TextTemplate),
    /// A list.
    List(Vec<JsonTemplate>),
    /// An object.
    Object(Vec<(String, JsonTemplate)>),
}

/// A placeholder of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placeholder {
    /// `{params./a/b}`: a value of the job's `params`.
    Params(String),
    /// `{job_id}`: Eclusa's id of the job.
    JobId,
    /// `{id}`: the id that the caller gave the job.
    Id,
    /// `{tenant}`.
    Tenant,
    /// `{webhook_url}`: where the upstream reports the result of an asynchronous job.
    WebhookUrl,
    /// `{external_id}`: the upstream's id for the job.
    ExternalId,
    /// `{key}`: the key of the upstream's `keys` that the call uses.
    Key,
}

/// Which of the placeholders that are not always available may be used.
#[derive(Debug, Clone, Copy)]
pub(super) struct AllowedPlaceholders {
    /// `server.public_url` is set.
    pub(super) webhook_url: bool,
    /// The upstream has responded to a submit.
    pub(super) external_id: bool,
    /// The upstream has `keys`.
    pub(super) key: bool,
}

/// As written between the braces.
impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Params(pointer) => write!(f, "params.{pointer}"),
            Self::JobId => f.write_str("job_id"),
            Self::Id => f.write_str("id"),
            Self::Tenant => f.write_str("tenant"),
            Self::WebhookUrl => f.write_str("webhook_url"),
            Self::ExternalId => f.write_str("external_id"),
            Self::Key => f.write_str("key"),
        }
    }
}

/// The text may contain a secret.
impl fmt::Debug for TextTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TextTemplate({} parts)", self.parts.len())
    }
}

impl RequestTemplate {
    /// Whether it contains `{key}`.
    pub(super) fn uses_key(&self) -> bool {
        let headers = self.headers.iter().map(|(_, template)| template);
        let mut texts = [&self.path].into_iter().chain(&self.query).chain(headers);
        texts.any(TextTemplate::uses_key) || self.body.as_ref().is_some_and(JsonTemplate::uses_key)
    }
}

impl JsonTemplate {
    fn uses_key(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Text(text) => text.uses_key(),
            Self::List(items) => items.iter().any(Self::uses_key),
            Self::Object(members) => members.iter().any(|(_, item)| item.uses_key()),
        }
    }
}

impl TextTemplate {
    fn uses_key(&self) -> bool {
        self.placeholders().any(|placeholder| *placeholder == Placeholder::Key)
    }

    /// Its placeholders, in order.
    pub fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.parts.iter().filter_map(|part| match part {
            TextPart::Value(placeholder) => Some(placeholder),
            TextPart::Text(_) => None,
        })
    }

    /// The placeholder, if the whole text is one placeholder.
    pub fn lone(&self) -> Option<&Placeholder> {
        match self.parts.as_slice() {
            [TextPart::Value(placeholder)] => Some(placeholder),
            _ => None,
        }
    }

    fn sample(&self) -> String {
        let text = |part: &TextPart| match part {
            TextPart::Text(text) => text.clone(),
            TextPart::Value(_) => SAMPLE.to_owned(),
        };
        self.parts.iter().map(text).collect()
    }
}

impl FromText for TextTemplate {
    const WHAT: &'static str = "a template";
    const HELP: &'static str = HELP;

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let parts = pieces(text, TextPart::Text, |inside| placeholder(inside).map(TextPart::Value));
        parts.map(|parts| Self { parts }).map_err(|problem| Wrong::new(problem, HELP))
    }
}

fn placeholder(inside: &str) -> Result<Placeholder, String> {
    match inside {
        "job_id" => Ok(Placeholder::JobId),
        "id" => Ok(Placeholder::Id),
        "tenant" => Ok(Placeholder::Tenant),
        "webhook_url" => Ok(Placeholder::WebhookUrl),
        "external_id" => Ok(Placeholder::ExternalId),
        "key" => Ok(Placeholder::Key),
        other => match other.strip_prefix("params").and_then(|rest| rest.strip_prefix(['.', ':'])) {
            Some(pointer) if is_pointer(pointer) => Ok(Placeholder::Params(pointer.to_owned())),
            Some(_) => Err("has an invalid JSON pointer: it must begin with `/`".to_owned()),
            None => Err("has an unknown placeholder".to_owned()),
        },
    }
}

impl FromText for Method {
    const WHAT: &'static str = "a method";
    const HELP: &'static str = "write it in capitals: \"POST\"";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let capitals = text.bytes().all(|byte| byte.is_ascii_uppercase());
        match Self::from_bytes(text.as_bytes()) {
            // These two concern the connection, not a resource.
            Ok(Self::CONNECT | Self::TRACE) => Err(Wrong::new("is not an allowed method", Self::HELP)),
            Ok(method) if capitals => Ok(method),
            _ => Err(Wrong::new("is not a method", Self::HELP)),
        }
    }
}

impl Show for Method {
    fn show(&self) -> String {
        format!("\"{self}\"")
    }
}

/// A header template, which may contain a secret.
struct HeaderTemplate(TextTemplate);

impl FromText for HeaderTemplate {
    const WHAT: &'static str = "a template";
    const SECRET: bool = true;
    const HELP: &'static str = HELP;

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let template = TextTemplate::from_text(text)?;
        if HeaderValue::from_str(&template.sample()).is_err() {
            return Err(Wrong::new(
                "cannot be sent in a header",
                "remove line breaks and control characters",
            ));
        }
        Ok(Self(template))
    }
}

/// A path and an optional query.
struct TargetTemplate {
    path: TextTemplate,
    query: Option<TextTemplate>,
}

impl FromText for TargetTemplate {
    const WHAT: &'static str = "a path";
    const HELP: &'static str =
        "write a path below the upstream's `url`, such as `/v1/models/{params./model}`";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (text, None),
        };
        if !path.starts_with('/') {
            return Err(Wrong::new("must start with `/`", Self::HELP));
        }
        let path = TextTemplate::from_text(path)?;
        let query = query.map(TextTemplate::from_text).transpose()?;
        let sample = match &query {
            Some(query) => format!("{}?{}", path.sample(), query.sample()),
            None => path.sample(),
        };
        StatePath::from_text(&sample).map_err(|wrong| Wrong::new(wrong.problem, Self::HELP))?;
        Ok(Self { path, query })
    }
}

/// Adds the placeholders of a body to `used`, and returns its template.
fn body_template(body: Json<At<TextTemplate>>, used: &mut Vec<At<Placeholder>>) -> JsonTemplate {
    match body {
        Json::Plain(value) => JsonTemplate::Plain(value),
        // The config is not used then.
        Json::Invalid => JsonTemplate::Plain(serde_json::Value::Null),
        Json::Text(At { value, place }) => {
            used.extend(at(&value, &place));
            JsonTemplate::Text(value)
        }
        Json::List(items) => {
            JsonTemplate::List(items.into_iter().map(|item| body_template(item, used)).collect())
        }
        Json::Object(members) => JsonTemplate::Object(
            members.into_iter().map(|(name, item)| (name, body_template(item, used))).collect(),
        ),
    }
}

fn at<'a>(template: &'a TextTemplate, place: &'a Location) -> impl Iterator<Item = At<Placeholder>> + 'a {
    template.placeholders().map(|value| At { value: value.clone(), place: place.clone() })
}

/// Reads the keys of a table that make up a request.
pub(super) fn request(
    t: &mut Table<'_>,
    method: Method,
    usable: AllowedPlaceholders,
) -> Option<RequestTemplate> {
    let method = t.or("method", method, "The method.");
    let target: Option<At<TargetTemplate>> = t.need(
        "path",
        "\"/v1/NAME\"",
        "The path below the upstream's `url`, optionally with a query. Values are percent-encoded.",
    );
    let headers: Vec<(HeaderName, At<HeaderTemplate>)> = header_entries(
        t,
        "Sent instead of the upstream's `headers` of the same name. Values are never shown.",
    );
    let body: Option<Json<At<TextTemplate>>> = t.get(
        "body",
        "The body: a table becomes JSON, a string is sent as text. A string that is only `\"{params./input}\"` becomes the value \
         itself, whatever its JSON type.",
    );
    let mut used = Vec::new();
    if let Some(At { value: target, place }) = &target {
        used.extend(at(&target.path, place));
        used.extend(target.query.iter().flat_map(|query| at(query, place)));
    }
    used.extend(headers.iter().flat_map(|(_, header)| at(&header.value.0, &header.place)));
    let body = body.map(|body| body_template(body, &mut used));
    for placeholder in &used {
        check(t, placeholder, usable);
    }
    let TargetTemplate { path, query } = target?.value;
    let headers = headers.into_iter().map(|(name, template)| (name, template.value.0)).collect();
    Some(RequestTemplate { method, path, query, headers, body })
}

fn check(t: &Table<'_>, placeholder: &At<Placeholder>, usable: AllowedPlaceholders) {
    let (problem, help) = match placeholder.value {
        Placeholder::WebhookUrl if !usable.webhook_url => (
            "uses `{webhook_url}`, but `server.public_url` is not set",
            "add `public_url = \"https://…\"` to `[server]`",
        ),
        Placeholder::ExternalId if !usable.external_id => (
            "uses `{external_id}`, which is unknown before the upstream has responded",
            "use it in `poll` and `cancel` of `async`",
        ),
        Placeholder::Key if !usable.key => (
            "uses `{key}`, but the upstream has no `keys`",
            "add `keys = [{ name = \"a\", key = \"${TOKEN}\" }]`, or write `${TOKEN}` here",
        ),
        _ => return,
    };
    t.context().wrong(&placeholder.place, problem, help);
}
