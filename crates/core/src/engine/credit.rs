//! Events that give back tokens of calls that cost some.

use super::Engine;
use crate::charge::CreditRule;
use crate::policy::{BucketId, Correlation};
use crate::table::BucketIx;
use crate::time::Time;
use crate::tokens::Tokens;
use crate::verbs::{Credit, Credited};

impl Engine {
    /// Counts events, each once: every bucket that was charged under its correlation id gets what its policy gives for
    /// it. Repeated, it changes nothing.
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
            // A bucket that is not there is full.
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
        self.stir_waiting_for(bucket);
        given
    }

    /// A bucket has more than it would have gained by itself.
    pub(super) fn stir_waiting_for(&mut self, bucket: BucketIx) {
        for lane in self.buckets.lanes_waiting_for(bucket) {
            self.stir(lane);
        }
    }

    /// Remembers that `buckets` were charged for `correlation`, those whose policy gives credit.
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
