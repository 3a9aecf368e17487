//! What the parts of a process that takes part in a fleet share: who owns, who is asked, when the server was last heard.

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
use crate::store::journal::redis::Keys;
use crate::store::stage::Stage;

/// Where questions go.
#[derive(Clone, Default)]
pub(super) enum Route {
    /// Nobody is known to own.
    #[default]
    Nobody,
    /// This process owns.
    Own(Arc<Stage>, OwnerView),
    /// Another one does.
    Ask(OwnerView),
}

/// Who owns, for those who look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerView {
    /// The process.
    pub process: ProcessId,
    /// Its epoch.
    pub epoch: u64,
    pub(super) term: TermId,
}

impl OwnerView {
    /// When it took over, by the server's clock: that is what an epoch is, unless the clock ran back.
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
    /// Wakes the thread that owns, or would.
    pub(super) doorbell: Arc<Doorbell>,
    pub(super) look_soon: AtomicBool,
    /// A process has come to own or has left: whoever keeps note of who is there looks again.
    pub(super) fleet_changed: Notify,
    pub(super) stopping: AtomicBool,
    /// Set when the process will stop soon: another one is to decide.
    pub(super) leaving: AtomicBool,
    pub(super) server_clock: ServerClock,
    pub(super) engine_time: EngineTime,
    /// Tells the time instead of the server, in tests.
    pub(super) clock: Option<Arc<dyn Clock>>,
    /// How long the server may be silent.
    pub(super) timeout: Duration,
    /// How long after something expired it may still be in the journal.
    pub(super) forget_within: Duration,
    started: Instant,
    /// Milliseconds since the start at which something last replied.
    heard_ms: AtomicU64,
    /// Processes that share the store, as last heard.
    instances: Mutex<Vec<RegistrationView>>,
    /// How often the server was found to have lost what this process had acknowledged.
    losses: AtomicU64,
    /// Why the server cannot be used at all.
    refused: Mutex<Option<Arc<str>>>,
    /// Why the last command failed, until one succeeds.
    trouble: Mutex<Option<Arc<str>>>,
    /// Since when the server replies with errors, or refuses to write: nothing can be decided for the fleet.
    refusing: Mutex<Option<Instant>>,
    /// Since when no replica has what was appended, where one must.
    unreplicated: Mutex<Option<Instant>>,
    /// Why nothing more may be stored, though everything else works.
    full: Mutex<Option<Arc<str>>>,
}

/// What a fleet is made of.
pub(super) struct Parts {
    pub(super) keys: Keys,
    pub(super) membership: Membership,
    pub(super) timeout: Duration,
    pub(super) forget_within: Duration,
    pub(super) clock: Option<Arc<dyn Clock>>,
}

impl Shared {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { keys, membership, timeout, forget_within, clock } = parts;
        Self {
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
            forget_within,
            started: Instant::now(),
            heard_ms: AtomicU64::new(0),
            instances: Mutex::default(),
            losses: AtomicU64::new(0),
            refused: Mutex::default(),
            trouble: Mutex::default(),
            refusing: Mutex::default(),
            unreplicated: Mutex::default(),
            full: Mutex::default(),
        }
    }

    /// The server or the owner replied.
    pub(super) fn heard(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard_ms.fetch_max(now, Ordering::Relaxed);
    }

    /// For how long nothing has replied, or only errors.
    pub(super) fn outage(&self) -> Duration {
        let heard = Duration::from_millis(self.heard_ms.load(Ordering::Relaxed));
        let silence = self.started.elapsed().saturating_sub(heard);
        lock(&self.refusing).map_or(silence, |since| silence.max(since.elapsed()))
    }

    /// The server replied with an error, or does again what it is asked.
    pub(super) fn refusing(&self, refusing: bool) {
        let mut since = lock(&self.refusing);
        *since = if refusing { Some(since.unwrap_or_else(Instant::now)) } else { None };
    }

    /// The error for those who come while nothing replies.
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

    /// The server says that it cannot be used, or can again.
    pub(super) fn refuse(&self, cause: Option<&str>) {
        *lock(&self.refused) = cause.map(Into::into);
    }

    /// The server has lost what this process had acknowledged.
    pub(super) fn lost_data(&self) {
        self.losses.fetch_add(1, Ordering::Relaxed);
    }

    /// How often it has.
    pub(super) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// A command failed for this reason, or succeeded.
    pub(super) fn note_trouble(&self, cause: Option<&str>) {
        *lock(&self.trouble) = cause.map(Into::into);
    }

    /// A replica has all that was appended, or has not.
    pub(super) fn replicated(&self, replicated: bool) {
        let mut unreplicated = lock(&self.unreplicated);
        *unreplicated = if replicated { None } else { Some(unreplicated.unwrap_or_else(Instant::now)) };
    }

    /// Nothing more may be stored, or it may again.
    pub(super) fn fill(&self, cause: Option<&str>) {
        *lock(&self.full) = cause.map(Into::into);
    }

    /// The error for whoever brings something to store while nothing more may be.
    pub(super) fn full(&self) -> Option<StoreError> {
        lock(&self.full).clone().map(|cause| StoreError::Unavailable { cause })
    }

    /// These processes share the store.
    pub(super) fn meet(&self, instances: Vec<RegistrationView>) {
        *lock(&self.instances) = instances;
    }

    /// Processes that share the store, as last heard.
    pub(super) fn instances(&self) -> Vec<RegistrationView> {
        lock(&self.instances).clone()
    }

    /// Has the owner looked at as soon as possible.
    pub(super) fn look_soon(&self) {
        self.look_soon.store(true, Ordering::Relaxed);
        self.doorbell.ring();
    }

    /// Questions go there from now on.
    pub(super) fn set_route(&self, route: Route) {
        let term = match &route {
            Route::Nobody => None,
            Route::Own(_, owner) | Route::Ask(owner) => Some(owner.term),
        };
        self.route.send_replace(route);
        self.asking.follow(term);
    }

    /// Returns when this process no longer owns as `owner`.
    pub(super) async fn leave_route(&self, owner: OwnerView) {
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

/// What is held is whole also where somebody panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
