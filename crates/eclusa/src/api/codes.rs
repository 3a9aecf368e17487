//! `/v1/upstreams/{name}/codes`: what became of failures after a retry.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use eclusa_core::learned::{ClassifiedBy, Protocol, classified};
use eclusa_core::retry::{ExtraCodes, Verdict};
use eclusa_core::{CodeView, Store};

use super::auth::{Caller, Right};
use super::extract::{NoQuery, Path};
use super::model::{CodeOutcome, UpstreamCodes};
use super::problem::Problem;
use super::state::Api;
use super::store_problem::unavailable;
use super::upstreams::reachable;
use crate::config::UpstreamKind;
use crate::rules::CurrentRules;
use crate::store::AnyStore;

/// State needed by this call.
#[derive(FromRequestParts)]
#[from_request(state(Api))]
pub(super) struct Codes {
    #[from_request(via(State))]
    store: Arc<AnyStore>,
    #[from_request(via(State))]
    rules: Arc<CurrentRules>,
}

/// List the codes that calls to an upstream failed with, and what retries did
///
/// A code that is neither in the config nor in the built-in lists is proposed for `retryable` or `permanent` after 20
/// retries. Nothing changes automatically.
#[utoipa::path(get, path = "/v1/upstreams/{name}/codes", tag = "upstreams",
    params(("name" = String, Path, description = "The upstream")), responses((status = 200, body = UpstreamCodes)))]
pub(super) async fn codes(
    codes: Codes,
    caller: Caller,
    Path(name): Path<String>,
    _: NoQuery,
) -> Result<Json<UpstreamCodes>, Problem> {
    caller.may(Right::SeeAll)?;
    let upstream = reachable(&codes.rules, &caller, &name)?;
    let seen = codes.store.codes(upstream.clone()).await.map_err(|error| unavailable(&error))?;
    let rules = codes.rules.get();
    let none = ExtraCodes::default();
    let (protocol, extra) = match rules.config.upstreams.get(&upstream) {
        Some(rules) => (protocol(&rules.kind), &rules.codes),
        None => (Protocol::Http, &none),
    };
    Ok(Json(shown(name, &seen.unwrap_or_default(), protocol, extra)))
}

const fn protocol(kind: &UpstreamKind) -> Protocol {
    match kind {
        UpstreamKind::Http(_) => Protocol::Http,
        UpstreamKind::Smtp(_) => Protocol::Smtp,
        UpstreamKind::Ses(_) => Protocol::Ses,
    }
}

fn shown(upstream: String, seen: &[CodeView], protocol: Protocol, extra: &ExtraCodes) -> UpstreamCodes {
    let codes: Vec<CodeOutcome> = seen.iter().map(|code| outcome(code, protocol, extra)).collect();
    let list = |word: &str, listed: &[String]| -> Vec<String> {
        let proposed = codes.iter().filter(|code| code.proposed.as_deref() == Some(word));
        listed.iter().cloned().chain(proposed.map(|code| code.code.clone())).collect()
    };
    let (retryable, permanent) = (list("retryable", &extra.retryable), list("permanent", &extra.permanent));
    let line = |word: &str, list: &[String]| {
        if list.is_empty() { String::new() } else { format!("{word} = {list:?}\n") }
    };
    let proposes = codes.iter().any(|code| code.proposed.is_some());
    let toml = proposes.then(|| line("retryable", &retryable) + &line("permanent", &permanent));
    UpstreamCodes { upstream, codes, retryable, permanent, toml }
}

fn outcome(code: &CodeView, protocol: Protocol, extra: &ExtraCodes) -> CodeOutcome {
    let (verdict, by) = classified(protocol, &code.code, extra);
    let retried = code.retried();
    let proposed = code.proposal().filter(|_| by == ClassifiedBy::Default);
    #[expect(clippy::cast_precision_loss, reason = "a share needs no more precision")]
    let cure_share = (retried > 0).then(|| code.cured as f64 / retried as f64);
    CodeOutcome {
        code: code.code.to_string(),
        class: word(verdict).into(),
        classified_by: by.as_str().into(),
        seen: code.seen,
        retried,
        cured: code.cured,
        failed_again: code.failed_again,
        not_retried: code.seen.saturating_sub(retried),
        cure_share,
        proposed: proposed.map(|verdict| word(verdict).into()),
    }
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Retryable => "retryable",
        Verdict::Permanent => "permanent",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proposed_lists_hold_what_is_configured_and_what_was_learned() {
        let code =
            |code: &str, cured, failed_again| CodeView { code: code.into(), seen: 50, cured, failed_again };
        let seen = [
            code("423", 20, 5),
            code("520", 0, 30),
            code("503", 0, 30),
            code("418", 0, 30),
            code("404", 1, 2),
        ];
        let extra = ExtraCodes { retryable: vec!["409".into()], permanent: vec!["418".into()] };
        let shown = shown("crm".into(), &seen, Protocol::Http, &extra);
        assert_eq!(
            (shown.retryable, shown.permanent),
            (vec!["409".into(), "423".into()], vec!["418".into(), "520".into()])
        );
        assert_eq!(shown.toml.unwrap(), "retryable = [\"409\", \"423\"]\npermanent = [\"418\", \"520\"]\n");
        let by: Vec<_> = shown
            .codes
            .iter()
            .map(|code| (&*code.class, &*code.classified_by, code.proposed.as_deref()))
            .collect();
        assert_eq!(
            by,
            [
                ("permanent", "default", Some("retryable")),
                ("retryable", "default", Some("permanent")),
                ("retryable", "built_in", None),
                ("permanent", "config", None),
                ("permanent", "default", None),
            ]
        );
    }
}
