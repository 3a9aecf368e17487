//! What the parts of a process in a fleet share: the owner, where questions go, when the server last replied.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eclusa_core::{Clock, RegistrationView, StoreError, Time};
use eclusa_fleet::{ProcessId, TermId};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::answering::Answering;
use super::asking::Asking;
use super::clock::{EngineTime, ServerClock};
use super::membership::Membership;
use crate::store::doorbell::Doorbell;
use crate::store::faults::Faults;
use crate::store::journal::redis::Keys;
use crate::store::stage::Stage;

/// Where questions go.
#[derive(Clone, Default)]
pub(super) enum Route {
    /// No owner is known.
    #[default]
    Nobody,
    /// This process is the owner.
    Own(Arc<Stage>, OwnerView),
    /// Another process is the owner.
    Ask(OwnerView),
}

/// The owner, for displays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerView {
    /// The process.
    pub process: ProcessId,
    /// Its epoch.
    pub epoch: u64,
    pub(super) term: TermId,
}

impl OwnerView {
    /// When it took over, by the server's clock: that is what an epoch is, unless the clock went back.
    pub fn since(self) -> Time {
        Time::from_millis(self.epoch)
    }
}

/// See the module.
pub(super) struct Shared {
    pub(super) keys: Keys,
    pub(super) membership: Membership,
    pub(super) asking: Arc<Asking>,
    pub(super) answering: Answering,
    pub(super) route: watch::Sender<Route>,
    /// Wakes the owning thread.
    pub(super) doorbell: Arc<Doorbell>,
    pub(super) look_soon: AtomicBool,
    /// Notified when a process takes over or leaves: the list of processes is then read again.
    pub(super) fleet_changed: Notify,
    pub(super) stopping: AtomicBool,
    /// Set when the process will stop soon and another one should own.
    pub(super) leaving: AtomicBool,
    pub(super) server_clock: ServerClock,
    pub(super) engine_time: EngineTime,
    /// Replaces the server's clock in tests.
    pub(super) clock: Option<Arc<dyn Clock>>,
    /// How long the server may be silent.
    pub(super) timeout: Duration,
    /// How long a caller waits while the server replies and nobody decides, in milliseconds.
    max_wait_ms: AtomicU64,
    /// How long expired data may stay in the journal.
    pub(super) forget_within: Duration,
    started: Instant,
    /// When something last replied, in milliseconds since the start.
    heard_ms: AtomicU64,
    /// The processes that share the store, as last reported.
    instances: Mutex<Vec<RegistrationView>>,
    /// How often the server was found to have lost what this process had acknowledged.
    losses: AtomicU64,
    pub(super) faults: Faults,
    /// How long the journal was when this process last wrote to it.
    pub(super) journal_bytes: AtomicU64,
    /// The last owner that questions went to.
    last_owner: Mutex<Option<OwnerView>>,
    /// Why the server cannot be used, if it cannot.
    refused: Mutex<Option<Arc<str>>>,
    /// Why the last command failed, until one succeeds.
    trouble: Mutex<Option<Arc<str>>>,
    /// Since when the server replies with errors or refuses writes: nothing can be decided for the fleet.
    refusing: Mutex<Option<Instant>>,
    /// Since when no replica has what was appended, if one must.
    unreplicated: Mutex<Option<Instant>>,
    /// Why nothing more may be stored, although everything else works.
    full: Mutex<Option<Arc<str>>>,
}

/// What [`Shared`] is built from.
pub(super) struct SharedParts {
    pub(super) keys: Keys,
    pub(super) membership: Membership,
    pub(super) timeout: Duration,
    pub(super) max_wait: Duration,
    pub(super) forget_within: Duration,
    pub(super) clock: Option<Arc<dyn Clock>>,
}

impl Shared {
    pub(super) fn new(parts: SharedParts) -> Self {
        let SharedParts { keys, membership, timeout, max_wait, forget_within, clock } = parts;
        let shared = Self {
            keys,
            membership,
            asking: Arc::new(Asking::new()),
            answering: Answering::default(),
            route: watch::Sender::new(Route::Nobody),
            doorbell: Arc::default(),
            look_soon: AtomicBool::new(false),
            fleet_changed: Notify::new(),
            stopping: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            server_clock: ServerClock::new(),
            engine_time: EngineTime::default(),
            clock,
            timeout,
            max_wait_ms: AtomicU64::new(0),
            forget_within,
            started: Instant::now(),
            heard_ms: AtomicU64::new(0),
            instances: Mutex::default(),
            losses: AtomicU64::new(0),
            faults: Faults::default(),
            journal_bytes: AtomicU64::new(0),
            last_owner: Mutex::default(),
            refused: Mutex::default(),
            trouble: Mutex::default(),
            refusing: Mutex::default(),
            unreplicated: Mutex::default(),
            full: Mutex::default(),
        };
        shared.set_max_wait(max_wait);
        shared
    }

    /// How long a caller waits while the server replies and nobody decides.
    pub(super) fn max_wait(&self) -> Duration {
        Duration::from_millis(self.max_wait_ms.load(Ordering::Relaxed))
    }

    /// Sets how long a caller waits.
    pub(super) fn set_max_wait(&self, max_wait: Duration) {
        let ms = u64::try_from(max_wait.as_millis()).unwrap_or(u64::MAX);
        self.max_wait_ms.store(ms, Ordering::Relaxed);
    }

    /// Notes that the server or the owner replied.
    pub(super) fn heard(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard_ms.fetch_max(now, Ordering::Relaxed);
    }

    /// How long nothing has replied, or only with errors.
    pub(super) fn outage(&self) -> Duration {
        let heard = Duration::from_millis(self.heard_ms.load(Ordering::Relaxed));
        let silence = self.started.elapsed().saturating_sub(heard);
        lock(&self.refusing).map_or(silence, |since| silence.max(since.elapsed()))
    }

    /// Notes whether the server refuses commands.
    pub(super) fn set_refusing(&self, refusing: bool) {
        let mut since = lock(&self.refusing);
        *since = if refusing { Some(since.unwrap_or_else(Instant::now)) } else { None };
    }

    /// The error for callers while nothing replies.
    pub(super) fn away(&self) -> Option<StoreError> {
        if let Some(cause) = lock(&self.refused).clone() {
            return Some(StoreError::Stopped { cause });
        }
        if lock(&self.unreplicated).is_some_and(|since| since.elapsed() > self.timeout) {
            return Some(unavailable("no replica has it"));
        }
        if self.outage() <= self.timeout {
            return None;
        }
        let what = if lock(&self.refusing).is_some() { "Redis refuses" } else { "Redis does not answer" };
        Some(match &*lock(&self.trouble) {
            Some(trouble) => unavailable(&format!("{what}: {trouble}")),
            None => unavailable(what),
        })
    }

    /// Sets why the server cannot be used, or that it can.
    pub(super) fn refuse(&self, cause: Option<&str>) {
        *lock(&self.refused) = cause.map(Into::into);
    }

    /// Counts a loss: the server lost what this process had acknowledged.
    pub(super) fn lost_data(&self) {
        self.losses.fetch_add(1, Ordering::Relaxed);
        self.faults.note(
            "data_lost",
            "Redis lost what this process had acknowledged; its waiting jobs were enqueued again by their ids",
        );
    }

    /// The number of losses.
    pub(super) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// Notes why the last command failed, or that it succeeded.
    pub(super) fn note_trouble(&self, cause: Option<&str>) {
        *lock(&self.trouble) = cause.map(Into::into);
    }

    /// Notes whether a replica has all that was appended.
    pub(super) fn replicated(&self, replicated: bool) {
        let mut unreplicated = lock(&self.unreplicated);
        *unreplicated = if replicated { None } else { Some(unreplicated.unwrap_or_else(Instant::now)) };
    }

    /// Sets why nothing more may be stored, or that it may.
    pub(super) fn set_full(&self, cause: Option<&str>) {
        *lock(&self.full) = cause.map(Into::into);
    }

    /// The error for questions that would store something while nothing more may be stored.
    pub(super) fn full(&self) -> Option<StoreError> {
        lock(&self.full).clone().map(|cause| StoreError::Unavailable { cause })
    }

    /// Sets the processes that share the store.
    pub(super) fn set_instances(&self, instances: Vec<RegistrationView>) {
        *lock(&self.instances) = instances;
    }

    /// The processes that share the store, as last reported.
    pub(super) fn instances(&self) -> Vec<RegistrationView> {
        lock(&self.instances).clone()
    }

    /// The time of the engine that decides for the fleet: the moments in its answers are by this clock. Before the first
    /// answer it is the server's.
    pub(super) fn engine_now(&self) -> Time {
        if let Some(clock) = &self.clock {
            return clock.now();
        }
        self.engine_time.at_least().unwrap_or_else(|| self.server_clock.now())
    }

    /// Makes the owning thread look at the term as soon as possible.
    pub(super) fn look_soon(&self) {
        self.look_soon.store(true, Ordering::Relaxed);
        self.doorbell.ring();
    }

    /// Sets where questions go.
    pub(super) fn set_route(&self, route: Route) {
        let owner = match &route {
            Route::Nobody => None,
            Route::Own(_, owner) | Route::Ask(owner) => Some(*owner),
        };
        if let Some(owner) = owner {
            self.note_takeover(owner);
        }
        let term = owner.map(|owner| owner.term);
        self.route.send_replace(route);
        self.asking.follow(term);
    }

    /// The first owner that is known has taken over from nobody.
    fn note_takeover(&self, owner: OwnerView) {
        let before = lock(&self.last_owner).replace(owner);
        if before.is_some_and(|before| before.process != owner.process) {
            let who = if owner.process == self.membership.process { " (this one)" } else { "" };
            let id = owner.process.0;
            self.faults
                .note("takeover", format!("Process {id:016x}{who} decides now, in epoch {}", owner.epoch));
        }
    }

    /// Waits until this process no longer owns as `owner`.
    pub(super) async fn until_route_changes(&self, owner: OwnerView) {
        let mut route = self.route.subscribe();
        let changed = |route: &Route| !matches!(route, Route::Own(_, still) if *still == owner);
        let _ = route.wait_for(changed).await;
    }

    pub(super) fn route(&self) -> Route {
        self.route.borrow().clone()
    }
}

pub(super) fn unavailable(cause: &str) -> StoreError {
    StoreError::Unavailable { cause: cause.into() }
}

/// Ignores poisoning: the values are consistent even after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
