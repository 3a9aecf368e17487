//! Gates without the fleet: while the owner cannot be asked, this process applies its share of every limit. What needs
//! only gates continues: direct lanes, permits for workers elsewhere, breakers. What happened meanwhile is reported to
//! the owner afterwards.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eclusa_core::gate::{CallResult, Share};
use eclusa_core::layout::{Question, Reply};
use eclusa_core::{
    Admission, Admit, Advanced, BucketOf, Clock, Engine, FallbackCall, FallbackLog, FallbackReport, Hold,
    LaneView, LastSeen, LeaseId, Name, SeenBuckets, SettleAnswer, Settlement, Span, Spec, StartCounts, Time,
    Tokens, TokensTaken, UpstreamView, tenant_bucket_keys,
};

use super::gate_log::{Decided, log_changes};
use super::verbs::apply;

/// Set in the epoch of every lease granted here. Epochs of owners are times in milliseconds, which never reach it.
const LOCAL: u64 = 1 << 63;

/// The most calls and reports that are kept; the oldest are dropped.
const MAX_REMEMBERED: usize = 10_000;

/// See the module.
pub(super) struct Fallback {
    spec: Mutex<Arc<Spec>>,
    /// How long calls of other processes may continue that cannot be asked about.
    lease: Span,
    /// This machine's clock. It only measures how long the process has been without the owner.
    clock: Arc<dyn Clock>,
    state: Mutex<FallbackState>,
}

/// The shared state, as the owner reports it.
pub(super) struct SharedState {
    pub(super) lanes: Vec<LaneView>,
    pub(super) upstreams: Vec<UpstreamView>,
    pub(super) buckets: SeenBuckets,
}

/// What this process started since it last saw the shared state.
pub(super) struct StartedHere {
    calls: StartCounts,
    taken: TokensTaken,
}

#[derive(Default)]
struct FallbackState {
    seen: LastSeen,
    /// The number of absences so far; makes leases unique over all absences of this process.
    absences: u64,
    /// Set while this process decides about gates.
    local: Option<LocalGates>,
}

/// The gates of this process while it is without the owner.
struct LocalGates {
    engine: Engine,
    share: Share,
    /// When it began, by the time of the engine whose gates were last seen.
    since: Time,
    /// The same moment by this machine's clock.
    began: Time,
    /// What its buckets held at the start.
    left: Vec<(BucketOf, Tokens)>,
    running: BTreeMap<LeaseId, LocalCall>,
    ended: Vec<LocalCall>,
    reports: Vec<Reported>,
}

#[derive(Clone)]
struct LocalCall {
    ask: Admit,
    upstream: Name,
    began: Time,
    expires: Time,
    ended: Option<Time>,
}

struct Reported {
    upstream: Name,
    report: eclusa_core::Report,
    /// The narrowest bucket of the call, which a Retry-After closes.
    hold: Option<Hold>,
    began: Option<Time>,
    at: Time,
}

impl Fallback {
    pub(super) fn new(spec: &Spec, lease: Span, clock: Arc<dyn Clock>) -> Self {
        Self { spec: Mutex::new(Arc::new(spec.clone())), lease, clock, state: Mutex::default() }
    }

    /// The state is consistent even after a panic: the engine has no half-done verbs.
    fn lock(&self) -> MutexGuard<'_, FallbackState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies other rules from now on.
    pub(super) fn configure(&self, spec: &Spec) {
        *self.spec.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(spec.clone());
    }

    /// Whether this process decides: the owner does not yet know what was done without it.
    pub(super) fn decides(&self) -> bool {
        self.lock().local.is_some()
    }

    /// Decides from now on, starting from what was last seen, because the fleet cannot be asked. It is `since` by the
    /// time of the engine that was asked before, so that what is closed opens when it would have opened there.
    pub(super) fn begin(&self, since: Time) {
        let mut state = self.lock();
        if state.local.is_some() {
            return;
        }
        tracing::warn!("Limits are local to this process until the store answers");
        state.absences += 1;
        let began = self.clock.now();
        let epoch = LOCAL | began.as_millis() << 8 | (state.absences & 0xff);
        let spec = self.spec.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let engine = Engine::fallback(&spec, &state.seen, epoch, self.lease, since);
        state.local = Some(LocalGates {
            left: engine.own_buckets(since),
            since,
            began,
            engine,
            share: state.seen.share,
            running: BTreeMap::new(),
            ended: Vec::new(),
            reports: Vec::new(),
        });
    }

    /// Answers a question about gates, if this process decides.
    pub(super) fn ask(&self, question: &Question) -> Option<Reply> {
        let mut state = self.lock();
        let local = state.local.as_mut()?;
        let now = local.now(&*self.clock);
        let reply = apply(&mut local.engine, question.clone(), now);
        local.note(question, &reply, now);
        local.engine.forget_changes();
        log_changes(&local.engine.take_gate_changes(), Decided::WithoutOwner);
        Some(reply)
    }

    /// What was done without the owner, to report it. Running calls become leases there.
    pub(super) fn fallback_log(&self) -> Option<FallbackLog> {
        let mut state = self.lock();
        let local = state.local.as_mut()?;
        let now = local.now(&*self.clock);
        let running = local.running.iter().map(|(lease, call)| call.fallback_call(Some(*lease), now));
        let calls = running.chain(local.ended.iter().map(|call| call.fallback_call(None, now))).collect();
        let fallback_report = |report: &Reported| FallbackReport {
            upstream: report.upstream.clone(),
            result: report.report.result,
            retry_after: report.report.retry_after.clone(),
            hold: report.hold.clone(),
            began: report.began.map(|began| now.since(began)),
            ago: now.since(report.at),
        };
        let reports = local.reports.iter().map(fallback_report).collect();
        Some(FallbackLog {
            share: local.share,
            since: now.since(local.since),
            left: local.left.clone(),
            calls,
            reports,
        })
    }

    /// Forgets finished calls and reports that the owner may have counted, so that they are not counted twice. Running
    /// calls are reported again: the owner recognises their leases.
    pub(super) fn forget_reported(&self) {
        if let Some(local) = &mut self.lock().local {
            local.ended.clear();
            local.reports.clear();
        }
    }

    /// Stops deciding here: the owner knows everything and decides again.
    pub(super) fn end(&self) {
        if self.lock().local.take().is_some() {
            tracing::info!("Limits are shared again");
        }
    }

    /// Notes the shared state as last seen; the calls in `before` began here before that and are part of it.
    pub(super) fn see(&self, share: Share, state: SharedState, before: &StartedHere) {
        let SharedState { lanes, upstreams, buckets } = state;
        let seen = &mut self.lock().seen;
        let (mut started, mut taken) = (std::mem::take(&mut seen.started), std::mem::take(&mut seen.taken));
        for (call, count) in &before.calls {
            if let Some(started) = started.get_mut(call) {
                *started = started.saturating_sub(*count);
            }
        }
        for (bucket, tokens) in &before.taken {
            if let Some(taken) = taken.get_mut(bucket) {
                *taken = *taken - *tokens;
            }
        }
        started.retain(|_, count| *count > 0);
        taken.retain(|_, tokens| *tokens > Tokens::ZERO);
        *seen = LastSeen { share, lanes, upstreams, buckets, started, taken };
    }

    /// Calls that began since the shared state was last seen.
    pub(super) fn started(&self) -> StartedHere {
        let seen = &self.lock().seen;
        StartedHere { calls: seen.started.clone(), taken: seen.taken.clone() }
    }

    /// Notes what the owner answered to `question`.
    pub(super) fn observe(&self, question: &Question, reply: &Reply) {
        let lane = lane_of(question);
        match reply {
            Reply::Dispatched(answer) => {
                self.lock().see_started(lane, answer.grants.iter().map(|grant| &grant.upstream));
            }
            Reply::Advanced(Advanced::To(upstream)) => self.lock().see_started(None, [upstream]),
            Reply::Admitted(answer) => {
                if let (Question::Admit(ask), Admission::Granted { upstream, .. }) =
                    (question, &answer.admission)
                {
                    let mut state = self.lock();
                    state.see_started(lane, [upstream]);
                    state.see_taken(ask, &upstream.without_key());
                }
            }
            Reply::Upstream(Some(view)) => self.lock().see_upstream(view),
            Reply::Upstreams(views) => {
                let mut state = self.lock();
                views.iter().for_each(|view| state.see_upstream(view));
            }
            _ => {}
        }
    }
}

impl FallbackState {
    fn see_started<'a>(&mut self, lane: Option<&Name>, upstreams: impl IntoIterator<Item = &'a Name>) {
        for upstream in upstreams {
            *self.seen.started.entry((lane.cloned(), upstream.clone())).or_default() += 1;
        }
    }

    fn see_taken(&mut self, ask: &Admit, upstream: &Name) {
        let held = ask.holds.iter().filter(|hold| hold.upstream() == upstream);
        let held = held.map(|hold| (hold.bucket().into(), hold.tokens()));
        let of_tenant = ask.lane.iter().zip(&ask.tenant).filter(|_| ask.after.is_none());
        let of_tenant = of_tenant.flat_map(|(lane, tenant)| tenant_bucket_keys(lane, tenant));
        let of_tenant = of_tenant.map(|key| (Arc::from(key), Tokens::ONE));
        for (bucket, tokens) in held.chain(of_tenant) {
            let taken = self.seen.taken.entry(bucket).or_default();
            *taken = *taken + tokens;
        }
    }

    fn see_upstream(&mut self, view: &UpstreamView) {
        match self.seen.upstreams.iter_mut().find(|known| known.name == view.name) {
            Some(known) => known.clone_from(view),
            None => self.seen.upstreams.push(view.clone()),
        }
    }
}

impl LocalGates {
    /// The time of the local engine: the owner's, carried on by this machine's clock.
    fn now(&mut self, clock: &dyn Clock) -> Time {
        self.engine.now(self.since + clock.now().since(self.began))
    }

    /// Notes what must be reported to the owner.
    fn note(&mut self, question: &Question, reply: &Reply, now: Time) {
        match (question, reply) {
            (Question::Admit(ask), Reply::Admitted(answer)) => {
                let granted = matches!(answer.admission, Admission::Granted { .. });
                if let Some((before, report)) = &ask.after
                    && let Some(mut call) = self.running.remove(before)
                {
                    // For the lane, the two are one call.
                    call.ask.lane = call.ask.lane.filter(|_| !granted);
                    self.note_end(call, report, now);
                }
                if let Admission::Granted { lease, upstream, lease_expires, .. } = &answer.admission {
                    let (ask, upstream) = (Admit { after: None, ..ask.clone() }, upstream.clone());
                    let call = LocalCall { ask, upstream, began: now, expires: *lease_expires, ended: None };
                    if lease.number == 0 {
                        remember(&mut self.ended, LocalCall { ended: Some(now), ..call });
                    } else {
                        self.running.insert(*lease, call);
                    }
                }
            }
            (Question::Record { upstream, result }, Reply::Upstream(Some(_))) => {
                let (upstream, report) = (upstream.clone(), (*result).into());
                remember(&mut self.reports, Reported { upstream, report, hold: None, began: None, at: now });
            }
            (Question::Settle(settlements), Reply::Settled(answer)) => {
                self.note_ends(settlements, answer, now);
            }
            (Question::Extend { leases, lease }, Reply::Extended(alive)) => {
                for (id, _) in leases.iter().zip(alive).filter(|(_, alive)| **alive) {
                    if let Some(call) = self.running.get_mut(id) {
                        call.expires = now + *lease;
                    }
                }
            }
            _ => {}
        }
    }

    fn note_ends(&mut self, settlements: &[Settlement], answer: &SettleAnswer, now: Time) {
        for (settlement, settled) in settlements.iter().zip(&answer.leases) {
            let Some(call) = self.running.remove(&settlement.lease) else { continue };
            if *settled != eclusa_core::Settled::Stale {
                self.note_end(call, &settlement.report, now);
            }
        }
    }

    fn note_end(&mut self, call: LocalCall, report: &eclusa_core::Report, now: Time) {
        if report.result == CallResult::NotSent {
            return;
        }
        let (upstream, report) = (call.upstream.clone(), report.clone());
        let hold = Hold::narrowest(&call.ask.holds, &upstream.without_key()).cloned();
        let hold = hold.filter(|_| report.retry_after.is_some());
        let holds = call.ask.holds.iter().filter_map(|hold| hold.settled(&report)).collect();
        let (sent, ask) = (!report.result.is_unsent(), Admit { holds, ..call.ask });
        let answered = (now - report.answered_ago.unwrap_or_default()).max(call.began);
        let reported = Reported { upstream, report, hold, began: Some(call.began), at: now };
        remember(&mut self.reports, reported);
        if sent {
            remember(&mut self.ended, LocalCall { ask, ended: Some(answered), ..call });
        }
    }
}

impl LocalCall {
    fn fallback_call(&self, lease: Option<LeaseId>, now: Time) -> FallbackCall {
        FallbackCall {
            lane: self.ask.lane.clone(),
            tenant: self.ask.tenant.clone(),
            upstream: self.upstream.clone(),
            holds: self.ask.holds.clone(),
            correlation: self.ask.correlation,
            began: now.since(self.began),
            lease: lease.map(|lease| (lease, self.expires.since(now))),
            ended: self.ended.map(|ended| now.since(ended)),
        }
    }
}

/// Whether a lease was granted without the owner.
pub(super) const fn is_local(lease: LeaseId) -> bool {
    lease.epoch & LOCAL != 0
}

/// The lane in which a question may start a call. A call that continues from another was counted in its lane before.
fn lane_of(question: &Question) -> Option<&Name> {
    match question {
        Question::Dispatch(ask) => Some(&ask.lane),
        Question::Admit(ask) if ask.after.is_none() => ask.lane.as_ref(),
        _ => None,
    }
}

/// Whether a question needs only gates.
pub(super) fn concerns_gates(question: &Question) -> bool {
    matches!(
        question,
        Question::Admit(_)
            | Question::Record { .. }
            | Question::Recover(_)
            | Question::Reset(_)
            | Question::Upstreams
            | Question::Extend { .. }
            | Question::Settle(_)
    )
}

fn remember<T>(list: &mut Vec<T>, item: T) {
    if list.len() >= MAX_REMEMBERED {
        list.remove(0);
    }
    list.push(item);
}
