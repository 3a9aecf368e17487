//! Fields of a request, and templates made from them.

use std::fmt;

use super::read::{FromText, Wrong};
use super::types::{Field, Template, TemplatePart};

const FIELDS: &str = "use `query.NAME`, `header.NAME`, `body./POINTER` or `params./POINTER`";
const PLACEHOLDERS: &str = "use `{query.NAME}`, `{header.NAME}`, `{body./POINTER}`, `{params./POINTER}`, `{tenant}`, \
                            `{method}` or `{path}`; `{{` is a literal brace";

impl Field {
    /// Parses `query.cpf`, `header.x-id` or `body./a/b`; a colon may replace the dot.
    pub fn parse(text: &str) -> Option<Self> {
        let (place, name) = text.split_once(['.', ':'])?;
        match place {
            "query" if !name.is_empty() => Some(Self::Query(name.to_owned())),
            "header" => {
                http::HeaderName::try_from(name).ok().map(|name| Self::Header(name.as_str().to_owned()))
            }
            "body" if is_pointer(name) => Some(Self::Body(name.to_owned())),
            "params" if is_pointer(name) => Some(Self::Params(name.to_owned())),
            _ => None,
        }
    }
}

/// As written in the config.
impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Field::Query(name) => write!(f, "query.{name}"),
            Field::Header(name) => write!(f, "header.{name}"),
            Field::Body(pointer) => write!(f, "body.{pointer}"),
            Field::Params(pointer) => write!(f, "params.{pointer}"),
        }
    }
}

/// Whether `text` is a JSON pointer (RFC 6901). The empty pointer, the whole body, is not a field.
pub(super) fn is_pointer(text: &str) -> bool {
    let bad_escape = |(at, _): (usize, &str)| !matches!(text.as_bytes().get(at + 1), Some(b'0' | b'1'));
    text.starts_with('/') && !text.match_indices('~').any(bad_escape)
}

impl FromText for Field {
    const WHAT: &'static str = "a field";
    const HELP: &'static str = FIELDS;

    fn from_text(text: &str) -> Result<Self, Wrong> {
        Self::parse(text).ok_or_else(|| Wrong::new("is not a field of a request", FIELDS))
    }
}

impl FromText for Template {
    const WHAT: &'static str = "a template";
    const HELP: &'static str = PLACEHOLDERS;

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let parts = pieces(text, TemplatePart::Text, |inside| {
            placeholder(inside).ok_or_else(|| "has an unknown placeholder".to_owned())
        });
        parts.map(|parts| Self { parts }).map_err(|problem| Wrong::new(problem, PLACEHOLDERS))
    }
}

/// Splits `text` into literal text and placeholders in braces; a doubled brace is a literal one. `Err` says what is wrong.
pub(super) fn pieces<P>(
    text: &str,
    plain_part: impl Fn(String) -> P,
    placeholder: impl Fn(&str) -> Result<P, String>,
) -> Result<Vec<P>, String> {
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        plain.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(brace) {
            plain.push_str(brace);
            rest = after;
        } else if brace == "}" {
            return Err("has a `}` that closes nothing".to_owned());
        } else {
            let (inside, after) = rest.split_once('}').ok_or("has a `{` that is not closed")?;
            if !plain.is_empty() {
                parts.push(plain_part(std::mem::take(&mut plain)));
            }
            parts.push(placeholder(inside)?);
            rest = after;
        }
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        parts.push(plain_part(plain));
    }
    Ok(parts)
}

fn placeholder(inside: &str) -> Option<TemplatePart> {
    match inside {
        "tenant" => Some(TemplatePart::Tenant),
        "method" => Some(TemplatePart::Method),
        "path" => Some(TemplatePart::Path),
        field => Field::parse(field).map(TemplatePart::Field),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_named_with_a_dot_or_a_colon() {
        let field = |text| Field::parse(text).unwrap();
        assert_eq!(field("query.cpf"), Field::Query("cpf".into()));
        assert_eq!(field("header:X-Id"), Field::Header("x-id".into()));
        assert_eq!(field("body:/modelId"), field("body./modelId"));
        assert_eq!(field("params:/modelId"), Field::Params("/modelId".into()));
        assert_eq!(field("query.a.b"), Field::Query("a.b".into()));
        for bad in [
            "",
            "query",
            "query.",
            "header.a b",
            "header.",
            "body.a",
            "body./a~2",
            "body./a~",
            "params.a",
            "cookie.a",
        ] {
            assert_eq!(Field::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn templates_are_text_and_placeholders() {
        let parts = |text| Template::from_text(text).unwrap().parts;
        let cpf = || TemplatePart::Field(Field::Query("cpf".into()));
        assert_eq!(parts("{query.cpf}"), [cpf()]);
        assert_eq!(
            parts("a-{tenant}:{method}{path}-{{x}}"),
            [
                TemplatePart::Text("a-".into()),
                TemplatePart::Tenant,
                TemplatePart::Text(":".into()),
                TemplatePart::Method,
                TemplatePart::Path,
                TemplatePart::Text("-{x}".into())
            ]
        );
        assert_eq!(parts("{body./a/b}"), [TemplatePart::Field(Field::Body("/a/b".into()))]);
    }

    #[test]
    fn errors_in_templates_list_the_placeholders() {
        for (bad, problem) in [
            ("", "is empty"),
            ("{cpf}", "has an unknown placeholder"),
            ("{}", "has an unknown placeholder"),
            ("{tenant", "has a `{` that is not closed"),
            ("tenant}", "has a `}` that closes nothing"),
        ] {
            let wrong = Template::from_text(bad).unwrap_err();
            assert_eq!(wrong.problem, problem, "{bad}");
            assert!(wrong.help.contains("`{query.NAME}`"));
        }
    }
}
