//! From a request to a job, shared by `/v1/lanes/{lane}/jobs` and `/proxy`: what the caller may enqueue, and what is wrong with it.

use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use eclusa_core::{CALLBACKS, JobId, Name, NewJob};
use http::HeaderMap;

use super::auth::{Caller, Right};
use super::json;
use super::model::JobRequest;
use super::problem::{Kind, Problem};
use super::state::{Api, ApiState};
use super::store_problem::unconfirmed;
use crate::config::{Config, LaneConfig, Mode};
use crate::decide::Decider;
use crate::ids::Ids;
use crate::intake::{Fault, Submission};
use crate::life::Life;
use crate::policy::{Scopes, Subject, Takes};
use crate::rules::CurrentRules;
use crate::store::AnyStore;
use crate::telemetry::traces::{OpenSpan, Traces};

/// The rules of a lane that the caller may use.
pub(super) fn lane(
    rules: &CurrentRules,
    caller: &Caller,
    lane: &str,
) -> Result<(Name, Arc<LaneConfig>), Problem> {
    lane_of(&rules.get().config, caller, lane).map(|(name, rules)| (name.clone(), rules.clone()))
}

/// Same, borrowed from `config`.
pub(super) fn lane_of<'a>(
    config: &'a Config,
    caller: &Caller,
    lane: &str,
) -> Result<(&'a Name, &'a Arc<LaneConfig>), Problem> {
    let lanes = &config.lanes;
    let Some((name, rules)) = lanes.get_key_value(lane) else {
        let known = lanes.keys().filter(|name| caller.may_use(name).is_ok());
        let known: Vec<&str> = known.map(Name::as_str).collect();
        let detail = format!("There is no lane `{lane}`; the config has {}", known.join(", "));
        return Err(Problem::new(Kind::NotFound, detail));
    };
    caller.may_use(name)?;
    Ok((name, rules))
}

/// State needed to enqueue jobs.
#[derive(FromRequestParts)]
#[from_request(state(Api))]
pub(super) struct Intake {
    #[from_request(via(State))]
    pub(super) decider: Arc<Decider>,
    #[from_request(via(State))]
    pub(super) store: Arc<AnyStore>,
    #[from_request(via(State))]
    pub(super) rules: Arc<CurrentRules>,
    #[from_request(via(State))]
    pub(super) ids: Arc<Ids>,
    #[from_request(via(State))]
    pub(super) scopes: Arc<Scopes>,
    #[from_request(via(State))]
    pub(super) life: Arc<Life>,
    #[from_request(via(State))]
    pub(super) traces: Arc<Traces>,
}

impl From<&ApiState> for Intake {
    fn from(parts: &ApiState) -> Self {
        let ApiState { decider, store, rules, ids, scopes, life, traces, .. } = parts;
        Self {
            decider: decider.clone(),
            store: store.clone(),
            rules: rules.clone(),
            ids: ids.clone(),
            scopes: scopes.clone(),
            life: life.clone(),
            traces: traces.clone(),
        }
    }
}

/// Converts a submission to a job, if the caller may enqueue it.
pub(super) async fn job(
    intake: &Intake,
    caller: &Caller,
    (lane, rules): (&Name, &LaneConfig),
    submission: Submission,
) -> Result<NewJob, Problem> {
    caller.may(Right::Enqueue)?;
    caller.may_act_for(&submission.tenant)?;
    let submission = caller.cap_default_priority(submission, rules);
    caller.may_use_priority(submission.level(rules))?;
    if rules.mode == Mode::Direct {
        let detail =
            format!("Lane `{lane}` is a direct lane and has no queue; send the request to /proxy/{lane}/…");
        return Err(Problem::new(Kind::Conflict, detail));
    }
    if lane.as_str() == CALLBACKS {
        let detail =
            "This lane is internal: it only holds callbacks, which the `callbackUrl` of other jobs creates";
        return Err(Problem::new(Kind::Conflict, detail));
    }
    if intake.life.stopping.is_cancelled() {
        return Err(
            Problem::new(Kind::Stopping, "The server is stopping and accepts no more jobs").retry_after(5)
        );
    }
    let config = &intake.rules.get().config;
    let callback = callback_fault(config, submission.callback.as_deref());
    let checked = match (submission.check(intake.ids.job(), rules, config.into()), callback) {
        (Ok(checked), None) => checked,
        (checked, callback) => {
            let faults: Vec<Fault> = checked.err().into_iter().flatten().chain(callback).collect();
            return Err(Problem::invalid(&faults));
        }
    };
    let subject = Subject::of_job(checked.request(), &checked.shaped, checked.tenant());
    let takes = intake.scopes.takes(&config.upstreams, &checked.chain, subject).await;
    let takes = takes.map_err(|error| unconfirmed(&error))?;
    let Takes { holds, correlation } = takes.map_err(|faults| Problem::invalid(&faults))?;
    Ok(NewJob { holds, correlation, ..checked.into_job(lane) })
}

/// Converts a job described in JSON. `faults` are already known; all others are reported with them.
pub(super) async fn described(
    intake: &Intake,
    caller: &Caller,
    (lane, rules): (&Name, &LaneConfig),
    (ask, mut faults): (JobRequest, Vec<Fault>),
    (span, headers): (Option<&OpenSpan>, &HeaderMap),
) -> Result<NewJob, Problem> {
    caller.may(Right::Enqueue)?;
    let mut wrong = Vec::new();
    let (had_request, had_message) = (ask.request.is_some(), ask.message.is_some());
    let mut submission = ask.into_readable_part(caller.own_tenant(), &mut wrong);
    submission.trace_under(span.map(OpenSpan::context), headers);
    json::add(&mut faults, wrong);
    if faults.is_empty() {
        return job(intake, caller, (lane, rules), submission).await.map_err(Problem::in_body);
    }
    // A part that could not be read is not missing, nor are its members.
    let unread = [
        ("/request", had_request && submission.request.is_none()),
        ("/message", had_message && submission.message.is_none()),
    ];
    let follows = |fault: &Fault| {
        let place = json::pointer(&fault.field).unwrap_or_default();
        unread.iter().any(|(part, unread)| *unread && place.starts_with(part))
    };
    let config = &intake.rules.get().config;
    json::add(&mut faults, callback_fault(config, submission.callback.as_deref()).into_iter().collect());
    if let Err(mut wrong) = submission.check(JobId(0), rules, config.into()) {
        wrong.retain(|fault| !follows(fault));
        json::add(&mut faults, wrong);
    }
    Err(Problem::invalid(&faults).in_body())
}

/// What is wrong with a `callbackUrl`: callbacks go only to hosts that the config allows.
fn callback_fault(config: &Config, url: Option<&str>) -> Option<Fault> {
    let url = url?;
    let checked = match &config.callbacks {
        Some(callbacks) => callbacks.check(url).map(drop),
        None => Err("is not allowed: the config has no `[callbacks]` with `hosts`".to_owned()),
    };
    checked.err().map(|problem| Fault::new("callbackUrl", problem))
}
