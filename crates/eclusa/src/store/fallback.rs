//! Gates without the fleet: while the owner cannot be asked, this process goes by its part of every limit. What needs only
//! gates goes on: direct lanes, leave for workers elsewhere, breakers. What happened meanwhile is told to the owner afterwards.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eclusa_core::gate::{CallResult, Share};
use eclusa_core::layout::{Question, Reply};
use eclusa_core::{
    Absence, AbsentCall, AbsentReport, Admission, Admit, Advanced, BucketOf, Clock, Engine, Hold, LaneView,
    LeaseId, Name, Seen, SettleAnswer, Settlement, Span, Spec, Starts, Time, Tokens, UpstreamView,
};

use super::gate_log::{Decided, log_changes};
use super::verbs::apply;

/// Set in the epoch of every lease that is given here. Epochs of owners are times in milliseconds, which do not reach it.
const LOCAL: u64 = 1 << 63;

/// No more calls and reports than this are remembered, the newest.
const MAX_REMEMBERED: usize = 10_000;

/// See the module.
pub(super) struct Fallback {
    spec: Mutex<Arc<Spec>>,
    /// How long calls of others may go on that nobody can ask about.
    lease: Span,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    seen: Seen,
    /// Leases given here are unique over all absences of this process.
    absences: u64,
    alone: Option<Alone>,
}

/// A time without the owner.
struct Alone {
    engine: Engine,
    share: Share,
    since: Time,
    /// What its buckets held at the beginning.
    left: Vec<(BucketOf, Tokens)>,
    running: BTreeMap<LeaseId, Call>,
    ended: Vec<Call>,
    reports: Vec<Reported>,
}

#[derive(Clone)]
struct Call {
    ask: Admit,
    upstream: Name,
    began: Time,
    expires: Time,
    ended: Option<Time>,
}

struct Reported {
    upstream: Name,
    report: eclusa_core::Report,
    /// Whom a word to stay away is for: who uses the narrowest bucket of the call.
    hold: Option<Hold>,
    began: Option<Time>,
    at: Time,
}

impl Fallback {
    pub(super) fn new(spec: &Spec, lease: Span, clock: Arc<dyn Clock>) -> Self {
        Self { spec: Mutex::new(Arc::new(spec.clone())), lease, clock, state: Mutex::default() }
    }

    /// What it holds is whole also where somebody panicked: the engine has no half-done verbs.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other rules are in force from now on.
    pub(super) fn configure(&self, spec: &Spec) {
        *self.spec.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(spec.clone());
    }

    /// Whether it decides here: the owner has not heard yet what was done without it.
    pub(super) fn decides(&self) -> bool {
        self.lock().alone.is_some()
    }

    /// The fleet cannot be asked: it decides from now on, from what was last seen.
    pub(super) fn begin(&self) {
        let mut state = self.lock();
        if state.alone.is_some() {
            return;
        }
        tracing::warn!("Limits are this process's own until the store answers");
        state.absences += 1;
        let epoch = LOCAL | self.clock.now().as_millis() << 8 | (state.absences & 0xff);
        let spec = self.spec.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let engine = Engine::alone(&spec, &state.seen, epoch, self.lease, self.clock.now());
        let since = self.clock.now();
        state.alone = Some(Alone {
            left: engine.own_buckets(since),
            since,
            engine,
            share: state.seen.share,
            running: BTreeMap::new(),
            ended: Vec::new(),
            reports: Vec::new(),
        });
    }

    /// Answers a question about gates, if it decides.
    pub(super) fn ask(&self, question: &Question) -> Option<Reply> {
        let mut state = self.lock();
        let alone = state.alone.as_mut()?;
        let now = alone.engine.now(self.clock.now());
        let reply = apply(&mut alone.engine, question.clone(), now);
        alone.note(question, &reply, now);
        alone.engine.forget_changes();
        log_changes(&alone.engine.take_gate_changes(), Decided::WithoutOwner);
        Some(reply)
    }

    /// What was done without the owner, to tell it. Calls that run become leases there.
    pub(super) fn absence(&self) -> Option<Absence> {
        let mut state = self.lock();
        let alone = state.alone.as_mut()?;
        let now = alone.engine.now(self.clock.now());
        let running = alone.running.iter().map(|(lease, call)| call.told(Some(*lease), now));
        let calls = running.chain(alone.ended.iter().map(|call| call.told(None, now))).collect();
        let told = |report: &Reported| AbsentReport {
            upstream: report.upstream.clone(),
            result: report.report.result,
            retry_after: report.report.retry_after.clone(),
            hold: report.hold.clone(),
            began: report.began.map(|began| now.since(began)),
            ago: now.since(report.at),
        };
        let reports = alone.reports.iter().map(told).collect();
        Some(Absence {
            share: alone.share,
            since: now.since(alone.since),
            left: alone.left.clone(),
            calls,
            reports,
        })
    }

    /// The owner may have counted what it was told, and would count it again. Calls that run are told again: their leases
    /// are known there.
    pub(super) fn forget_told(&self) {
        if let Some(alone) = &mut self.lock().alone {
            alone.ended.clear();
            alone.reports.clear();
        }
    }

    /// The owner has heard: it decides again.
    pub(super) fn end(&self) {
        if self.lock().alone.take().is_some() {
            tracing::info!("Limits are shared again");
        }
    }

    /// What is shared was seen like this, and `before` began here before it was looked at.
    pub(super) fn see(
        &self,
        share: Share,
        lanes: Vec<LaneView>,
        upstreams: Vec<UpstreamView>,
        before: &Starts,
    ) {
        let seen = &mut self.lock().seen;
        for (call, count) in before {
            if let Some(started) = seen.started.get_mut(call) {
                *started = started.saturating_sub(*count);
            }
        }
        seen.started.retain(|_, count| *count > 0);
        *seen = Seen { share, lanes, upstreams, started: std::mem::take(&mut seen.started) };
    }

    /// Calls that began since what is shared was last seen.
    pub(super) fn started(&self) -> Starts {
        self.lock().seen.started.clone()
    }

    /// Takes note of what the owner answered.
    pub(super) fn hear(&self, lane: Option<&Name>, reply: &Reply) {
        match reply {
            Reply::Dispatched(told) => {
                self.lock().see_started(lane, told.grants.iter().map(|grant| &grant.upstream));
            }
            Reply::Advanced(Advanced::To(upstream)) => self.lock().see_started(None, [upstream]),
            Reply::Admitted(told) => {
                if let Admission::Granted { upstream, .. } = &told.admission {
                    self.lock().see_started(lane, [upstream]);
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

impl State {
    fn see_started<'a>(&mut self, lane: Option<&Name>, upstreams: impl IntoIterator<Item = &'a Name>) {
        for upstream in upstreams {
            *self.seen.started.entry((lane.cloned(), upstream.clone())).or_default() += 1;
        }
    }

    fn see_upstream(&mut self, view: &UpstreamView) {
        match self.seen.upstreams.iter_mut().find(|known| known.name == view.name) {
            Some(known) => known.clone_from(view),
            None => self.seen.upstreams.push(view.clone()),
        }
    }
}

impl Alone {
    /// Remembers what the owner must hear of.
    fn note(&mut self, question: &Question, reply: &Reply, now: Time) {
        match (question, reply) {
            (Question::Admit(ask), Reply::Admitted(told)) => {
                let granted = matches!(told.admission, Admission::Granted { .. });
                if let Some((before, report)) = &ask.after
                    && let Some(mut call) = self.running.remove(before)
                {
                    // For the lane the two are one call.
                    call.ask.lane = call.ask.lane.filter(|_| !granted);
                    self.note_end(call, report, now);
                }
                if let Admission::Granted { lease, upstream, lease_expires, .. } = &told.admission {
                    let (ask, upstream) = (Admit { after: None, ..ask.clone() }, upstream.clone());
                    let call = Call { ask, upstream, began: now, expires: *lease_expires, ended: None };
                    if lease.number == 0 {
                        remember(&mut self.ended, Call { ended: Some(now), ..call });
                    } else {
                        self.running.insert(*lease, call);
                    }
                }
            }
            (Question::Record { upstream, result }, Reply::Upstream(Some(_))) => {
                let (upstream, report) = (upstream.clone(), (*result).into());
                remember(&mut self.reports, Reported { upstream, report, hold: None, began: None, at: now });
            }
            (Question::Settle(settlements), Reply::Settled(told)) => self.note_ends(settlements, told, now),
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

    fn note_ends(&mut self, settlements: &[Settlement], told: &SettleAnswer, now: Time) {
        for (settlement, told) in settlements.iter().zip(&told.leases) {
            let Some(call) = self.running.remove(&settlement.lease) else { continue };
            if *told != eclusa_core::Settled::Stale {
                self.note_end(call, &settlement.report, now);
            }
        }
    }

    fn note_end(&mut self, call: Call, report: &eclusa_core::Report, now: Time) {
        if report.result == CallResult::NotSent {
            return;
        }
        let (upstream, report) = (call.upstream.clone(), report.clone());
        let hold = Hold::narrowest(&call.ask.holds, &upstream.without_key()).cloned();
        let hold = hold.filter(|_| report.retry_after.is_some());
        let holds = call.ask.holds.iter().filter_map(|hold| hold.settled(&report)).collect();
        let (sent, ask) = (!report.result.is_unsent(), Admit { holds, ..call.ask });
        let told = Reported { upstream, report, hold, began: Some(call.began), at: now };
        remember(&mut self.reports, told);
        if sent {
            remember(&mut self.ended, Call { ask, ended: Some(now), ..call });
        }
    }
}

impl Call {
    fn told(&self, lease: Option<LeaseId>, now: Time) -> AbsentCall {
        AbsentCall {
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

/// Whether a lease was given without the owner.
pub(super) const fn is_local(lease: LeaseId) -> bool {
    lease.epoch & LOCAL != 0
}

/// Whether gates alone can answer a question.
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
