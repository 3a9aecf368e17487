//! What callers without a lease tell about an upstream, and setting it right by hand.

use super::Engine;
use crate::gate::CallResult;
use crate::ids::Name;
use crate::time::Time;
use crate::views::UpstreamView;

impl Engine {
    /// Counts what a caller without a lease tells about an upstream.
    pub fn record(&mut self, upstream: &Name, result: CallResult, now: Time) -> Option<UpstreamView> {
        let index = *self.upstream_by_name.get(upstream)?;
        self.change_gates(index, now, |state| {
            if let Some(spec) = &state.spec {
                state.gates.record(spec, result, now);
            }
        });
        self.stir_users(self.without_key(index));
        self.upstream_view(upstream, now)
    }

    /// Closes an upstream's breaker without a probe if its open window is over; else nothing changes.
    pub fn recover(&mut self, upstream: &Name, now: Time) -> Option<UpstreamView> {
        let index = *self.upstream_by_name.get(upstream)?;
        // Whoever makes his own calls may ask before each of them: only a change is worth a record.
        if self.upstream(index).gates.is_half_open(now) {
            self.change_gates(index, now, |state| state.gates.recover(now));
            self.stir_users(self.without_key(index));
        }
        self.upstream_view(upstream, now)
    }

    /// Closes an upstream's breaker, ends its cooldown and that of its keys, and forgets its word to stay away.
    pub fn reset(&mut self, upstream: &Name, now: Time) -> Option<UpstreamView> {
        let index = *self.upstream_by_name.get(upstream)?;
        for at in [index].into_iter().chain(self.upstream(index).keys.clone()) {
            self.change_gates(at, now, |state| state.gates.reset(now));
        }
        self.stir_users(self.without_key(index));
        self.upstream_view(upstream, now)
    }
}
