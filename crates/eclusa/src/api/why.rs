//! Why a job waits, in a sentence.

use eclusa_core::gate::Reason;
use eclusa_core::{Status, Why};

use super::model::iso;

/// What holds the job back, for a person.
pub(super) fn sentence(why: &Why) -> String {
    let Some(reason) = why.reason else {
        return match why.status {
            Status::Processing => "A worker has it; it is being sent".into(),
            status => format!("It does not wait: it is {}", status.as_str()),
        };
    };
    let at = why.upstream.as_ref().map_or_else(|| "the lane".to_owned(), |upstream| format!("`{upstream}`"));
    let whose = why.of_tenant.as_ref().map_or(at.clone(), |tenant| format!("tenant `{tenant}`"));
    let cause = match reason {
        Reason::Paused => "The lane is paused; `eclusa lanes resume` lets it on".to_owned(),
        Reason::Scheduled => "It was asked to start later".to_owned(),
        Reason::RetryBackoff => "Its last attempt failed; it waits for the next".to_owned(),
        Reason::Behind => "Other jobs are before it".to_owned(),
        Reason::Pace => format!("{at} takes one start per interval"),
        Reason::RateLimit => format!("The token bucket of {whose} holds too little"),
        Reason::Window => format!("{at} has had all the starts it may have in a minute"),
        Reason::Concurrency => format!("All slots of {whose} are taken"),
        Reason::Cooldown => format!("{at} cools down after errors"),
        Reason::CircuitOpen => format!("The breaker of {at} is open, or its probe is out"),
        Reason::UpstreamRetryAfter => format!("{at} itself said to wait"),
        Reason::Coalesced => "An equal request is under way and will answer this one too".to_owned(),
        Reason::AwaitingWebhook => format!("{at} works on it and will call back"),
        Reason::RulesGone => {
            format!("No process that is there has rules for {at}; deploy them again, or cancel it")
        }
        Reason::NoWorker => "Nothing stands in its way but a free worker".to_owned(),
        Reason::StoreUnavailable => "The store cannot be reached".to_owned(),
    };
    let eta = why.eta.and_then(iso).map(|eta| format!("; it should start at {eta}")).unwrap_or_default();
    let expires = if why.will_expire { ", which is after it expires" } else { "" };
    format!("{cause}{eta}{expires}")
}
