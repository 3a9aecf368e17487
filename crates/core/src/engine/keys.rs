//! Keys of upstreams: several accounts at one upstream, each with its own limits.
//!
//! A key is an upstream below another; chains do not name it. A call to an upstream with keys takes from the gates of
//! the upstream and of one key, and its lease is at the key. Jobs refer only to the upstream.

use super::Engine;
use super::eta::side_by_side;
use crate::gate::{GateView, NotUntil};
use crate::ids::Name;
use crate::table::UpstreamIx;
use crate::time::Time;

impl Engine {
    /// The upstream that a key belongs to; an upstream itself is returned unchanged.
    pub(super) fn without_key(&self, at: UpstreamIx) -> UpstreamIx {
        self.upstream(at).key_of.unwrap_or(at)
    }

    /// The gates that a call at `at` takes from: those of the key, if it is one, and of the upstream.
    pub(super) fn gates_at(&self, at: UpstreamIx) -> impl Iterator<Item = UpstreamIx> + use<> {
        [Some(at), self.upstream(at).key_of].into_iter().flatten()
    }

    /// The key with the fewest calls in flight among those that admit a call, the first of equals; `None` if the
    /// upstream has no keys. If no key admits the call, the denial that ends first.
    pub(super) fn free_key(&self, upstream: UpstreamIx, now: Time) -> Result<Option<UpstreamIx>, NotUntil> {
        let (mut free, mut earliest): (Option<UpstreamIx>, Option<NotUntil>) = (None, None);
        let load = |key: UpstreamIx| self.upstream(key).gates.in_flight();
        for key in self.keys_in_force(upstream) {
            let state = self.upstream(key);
            let spec = state.spec.as_ref();
            match spec.map_or(Ok(()), |spec| state.gates.admits(spec, now, self.leases.next_expiry())) {
                Ok(()) if free.is_none_or(|free| load(key) < load(free)) => free = Some(key),
                Err(denial) if earliest.is_none_or(|known| denial.at < known.at) => earliest = Some(denial),
                _ => {}
            }
        }
        match (free, earliest) {
            (None, Some(denial)) => Err(denial),
            (free, _) => Ok(free),
        }
    }

    /// Every configured gate of an upstream and of its keys.
    pub(super) fn gates_with_keys(&self, upstream: UpstreamIx, now: Time) -> Vec<(Name, Vec<GateView>)> {
        let all = [upstream].into_iter().chain(self.keys_in_force(upstream));
        all.map(|at| (self.upstream(at).name.clone(), self.upstream_gates(at, now))).collect()
    }

    /// When an upstream admits a call with `ahead` calls before it. Its keys are used in parallel.
    pub(super) fn nth_start(&self, upstream: UpstreamIx, ahead: u64, now: Time) -> Time {
        let start = |at: UpstreamIx, ahead: u64| {
            let state = self.upstream(at);
            state.spec.as_ref().map_or(now, |spec| state.gates.nth_start(spec, ahead, now))
        };
        start(upstream, ahead).max(side_by_side(self.keys_in_force(upstream), ahead, now, start))
    }

    pub(super) fn keys_in_force(&self, upstream: UpstreamIx) -> impl Iterator<Item = UpstreamIx> + Clone {
        self.upstream(upstream).keys.iter().copied().filter(|key| !self.upstream(*key).gone)
    }
}
