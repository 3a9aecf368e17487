//! What a process goes by while the store it shares does not answer: its part of the limits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eclusa_core::gate::Part;
use eclusa_core::{
    Clock, Engine, LaneView, LeaseId, Name, Seen, Span, Spec, Starts, StoreError, Time, UpstreamView,
};
use tokio::time::Instant;

/// A store that did not answer is asked again so much later.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The gates of this process alone.
pub(super) struct Alone {
    spec: Spec,
    /// How long calls of others may go on that nobody can ask about.
    lease: Span,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    seen: Seen,
    /// The store is asked again then; `None` while it answers.
    try_at: Option<Instant>,
    /// Since the store was last lost. It is kept when the store is back, for calls that are still under way.
    engine: Engine,
    /// How often the store was lost; the epoch of the engine's leases.
    times: u32,
    /// Calls that began meanwhile.
    spent: Starts,
}

impl Alone {
    pub(super) fn new(spec: &Spec, lease: Span, clock: Arc<dyn Clock>) -> Self {
        Self { spec: spec.clone(), lease, clock, state: Mutex::default() }
    }

    /// Whether a lease was given here. Those of the shared store have no epoch.
    pub(super) const fn gave(lease: LeaseId) -> bool {
        lease.epoch != 0
    }

    /// What is shared was seen like this, and these calls began here before it was looked at.
    pub(super) fn see(
        &self,
        part: Part,
        lanes: Vec<LaneView>,
        upstreams: Vec<UpstreamView>,
        before: &Starts,
    ) {
        let mut state = self.lock();
        for (call, count) in before {
            if let Some(started) = state.seen.started.get_mut(call) {
                *started = started.saturating_sub(*count);
            }
        }
        state.seen.started.retain(|_, count| *count > 0);
        state.seen = Seen { part, lanes, upstreams, started: std::mem::take(&mut state.seen.started) };
    }

    /// Somebody here was told this of shared upstreams, between two looks.
    pub(super) fn hear<'a>(&self, told: impl IntoIterator<Item = &'a UpstreamView>) {
        let known = &mut self.lock().seen.upstreams;
        for view in told {
            match known.iter_mut().find(|known| known.name == view.name) {
                Some(known) => known.clone_from(view),
                None => known.push(view.clone()),
            }
        }
    }

    /// Calls that began since what is shared was last seen.
    pub(super) fn started(&self) -> Starts {
        self.lock().seen.started.clone()
    }

    /// A call began by leave of the shared store.
    pub(super) fn start(&self, lane: Option<&Name>, upstream: &Name) {
        *self.lock().seen.started.entry((lane.cloned(), upstream.clone())).or_default() += 1;
    }

    /// Whether to ask the store. Only one of those who come when it is time to try finds out whether it does not answer;
    /// the others need not wait for that.
    pub(super) fn may_answer(&self) -> bool {
        let now = Instant::now();
        match &mut self.lock().try_at {
            None => true,
            Some(try_at) if *try_at <= now => {
                *try_at = now + ASK_AGAIN;
                true
            }
            Some(_) => false,
        }
    }

    /// The store did not answer.
    pub(super) fn lose(&self, error: &StoreError) {
        let mut state = self.lock();
        if state.try_at.replace(Instant::now() + ASK_AGAIN).is_none() {
            tracing::warn!(%error, "Limits are this process's own until the store answers");
            let state = &mut *state;
            state.times += 1;
            let now = self.clock.now();
            state.engine = Engine::alone(&self.spec, &state.seen, state.times, self.lease, now);
        }
    }

    /// The calls that began while the store did not answer, if it did not.
    pub(super) fn spent(&self) -> Option<Starts> {
        let state = self.lock();
        state.try_at.map(|_| state.spent.clone())
    }

    /// The store answers, and has heard of what began meanwhile.
    pub(super) fn find(&self) {
        let mut state = self.lock();
        if state.try_at.take().is_some() {
            state.spent.clear();
            tracing::info!("Limits are shared again");
        }
    }

    /// Asks the gates here.
    pub(super) fn run<T>(&self, verb: impl FnOnce(&mut Engine, Time) -> T) -> T {
        let mut state = self.lock();
        let now = state.engine.now(self.clock.now());
        let answer = verb(&mut state.engine, now);
        state.engine.forget_changes();
        answer
    }

    /// A call began by leave of the gates here.
    pub(super) fn spend(&self, lane: Option<&Name>, upstream: &Name) {
        *self.lock().spent.entry((lane.cloned(), upstream.clone())).or_default() += 1;
    }

    /// What it holds is whole also where somebody panicked: the engine has no half-done verbs.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
