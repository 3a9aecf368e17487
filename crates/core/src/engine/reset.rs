//! Reports about an upstream from callers without a lease, and manual resets.

use super::Engine;
use crate::gate::CallResult;
use crate::ids::Name;
use crate::time::Time;
use crate::verbs::Report;
use crate::views::UpstreamView;

impl Engine {
    /// Counts a result that a caller without a lease reports.
    pub fn record(&mut self, upstream: &Name, result: CallResult, now: Time) -> Option<UpstreamView> {
        let index = *self.upstream_by_name.get(upstream)?;
        self.count_call(index, &Report::from(result), now);
        self.change_gates(index, now, |state| {
            if let Some(spec) = &state.spec {
                state.gates.record(spec, result, now);
            }
        });
        self.mark_users_ready(self.without_key(index));
        self.upstream_view(upstream, now)
    }

    /// Closes an upstream's breaker without a probe if its open window is over; otherwise changes nothing.
    pub fn recover(&mut self, upstream: &Name, now: Time) -> Option<UpstreamView> {
        let index = *self.upstream_by_name.get(upstream)?;
        // Callers that make their own calls may ask before each one: record only a change.
        if self.upstream(index).gates.is_half_open(now) {
            self.change_gates(index, now, |state| state.gates.recover(now));
            self.mark_users_ready(self.without_key(index));
        }
        self.upstream_view(upstream, now)
    }

    /// Closes an upstream's breaker, ends its cooldown and those of its keys, and forgets a Retry-After.
    pub fn reset(&mut self, upstream: &Name, now: Time) -> Option<UpstreamView> {
        let index = *self.upstream_by_name.get(upstream)?;
        for at in [index].into_iter().chain(self.upstream(index).keys.clone()) {
            self.change_gates(at, now, |state| state.gates.reset(now));
        }
        self.mark_users_ready(self.without_key(index));
        self.upstream_view(upstream, now)
    }
}
