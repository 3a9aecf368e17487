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
use serde_json::value::RawValue;
use utoipa::openapi::RefOr;
use utoipa::openapi::path::Parameter;
use utoipa::openapi::schema::{Schema, SchemaType, Type};
use utoipa::{IntoParams, ToSchema};

use super::json;
use super::problem::{Kind, Problem};
use crate::clients::{NoRoom, Received, TooSlow, Upload, Uploads};
use crate::config::ServerConfig;
use crate::execute::http::BoxError;
use crate::intake::Fault;
use crate::life::Life;
use crate::rules::CurrentRules;

/// A path parameter.
#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(Problem))]
pub(super) struct Path<T>(pub(super) T);

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Problem::new(Kind::BadRequest, rejection.body_text())
    }
}

/// The query parameters.
pub(super) struct Query<T>(pub(super) T);

impl<S: Sync, T: DeserializeOwned + IntoParams> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let read = axum::extract::Query::try_from_uri(&parts.uri);
        let wrong = |_| Problem::invalid(&wrong_parameters::<T>(parts.uri.query().unwrap_or_default()));
        read.map(|axum::extract::Query(query)| Self(query)).map_err(wrong)
    }
}

/// Rejects every query parameter: the call takes none.
pub(super) struct NoQuery;

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let pairs = parts.uri.query().into_iter().flat_map(|query| query.split('&'));
        let names = pairs.filter(|pair| !pair.is_empty()).map(|pair| pair.split('=').next().unwrap_or(pair));
        let faults: Vec<Fault> =
            names.map(|name| Fault::new(name, "is unknown: this call takes no parameters")).collect();
        if faults.is_empty() { Ok(Self) } else { Err(Problem::invalid(&faults)) }
    }
}

/// What is wrong with a query that cannot be read, according to the OpenAPI description of its parameters. All of them
/// are optional, so each can be checked separately.
fn wrong_parameters<T: DeserializeOwned + IntoParams>(query: &str) -> Vec<Fault> {
    let known = T::into_params(|| None);
    let (mut faults, mut seen) = (Vec::new(), BTreeSet::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let name = pair.split('=').next().unwrap_or(pair);
        let alone = format!("/?{pair}").parse().ok();
        let readable = alone.is_some_and(|uri| axum::extract::Query::<T>::try_from_uri(&uri).is_ok());
        let problem = match known.iter().find(|parameter| parameter.name == name) {
            None => {
                let names: Vec<String> = known.iter().map(|parameter| parameter.name.clone()).collect();
                json::unknown(name, names.iter())
            }
            Some(_) if !seen.insert(name) => "is given more than once".into(),
            Some(_) if readable => continue,
            Some(parameter) => format!("must be {}", expected(parameter)),
        };
        faults.push(Fault::new(name, problem));
    }
    faults
}

/// What a parameter must be, as text.
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

/// A whole body, at most `server.max_body` bytes.
pub(super) struct Body(pub(super) Bytes);

impl<S: Sync> FromRequest<S> for Body
where
    Arc<CurrentRules>: FromRef<S>,
    Arc<Life>: FromRef<S>,
{
    type Rejection = Problem;
    async fn from_request(request: axum::extract::Request, state: &S) -> Result<Self, Problem> {
        let (rules, life) = (Arc::<CurrentRules>::from_ref(state), Arc::<Life>::from_ref(state));
        Self::read(request.into_body(), &rules, &life.uploads).await
    }
}

impl Body {
    /// Reads a body to its end.
    pub(super) async fn read<B>(body: B, rules: &CurrentRules, uploads: &Uploads) -> Result<Self, Problem>
    where
        B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
    {
        let server = &rules.get().config.server;
        Self::receive(body, server, uploads.begin(server.max_bodies)).await
    }

    /// Reads a body to its end; none of it has been received yet.
    pub(super) async fn receive<B>(
        body: B,
        server: &ServerConfig,
        mut received: Received<'_>,
    ) -> Result<Self, Problem>
    where
        B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
    {
        let max = server.max_body;
        let mut body = Limited::new(Upload::new(body, server.client), max);
        while let Some(frame) = body.frame().await {
            if let Ok(part) = frame.map_err(|error| unread(&*error, max))?.into_data() {
                received.add(part).map_err(no_room)?;
            }
        }
        Ok(Self(received.finish()))
    }
}

/// The problem for a body of at most `max` bytes that could not be read.
pub(super) fn unread(error: &(dyn std::error::Error + Send + Sync + 'static), max: usize) -> Problem {
    if error.is::<LengthLimitError>() {
        return Problem::new(Kind::TooLarge, format!("The body has more than {max} bytes (server.max_body)"));
    }
    if error.is::<TooSlow>() {
        return Problem::new(Kind::TooSlow, "The body arrived more slowly than `server.client` allows");
    }
    Problem::new(Kind::BadRequest, "The body could not be read to its end")
}

pub(super) fn no_room(_: NoRoom) -> Problem {
    let detail = "The bodies being received have reached the limit (server.max_bodies)";
    Problem::new(Kind::TooManyBodies, detail).retry_after(1)
}

impl Body {
    /// Reads JSON of any shape.
    pub(super) fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Problem> {
        json::any(&self.0)
    }

    /// Reads a JSON array with items of any shape.
    pub(super) fn list(&self) -> Result<Vec<&RawValue>, Problem> {
        json::list(&self.0)
    }

    /// Reads a JSON object, or reports everything that is wrong with it.
    pub(super) fn object<T: DeserializeOwned + ToSchema>(&self) -> Result<T, Problem> {
        json::whole(&self.0)
    }
}
