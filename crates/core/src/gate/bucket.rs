//! Token bucket: a balance that refills continuously up to a capacity.
//!
//! Admission takes a hold; the answer settles it to the real cost, which may leave a debt that must refill before
//! anything passes. Until the settlement, the bucket refills at most to its capacity minus what is held: the upstream
//! counts the call at some time before it answers, and its own bucket gains nothing above capacity before that. Amounts
//! are integers (millionths) and the refill keeps its remainder, so no fraction is lost or gained, however often the
//! bucket is read.

use std::num::NonZeroU32;

use super::{NotUntil, Reason, Share};
use crate::error::{SpecError, positive};
use crate::time::{Span, Time};
use crate::tokens::Tokens;

/// When to retry a hold that only fits after other holds are settled: their calls are running.
pub(crate) const HELD_BY_OTHERS: Span = Span::from_secs(1);

/// Capacity and refill of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BucketSpec {
    capacity: Tokens,
    /// Refill in lowest terms: `refill_micro` micro-tokens every `refill_ms` milliseconds. Lowest terms keep the
    /// products of long idle times small enough for doubles (2^53), which is what Lua has.
    refill_micro: u64,
    refill_ms: u64,
}

impl BucketSpec {
    /// A bucket of `capacity` tokens that gains `refill` tokens every `per`.
    pub fn new(capacity: u32, refill: u32, per: Span) -> Result<Self, SpecError> {
        positive("capacity", capacity)?;
        positive("refill", refill)?;
        positive("refill", per)?;
        let micro = u64::from(refill) * 1_000_000;
        let divisor = greatest_common_divisor(micro, per.as_millis());
        Ok(Self {
            capacity: Tokens::whole(capacity),
            refill_micro: micro / divisor,
            refill_ms: per.as_millis() / divisor,
        })
    }

    /// A bucket for concurrency: tokens are only held, never spent, and released tokens are available at once.
    pub(crate) fn slots(slots: NonZeroU32) -> Self {
        let micro = u64::from(slots.get()) * 1_000_000;
        Self { capacity: Tokens::whole(slots.get()), refill_micro: micro, refill_ms: 1 }
    }

    /// The balance when full.
    pub const fn capacity(&self) -> Tokens {
        self.capacity
    }

    /// Its refill in lowest terms: micro-tokens, and milliseconds in which they are gained.
    pub const fn refill(&self) -> (u64, u64) {
        (self.refill_micro, self.refill_ms)
    }

    /// Restores a stored rule.
    pub const fn restore(capacity: Tokens, refill: (u64, u64)) -> Self {
        Self { capacity, refill_micro: refill.0, refill_ms: refill.1 }
    }

    /// A share of its capacity and refill; `None` if the share is less than one token.
    pub(crate) fn share(self, share: Share) -> Option<Self> {
        let whole = u32::try_from(self.capacity.as_micro() / Tokens::ONE.as_micro()).unwrap_or(u32::MAX);
        let own = share.of(whole);
        let (micro, ms) = (self.refill_micro * u64::from(own), self.refill_ms * u64::from(whole));
        let divisor = greatest_common_divisor(micro, ms);
        (own > 0).then(|| Self {
            capacity: Tokens::whole(own),
            refill_micro: micro / divisor,
            refill_ms: ms / divisor,
        })
    }

    /// How long it takes to gain `amount`, rounded up.
    pub fn time_to_gain(&self, amount: Tokens) -> Span {
        let micro = u128::from(amount.as_micro().max(0).unsigned_abs());
        let ms = (micro * u128::from(self.refill_ms)).div_ceil(u128::from(self.refill_micro));
        Span::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    /// What is gained in `time`, rounded up.
    fn gain(&self, time: Span) -> Tokens {
        let micro = (u128::from(time.as_millis()) * u128::from(self.refill_micro))
            .div_ceil(u128::from(self.refill_ms));
        Tokens::from_micro(i64::try_from(micro).unwrap_or(i64::MAX))
    }

    /// Checks that this bucket can ever provide `hold` at once.
    pub fn check_hold(&self, hold: Tokens) -> Result<Tokens, SpecError> {
        positive("hold", hold)?;
        if hold > self.capacity {
            let problem = "is more than the bucket's capacity, so it could never be taken";
            return Err(SpecError::new("hold", problem));
        }
        Ok(hold)
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The balance of one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    pub(crate) balance: Tokens,
    /// The time of `balance`. It never goes back, so a clock that does cannot add tokens.
    pub(crate) at: Time,
    /// The fraction of a micro-token gained so far, in units of `1 / refill_ms`.
    pub(crate) remainder: u64,
    /// Closed by the upstream's Retry-After until this time.
    pub(crate) closed_until: Time,
    /// Tokens held by running calls. Not stored: it is the sum over their leases.
    pub(crate) held: Tokens,
}

impl Bucket {
    /// A full bucket.
    pub fn full(spec: &BucketSpec, now: Time) -> Self {
        Self::holding(spec.capacity, now)
    }

    /// A bucket with this balance.
    pub(crate) fn holding(balance: Tokens, now: Time) -> Self {
        Self { balance, at: now, remainder: 0, closed_until: Time::default(), held: Tokens::ZERO }
    }

    /// The balance at `now`.
    pub fn balance(&self, spec: &BucketSpec, now: Time) -> Tokens {
        self.refilled(spec, now).balance
    }

    /// The balance at the last refill, and the time of that refill.
    pub(super) const fn last_refill(&self) -> (Tokens, Time) {
        (self.balance, self.at)
    }

    /// Tokens held by running calls.
    pub const fn held(&self) -> Tokens {
        self.held
    }

    /// The most it can refill to now.
    fn ceiling(&self, spec: &BucketSpec) -> Tokens {
        spec.capacity - self.held
    }

    /// Whether it is equal to an unused bucket.
    pub fn is_untouched(&self, spec: &BucketSpec, now: Time) -> bool {
        self.closed_until <= now && self.balance(spec, now) >= spec.capacity
    }

    /// Whether `hold` cannot fit until a running call has ended, however long the bucket refills.
    pub(crate) fn waits_for_others(&self, spec: &BucketSpec, hold: Tokens) -> bool {
        self.held > Tokens::ZERO && hold > self.ceiling(spec)
    }

    /// Whether `hold` may be taken at `now`.
    pub fn admits(&self, spec: &BucketSpec, hold: Tokens, now: Time) -> Result<(), NotUntil> {
        if self.closed_until > now {
            return Err(NotUntil::new(Reason::UpstreamRetryAfter, self.closed_until));
        }
        let bucket = self.refilled(spec, now);
        if bucket.balance >= hold {
            Ok(())
        } else {
            Err(NotUntil::new(Reason::RateLimit, bucket.enough_at(spec, hold)))
        }
    }

    /// When the balance reaches `hold` if nothing else is taken; `self` is already refilled.
    fn enough_at(&self, spec: &BucketSpec, hold: Tokens) -> Time {
        if self.waits_for_others(spec, hold) { self.at + HELD_BY_OTHERS } else { self.when(spec, hold) }
    }

    /// When it will be full if nothing is taken and running calls cost what they hold.
    pub(crate) fn full_at(&self, spec: &BucketSpec, now: Time) -> Time {
        let bucket = self.refilled(spec, now);
        bucket.when(spec, spec.capacity).max(self.closed_until)
    }

    /// Spends `tokens`.
    pub fn spend(&mut self, spec: &BucketSpec, tokens: Tokens, now: Time) {
        *self = self.refilled(spec, now);
        self.balance = self.balance - tokens;
    }

    /// Returns tokens that were spent on a call that was not made.
    pub fn refund(&mut self, spec: &BucketSpec, tokens: Tokens, now: Time) {
        *self = self.refilled(spec, now);
        self.balance = self.balance + tokens;
        self.cap(spec);
    }

    /// Holds `tokens` until they are settled.
    pub fn hold(&mut self, spec: &BucketSpec, tokens: Tokens, now: Time) {
        self.spend(spec, tokens, now);
        self.held = self.held + tokens;
    }

    /// Restores the hold of an existing lease; the balance was reduced when the lease was granted.
    pub(crate) fn hold_again(&mut self, spec: &BucketSpec, tokens: Tokens) {
        self.held = self.held + tokens;
        self.balance = self.balance.min(self.ceiling(spec));
    }

    /// Replaces a hold by the real cost: the excess is returned, a shortfall becomes debt.
    pub fn settle(&mut self, spec: &BucketSpec, hold: Tokens, cost: Tokens, now: Time) {
        *self = self.refilled(spec, now);
        self.held = self.held - hold;
        self.balance = self.balance + hold - cost;
        self.cap(spec);
    }

    /// Sets the balance to what its upstream `reported`, minus what running calls hold and what was spent since the
    /// upstream was asked, because it may have counted neither. `when_asked` is our balance plus holds when it was
    /// asked, `asked_ago` before now. A difference that rounding to whole tokens and refills since then explain changes
    /// nothing. If events return tokens (`credited`), the balance is only lowered, and not because of running calls: a
    /// higher report may include an event that we have not received yet and would count twice. Returns how much of a
    /// difference calls and refills since then can explain.
    pub(crate) fn correct(
        &mut self,
        spec: &BucketSpec,
        reported: Tokens,
        (when_asked, asked_ago): (Tokens, Span),
        credited: bool,
        now: Time,
    ) -> Tokens {
        let refilled = self.refilled(spec, now);
        let (ours, gained) = (refilled.balance + self.held, spec.gain(asked_ago));
        let spent = ((when_asked + gained).min(spec.capacity) - ours).max(Tokens::ZERO);
        let least = (reported - spent).min(spec.capacity);
        // The upstream may not have counted events that we received since.
        let unsure = if credited { self.held + (ours - when_asked).max(Tokens::ZERO) } else { Tokens::ZERO };
        let most = reported + Tokens::ONE + gained + unsure;
        if ours >= most || (ours < least && !credited) {
            *self = Self { balance: least - self.held, remainder: 0, ..refilled };
            self.cap(spec);
        }
        self.held + spent + gained + Tokens::ONE
    }

    /// Limits the balance to what it can refill to; a full bucket keeps no fraction.
    fn cap(&mut self, spec: &BucketSpec) {
        let ceiling = self.ceiling(spec);
        if self.balance >= ceiling {
            (self.balance, self.remainder) = (ceiling, 0);
        }
    }

    /// When the upstream's Retry-After ends.
    pub const fn closed_until(&self) -> Time {
        self.closed_until
    }

    /// Closes it until `until`.
    pub fn close(&mut self, until: Time) {
        self.closed_until = self.closed_until.max(until);
    }

    /// Limits the balance to what `spec` allows, after a change of rules.
    pub(crate) fn fit(&mut self, spec: &BucketSpec) {
        self.balance = self.balance.min(self.ceiling(spec));
        self.remainder = self.remainder.min(spec.refill_ms - 1);
    }

    /// When the balance reaches `hold`; `self` is already refilled.
    fn when(&self, spec: &BucketSpec, hold: Tokens) -> Time {
        let missing = u128::from((hold - self.balance).as_micro().max(0).unsigned_abs());
        let parts = (missing * u128::from(spec.refill_ms)).saturating_sub(u128::from(self.remainder));
        let ms = parts.div_ceil(u128::from(spec.refill_micro));
        self.at + Span::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    /// Adds what was gained until now.
    pub(crate) fn refill(&mut self, spec: &BucketSpec, now: Time) {
        *self = self.refilled(spec, now);
    }

    fn refilled(&self, spec: &BucketSpec, now: Time) -> Bucket {
        let elapsed = now.since(self.at).as_millis();
        if elapsed == 0 {
            return *self;
        }
        let parts = u128::from(elapsed) * u128::from(spec.refill_micro) + u128::from(self.remainder);
        let gained = i64::try_from(parts / u128::from(spec.refill_ms)).unwrap_or(i64::MAX);
        let balance = self.balance + Tokens::from_micro(gained);
        let ceiling = self.ceiling(spec);
        if balance >= ceiling {
            return Bucket { balance: ceiling, at: now, remainder: 0, ..*self };
        }
        let remainder = u64::try_from(parts % u128::from(spec.refill_ms)).unwrap_or(0);
        Bucket { balance, at: now, remainder, ..*self }
    }
}

#[cfg(test)]
mod tests;
