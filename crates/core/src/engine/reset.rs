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
        let state = self.upstream_mut(index);
        if let Some(spec) = &state.spec {
            state.gates.record(spec, result, now);
        }
        self.stir_users(self.without_key(index));
        self.upstream_view(upstream, now)
    }

    /// Closes an upstream's breaker without a probe if its open window is over; else nothing changes.
    pub fn recover(&mut self, upstream: &Name, now: Time) -> Option<UpstreamView> {
        let index = *self.upstream_by_name.get(upstream)?;
        // Whoever makes his own calls may ask before each of them: only a change is worth a record.
        if self.upstreams[index.0 as usize].gates.recover(now) {
            self.upstream_mut(index);
            self.stir_users(self.without_key(index));
        }
        self.upstream_view(upstream, now)
    }

    /// Closes an upstream's breaker, ends its cooldown and that of its keys, and forgets its word to stay away.
    pub fn reset(&mut self, upstream: &Name, now: Time) -> Option<UpstreamView> {
        let index = *self.upstream_by_name.get(upstream)?;
        for at in [index].into_iter().chain(self.upstream(index).keys.clone()) {
            self.upstream_mut(at).gates.reset(now);
        }
        self.stir_users(self.without_key(index));
        self.upstream_view(upstream, now)
    }
}
