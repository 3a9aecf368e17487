//! A store and its clock, with shorthands for the verbs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use eclusa_core::gate::{CallResult, NotUntil, Reason};
use eclusa_core::{
    Admission, Admit, Admitted, Advance, Advanced, AlertChanges, AlertsView, BucketPage, BucketQuery,
    BulkAnswer, BulkAsk, Cached, CancelAll, Cancelled, Clock, CodeView, Completed, Completion, Corrected,
    Correction, Correlation, CountLetters, Credit, Credited, DeadLetterView, DiscardedLetters, Dispatch,
    Dispatched, End, Ended, EnqueueAnswer, Enqueued, Fire, Fired, GateTransition, Grant, HashKey, HistoryOf,
    HistoryQuery, HistoryView, Hold, JobCursor, JobId, JobPage, JobQuery, JobView, LanePoint, LaneView,
    LeaseId, LetterCounts, LetterFilter, LetterPage, LetterQuery, Name, NewJob, Observe, Observed, Outcome,
    Poll, Replay, Replayed, Report, ServedBy, Settled, Settlement, Span, Spec, Status, Store, Swept,
    TenantPage, TenantQuery, TenantView, Time, UpstreamPoint, UpstreamView, Wait, Watch, Why,
};

use crate::clock::ManualClock;
use crate::rules::{LANE, failure, id, name, secs};

/// Opens an empty store with these rules and this clock.
pub type Open<S> = fn(&Spec, Arc<ManualClock>) -> S;

/// The default length of leases.
pub(crate) const LEASE: Span = secs(10);

/// A store under test.
pub struct Harness<S> {
    store: S,
    clock: Arc<ManualClock>,
    asks: AtomicU64,
}

impl<S: Store> Harness<S> {
    /// An empty store with these rules.
    pub fn new(open: Open<S>, spec: &Spec) -> Self {
        let clock = Arc::new(ManualClock::default());
        Self { store: open(spec, clock.clone()), clock, asks: AtomicU64::new(1) }
    }

    /// A new nonce.
    fn nonce(&self) -> u64 {
        self.asks.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(crate) fn pass(&self, span: Span) {
        self.clock.advance(span);
    }

    pub(crate) fn step_back(&self, span: Span) {
        self.clock.step_back(span);
    }

    pub(crate) async fn put(&self, new: NewJob) -> Enqueued {
        let job = new.id;
        let mut answer = self.store.enqueue(vec![new]).await.expect("the store answers");
        assert_eq!(answer.jobs.len(), 1, "one answer for each job");
        self.check_place(job, &answer.jobs[0]).await;
        answer.jobs.remove(0)
    }

    /// Checks that the position returned on acceptance equals the one that `why` shows.
    async fn check_place(&self, job: JobId, answer: &Enqueued) {
        let Enqueued::Accepted(place) = answer else { return };
        let why = self.store.why(job).await.expect("the store answers").expect("the job is known");
        assert_eq!((place.status, place.position, place.eta), (why.status, why.position, why.eta));
        let job = self.store.job(job).await.expect("the store answers").expect("the job is known");
        assert_eq!(place.expires_at, job.expires_at);
    }

    pub(crate) async fn enqueue(&self, jobs: Vec<NewJob>) -> EnqueueAnswer {
        self.store.enqueue(jobs).await.expect("the store answers")
    }

    pub(crate) async fn put_all(&self, jobs: impl IntoIterator<Item = NewJob>) -> Vec<Enqueued> {
        self.store.enqueue(jobs.into_iter().collect()).await.expect("the store answers").jobs
    }

    /// Enqueues jobs that must be accepted without dropping others.
    pub(crate) async fn accept(&self, jobs: impl IntoIterator<Item = NewJob>) {
        let answer = self.store.enqueue(jobs.into_iter().collect()).await.expect("the store answers");
        assert!(answer.jobs.iter().all(Enqueued::is_accepted), "{:?}", answer.jobs);
        assert_eq!(answer.ended, []);
    }

    /// Enqueues one job; returns whether it was accepted and which jobs ended because of it.
    pub(crate) async fn press(&self, job: NewJob) -> (bool, Vec<(u128, &'static str)>) {
        let answer = self.store.enqueue(vec![job]).await.expect("the store answers");
        let accepted = answer.jobs[0].is_accepted();
        assert!(accepted || answer.jobs == [Enqueued::QueueFull], "{answer:?}");
        (accepted, ends(&answer.ended))
    }

    pub(crate) async fn dispatch(&self, max: usize) -> Dispatched {
        self.dispatch_from(LANE, max).await
    }

    pub(crate) async fn dispatch_from(&self, lane: &str, max: usize) -> Dispatched {
        let ask = Dispatch {
            lane: name(lane),
            max,
            lease: LEASE,
            nonce: self.nonce(),
            wait: Span::ZERO,
            denied: None,
        };
        self.store.dispatch(ask).await.expect("the store answers")
    }

    /// Dispatches at most `max` jobs.
    pub(crate) async fn take(&self, max: usize) -> Vec<Grant> {
        self.dispatch(max).await.grants
    }

    /// Dispatches the next job, which must exist.
    pub(crate) async fn next(&self) -> Grant {
        self.take(1).await.pop().expect("a job may start")
    }

    /// The numbers of the jobs that may start now.
    pub(crate) async fn starts(&self, max: usize) -> Vec<u128> {
        numbers(&self.take(max).await)
    }

    /// Runs at most `max` jobs one after the other to success; returns their order.
    pub(crate) async fn serve(&self, max: usize) -> Vec<u128> {
        let mut served = Vec::new();
        while served.len() < max
            && let Some(grant) = self.take(1).await.pop()
        {
            self.done(&grant).await;
            served.push(grant.job.0);
        }
        served
    }

    pub(crate) async fn settle(
        &self,
        lease: LeaseId,
        report: impl Into<Report>,
        outcome: Outcome,
    ) -> Settled {
        let settlement = Settlement { lease, report: report.into(), outcome, answer: None, unsent: None };
        self.settle_fully(settlement).await.0
    }

    /// Settles many calls at once, all with this result.
    pub(crate) async fn settle_all(
        &self,
        result: CallResult,
        leases: impl IntoIterator<Item = (LeaseId, Outcome)>,
    ) -> Vec<Settled> {
        let settlement = |(lease, outcome)| Settlement {
            lease,
            report: result.into(),
            outcome,
            answer: None,
            unsent: None,
        };
        let settlements = leases.into_iter().map(settlement).collect();
        self.store.settle(settlements).await.expect("the store answers").leases
    }

    /// Settles; returns what it did and which jobs ended because of it.
    pub(crate) async fn settle_fully(&self, settlement: Settlement) -> (Settled, Vec<Ended>) {
        let answer = self.store.settle(vec![settlement]).await.expect("the store answers");
        assert_eq!(answer.leases.len(), 1, "one answer for each settlement");
        (answer.leases[0], answer.ended)
    }

    /// The call under `lease` succeeded with this answer.
    pub(crate) async fn answered(&self, lease: LeaseId, answer: &str) -> (Settled, Vec<Ended>) {
        let (report, answer) = (CallResult::Success.into(), Some(answer.as_bytes().into()));
        self.settle_fully(Settlement { lease, report, outcome: Outcome::Done, answer, unsent: None }).await
    }

    /// Enqueues a job and completes it with this answer.
    pub(crate) async fn ask(&self, job: NewJob, answer: &str) {
        self.accept([job]).await;
        let lease = self.next().await.lease;
        assert_eq!(self.answered(lease, answer).await.0, Settled::Ended(Status::Completed));
    }

    /// Fails the job with this result, to become a dead letter; returns what it did and which jobs ended because of it.
    pub(crate) async fn fails(
        &self,
        grant: &Grant,
        result: CallResult,
    ) -> (Settled, Vec<(u128, &'static str)>) {
        let (report, outcome) = (result.into(), Outcome::Dead(failure("unavailable")));
        let settlement = Settlement { lease: grant.lease, report, outcome, answer: None, unsent: None };
        let (settled, ended) = self.settle_fully(settlement).await;
        (settled, ends(&ended))
    }

    /// Enqueues a job that must be answered from the cache.
    pub(crate) async fn cached(&self, job: NewJob) -> Cached {
        match self.put(job).await {
            Enqueued::Cached(cached) => cached,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn done(&self, grant: &Grant) {
        let settled = self.settle(grant.lease, CallResult::Success, Outcome::Done).await;
        assert_eq!(settled, Settled::Ended(Status::Completed));
    }

    /// Fails the job permanently, so that it becomes a dead letter.
    pub(crate) async fn dead(&self, grant: &Grant) -> Settled {
        let outcome = Outcome::Dead(failure("refused"));
        self.settle(grant.lease, CallResult::Rejected, outcome).await
    }

    /// The call ended with this result, and the job is retried after `wait`.
    pub(crate) async fn retry(&self, grant: &Grant, result: CallResult, wait: Span) -> Settled {
        let outcome = Outcome::Retry { after: wait, failure: failure("unavailable") };
        self.settle(grant.lease, result, outcome).await
    }

    /// Releases the job unsent.
    pub(crate) async fn release(&self, grant: &Grant) -> Settled {
        self.settle(grant.lease, CallResult::NotSent, Outcome::Release).await
    }

    /// The upstream of the grant failed with this result; asks for the next one.
    pub(crate) async fn advance(&self, grant: &Grant, result: CallResult) -> Advanced {
        self.advance_at(grant.lease, grant.upstream.clone(), result).await
    }

    pub(crate) async fn advance_from(&self, lease: LeaseId, upstream: &str, result: CallResult) -> Advanced {
        self.advance_at(lease, name(upstream), result).await
    }

    async fn advance_at(&self, lease: LeaseId, upstream: Name, result: CallResult) -> Advanced {
        let failure = failure("unavailable");
        self.advance_fully(Advance { lease, upstream, report: result.into(), failure, unsent: None }).await
    }

    /// Advances along the chain.
    pub(crate) async fn advance_fully(&self, ask: Advance) -> Advanced {
        self.store.advance(ask).await.expect("the store answers")
    }

    pub(crate) async fn extend(&self, lease: LeaseId, span: Span) -> bool {
        self.store.extend(vec![lease], span).await.expect("the store answers") == [true]
    }

    /// Completes a job; returns what it did and which jobs ended because of it.
    pub(crate) async fn complete(&self, completion: Completion) -> (Completed, Vec<Ended>) {
        let answer = self.store.complete(completion).await.expect("the store answers");
        (answer.completed, answer.ended)
    }

    /// The jobs to poll, each with its id at the upstream.
    pub(crate) async fn due(&self, upstream: &str, claim: Span, asked: &[u128]) -> Vec<(u128, String)> {
        let asked = asked.iter().copied().map(id).collect();
        let ask = Poll { upstream: name(upstream), max: 100, claim, asked };
        let due = self.store.poll(ask).await.expect("the store answers").due;
        due.iter().map(|due| (due.job.0, due.external.as_deref().unwrap_or_default().to_owned())).collect()
    }

    pub(crate) async fn try_cancel(&self, number: u128) -> Cancelled {
        self.store.cancel(id(number)).await.expect("the store answers")
    }

    /// Fires the schedule `nightly` at `moment`, with job `number` or none.
    pub(crate) async fn fire(&self, moment: Time, number: Option<u128>) -> Fired {
        let job = number.map(|number| {
            let key = Some(format!("schedule:nightly:{}", moment.as_millis()).into());
            Box::new(NewJob { key, ..crate::rules::job(number) })
        });
        let ask = Fire { schedule: name("nightly"), moment, job };
        self.store.fire(ask).await.expect("the store answers")
    }

    pub(crate) async fn watch(&self, ask: Watch) -> AlertChanges {
        self.store.watch(ask).await.expect("the store answers")
    }

    pub(crate) async fn alerts(&self) -> AlertsView {
        self.store.alerts().await.expect("the store answers")
    }

    pub(crate) async fn schedules(&self) -> Vec<(Name, Time)> {
        self.store.schedules().await.expect("the store answers")
    }

    /// Cancels all jobs that match; returns the cancelled jobs and how many matched.
    pub(crate) async fn cancel_all(
        &self,
        query: JobQuery,
        dry_run: bool,
    ) -> (u64, Vec<u128>, Option<JobCursor>) {
        let answer = self.store.cancel_all(CancelAll { query, dry_run }).await.expect("the store answers");
        assert!(answer.ended.iter().all(|ended| ended.end == End::Cancelled));
        (answer.matched, answer.ended.iter().map(|ended| ended.job.0).collect(), answer.next)
    }

    /// Cancels a job that has not ended.
    pub(crate) async fn cancel(&self, number: u128) {
        let cancelled = self.try_cancel(number).await;
        let Cancelled::Yes(ended) = cancelled else { panic!("{cancelled:?}") };
        assert_eq!((ended.job, ended.end), (id(number), End::Cancelled));
    }

    pub(crate) async fn admit(&self, upstream: &str, holds: Vec<Hold>) -> Admission {
        self.admit_fully(None, &[upstream], holds).await.admission
    }

    /// Admits a call with a correlation id.
    pub(crate) async fn admit_correlated(
        &self,
        upstream: &str,
        holds: Vec<Hold>,
        correlation: Option<Correlation>,
    ) -> Admission {
        let (chain, nonce) = (vec![name(upstream)], self.nonce());
        let ask = Admit {
            lane: None,
            tenant: None,
            chain,
            holds,
            correlation,
            lease: LEASE,
            nonce,
            after: None,
            probe: true,
        };
        self.store.admit(ask).await.expect("the store answers").admission
    }

    /// Admits a call in a lane, at the first of these upstreams that allows it.
    pub(crate) async fn admit_to(&self, lane: &str, chain: &[&str]) -> Admission {
        self.admit_fully(Some(lane), chain, Vec::new()).await.admission
    }

    pub(crate) async fn admit_fully(&self, lane: Option<&str>, chain: &[&str], holds: Vec<Hold>) -> Admitted {
        let chain = chain.iter().map(|upstream| name(upstream)).collect();
        let ask = Admit {
            lane: lane.map(name),
            tenant: None,
            chain,
            holds,
            correlation: None,
            lease: LEASE,
            nonce: self.nonce(),
            after: None,
            probe: true,
        };
        self.store.admit(ask).await.expect("the store answers")
    }

    /// Admits a call of `tenant` in a lane.
    pub(crate) async fn admit_for(&self, lane: &str, tenant: &str) -> Admission {
        let (lane, tenant) = (Some(name(lane)), Some(tenant.into()));
        let (chain, holds, nonce) = (Vec::new(), Vec::new(), self.nonce());
        let ask = Admit {
            lane,
            tenant,
            chain,
            holds,
            correlation: None,
            lease: LEASE,
            nonce,
            after: None,
            probe: true,
        };
        self.store.admit(ask).await.expect("the store answers").admission
    }

    /// Admits a call along `chain` after one that ended with this report.
    pub(crate) async fn go_on(
        &self,
        lane: &str,
        chain: &[&str],
        after: Option<(LeaseId, Report)>,
    ) -> Admission {
        let (lane, chain) = (Some(name(lane)), chain.iter().map(|upstream| name(upstream)).collect());
        let (holds, correlation, nonce) = (Vec::new(), None, self.nonce());
        let ask =
            Admit { lane, tenant: None, chain, holds, correlation, lease: LEASE, nonce, after, probe: true };
        self.store.admit(ask).await.expect("the store answers").admission
    }

    /// Admits an unreported call in a lane.
    pub(crate) async fn admit_unreported(&self, lane: &str) -> Admission {
        let (chain, holds) = (Vec::new(), Vec::new());
        let ask = Admit {
            lane: Some(name(lane)),
            tenant: None,
            chain,
            holds,
            correlation: None,
            lease: Span::ZERO,
            nonce: self.nonce(),
            after: None,
            probe: true,
        };
        self.store.admit(ask).await.expect("the store answers").admission
    }

    /// Admits a call that may not be a probe of the breaker.
    pub(crate) async fn admit_without_probing(&self, upstream: &str) -> Admission {
        let ask = Admit {
            lane: None,
            tenant: None,
            chain: vec![name(upstream)],
            holds: Vec::new(),
            correlation: None,
            lease: LEASE,
            nonce: self.nonce(),
            after: None,
            probe: false,
        };
        self.store.admit(ask).await.expect("the store answers").admission
    }

    /// Asks whether the rate allows an unreported call.
    pub(crate) async fn admit_rate(&self, upstream: &str) -> Admission {
        let (chain, holds) = (vec![name(upstream)], Vec::new());
        let ask = Admit {
            lane: None,
            tenant: None,
            chain,
            holds,
            correlation: None,
            lease: Span::ZERO,
            nonce: self.nonce(),
            after: None,
            probe: true,
        };
        self.store.admit(ask).await.expect("the store answers").admission
    }

    /// Admits a call without a job, which must be granted.
    pub(crate) async fn call(&self, upstream: &str) -> LeaseId {
        match self.admit(upstream, Vec::new()).await {
            Admission::Granted { lease, .. } => lease,
            denied => panic!("{denied:?}"),
        }
    }

    /// Why a call without a job is denied; it must be denied.
    pub(crate) async fn denial(&self, upstream: &str) -> NotUntil {
        match self.admit(upstream, Vec::new()).await {
            Admission::Denied { denial, .. } => denial,
            granted => panic!("{granted:?}"),
        }
    }

    /// Makes a call without a job that ends with this result.
    pub(crate) async fn call_ends(&self, upstream: &str, result: CallResult) {
        let lease = self.call(upstream).await;
        assert_eq!(self.settle(lease, result, Outcome::Release).await, Settled::Released);
    }

    pub(crate) async fn record(&self, upstream: &str, result: CallResult) -> Option<UpstreamView> {
        self.store.record(name(upstream), result).await.expect("the store answers")
    }

    pub(crate) async fn recover(&self, upstream: &str) -> Option<UpstreamView> {
        self.store.recover(name(upstream)).await.expect("the store answers")
    }

    pub(crate) async fn reset(&self, upstream: &str) -> Option<UpstreamView> {
        self.store.reset(name(upstream)).await.expect("the store answers")
    }

    pub(crate) async fn credit(&self, credits: Vec<Credit>) -> Vec<Credited> {
        self.store.credit(credits).await.expect("the store answers")
    }

    pub(crate) async fn correct(&self, correction: Correction) -> Corrected {
        self.store.correct(vec![correction]).await.expect("the store answers")[0]
    }

    pub(crate) async fn hash_key(&self, offer: HashKey) -> HashKey {
        self.store.hash_key(offer).await.expect("the store answers")
    }

    pub(crate) async fn buckets(&self, query: BucketQuery) -> BucketPage {
        self.store.buckets(query).await.expect("the store answers")
    }

    pub(crate) async fn replay(&self, letter: u128, as_job: u128) -> Replayed {
        self.replay_in(LANE, letter, as_job).await
    }

    pub(crate) async fn replay_in(&self, lane: &str, letter: u128, as_job: u128) -> Replayed {
        let ask = Replay { lane: name(lane), letter: id(letter), id: id(as_job), edit: None };
        self.store.replay(ask).await.expect("the store answers")
    }

    pub(crate) async fn discard(&self, letter: u128) -> bool {
        self.store.discard(name(LANE), id(letter)).await.expect("the store answers")
    }

    pub(crate) async fn pause(&self, lane: &str, paused: bool) -> bool {
        self.store.pause(name(lane), paused).await.expect("the store answers")
    }

    pub(crate) async fn sweep(&self) -> Swept {
        self.store.sweep().await.expect("the store answers")
    }

    pub(crate) async fn why(&self, number: u128) -> Why {
        self.store.why(id(number)).await.expect("the store answers").expect("the job is known")
    }

    /// Whether the store knows no such job.
    pub(crate) async fn why_unknown(&self, number: u128) -> bool {
        self.store.why(id(number)).await.expect("the store answers").is_none()
    }

    pub(crate) async fn reason(&self, number: u128) -> Option<Reason> {
        self.why(number).await.reason
    }

    pub(crate) async fn find(&self, number: u128) -> Option<JobView> {
        self.store.job(id(number)).await.expect("the store answers")
    }

    pub(crate) async fn wait(&self, number: u128, timeout: Span, allow_unknown: bool) -> Option<JobView> {
        self.store
            .wait(Wait { job: id(number), timeout, allow_unknown, seen: None })
            .await
            .expect("the store answers")
    }

    /// Waits until the job has more history lines than these.
    pub(crate) async fn follow(&self, number: u128, seen: u64, timeout: Span) -> Option<JobView> {
        let ask = Wait { job: id(number), timeout, allow_unknown: false, seen: Some(seen) };
        self.store.wait(ask).await.expect("the store answers")
    }

    pub(crate) async fn job(&self, number: u128) -> JobView {
        self.find(number).await.expect("the job is known")
    }

    pub(crate) async fn jobs(&self, query: JobQuery) -> JobPage {
        self.store.jobs(query).await.expect("the store answers")
    }

    pub(crate) async fn status(&self, number: u128) -> Status {
        self.job(number).await.status
    }

    pub(crate) async fn lanes(&self) -> Vec<LaneView> {
        self.store.lanes().await.expect("the store answers")
    }

    pub(crate) async fn lane(&self) -> LaneView {
        self.lanes().await.remove(0)
    }

    pub(crate) async fn upstream(&self, upstream: &str) -> UpstreamView {
        let all = self.store.upstreams().await.expect("the store answers");
        all.into_iter().find(|view| view.name.as_str() == upstream).expect("the upstream is known")
    }

    /// Each code with how often it was seen, followed by success, and followed by another failure.
    pub(crate) async fn codes(&self, upstream: &str) -> Vec<(String, u64, u64, u64)> {
        let codes = self.store.codes(name(upstream)).await.expect("the store answers");
        let row = |code: CodeView| (code.code.to_string(), code.seen, code.cured, code.failed_again);
        codes.expect("a known upstream").into_iter().map(row).collect()
    }

    /// The points of the lane in the last `minutes`.
    pub(crate) async fn lane_history(&self, minutes: u32) -> Vec<LanePoint> {
        self.history_of_lanes(HistoryOf::Lanes(vec![name(LANE)]), minutes).await
    }

    pub(crate) async fn history_of_lanes(&self, of: HistoryOf, minutes: u32) -> Vec<LanePoint> {
        let query = HistoryQuery { of, minutes };
        match self.store.history(query).await.expect("the store answers") {
            HistoryView::Lanes { points, .. } => points,
            HistoryView::Upstream { .. } => panic!("lanes were asked for"),
        }
    }

    /// The points of an upstream in the last `minutes`, and the transitions of its gates.
    pub(crate) async fn upstream_history(
        &self,
        upstream: &str,
        minutes: u32,
    ) -> (Vec<UpstreamPoint>, Vec<GateTransition>) {
        let query = HistoryQuery { of: HistoryOf::Upstream(name(upstream)), minutes };
        match self.store.history(query).await.expect("the store answers") {
            HistoryView::Upstream { points, transitions, .. } => (points, transitions),
            HistoryView::Lanes { .. } => panic!("an upstream was asked for"),
        }
    }

    pub(crate) async fn observe(&self, ask: Observe) -> Observed {
        self.store.observe(ask).await.expect("the store answers")
    }

    pub(crate) async fn tenants(&self) -> Vec<TenantView> {
        self.tenant_page(TenantQuery::new(name(LANE), 100)).await.tenants
    }

    pub(crate) async fn tenant_page(&self, query: TenantQuery) -> TenantPage {
        self.store.tenants(query).await.expect("the store answers")
    }

    pub(crate) async fn tenant(&self, tenant: &str) -> TenantView {
        let all = self.tenants().await;
        all.into_iter().find(|view| &*view.tenant == tenant).expect("the tenant is known")
    }

    /// The letters of the lane.
    pub(crate) async fn all_letters(&self) -> Vec<DeadLetterView> {
        let filter = LetterFilter { lanes: Some(vec![name(LANE)]), ..LetterFilter::default() };
        self.letter_page(LetterQuery { filter, after: None, max: 100 }).await.letters
    }

    pub(crate) async fn letter_page(&self, query: LetterQuery) -> LetterPage {
        self.store.dead_letters(query).await.expect("the store answers")
    }

    pub(crate) async fn count_letters(&self, ask: CountLetters) -> LetterCounts {
        self.store.count_letters(ask).await.expect("the store answers")
    }

    pub(crate) async fn discard_all(&self, query: LetterQuery) -> DiscardedLetters {
        self.store.discard_all(query).await.expect("the store answers")
    }

    pub(crate) async fn bulk(&self, ask: BulkAsk) -> BulkAnswer {
        self.store.bulk(ask).await.expect("the store answers")
    }

    pub(crate) async fn replay_fully(&self, ask: Replay) -> Replayed {
        self.store.replay(ask).await.expect("the store answers")
    }

    pub(crate) async fn letter(&self, number: u128) -> Option<DeadLetterView> {
        self.store.dead_letter(id(number)).await.expect("the store answers")
    }

    pub(crate) async fn letters(&self) -> Vec<u128> {
        self.all_letters().await.into_iter().map(|letter| letter.job.0).collect()
    }
}

/// Which jobs ended, each with the name of its end.
pub(crate) fn ends(ended: &[Ended]) -> Vec<(u128, &'static str)> {
    let word = |end: &End| match end {
        End::Dropped(reason) => reason.as_str(),
        End::Served(ServedBy::Cache) => "cache",
        End::Served(ServedBy::Coalesced) => "coalesced",
        End::Served(ServedBy::Stale(fallback)) => fallback.as_str(),
        End::Failed { dead_letter: true, .. } => "dead",
        other => other.status().as_str(),
    };
    ended.iter().map(|ended| (ended.job.0, word(&ended.end))).collect()
}

/// Which jobs these are.
pub(crate) fn numbers(grants: &[Grant]) -> Vec<u128> {
    grants.iter().map(|grant| grant.job.0).collect()
}
