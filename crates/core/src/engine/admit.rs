//! Calls without a job: for direct lanes and for workers that make their own.

use super::Engine;
use super::leases::{Lease, Use};
use crate::gate::CallResult;
use crate::ids::Name;
use crate::job::Level;
use crate::lane::{JobHold, Rank};
use crate::time::Time;
use crate::verbs::{Admission, Admit, UpstreamView};

/// A call without a job is made now or not at all, so it stands behind nobody.
const FIRST: Rank = (Level::High, 0);

impl Engine {
    /// Takes from all gates of an upstream and all named buckets, or from none.
    pub fn admit(&mut self, ask: &Admit, now: Time) -> Admission {
        self.take_up_lost(crate::verbs::MAX_BATCH, now);
        let Some(upstream) = self.upstream_by_name.get(&ask.upstream).copied() else {
            return Admission::UnknownUpstream;
        };
        if let Err(denial) = self.upstream_admits(upstream, now) {
            return Admission::Denied(denial);
        }
        let mut holds = Vec::new();
        for hold in &ask.holds {
            let bucket = self.buckets.find_or_create(&hold.bucket, hold.spec, now);
            holds.push(JobHold { upstream, bucket, tokens: hold.tokens });
        }
        if let Some((_, denial)) = self.denied_hold(&holds, upstream, FIRST, now) {
            return Admission::Denied(denial);
        }
        for hold in &holds {
            self.buckets.take(hold.bucket, hold.tokens, now);
        }
        let (id, expires) = (self.leases.issue(ask.nonce), now + ask.lease);
        let pass = self.take_gates(upstream, id, expires, now);
        let holds = holds.into_iter().map(|hold| (hold.bucket, hold.tokens)).collect();
        self.leases
            .insert(id, Lease { used_by: Use::Call(None), upstream: Some(upstream), pass, holds, expires });
        Admission::Granted(id)
    }

    /// Counts what a caller without a lease tells about an upstream.
    pub fn record(&mut self, upstream: &Name, result: CallResult, now: Time) -> Option<UpstreamView> {
        let index = *self.upstream_by_name.get(upstream)?;
        let state = self.upstream_mut(index);
        if let Some(spec) = &state.spec {
            state.gates.record(spec, result, now);
        }
        self.upstream_view(upstream, now)
    }
}
