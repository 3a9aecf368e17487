//! Why a job waits, as a sentence.

use eclusa_core::gate::Reason;
use eclusa_core::{BucketId, Status, Why};

use super::iso;

/// Describes what holds the job back.
pub(super) fn sentence(why: &Why) -> String {
    let Some(reason) = why.reason else {
        return match why.status {
            Status::Processing => "A worker is sending it".into(),
            status => format!("It does not wait: its status is {}", status.as_str()),
        };
    };
    let at = why.upstream.as_ref().map_or_else(|| "the lane".to_owned(), |upstream| format!("`{upstream}`"));
    let whose = match (&why.of_tenant, &why.of_bucket) {
        (Some(tenant), _) => format!("tenant `{tenant}`"),
        (None, Some(bucket)) => scoped(bucket),
        (None, None) => at.clone(),
    };
    let cause = match reason {
        Reason::Paused => "The lane is paused; `eclusa lanes resume` starts it again".to_owned(),
        Reason::Scheduled => "It is scheduled to start later".to_owned(),
        Reason::RetryBackoff => "Its last attempt failed; it waits for the next one".to_owned(),
        Reason::Behind => "Other jobs are ahead of it".to_owned(),
        Reason::Pace => format!("{at} allows one start per interval"),
        Reason::RateLimit => format!("The token bucket of {whose} has too few tokens"),
        Reason::Window => format!("{at} has reached its limit of starts per minute"),
        Reason::Concurrency => format!("All slots of {whose} are taken"),
        Reason::Cooldown => format!("{at} is in cooldown after errors"),
        Reason::CircuitOpen => format!("The breaker of {at} is open, or its probe has not returned"),
        Reason::UpstreamRetryAfter => format!("{at} asked to wait (Retry-After)"),
        Reason::Coalesced => "An equal request is in progress and will answer this one too".to_owned(),
        Reason::AwaitingWebhook => format!("{at} works on it and will report the result"),
        Reason::RulesGone => {
            format!("No running process has rules for {at}; deploy them again, or cancel the job")
        }
        Reason::NoWorker => "It waits only for a free worker".to_owned(),
        Reason::StoreUnavailable => "The store cannot be reached".to_owned(),
    };
    let eta = why.eta.and_then(iso).map(|eta| format!("; it should start at {eta}")).unwrap_or_default();
    let expires = if why.will_expire { ", which is after it expires" } else { "" };
    format!("{cause}{}{eta}{expires}", opens(why))
}

/// Whose a scoped bucket is: its policy and the hash of its scope.
fn scoped(bucket: &BucketId) -> String {
    let BucketId { upstream, policy, scope, .. } = bucket;
    let scope = scope.map(|scope| format!(" (scope {scope})")).unwrap_or_default();
    format!("policy `{policy}` at `{upstream}`{scope}")
}

/// When the gate admits the next call, if that is not when this job should start.
fn opens(why: &Why) -> String {
    let until = why.until.filter(|until| why.eta != Some(*until)).and_then(iso);
    until.map(|until| format!("; the next call may start at {until}")).unwrap_or_default()
}
