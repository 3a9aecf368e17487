//! Layouts that both questions and answers are made of.

use super::LayoutError;
use super::convert::{Layout, layout_enum, layout_struct, unreadable};
use crate::gate::{BucketSpec, Reason};
use crate::ids::LeaseId;
use crate::job::{Hold, Level, Status};
use crate::tokens::Tokens;
use crate::verbs::Denied;

layout_enum!(LevelLayout = Level { High, Normal, Low });

layout_enum!(StatusLayout = Status { Pending, Queued, Processing, Completed, Failed, Dropped, Cancelled });

layout_enum!(
    ReasonLayout = Reason {
        Paused,
        Scheduled,
        RetryBackoff,
        Behind,
        Pace,
        RateLimit,
        Window,
        Concurrency,
        Cooldown,
        CircuitOpen,
        UpstreamRetryAfter,
        Coalesced,
        AwaitingWebhook,
        NoWorker,
        StoreUnavailable,
        RulesGone,
    }
);

layout_struct!(LeaseIdLayout = LeaseId { epoch: u64, number: u64, nonce: u64 });

layout_struct!(DeniedLayout<'a> = Denied { upstream: Option<&'a str>, reason: ReasonLayout });

#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct HoldLayout<'a> {
    upstream: &'a str,
    bucket: &'a str,
    capacity: i64,
    refill_micro: u64,
    refill_ms: u64,
    tokens: i64,
}

impl<'a> Layout<'a, Hold> for HoldLayout<'a> {
    fn from_domain(hold: &'a Hold) -> Self {
        let Hold { upstream, bucket, spec, tokens } = hold;
        let (refill_micro, refill_ms) = spec.refill();
        let (capacity, tokens) = (spec.capacity().as_micro(), tokens.as_micro());
        Self { upstream: upstream.as_str(), bucket, capacity, refill_micro, refill_ms, tokens }
    }

    /// A hold of nothing or less would mint tokens, and a bucket cannot be computed without a refill. The hold of a dead
    /// letter may be more than its bucket holds: the rule may have changed since.
    fn into_domain(self) -> Result<Hold, LayoutError> {
        let Self { upstream, bucket, capacity, refill_micro, refill_ms, tokens } = self;
        if bucket.is_empty() || capacity <= 0 || refill_micro == 0 || refill_ms == 0 || tokens <= 0 {
            return Err(unreadable("a hold that cannot be"));
        }
        let spec = BucketSpec::restore(Tokens::from_micro(capacity), (refill_micro, refill_ms));
        Ok(Hold::restore(Layout::into_domain(upstream)?, bucket, spec, Tokens::from_micro(tokens)))
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct BucketSpecLayout {
    capacity: i64,
    refill_micro: u64,
    refill_ms: u64,
}

impl<'a> Layout<'a, BucketSpec> for BucketSpecLayout {
    fn from_domain(spec: &'a BucketSpec) -> Self {
        let (refill_micro, refill_ms) = spec.refill();
        Self { capacity: spec.capacity().as_micro(), refill_micro, refill_ms }
    }

    fn into_domain(self) -> Result<BucketSpec, LayoutError> {
        let Self { capacity, refill_micro, refill_ms } = self;
        if capacity <= 0 || refill_micro == 0 || refill_ms == 0 {
            return Err(unreadable("a bucket that cannot be"));
        }
        Ok(BucketSpec::restore(Tokens::from_micro(capacity), (refill_micro, refill_ms)))
    }
}
