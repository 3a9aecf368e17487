//! The public view of upstreams, kept current by the owner for other programs to read.

use super::Engine;
use crate::gate::PublicGates;
use crate::ids::Name;
use crate::table::UpstreamIx;
use crate::time::Time;

/// A change of what other programs read of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicChange {
    /// The upstream.
    pub upstream: Name,
    /// What was published before; `None` if that is unknown, as after a restore.
    pub before: Option<PublicGates>,
    /// What is to be published.
    pub after: PublicGates,
}

impl Engine {
    /// The upstreams whose public view changed since the last call; after a restore, all.
    /// The cost is proportional to what was touched. Changes by time alone (the end of an open window, a breaker that
    /// heals) are not reported: the published entry must expire.
    pub fn drain_public_changes(&mut self, now: Time) -> Vec<PublicChange> {
        let mut changes = Vec::new();
        for index in self.public_changes.drain(..) {
            let upstream = &mut self.upstreams[index.0 as usize];
            upstream.public_dirty = false;
            if upstream.key_of.is_some() {
                continue;
            }
            let after = upstream.gates.public(upstream.spec.as_ref(), now);
            let before = upstream.public.replace(after);
            if before != Some(after) {
                changes.push(PublicChange { upstream: upstream.name.clone(), before, after });
            }
        }
        changes
    }

    /// The published views were lost or replaced by older ones: the next call reports all.
    pub fn forget_public_views(&mut self) {
        for (index, upstream) in (0..).map(UpstreamIx).zip(&mut self.upstreams) {
            upstream.public = None;
            if !std::mem::replace(&mut upstream.public_dirty, true) {
                self.public_changes.push(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{BreakerSpec, BucketSpec, CallResult, GateSpecs};
    use crate::spec::{Spec, UpstreamSpec};
    use crate::time::Span;
    use crate::tokens::Tokens;
    use crate::verbs::Admit;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn at(ms: u64) -> Time {
        Time::from_millis(1_000_000 + ms)
    }

    fn spec() -> Spec {
        let mut gates = GateSpecs::default();
        gates.breaker = Some(BreakerSpec::new(2, Span::from_secs(30), 1).unwrap());
        gates.bucket = Some(BucketSpec::new(10, 10, Span::from_secs(1)).unwrap());
        let upstreams = ["a", "b"].map(|upstream| UpstreamSpec::new(name(upstream), gates.clone()));
        Spec::new(Vec::new(), upstreams.to_vec()).unwrap()
    }

    fn call(engine: &mut Engine, upstream: &str, now: Time) {
        let chain = vec![name(upstream)];
        let ask = Admit {
            lane: None,
            tenant: None,
            chain,
            holds: Vec::new(),
            correlation: None,
            lease: Span::from_secs(10),
            nonce: 1,
            after: None,
            probe: true,
        };
        engine.admit(&ask, now);
    }

    fn change(upstream: &str, before: Option<PublicGates>, after: PublicGates) -> PublicChange {
        PublicChange { upstream: name(upstream), before, after }
    }

    const NOTHING: PublicGates = PublicGates { failures: 0, degraded_until: None, tokens: None };

    #[test]
    fn a_change_of_the_public_view_is_reported_once() {
        let mut engine = Engine::new(&spec());
        let unknown = [change("a", None, NOTHING), change("b", None, NOTHING)];
        assert_eq!(engine.drain_public_changes(at(0)), unknown, "older keys may exist");
        call(&mut engine, "b", at(0));
        let spent = PublicGates { tokens: Some((Tokens::whole(9), at(0))), ..NOTHING };
        assert_eq!(engine.drain_public_changes(at(50)), [change("b", Some(NOTHING), spent)]);
        assert_eq!(engine.drain_public_changes(at(60)), []);
        engine.record(&name("b"), CallResult::Success, at(70));
        assert_eq!(engine.drain_public_changes(at(70)), [], "touched, but the same");
        engine.forget_public_views();
        let all = [change("a", None, NOTHING), change("b", None, spent)];
        assert_eq!(engine.drain_public_changes(at(80)), all);
        assert_eq!(engine.drain_public_changes(at(90)), []);
    }

    #[test]
    fn public_breakers_are_reported_after_a_restore() {
        let mut engine = Engine::new(&spec());
        engine.record(&name("a"), CallResult::Failed, at(0));
        engine.record(&name("a"), CallResult::Failed, at(0));
        let open = PublicGates { failures: 2, degraded_until: Some(at(30_000)), tokens: None };
        let all = [change("a", None, open), change("b", None, NOTHING)];
        assert_eq!(engine.drain_public_changes(at(10)), all);
        let mut chunk = Engine::begin_chunk();
        engine.save_changes(&mut chunk).unwrap();
        let mut restorer = crate::Restorer::default();
        restorer.apply(&chunk).unwrap();
        let mut engine = restorer.finish(1).unwrap();
        assert_eq!(engine.drain_public_changes(at(10)), all);
        engine.recover(&name("a"), at(30_000));
        assert_eq!(engine.drain_public_changes(at(30_000)), [change("a", Some(open), NOTHING)]);
    }
}
