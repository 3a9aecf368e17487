//! Layouts used by both questions and replies.

use std::sync::Arc;

use super::LayoutError;
use super::convert::{Layout, layout_enum, layout_struct, unreadable};
use crate::charge::{Charge, CreditRule, Terms};
use crate::gate::{BucketSpec, GateChangeKind, Reason};
use crate::ids::LeaseId;
use crate::job::{Hold, Level, Status};
use crate::policy::BucketId;
use crate::tokens::Tokens;
use crate::verbs::{CallStatus, Denied, ObserveCursor};
use crate::views::JobCursor;

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

layout_struct!(JobCursorLayout = JobCursor { created_at: u64, job: u128 });

layout_struct!(LeaseIdLayout = LeaseId { epoch: u64, number: u64, nonce: u64 });

layout_struct!(DeniedLayout<'a> = Denied { upstream: Option<&'a str>, reason: ReasonLayout });

/// A hold without terms, as kept in dead letters: the terms of its bucket are stored elsewhere.
#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct KeptHoldLayout<'a> {
    upstream: &'a str,
    bucket: &'a str,
    spec: BucketSpecLayout,
    tokens: i64,
}

impl<'a> Layout<'a, Hold> for KeptHoldLayout<'a> {
    fn from_domain(hold: &'a Hold) -> Self {
        let Hold { upstream, bucket, spec, tokens, terms: _ } = hold;
        let (spec, tokens) = (Layout::from_domain(spec), tokens.as_micro());
        Self { upstream: upstream.as_str(), bucket, spec, tokens }
    }

    /// A hold of zero or less would mint tokens. The hold of a dead letter may exceed its bucket's capacity, because
    /// the rule may have changed since.
    fn into_domain(self) -> Result<Hold, LayoutError> {
        let Self { upstream, bucket, spec, tokens } = self;
        if bucket.is_empty() || tokens <= 0 {
            return Err(unreadable("invalid hold"));
        }
        let (upstream, spec) = (Layout::into_domain(upstream)?, spec.into_domain()?);
        Ok(Hold::restore(upstream, bucket, spec, Tokens::from_micro(tokens)))
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct HoldLayout<'a> {
    hold: KeptHoldLayout<'a>,
    terms: Option<TermsLayout<'a>>,
}

impl<'a> Layout<'a, Hold> for HoldLayout<'a> {
    fn from_domain(hold: &'a Hold) -> Self {
        Self { hold: Layout::from_domain(hold), terms: Layout::from_domain(&hold.terms) }
    }

    fn into_domain(self) -> Result<Hold, LayoutError> {
        let terms = self.terms.into_domain()?;
        Ok(Hold { terms, ..self.hold.into_domain()? })
    }
}

layout_struct!(ChargeLayout<'a> = Charge {
    costs: Vec<(u16, i64)>,
    from: Option<&'a str>,
    default: Option<i64>,
});

layout_struct!(CreditRuleLayout<'a> = CreditRule { events: Vec<(&'a str, i64)>, within: u64 });

#[derive(serde::Serialize, serde::Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(super) struct TermsLayout<'a> {
    charge: ChargeLayout<'a>,
    credit: Option<CreditRuleLayout<'a>>,
}

impl<'a> Layout<'a, Arc<Terms>> for TermsLayout<'a> {
    fn from_domain(terms: &'a Arc<Terms>) -> Self {
        Self { charge: Layout::from_domain(&terms.charge), credit: Layout::from_domain(&terms.credit) }
    }

    /// A negative cost would mint tokens.
    fn into_domain(self) -> Result<Arc<Terms>, LayoutError> {
        let terms = Terms { charge: self.charge.into_domain()?, credit: self.credit.into_domain()? };
        let costs = terms.charge.costs.iter().map(|(_, cost)| *cost).chain(terms.charge.default);
        let credits = terms.credit.iter().flat_map(|rule| &rule.events).map(|(_, tokens)| *tokens);
        if costs.chain(credits).any(|tokens| tokens < Tokens::ZERO) {
            return Err(unreadable("invalid terms"));
        }
        Ok(Arc::new(terms))
    }
}

layout_struct!(BucketIdLayout<'a> = BucketId {
    upstream: &'a str,
    policy: &'a str,
    class: Option<&'a str>,
    scope: Option<u128>,
});

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
            return Err(unreadable("invalid bucket"));
        }
        Ok(BucketSpec::restore(Tokens::from_micro(capacity), (refill_micro, refill_ms)))
    }
}

layout_struct!(ObserveCursorLayout = ObserveCursor { epoch: u64, began: u64, number: u64, state: u64 });

layout_enum!(
    CallStatusLayout = CallStatus {
        Status(status: u16),
        Ok,
        Rejected,
        Failed,
        TimedOut,
        Unreachable,
        Unknown,
        Other,
    }
);

layout_enum!(
    GateChangeKindLayout = GateChangeKind {
        BreakerOpened { failures: u32, lasts: u64 },
        BreakerHalfOpened,
        BreakerClosed,
        CooldownBegan { errors: u32, lasts: u64 },
        CooldownEnded,
        Closed { lasts: u64 },
        Reopened,
    }
);
