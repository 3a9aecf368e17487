//! Salvage: what can be recovered from an engine whose journal was lost.

use super::Engine;
use super::jobs::{Job, Phase};
use crate::job::{Hold, NewJob};
use crate::time::{Span, Time};

impl Engine {
    /// The epoch of the leases it issues.
    pub fn epoch(&self) -> u64 {
        self.leases.epoch
    }

    /// Continues under another term: leases issued from now on carry its epoch.
    pub fn set_epoch(&mut self, epoch: u64) {
        self.leases.epoch = epoch;
    }

    /// Extends all leases to at least `until`: their workers could not extend them, and will do so now if they are
    /// alive.
    pub fn spare_leases(&mut self, until: Time, now: Time) {
        while let Some(lease) = self.leases.expired(until) {
            // One millisecond more, so that the loop does not find it again.
            self.extend_one(lease, until + Span::from_millis(1), now);
        }
    }

    /// The jobs that have not ended, as new jobs to be enqueued under the same ids. A running one may already have been
    /// sent.
    pub fn waiting_jobs(&self, now: Time) -> Vec<NewJob> {
        let alive =
            self.jobs.iter().map(|(_, job)| job).filter(|job| !matches!(job.phase, Phase::Finished { .. }));
        alive.map(|job| self.as_new(job, now)).collect()
    }

    fn as_new(&self, job: &Job, now: Time) -> NewJob {
        let lane = self.lane(job.lane);
        let mut new =
            NewJob::new(job.id, lane.name.clone(), &lane.tenants[job.tenant].name, job.payload.clone());
        new.level = job.level;
        // The idempotency key of a replay belongs to the first job.
        let rare = job.rare.as_deref().filter(|rare| rare.replay_of.is_none());
        new.key = rare.and_then(|rare| rare.key.clone());
        new.cache_key = job.cache_key().cloned();
        new.ttl = (job.expires_at < Time::NEVER).then(|| job.expires_at.since(now).max(Span::from_millis(1)));
        if let Phase::Pending { due } = job.phase {
            new.delay = due.since(now);
        }
        let chain = lane.chain(job.chain).iter().map(|upstream| self.upstream(*upstream).name.clone());
        new.chain = Some(chain.collect());
        let holds = job.holds().into_iter().flat_map(|holds| holds.iter());
        new.holds = holds
            .map(|hold| {
                let bucket = &self.buckets[hold.bucket];
                let upstream = self.upstream(hold.upstream).name.clone();
                let restored = Hold::restore(upstream, &bucket.key, bucket.spec, hold.tokens);
                Hold { terms: self.buckets.terms_of(hold.bucket).cloned(), ..restored }
            })
            .collect();
        new.correlation = job.correlation();
        new.callback = job.callback().cloned();
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::GateSpecs;
    use crate::spec::{Chain, LaneSpec, Spec, UpstreamSpec};
    use crate::verbs::{Admit, Dispatch, Enqueued};
    use crate::{JobId, LeaseId, Name};

    #[test]
    fn salvaged_jobs_can_be_enqueued_elsewhere_once() {
        let (lane, up) = (Name::new("a").unwrap(), Name::new("up").unwrap());
        let rules = LaneSpec::new(lane.clone(), Chain::new(vec![up.clone()]).unwrap());
        let spec = Spec::new(vec![rules], vec![UpstreamSpec::new(up, GateSpecs::default())]).unwrap();
        let (mut old, mut new) = (Engine::new(&spec), Engine::new(&spec));
        let now = Time::from_millis(1_000);
        let mut first = NewJob::new(JobId(1), lane.clone(), "acme", *b"one");
        first.ttl = Some(Span::from_secs(60));
        first.key = Some("order-1".into());
        first.correlation = Some(crate::HashKey::new(1).correlation("E1"));
        let mut later = NewJob::new(JobId(2), lane.clone(), "acme", *b"two");
        later.delay = Span::from_secs(5);
        old.enqueue(vec![first, later], now);
        let ask =
            Dispatch { lane, max: 1, lease: Span::from_secs(10), nonce: 1, wait: Span::ZERO, denied: None };
        assert_eq!(old.dispatch(&ask, now).grants.len(), 1, "one runs");
        let saved = old.waiting_jobs(now + Span::from_secs(1));
        assert_eq!(saved.iter().filter(|job| job.correlation.is_some()).count(), 1);
        for again in [true, false] {
            let answers = new.enqueue(saved.clone(), now + Span::from_secs(1)).jobs;
            assert!(answers.iter().all(|answer| answer.is_accepted() == again), "{answers:?}");
            assert!(
                again || answers.iter().all(|answer| matches!(answer, Enqueued::Existing(_))),
                "{answers:?}"
            );
        }
        let views = [1, 2].map(|id| new.job(JobId(id)).unwrap());
        assert_eq!(views[0].expires_at, now + Span::from_secs(60));
        assert_eq!((views[0].key.as_deref(), &*views[0].payload), (Some("order-1"), b"one".as_slice()));
        assert_eq!(views[1].due_at, Some(now + Span::from_secs(5)));
    }

    #[test]
    fn spare_leases_extends_expired_leases_and_leaves_longer_ones_unchanged() {
        let up = Name::new("up").unwrap();
        let spec = Spec::new(Vec::new(), vec![UpstreamSpec::new(up.clone(), GateSpecs::default())]).unwrap();
        let mut engine = Engine::new(&spec);
        let at = |ms: u64| Time::from_millis(1_000_000 + ms);
        for (nonce, lease) in [(1, 1_000), (2, 60_000)] {
            let lease = Span::from_millis(lease);
            engine.admit(
                &Admit {
                    lane: None,
                    tenant: None,
                    chain: vec![up.clone()],
                    holds: Vec::new(),
                    correlation: None,
                    lease,
                    nonce,
                    after: None,
                    probe: true,
                },
                at(0),
            );
        }
        engine.spare_leases(at(9_000), at(5_000));
        let ends: Vec<_> = engine.leases.iter().map(|(id, lease)| (id.nonce, lease.expires)).collect();
        assert_eq!(ends, [(1, at(9_001)), (2, at(60_000))]);
    }

    #[test]
    fn leases_carry_the_epoch_of_the_term() {
        let mut engine = Engine::default();
        engine.set_epoch(7);
        assert_eq!(engine.leases.issue(1), LeaseId { epoch: 7, number: 1, nonce: 1 });
    }
}
