//! One tenant floods a lane that twenty small tenants use. The fairness bound is checked at every start.

use std::collections::BTreeMap;

use eclusa_core::gate::CallResult;
use eclusa_core::{Fairness, Grant, NewJob, Outcome, Settled, Store};

use crate::harness::{Harness, Open};
use crate::rules::{chain, failure, free, lane, of, secs, slots, via, weights};

const SMALL: u128 = 20;

/// Counts who waits and who is served.
struct Watch {
    rule: Fairness,
    tenants: BTreeMap<String, Seen>,
    last: Option<String>,
    in_a_row: u32,
}

#[derive(Default)]
struct Seen {
    waiting: u32,
    /// Jobs of other tenants started since it began to wait or was last served.
    passed: u32,
}

impl Watch {
    fn new(rule: Fairness) -> Self {
        Self { rule, tenants: BTreeMap::new(), last: None, in_a_row: 0 }
    }

    fn came(&mut self, tenant: &str) {
        let seen = self.tenants.entry(tenant.to_owned()).or_default();
        if seen.waiting == 0 {
            seen.passed = 0;
        }
        seen.waiting += 1;
    }

    /// A job of `tenant` started.
    fn served(&mut self, tenant: &str) {
        let again = self.last.replace(tenant.to_owned()).as_deref() == Some(tenant);
        self.in_a_row = if again { self.in_a_row + 1 } else { 1 };
        let others = self.tenants.iter().any(|(other, seen)| other != tenant && seen.waiting > 0);
        let quota = self.rule.quota(tenant);
        assert!(!others || self.in_a_row <= quota, "{tenant} had {} in a row", self.in_a_row);
        let all: u32 = self.tenants.keys().map(|tenant| self.rule.quota(tenant)).sum();
        for (other, seen) in &mut self.tenants {
            if other == tenant {
                (seen.waiting, seen.passed) = (seen.waiting - 1, 0);
            } else if seen.waiting > 0 {
                seen.passed += 1;
                let bound = all - self.rule.quota(other);
                assert!(seen.passed <= bound, "{other} was passed {} times", seen.passed);
            }
        }
    }

    fn is_done(&self) -> bool {
        self.tenants.values().all(|seen| seen.waiting == 0)
    }
}

/// One tenant that floods, then twenty with two jobs each.
fn all() -> Vec<NewJob> {
    let small =
        (0..SMALL).flat_map(|n| [2 * n, 2 * n + 1].map(|job| of(&format!("small-{n:02}"), 1_000 + job)));
    (0..80).map(|n| of("flood", n)).chain(small).collect()
}

/// Serves until nobody waits; `fails` says for each start whether it is retried a second later.
async fn serve<S: Store>(q: &Harness<S>, watch: &mut Watch, fails: impl Fn(&Grant) -> bool) {
    let mut backing_off: Vec<String> = Vec::new();
    while !watch.is_done() || !backing_off.is_empty() {
        let grants = q.take(7).await;
        let mut settlements = Vec::new();
        for grant in &grants {
            watch.served(&grant.tenant);
            let outcome = if fails(grant) {
                backing_off.push(grant.tenant.to_string());
                Outcome::Retry { after: secs(1), failure: failure("unavailable") }
            } else {
                Outcome::Done
            };
            settlements.push((grant.lease, outcome));
        }
        let settled = q.settle_all(CallResult::Success, settlements).await;
        assert!(!settled.contains(&Settled::Stale));
        if grants.len() < 7 {
            q.pass(secs(1));
            std::mem::take(&mut backing_off).iter().for_each(|tenant| watch.came(tenant));
        }
    }
}

async fn flood<S: Store>(open: Open<S>, rule: Fairness, fails: impl Fn(&Grant) -> bool) {
    let q = Harness::new(open, &lane(|lane| lane.fairness = Some(rule.clone())));
    let mut watch = Watch::new(rule);
    let jobs = all();
    jobs.iter().for_each(|job| watch.came(&job.tenant));
    q.accept(jobs).await;
    serve(&q, &mut watch, fails).await;
}

pub async fn no_small_tenant_waits_longer_than_one_turn_of_the_others<S: Store>(open: Open<S>) {
    flood(open, weights(3, &[]), |_| false).await;
}

pub async fn with_weights_the_bound_is_each_tenants_own<S: Store>(open: Open<S>) {
    flood(open, weights(2, &[("small-0*", 2), ("*", 1), ("flood", 3)]), |_| false).await;
}

pub async fn retries_that_return_are_within_the_bound<S: Store>(open: Open<S>) {
    flood(open, weights(3, &[]), |grant| grant.attempt == 1 && grant.job.0.is_multiple_of(3)).await;
}

pub async fn a_blocked_tenant_delays_nobody_and_is_served_within_the_bound_later<S: Store>(open: Open<S>) {
    let rule = weights(3, &[]);
    let rules = chain(&[("full", slots(1)), ("free", free())], |lane| lane.fairness = Some(rule.clone()));
    let q = Harness::new(open, &rules);
    q.accept([via(&["full"], of("blocked", 5_000))]).await;
    let running = q.next().await;
    q.accept([via(&["full"], of("blocked", 5_001))]).await;
    let mut watch = Watch::new(rule);
    let jobs: Vec<_> = all().into_iter().map(|job| via(&["free"], job)).collect();
    jobs.iter().for_each(|job| watch.came(&job.tenant));
    q.accept(jobs).await;
    for _ in 0..3 {
        let grants = q.take(10).await;
        assert_eq!(grants.len(), 10);
        grants.iter().for_each(|grant| watch.served(&grant.tenant));
        q.settle_all(CallResult::Success, grants.iter().map(|grant| (grant.lease, Outcome::Done))).await;
    }
    q.done(&running).await;
    watch.came("blocked");
    serve(&q, &mut watch, |_| false).await;
}
