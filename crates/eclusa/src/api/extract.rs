//! Bodies, paths and queries of requests, with errors that say what is wrong.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRef, FromRequest, FromRequestParts};
use bytes::Bytes;
use http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;
use utoipa::openapi::RefOr;
use utoipa::openapi::path::Parameter;
use utoipa::openapi::schema::{Schema, SchemaType, Type};

use super::problem::{Kind, Problem};
use crate::clients::{TooSlow, Upload};
use crate::execute::http::BoxError;
use crate::intake::Fault;
use crate::rules::CurrentRules;

/// How deep JSON may be nested, as with `serde_json`.
const MAX_DEPTH: usize = 127;

/// A part of the path.
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(Problem))]
pub(super) struct Path<T>(pub(super) T);

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Problem::new(Kind::BadRequest, rejection.body_text())
    }
}

/// The query.
pub(super) struct Query<T>(pub(super) T);

impl<S: Sync, T: DeserializeOwned + IntoParams> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let read = axum::extract::Query::try_from_uri(&parts.uri);
        let wrong = |_| Problem::invalid(&wrong_parameters::<T>(parts.uri.query().unwrap_or_default()));
        read.map(|axum::extract::Query(query)| Self(query)).map_err(wrong)
    }
}

/// What is wrong with a query that cannot be read, from what the API says about its parameters. All of them may be left
/// out, so each can be read by itself.
fn wrong_parameters<T: DeserializeOwned + IntoParams>(query: &str) -> Vec<Fault> {
    let known = T::into_params(|| None);
    let (mut faults, mut seen) = (Vec::new(), BTreeSet::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let name = pair.split('=').next().unwrap_or(pair);
        let alone = format!("/?{pair}").parse().ok();
        let readable = alone.is_some_and(|uri| axum::extract::Query::<T>::try_from_uri(&uri).is_ok());
        let problem = match known.iter().find(|parameter| parameter.name == name) {
            None => {
                let names = known.iter().map(|parameter| format!("`{}`", parameter.name)).collect::<Vec<_>>();
                format!("is not known here; there is {}", names.join(", "))
            }
            Some(_) if !seen.insert(name) => "is there more than once".into(),
            Some(_) if readable => continue,
            Some(parameter) => format!("must be {}", expected(parameter)),
        };
        faults.push(Fault::new(name, problem));
    }
    faults
}

/// What a parameter must be, in words.
fn expected(parameter: &Parameter) -> String {
    let kind = match &parameter.schema {
        Some(RefOr::T(Schema::Object(object))) => Some(&object.schema_type),
        _ => None,
    };
    let is = |wanted: Type| match kind {
        Some(SchemaType::Type(kind)) => *kind == wanted,
        Some(SchemaType::Array(kinds)) => kinds.contains(&wanted),
        _ => false,
    };
    if is(Type::Integer) {
        "a whole number, zero or more".into()
    } else if is(Type::Number) {
        "a number".into()
    } else {
        parameter.description.as_deref().unwrap_or("text").trim_end_matches('.').into()
    }
}

/// A whole body, no larger than the config allows.
pub(super) struct Body(pub(super) Bytes);

impl<S: Sync> FromRequest<S> for Body
where
    Arc<CurrentRules>: FromRef<S>,
{
    type Rejection = Problem;
    async fn from_request(request: axum::extract::Request, state: &S) -> Result<Self, Problem> {
        Self::read(request.into_body(), &Arc::<CurrentRules>::from_ref(state)).await
    }
}

impl Body {
    /// Reads a body to its end.
    pub(super) async fn read<B>(body: B, rules: &CurrentRules) -> Result<Self, Problem>
    where
        B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
    {
        let server = &rules.get().config.server;
        let max = server.max_body;
        let body = Limited::new(Upload::new(body, server.client), max);
        let body = body.collect().await.map_err(|error| unread(&*error, max))?;
        Ok(Self(body.to_bytes()))
    }
}

/// Why a body of at most `max` bytes could not be read.
pub(super) fn unread(error: &(dyn std::error::Error + Send + Sync + 'static), max: usize) -> Problem {
    if error.is::<LengthLimitError>() {
        return Problem::new(Kind::TooLarge, format!("The body has more than {max} bytes (server.max_body)"));
    }
    if error.is::<TooSlow>() {
        return Problem::new(Kind::TooSlow, "The body came more slowly than `server.client` allows");
    }
    Problem::new(Kind::BadRequest, "The body could not be read to its end")
}

impl Body {
    /// The body as JSON.
    pub(super) fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        // Hardly any text opens so many at all, and to count those is cheap.
        let opened = self.0.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
        if opened > MAX_DEPTH && depth(&self.0) > MAX_DEPTH {
            let detail = format!("The JSON is nested more than {MAX_DEPTH} levels deep");
            return Err(Problem::new(Kind::BadRequest, detail));
        }
        serde_json::from_slice(&self.0).map_err(|error| {
            let kind = if error.is_data() { Kind::Invalid } else { Kind::BadRequest };
            Problem::new(kind, format!("The body is not the JSON that is expected here: {error}"))
        })
    }
}

/// How deep objects and arrays are nested, whatever else is wrong with the text. Parts that are kept as they came are not
/// parsed, so nobody else would count.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_texts_do_not_count() {
        assert_eq!(depth(br#"{"a":[{"b":"[[[[\"{{{"}],"c":"\\","d":[]}"#), 3);
        assert_eq!(depth(b"]]]1"), 0);
    }
}
