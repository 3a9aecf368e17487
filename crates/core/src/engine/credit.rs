//! Credits: events that give back tokens of earlier calls.

use super::Engine;
use crate::charge::CreditRule;
use crate::policy::{BucketId, Correlation};
use crate::table::BucketIx;
use crate::time::Time;
use crate::tokens::Tokens;
use crate::verbs::{Credit, Credited};

impl Engine {
    /// Counts each event once: every bucket that was charged under its correlation id gets the credit of its policy.
    /// Repeating an event changes nothing.
    pub fn credit(&mut self, credits: &[Credit], now: Time) -> Vec<Credited> {
        credits.iter().map(|credit| self.credit_one(credit, now)).collect()
    }

    fn credit_one(&mut self, credit: &Credit, now: Time) -> Credited {
        let Credit { event, correlation } = credit;
        let Some(debit) = self.debits.get(*correlation) else { return Credited::Unknown };
        if debit.credited.contains(event) {
            return Credited::Repeated;
        }
        let (at, keys) = (debit.at, debit.buckets.clone());
        let mut given = Vec::new();
        for key in &keys {
            let rule = self.buckets.families().terms_of_key(key).and_then(|terms| terms.credit.as_ref());
            let tokens = rule.filter(|rule| now <= at + rule.within()).and_then(|rule| rule.tokens(event));
            let (Some(tokens), Some(id)) = (tokens, BucketId::parse(key)) else { continue };
            // A bucket that is not stored is full.
            let room = self.buckets.find(key).map_or(Tokens::ZERO, |bucket| self.give(bucket, tokens, now));
            given.push((id, room));
        }
        if given.is_empty() {
            return Credited::Unknown;
        }
        self.debits.count(*correlation, event);
        Credited::Buckets(given)
    }

    fn give(&mut self, bucket: BucketIx, tokens: Tokens, now: Time) -> Tokens {
        let given = self.buckets.credit(bucket, tokens, now);
        self.mark_waiting_ready(bucket);
        given
    }

    /// Marks the lanes ready whose lines wait for a bucket that got tokens other than by its refill.
    pub(super) fn mark_waiting_ready(&mut self, bucket: BucketIx) {
        for lane in self.buckets.lanes_waiting_for(bucket) {
            self.mark_ready(lane);
        }
    }

    /// Records which of `buckets` were charged for `correlation`, if their policy gives credit.
    pub(super) fn note_debit(
        &mut self,
        correlation: Correlation,
        buckets: impl IntoIterator<Item = BucketIx>,
        now: Time,
    ) {
        for bucket in buckets {
            let rule = self.buckets.terms_of(bucket).and_then(|terms| terms.credit.as_ref());
            if let Some(within) = rule.map(CreditRule::within) {
                self.debits.note(correlation, &self.buckets[bucket].key, within, now);
            }
        }
    }
}
