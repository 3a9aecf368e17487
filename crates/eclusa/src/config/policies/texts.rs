//! The types that strings of a policy are parsed into.

use std::fmt;

use percent_encoding::percent_decode_str;
use regex::Regex;
use toml::de::DeValue;

use super::super::read::{FromText, RawValue, Show, Value, ValueKind, Wrong};
use super::super::types::Field;

const PATH_HELP: &str =
    "write it like `/entries/{key}`: segments separated by slashes, each a literal or `{NAME}`";
const SCOPE_HELP: &str =
    "write `\"upstream\"`, `\"tenant\"`, `\"header:NAME\"`, `\"query:NAME\"` or `\"body:/POINTER\"`";
const HOLD_HELP: &str = "write a number of tokens, `\"worst\"`, or `\"body:/POINTER\"`";
const PRESENCE_HELP: &str = "write a regular expression in quotes, `true` (present) or `false` (absent)";

/// A regular expression. Matching takes time linear in the text.
#[derive(Clone)]
pub struct Pattern(Regex);

impl Pattern {
    /// Whether it is found in `text`.
    pub fn fits(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0.as_str(), f)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl FromText for Pattern {
    const WHAT: &'static str = "a regular expression";
    const HELP: &'static str = "write it in single quotes, such as `'^\\d{11}$'`";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        Regex::new(text).map(Self).map_err(|error| {
            let problem = match error {
                regex::Error::CompiledTooBig(_) => "is a regular expression that is too large",
                _ => "is not a regular expression",
            };
            // The last line of the library's message says what is wrong; the others repeat the expression.
            let said = error.to_string();
            let said =
                said.lines().last().unwrap_or_default().trim().trim_start_matches("error: ").to_owned();
            Wrong::new(problem, format!("{said}; {}", Self::HELP))
        })
    }
}

/// The condition on a query parameter or a header.
#[derive(Debug, Clone, PartialEq)]
pub enum Presence {
    /// Present, with any value.
    There,
    /// Not in the request.
    Absent,
    /// Present, with a value that matches.
    Fits(Pattern),
}

impl Value for Presence {
    fn kind() -> ValueKind {
        ValueKind::Either(Box::new(<Pattern as FromText>::kind()), Box::new(ValueKind::Boolean))
    }

    fn read(raw: RawValue<'_>) -> Option<Self> {
        match raw.value() {
            DeValue::Boolean(true) => Some(Self::There),
            DeValue::Boolean(false) => Some(Self::Absent),
            DeValue::String(_) => Pattern::read(raw).map(Self::Fits),
            _ => {
                raw.mistyped("a regular expression or a boolean", PRESENCE_HELP);
                None
            }
        }
    }
}

/// How requests are mapped to buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScopeSource {
    /// One bucket for the whole upstream.
    Upstream,
    /// One bucket per tenant.
    Tenant,
    /// One bucket per value of a field.
    Field(Field),
}

impl FromText for ScopeSource {
    const WHAT: &'static str = "a scope";
    const HELP: &'static str = SCOPE_HELP;

    fn from_text(text: &str) -> Result<Self, Wrong> {
        match text {
            "upstream" => Ok(Self::Upstream),
            "tenant" => Ok(Self::Tenant),
            field => Field::parse(field)
                // Policies see the request as it is sent to the upstream.
                .filter(|field| !matches!(field, Field::Params(_)))
                .map(Self::Field)
                .ok_or_else(|| Wrong::new("is not a valid scope", SCOPE_HELP)),
        }
    }
}

impl Show for ScopeSource {
    fn show(&self) -> String {
        match self {
            Self::Upstream => "\"upstream\"".to_owned(),
            Self::Tenant => "\"tenant\"".to_owned(),
            Self::Field(field) => format!("\"{field}\""),
        }
    }
}

/// A path with variables: `/entries/{key}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    /// The segments between slashes, in order.
    pub segments: Vec<PathSegment>,
}

/// A segment of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathSegment {
    /// A literal, percent-decoded.
    Text(String),
    /// A variable with this name.
    Var(String),
}

impl PathPattern {
    /// Whether it has this variable.
    pub fn has(&self, var: &str) -> bool {
        self.segments.iter().any(|segment| matches!(segment, PathSegment::Var(name) if name == var))
    }

    /// The variables of `path`, percent-decoded, if it matches.
    pub fn variables(&self, path: &str) -> Option<Vec<(&str, String)>> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let mut vars = Vec::new();
        for segment in &self.segments {
            let part = percent_decode_str(parts.next()?).decode_utf8_lossy();
            match segment {
                PathSegment::Text(text) if *text == part => {}
                PathSegment::Text(_) => return None,
                PathSegment::Var(name) => vars.push((name.as_str(), part.into_owned())),
            }
        }
        parts.next().is_none().then_some(vars)
    }
}

impl FromText for PathPattern {
    const WHAT: &'static str = "a path";
    const HELP: &'static str = PATH_HELP;

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let wrong = |problem: &str| Err(Wrong::new(problem, PATH_HELP));
        if !text.starts_with('/') {
            return wrong("does not begin with `/`");
        }
        if text.contains(['?', '#']) {
            return wrong("must not have a query or a fragment; match parameters with `query`");
        }
        let mut path = Self { segments: Vec::new() };
        for part in text.split('/').filter(|part| !part.is_empty()) {
            let var = part.strip_prefix('{').and_then(|part| part.strip_suffix('}'));
            match var {
                Some(var) if var.is_empty() || var.contains(['{', '}']) => {
                    return wrong("has a variable without a name");
                }
                Some(var) if path.has(var) => return wrong("has two variables with the same name"),
                Some(var) => path.segments.push(PathSegment::Var(var.to_owned())),
                None if part.contains(['{', '}']) => {
                    return wrong("has a brace inside a segment: a variable must be a whole segment");
                }
                None => {
                    let text = percent_decode_str(part).decode_utf8_lossy().into_owned();
                    path.segments.push(PathSegment::Text(text));
                }
            }
        }
        Ok(path)
    }
}

/// An HTTP method.
#[derive(Debug)]
pub(in crate::config) struct MethodText(pub(in crate::config) String);

impl FromText for MethodText {
    const WHAT: &'static str = "a method";
    const HELP: &'static str = "write it in capitals: \"GET\"";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let capitals = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase());
        if capitals { Ok(Self(text.to_owned())) } else { Err(Wrong::new("is not a method", Self::HELP)) }
    }
}

/// A header name.
pub(super) struct HeaderText;

impl HeaderText {
    /// Returns it in lower case.
    pub(super) fn parse(text: &str) -> Option<String> {
        http::HeaderName::try_from(text).ok().map(|name| name.as_str().to_owned())
    }
}

/// A value of `cost`.
#[derive(Debug)]
pub(super) enum Cost {
    Tokens(u32),
    /// In the engine's notation: `body:/POINTER`.
    Source(String),
}

impl Value for Cost {
    fn kind() -> ValueKind {
        ValueKind::Either(
            Box::new(ValueKind::Integer(0)),
            Box::new(ValueKind::Text("a field of the response")),
        )
    }

    fn read(raw: RawValue<'_>) -> Option<Self> {
        if let Some(text) = plain_text(&raw)? {
            if let Some(Field::Body(pointer)) = Field::parse(&text) {
                return Some(Self::Source(format!("body:{pointer}")));
            }
            raw.wrong("is neither a number nor a body field", "write a number, or \"body:/POINTER\"");
            return None;
        }
        tokens(&raw).map(Self::Tokens)
    }
}

/// The value of `hold`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HoldText {
    Tokens(u32),
    Worst,
    Body(Field),
}

impl Value for HoldText {
    fn kind() -> ValueKind {
        ValueKind::Either(
            Box::new(ValueKind::Integer(1)),
            Box::new(ValueKind::Text("`\"worst\"` or a field of the request")),
        )
    }

    fn read(raw: RawValue<'_>) -> Option<Self> {
        let Some(text) = plain_text(&raw)? else {
            let number = tokens(&raw)?;
            if number == 0 {
                raw.wrong("must be greater than zero", HOLD_HELP);
            }
            return (number > 0).then_some(Self::Tokens(number));
        };
        match (text.as_str(), Field::parse(&text)) {
            ("worst", _) => Some(Self::Worst),
            (_, Some(field @ Field::Body(_))) => Some(Self::Body(field)),
            _ => {
                raw.wrong("is not a valid hold", HOLD_HELP);
                None
            }
        }
    }
}

impl Show for HoldText {
    fn show(&self) -> String {
        match self {
            Self::Tokens(tokens) => tokens.to_string(),
            Self::Worst => "\"worst\"".to_owned(),
            Self::Body(field) => format!("\"{field}\""),
        }
    }
}

/// The text of a string, unless it is one variable that holds a number. `None` if a mistake was noted.
#[expect(clippy::option_option, reason = "outer: a mistake was noted; inner: not a text")]
fn plain_text(raw: &RawValue<'_>) -> Option<Option<String>> {
    let text = raw.text().ok()?;
    Some(text.filter(|text| !text.whole || text.text.trim().parse::<u64>().is_err()).map(|text| text.text))
}

fn tokens(raw: &RawValue<'_>) -> Option<u32> {
    let number = u32::try_from(raw.integer(0)?).ok();
    if number.is_none() {
        raw.wrong("is too large", "write a smaller number");
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_literals_and_variables_without_empty_segments() {
        let path = |text| PathPattern::from_text(text).unwrap().segments;
        let text = |text: &str| PathSegment::Text(text.into());
        assert_eq!(path("/entries/{key}/"), [text("entries"), PathSegment::Var("key".into())]);
        assert_eq!(path("/a%20b//c"), [text("a b"), text("c")]);
        assert_eq!(path("/"), []);
        for (bad, problem) in [
            ("entries", "does not begin with `/`"),
            ("", "does not begin with `/`"),
            ("/a?b=1", "must not have a query or a fragment; match parameters with `query`"),
            ("/a/{}", "has a variable without a name"),
            ("/{a}/{a}", "has two variables with the same name"),
            ("/a{b}", "has a brace inside a segment: a variable must be a whole segment"),
            ("/{a", "has a brace inside a segment: a variable must be a whole segment"),
        ] {
            assert_eq!(PathPattern::from_text(bad).unwrap_err().problem, problem, "{bad}");
        }
    }

    #[test]
    fn scopes_are_words_or_fields() {
        let scope = |text| ScopeSource::from_text(text).unwrap();
        assert_eq!(scope("upstream"), ScopeSource::Upstream);
        assert_eq!(scope("header:PI-PayerId"), ScopeSource::Field(Field::Header("pi-payerid".into())));
        for bad in ["", "user", "header:", "body:a", "Tenant"] {
            assert_eq!(ScopeSource::from_text(bad).unwrap_err().help, SCOPE_HELP, "{bad}");
        }
    }
}
