//! What a call costs under a policy, and which events return tokens.

use std::sync::Arc;

use crate::error::{SpecError, positive};
use crate::time::Span;
use crate::tokens::Tokens;
use crate::verbs::{Report, Usage};

/// How long after a debit a credit counts, unless the policy says otherwise.
pub const CREDIT_WITHIN: Span = Span::from_secs(24 * 3_600);

/// What a hold on a bucket finally costs, and which events return tokens afterwards. Terms belong to a policy and
/// class, so that a settlement only needs to report status and usage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Terms {
    /// What a call costs.
    pub charge: Charge,
    /// Which events return tokens afterwards.
    pub credit: Option<CreditRule>,
}

/// Costs by status, or by the usage that the answer reports.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Charge {
    /// By status; 1 to 5 mean `1xx` to `5xx`.
    pub(crate) costs: Vec<(u16, Tokens)>,
    /// Where the answer reports its usage.
    pub(crate) from: Option<Arc<str>>,
    pub(crate) default: Option<Tokens>,
}

impl Charge {
    /// Sets the cost of an answer with `status`: `"404"`, a class such as `"5xx"`, or `"default"`.
    pub fn on(mut self, status: &str, cost: Tokens) -> Result<Self, SpecError> {
        if cost < Tokens::ZERO {
            return Err(SpecError::new("cost", "must not be less than zero"));
        }
        if status == "default" {
            self.default = Some(cost);
            return Ok(self);
        }
        let class = status.strip_suffix("xx").and_then(|class| class.parse().ok());
        let class = class.filter(|class| (1..=5).contains(class));
        let exact = status.parse().ok().filter(|exact| (100..=599).contains(exact));
        let Some(code) = class.or(exact) else {
            let problem = format!("{status:?} is not a status: use 100 to 599, 1xx to 5xx, or default");
            return Err(SpecError::new("cost", problem));
        };
        self.costs.retain(|(known, _)| *known != code);
        self.costs.push((code, cost));
        self.costs.sort_unstable_by_key(|(code, _)| *code);
        Ok(self)
    }

    /// Charges the usage that the answer reports at `source`, unless its status has a cost.
    pub fn from_usage(mut self, source: &str) -> Result<Self, SpecError> {
        if source.is_empty() {
            return Err(SpecError::new("cost", "the source of the usage must not be empty"));
        }
        self.from = Some(source.into());
        Ok(self)
    }

    /// The highest cost of any status: a hold of this size never ends in debt.
    pub fn worst(&self) -> Option<Tokens> {
        self.costs.iter().map(|(_, cost)| *cost).chain(self.default).max()
    }

    /// Where the answer reports its usage.
    pub fn source(&self) -> Option<&Arc<str>> {
        self.from.as_ref()
    }

    /// The cost of a call that held `hold` and ended with `report`. A call that was never sent costs nothing; one that
    /// was sent but not answered costs its hold. For an answer, the exact status is looked up first, then its class,
    /// then the usage. A success without the expected usage costs its hold, and so does a status without a cost.
    pub fn cost(&self, hold: Tokens, report: &Report) -> Tokens {
        if report.result.is_unsent() {
            return Tokens::ZERO;
        }
        let Some(status) = report.status else { return hold };
        let named = |code| self.costs.iter().find(|(known, _)| *known == code).map(|(_, cost)| *cost);
        let used = self.from.as_ref().and_then(|source| report.usage.of(source));
        let unreported = (self.from.is_some() && status / 100 == 2).then_some(hold);
        named(status).or_else(|| named(status / 100)).or(used).or(unreported).or(self.default).unwrap_or(hold)
    }
}

impl Usage {
    /// The usage reported at `source`, if any.
    fn of(&self, source: &str) -> Option<Tokens> {
        let reported = match self {
            Usage::Unknown => None,
            Usage::Amount(amount) => Some(*amount),
            Usage::BySource(amounts) => {
                amounts.iter().find(|(name, _)| **name == *source).map(|(_, amount)| *amount)
            }
        };
        reported.map(|amount| amount.max(Tokens::ZERO))
    }
}

/// Events that return tokens for a call that cost some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreditRule {
    pub(crate) events: Vec<(Arc<str>, Tokens)>,
    pub(crate) within: Span,
}

impl CreditRule {
    /// Each event returns its number of tokens if it happens `within` this time after the debit.
    pub fn new(events: &[(&str, Tokens)], within: Span) -> Result<Self, SpecError> {
        positive("credit_within", within)?;
        for (event, tokens) in events {
            positive("credit", *tokens)?;
            if event.is_empty() {
                return Err(SpecError::new("credit", "an event must have a name"));
            }
        }
        let events = events.iter().map(|(event, tokens)| ((*event).into(), *tokens)).collect();
        Ok(Self { events, within })
    }

    /// How many tokens `event` returns.
    pub fn tokens(&self, event: &str) -> Option<Tokens> {
        self.events.iter().find(|(known, _)| **known == *event).map(|(_, tokens)| *tokens)
    }

    /// How long after the debit an event counts.
    pub const fn within(&self) -> Span {
        self.within
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::CallResult;

    fn whole(tokens: u32) -> Tokens {
        Tokens::whole(tokens)
    }

    fn answered(status: u16, usage: Usage) -> Report {
        Report { status: Some(status), usage, ..CallResult::Success.into() }
    }

    fn table(costs: &[(&str, u32)]) -> Charge {
        let on = |charge: Charge, (status, cost): &(&str, u32)| charge.on(status, whole(*cost)).unwrap();
        costs.iter().fold(Charge::default(), on)
    }

    #[test]
    fn an_exact_status_wins_over_its_class_and_a_class_over_the_default() {
        let antiscan = table(&[("200", 1), ("404", 20), ("default", 0)]);
        let others = table(&[("500", 0), ("default", 1)]);
        let by_class = table(&[("2xx", 1), ("5xx", 0), ("503", 2)]);
        for (charge, status, cost) in [
            (&antiscan, 200, 1),
            (&antiscan, 404, 20),
            (&antiscan, 429, 0),
            (&others, 500, 0),
            (&others, 503, 1),
            (&others, 200, 1),
            (&by_class, 204, 1),
            (&by_class, 500, 0),
            (&by_class, 503, 2),
            (&by_class, 404, 7),
        ] {
            assert_eq!(charge.cost(whole(7), &answered(status, Usage::Unknown)), whole(cost), "{status}");
        }
    }

    #[test]
    fn unsent_calls_are_free_and_unanswered_calls_cost_their_hold() {
        let charge = table(&[("200", 1), ("default", 2)]);
        for (result, cost) in [
            (CallResult::NotSent, 0),
            (CallResult::Unknown, 20),
            (CallResult::TimedOut, 20),
            (CallResult::Failed, 20),
        ] {
            assert_eq!(charge.cost(whole(20), &result.into()), whole(cost), "{result:?}");
        }
        assert_eq!(Charge::default().cost(whole(20), &answered(200, Usage::Unknown)), whole(20));
    }

    #[test]
    fn reported_usage_is_charged() {
        let charge = table(&[("429", 0), ("default", 1)]).from_usage("body:/usage/total_tokens").unwrap();
        let by_source =
            |name: &str| Usage::BySource(vec![("else".into(), whole(9)), (name.into(), whole(321))]);
        for (status, usage, cost) in [
            (200, by_source("body:/usage/total_tokens"), 321),
            (200, Usage::Amount(whole(5)), 5),
            (200, Usage::Amount(Tokens::from_micro(-5)), 0),
            (200, by_source("body:/other"), 1_000),
            (200, Usage::Unknown, 1_000),
            (429, Usage::Amount(whole(5)), 0),
            (500, Usage::Unknown, 1),
        ] {
            let shown = format!("{status} {usage:?}");
            assert_eq!(charge.cost(whole(1_000), &answered(status, usage)), whole(cost), "{shown}");
        }
    }

    #[test]
    fn the_worst_case_is_the_most_expensive_status() {
        assert_eq!(table(&[("200", 1), ("404", 20), ("default", 3)]).worst(), Some(whole(20)));
        assert_eq!(table(&[("200", 1), ("default", 3)]).worst(), Some(whole(3)));
        assert_eq!(Charge::default().worst(), None);
    }

    #[test]
    fn invalid_costs_are_refused() {
        for status in ["", "6xx", "0xx", "xx", "99", "600", "2x", "20", "abc"] {
            assert_eq!(Charge::default().on(status, Tokens::ONE).unwrap_err().field, "cost", "{status}");
        }
        assert_eq!(Charge::default().on("200", Tokens::from_micro(-1)).unwrap_err().field, "cost");
        assert_eq!(Charge::default().from_usage("").unwrap_err().field, "cost");
        assert_eq!(CreditRule::new(&[("payment", Tokens::ZERO)], CREDIT_WITHIN).unwrap_err().field, "credit");
        assert_eq!(CreditRule::new(&[("", Tokens::ONE)], CREDIT_WITHIN).unwrap_err().field, "credit");
        assert_eq!(CreditRule::new(&[], Span::ZERO).unwrap_err().field, "credit_within");
    }
}
