//! Reconcile: asks upstreams for their own balances and corrects ours.
//!
//! The request is a call like any other: the upstream's gates and the policies that match it must admit it. Every
//! process of a fleet runs this loop, but only one asks: each request also takes the only token of a hidden bucket,
//! which refills in `every`. So corrections never overlap, and the death of a process loses none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use eclusa_core::gate::BucketSpec;
use eclusa_core::{
    Admit, BucketId, BucketQuery, Corrected, Correction, Hold, MAX_BATCH, Name, RetryAfter, Span, Store,
    StoreError, Tokens,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Workers;
use crate::config::{Policy, PolicyClass, Reconcile, ScopeSource, StateFormat, UpstreamConfig};
use crate::decide::{Permit, PermitAnswer};
use crate::execute::{CallContext, CallEnd, Called, Sent};
use crate::ids::own_nonce;
use crate::intake::DEFAULT_TENANT;
use crate::policy::{ReportedBalance, Scopes, Subject, Takes, read_state};
use crate::request::{Content, Request};
use crate::rules::Rules;
use crate::store::AnyStore;

/// The shortest pause before a denied request is tried again.
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// What these loops need in addition to what workers need.
pub(super) struct ReconcileParts {
    pub(super) workers: Arc<Workers>,
    pub(super) store: Arc<AnyStore>,
    pub(super) scopes: Arc<Scopes>,
}

/// Runs a loop for each upstream that reports its balances under the current rules.
pub(super) async fn run(parts: ReconcileParts) {
    let (mut changes, life) = (parts.workers.rules.watch(), parts.workers.life.clone());
    let parts = Arc::new(parts);
    loop {
        let rules = changes.borrow_and_update().clone();
        // A running request ends with its loop, and its lease with it.
        let mut loops = JoinSet::new();
        for (name, upstream) in &rules.config.upstreams {
            if let Some(reconcile) = upstream.reconcile() {
                let (parts, rules) = (parts.clone(), rules.clone());
                let (name, reconcile) = (name.clone(), reconcile.clone());
                loops.spawn(Reconciler { parts, rules, name, reconcile, noted: String::new() }.run_forever());
            }
        }
        tokio::select! {
            () = life.stopping.cancelled() => return,
            _ = changes.changed() => {}
            // The store failed permanently.
            Some(_) = loops.join_next() => return,
        }
    }
}

/// The loop of one upstream.
struct Reconciler {
    parts: Arc<ReconcileParts>,
    rules: Arc<Rules>,
    name: Name,
    reconcile: Reconcile,
    /// The last logged differences between its policies and ours.
    noted: String,
}

/// A policy with one bucket for the whole upstream, and its class.
type UpstreamWide<'a> = (&'a Policy, &'a PolicyClass);

impl Reconciler {
    async fn run_forever(mut self) {
        loop {
            let decider = self.parts.workers.decider.clone();
            match self.once().await {
                Ok(pause) => tokio::time::sleep(pause).await,
                Err(error) if decider.wait_out_outage(&error).await => {}
                Err(_) => return,
            }
        }
    }

    /// Asks, if the gates admit it; returns how long to wait before the next try.
    async fn once(&mut self) -> Result<Duration, StoreError> {
        let (every, request) = (self.reconcile.every, self.request());
        let (upstreams, chain) = (&self.rules.config.upstreams, std::slice::from_ref(&self.name));
        let subject = Subject::new(&request, DEFAULT_TENANT);
        let takes = match self.parts.scopes.takes(upstreams, chain, subject).await? {
            Ok(takes) => takes,
            Err(faults) => {
                let missing: Vec<String> = faults.into_iter().map(|fault| fault.field).collect();
                self.failed(&format!("a policy needs {} in the request", missing.join(", ")));
                return Ok(every);
            }
        };
        let permit = match self.admit(&takes).await? {
            Ok(permit) => permit,
            Err(pause) => return Ok(pause),
        };
        let (then, asked) = (self.counts().await?, Instant::now());
        match self.call(permit, request, &takes).await {
            Ok(balances) => self.compare(&balances, &then, asked).await?,
            Err(reason) => self.failed(&reason),
        }
        Ok(every)
    }

    fn request(&self) -> Request {
        let accept = match self.reconcile.format {
            StateFormat::DictXml => "application/xml",
            StateFormat::Json => "application/json",
        };
        let pair = |(name, value): &(http::HeaderName, http::HeaderValue)| {
            (name.as_str().to_owned(), value.as_bytes().to_vec())
        };
        let mut headers: Vec<_> = self.reconcile.headers.iter().map(pair).collect();
        if headers.iter().all(|(name, _)| name != "accept") {
            headers.push(("accept".to_owned(), accept.as_bytes().to_vec()));
        }
        let (path, query) = (self.reconcile.path.path.clone(), self.reconcile.path.query.clone());
        Request { method: "GET".to_owned(), path, query, headers, body: Vec::new() }
    }

    /// A permit for the request, or how long to wait before the next try.
    async fn admit(&self, takes: &Takes) -> Result<Result<Permit, Duration>, StoreError> {
        let every = self.reconcile.every;
        let mut holds = takes.at(std::slice::from_ref(&self.name));
        holds.extend(turn(&self.name, every));
        let ask = Admit {
            lane: None,
            tenant: None,
            chain: vec![self.name.clone()],
            holds,
            correlation: None,
            lease: self.rules.config.workers.lease.into(),
            nonce: own_nonce(),
            after: None,
            probe: true,
        };
        let asked = self.parts.workers.decider.admit(ask).await?;
        self.parts.workers.decider.store_answers();
        Ok(match asked {
            PermitAnswer::Granted(permit) => Ok(permit),
            PermitAnswer::Denied { denied, .. } => {
                let wait = Duration::from_millis(denied.denial.at.since(denied.now).as_millis());
                Err(wait.min(every).max(MIN_PAUSE))
            }
            // The store gets new rules a moment later than this loop.
            PermitAnswer::Unknown => Err(MIN_PAUSE),
        })
    }

    /// Available plus held tokens, by bucket; a bucket that is missing is full.
    async fn counts(&self) -> Result<BTreeMap<Arc<str>, Tokens>, StoreError> {
        let (mut counts, mut after) = (BTreeMap::new(), Some(0));
        while let Some(place) = after {
            let upstream = Some(self.name.clone());
            let query = BucketQuery {
                upstream,
                after: place,
                max: MAX_BATCH,
                shared: true,
                ..BucketQuery::default()
            };
            let page = self.parts.store.buckets(query).await?;
            counts.extend(page.buckets.iter().map(|view| (view.id.key(), view.available + view.held)));
            after = page.next;
        }
        Ok(counts)
    }

    /// Makes the call and settles it, so that its own cost counts as spent meanwhile.
    async fn call(
        &self,
        mut permit: Permit,
        request: Request,
        takes: &Takes,
    ) -> Result<Vec<ReportedBalance>, String> {
        let Workers { leases, metrics, clock, .. } = &*self.parts.workers;
        let (lasts, started) = (self.rules.config.workers.lease, Instant::now());
        let _hold = leases.hold(permit.lease, started + lasts);
        permit.set_report(self.rules.judge(&self.name, &CallEnd::Abandoned { sent: true }.into()).report);
        let key = format!("{:016x}", own_nonce());
        let granted = self.rules.key(&self.name, permit.key.as_deref());
        let called = match (self.rules.upstreams.get(&self.name), granted) {
            (Some(client), Ok(granted)) => {
                let headers = granted.map_or(&[][..], |granted| &granted.headers);
                let context =
                    CallContext { idempotency_key: &key, traceparent: None, headers, clock: &**clock };
                client.call(&Content::Http(request), &context, &Sent::default()).await
            }
            (Some(_), Err(end)) => end.into(),
            (None, _) => CallEnd::NotMade.into(),
        };
        let mut judged = self.rules.judge(&self.name, &called);
        metrics.count_call(&self.name, &judged.judgement, judged.report.retry_after.is_some());
        let took = started.elapsed();
        metrics.time_call(&self.name, took);
        judged.report.took = Some(took.into());
        // A Retry-After closes the bucket of the matching policy, not the hidden one.
        let bucket = takes.holds.first().map(|hold| hold.bucket().into());
        judged.report.retry_after = judged.report.retry_after.map(|asked| RetryAfter { bucket, ..asked });
        permit.set_report(judged.report);
        permit.end().await;
        self.read(&called).ok_or(judged.judgement.reason)?
    }

    /// Reads the balances; `None` unless the status is 200.
    fn read(&self, called: &Called) -> Option<Result<Vec<ReportedBalance>, String>> {
        let answer = called.answer.as_ref().filter(|answer| answer.status == 200)?;
        let read = read_state(self.reconcile.format, &answer.body);
        Some(read.map_err(|problem| format!("the answer {problem}")))
    }

    /// Corrects balances that differ, and logs that.
    async fn compare(
        &mut self,
        balances: &[ReportedBalance],
        then: &BTreeMap<Arc<str>, Tokens>,
        asked: Instant,
    ) -> Result<(), StoreError> {
        let rules = self.rules.clone();
        let policies = rules.config.upstreams.get(&self.name).map_or(&[][..], UpstreamConfig::policies);
        let shared = policies.iter().filter(|policy| policy.scope == ScopeSource::Upstream);
        let shared: Vec<UpstreamWide<'_>> =
            shared.filter_map(|policy| Some((policy, policy.classes.first()?))).collect();
        self.note_differences(policies, &shared, balances);
        let both = shared.iter().filter_map(|(policy, class)| {
            Some((*policy, *class, balances.iter().find(|balance| balance.name == policy.name.as_str())?))
        });
        let both: Vec<_> = both.collect();
        for batch in both.chunks(MAX_BATCH) {
            let asked_ago = Span::from(asked.elapsed());
            let correction = |(policy, class, balance): &(&Policy, &PolicyClass, &ReportedBalance)| {
                let bucket = policy.bucket(&self.name, class, None);
                let when_asked = then.get(&bucket.key()).copied().unwrap_or(class.bucket.capacity());
                Correction { bucket, spec: class.bucket, reported: balance.available, when_asked, asked_ago }
            };
            let corrections: Vec<Correction> = batch.iter().map(correction).collect();
            let buckets: Vec<BucketId> = corrections.iter().map(|one| one.bucket.clone()).collect();
            let corrected = self.parts.store.correct(corrections).await?;
            for (bucket, corrected) in buckets.iter().zip(corrected) {
                self.publish(bucket, corrected);
            }
        }
        self.parts.workers.metrics.count_reconciled(&self.name, true);
        Ok(())
    }

    fn publish(&self, bucket: &BucketId, Corrected { before, after, uncertainty }: Corrected) {
        let (upstream, policy, drift) = (&self.name, &bucket.policy, after - before);
        self.parts.workers.metrics.set_drift(upstream, policy, drift);
        if drift == Tokens::ZERO {
            return;
        }
        let [ours, corrected] =
            [before, after].map(|tokens| tokens.as_micro().div_euclid(Tokens::ONE.as_micro()));
        if drift > uncertainty || Tokens::ZERO - drift > uncertainty {
            let drift = corrected - ours;
            tracing::warn!(%upstream, %policy, ours, corrected, drift, "Balance differs from the upstream's count");
        } else {
            tracing::debug!(%upstream, %policy, ours, corrected, "Balance corrected");
        }
    }

    /// Logs policies that only one side has, or with other numbers, whenever that changes.
    fn note_differences(
        &mut self,
        policies: &[Policy],
        shared: &[UpstreamWide<'_>],
        balances: &[ReportedBalance],
    ) {
        let of = |policy: &Policy| balances.iter().find(|balance| balance.name == policy.name.as_str());
        let unknown =
            balances.iter().filter(|balance| policies.iter().all(|p| p.name.as_str() != balance.name));
        let unknown: Vec<&str> = unknown.map(|balance| balance.name.as_str()).collect();
        let unreported = shared.iter().filter(|(policy, _)| of(policy).is_none());
        let unreported: Vec<&str> = unreported.map(|(policy, _)| policy.name.as_str()).collect();
        let other = shared.iter().filter(|(policy, class)| of(policy).is_some_and(|t| !t.agrees_with(class)));
        let other: Vec<&str> = other.map(|(policy, _)| policy.name.as_str()).collect();
        let [unknown, unreported, other] = [unknown, unreported, other].map(|names| names.join(" "));
        let noted = format!("{unknown};{unreported};{other}");
        if noted != self.noted && noted.len() > 2 {
            let upstream = &self.name;
            tracing::warn!(
                %upstream,
                unknown_here = unknown,
                unreported,
                other_capacity_or_refill = other,
                "The upstream's policies differ from the config"
            );
        }
        self.noted = noted;
    }

    fn failed(&self, reason: &str) {
        self.parts.workers.metrics.count_reconciled(&self.name, false);
        tracing::warn!(upstream = %self.name, reason, "Balances could not be compared");
    }
}

/// The hold that only one request at a time can have. Its key differs from that of every policy's bucket.
fn turn(upstream: &Name, every: Duration) -> Option<Hold> {
    let spec = BucketSpec::new(1, 1, Span::from(every)).ok()?;
    Hold::new(upstream.clone(), &format!("{upstream}/reconcile/"), spec, Tokens::ONE).ok()
}
