//! Events that give tokens back.

use axum::Json;
use axum::response::{IntoResponse, Response};
use eclusa_core::{Credit, Credited, HashKey, Store, Tokens};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::Policies;
use crate::api::audit::audit;
use crate::api::auth::{Caller, Right};
use crate::api::extract::{Body, NoQuery};
use crate::api::problem::{Kind, Problem, ProblemDetails};
use crate::api::store_problem::{unavailable, unconfirmed};
use crate::intake::Fault;
use crate::model::object;

/// Maximum events per request.
const MAX_CREDITS: usize = 1_000;

/// An event, or a list of them.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its description is used")]
pub(in crate::api) enum CreditRequest {
    /// One event.
    One(CreditEvent),
    /// Several events, with a result each.
    Several(CreditBatch),
}

/// An event, and the call it belongs to.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(example = json!({ "event": "payment", "correlationId": "E1234" }))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(in crate::api) struct CreditEvent {
    /// The event's name in the policies, such as `payment`.
    event: String,
    /// The correlation id of the call: the `EndToEndId` of the payment.
    correlation_id: String,
}

/// Several events.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct CreditBatch {
    /// At most 1000.
    #[serde(deserialize_with = "object::list")]
    credits: Vec<CreditEvent>,
}

/// The effect of an event.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct CreditAnswer {
    /// Tokens given back over all policies; less than configured if a bucket was nearly full.
    credited: f64,
    /// The event was already counted; nothing changed.
    repeated: bool,
}

/// The result of one of several events.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its description is used")]
enum AnswerOrProblem {
    /// Applied.
    Answer(CreditAnswer),
    /// Not applied.
    Problem(Box<ProblemDetails>),
}

/// The response to a credit request.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its description is used")]
enum OneOrSeveral {
    /// For one event.
    One(CreditAnswer),
    /// For several events.
    Several(CreditAnswers),
}

/// Results of several events, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct CreditAnswers {
    /// A result or a problem for each event.
    #[schema(value_type = Vec<AnswerOrProblem>)]
    credits: Vec<Value>,
}

/// Give back tokens earned by an event
///
/// Each event counts once for its call, and only if the call cost tokens recently. Several events are answered with
/// `{"credits": […]}`, with a result or a problem for each.
#[utoipa::path(post, path = "/v1/policies/credits", tag = "policies", request_body = CreditRequest,
    responses((status = 200, body = OneOrSeveral)))]
pub(in crate::api) async fn credit(
    policies: Policies,
    caller: Caller,
    _: NoQuery,
    body: Body,
) -> Result<Response, Problem> {
    caller.may(Right::Enqueue)?;
    let single = body.json::<Value>()?.get("credits").is_none();
    let events = if single {
        vec![body.object()?]
    } else {
        body.object::<CreditBatch>().map(|batch| batch.credits)?
    };
    if events.len() > MAX_CREDITS {
        let problem = format!("has more than {MAX_CREDITS} entries: send several requests");
        return Err(Problem::invalid(&[Fault::new("credits", problem)]).in_body());
    }
    let key = policies.scopes.key().await.map_err(|error| unavailable(&error))?;
    let credits = events.iter().map(|event| event.credit(key)).collect();
    let results = policies.store.credit(credits).await.map_err(|error| unconfirmed(&error))?;
    let credited = results.iter().filter(|credited| matches!(credited, Credited::Buckets(_))).count();
    if credited > 0 {
        audit!(caller, "credit", events = credited, "Tokens given back");
    }
    let mut answers = results.iter().map(answer);
    if single {
        let unknown = || Problem::new(Kind::Internal, "The store did not answer");
        return Ok(Json(answers.next().ok_or_else(unknown)??).into_response());
    }
    let shown = answers.map(|answer| match answer {
        Ok(answer) => serde_json::to_value(answer).unwrap_or_default(),
        Err(problem) => problem.into_json(),
    });
    Ok(Json(CreditAnswers { credits: shown.collect() }).into_response())
}

impl CreditEvent {
    fn credit(&self, key: HashKey) -> Credit {
        Credit { event: self.event.as_str().into(), correlation: key.correlation(&self.correlation_id) }
    }
}

fn answer(credited: &Credited) -> Result<CreditAnswer, Problem> {
    match credited {
        Credited::Buckets(buckets) => {
            let sum = buckets.iter().fold(Tokens::ZERO, |sum, (_, tokens)| sum + *tokens);
            Ok(CreditAnswer { credited: tokens(sum), repeated: false })
        }
        Credited::Repeated => Ok(CreditAnswer { credited: 0.0, repeated: true }),
        Credited::Unknown => Err(Problem::new(
            Kind::NotFound,
            "No call with this correlation id cost tokens recently, or none of its policies has this event",
        )),
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn tokens(tokens: Tokens) -> f64 {
    tokens.as_micro() as f64 / Tokens::ONE.as_micro() as f64
}
