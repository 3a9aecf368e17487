//! Keys of upstreams: several accounts at one upstream, each with limits of its own.
//!
//! A key is an upstream below another, which no chain names. A call to an upstream that has keys takes from its gates and from
//! those of one key, and its lease is at the key. Jobs know only the upstream.

use super::Engine;
use super::eta::side_by_side;
use crate::gate::{GateView, NotUntil};
use crate::ids::Name;
use crate::table::UpstreamIx;
use crate::time::Time;

impl Engine {
    /// The upstream whose key this is, else itself.
    pub(super) fn without_key(&self, at: UpstreamIx) -> UpstreamIx {
        self.upstream(at).key_of.unwrap_or(at)
    }

    /// Whose gates a call under a lease there takes from: the key's, if it is one, and the upstream's.
    pub(super) fn gates_at(&self, at: UpstreamIx) -> impl Iterator<Item = UpstreamIx> + use<> {
        [Some(at), self.upstream(at).key_of].into_iter().flatten()
    }

    /// Of the keys that admit a call the one with the fewest calls under way, of equals the first; `None` if the upstream
    /// has no keys. If none admits it, the denial that ends first.
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

    /// When an upstream lets the next call but `ahead` start. Its keys are used side by side.
    pub(super) fn nth_start(&self, upstream: UpstreamIx, ahead: u64, now: Time) -> Time {
        let start = |at: UpstreamIx, ahead: u64| {
            let state = self.upstream(at);
            state.spec.as_ref().map_or(now, |spec| state.gates.nth_start(spec, ahead, now))
        };
        let keys: Vec<_> = self.keys_in_force(upstream).collect();
        start(upstream, ahead).max(side_by_side(&keys, ahead, now, start))
    }

    pub(super) fn keys_in_force(&self, upstream: UpstreamIx) -> impl Iterator<Item = UpstreamIx> {
        self.upstream(upstream).keys.iter().copied().filter(|key| !self.upstream(*key).gone)
    }
}
