//! The store on Redis: one process at a time owns the basin and decides, the others ask it through Redis.
//!
//! - `owner` is the thread that owns the basin, or may own it: it follows the protocol of `eclusa-fleet`. `tenure`,
//!   `outage` and `leaving` are what it does when the owner changes, after an outage, and when the process stops.
//! - `subscriber` is the thread that receives questions and answers and sends questions.
//! - `asking` keeps questions until they are answered; `answering` makes each take effect once, and the
//!   `Outbox` of `eclusa-fleet` bounds what is on the way back.

mod answering;
mod ask;
mod asking;
mod clock;
mod leaving;
mod loader;
mod look;
mod membership;
mod outage;
mod owner;
mod public;
mod shared;
mod subscriber;
mod tenure;
mod work;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use eclusa_core::layout::{Question, Reply};
use eclusa_core::{Answer, Clock, RegistrationView, Spec, StoreError, Time};
use eclusa_fleet::{Ownership, ProcessId, Settings};
use redis::{Client, ClientTlsConfig, TlsCertificates};
use thiserror::Error;
use tokio::sync::mpsc::UnboundedReceiver;

use self::ask::FleetAccess;
use self::membership::{MemberRules, Membership};
use self::owner::OwnerThread;
pub use self::shared::OwnerView;
use self::shared::{Route, Shared, SharedParts};
use self::subscriber::Listen;
use super::Ack;
use super::ask::store_by_asking;
use super::faults::StoreFault;
use super::journal::redis::{Examined, FORMAT, Inspector, Keys, Promise, RedisJournal, Server, ServerFacts};
use crate::config::{FORGET_WITHIN, StoreConfig, Tls, WhenLost};

/// The only basin.
const BASIN: &str = "main";

/// How much longer than a gateway a program that only uses the library waits before it takes over.
const LIBRARY_PATIENCE: Duration = Duration::from_millis(500);

/// Why a Redis store could not be opened.
#[derive(Debug, Error)]
pub enum RedisError {
    /// The address is invalid.
    #[error("{0}")]
    Address(redis::RedisError),
    /// A thread could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(std::io::Error),
}

/// The settings of a store on Redis.
#[derive(Clone)]
pub struct RedisSettings {
    /// The prefix of all keys.
    pub prefix: String,
    /// When a write counts as accepted.
    pub ack: Ack,
    /// Certificates for `rediss://`.
    pub tls: Tls,
    /// How long the server and the owner may be silent before callers are refused.
    pub timeout: Duration,
    /// How long a caller waits while the server replies but no process decides.
    pub max_wait: Duration,
    /// How long an owner may be silent before another process takes over.
    pub term: Duration,
    /// How long expired data may stay in the journal.
    pub forget_within: Duration,
    /// Whether this process only uses the library: it takes over only if no gateway does.
    pub library: bool,
    /// How long leases of this process last. While the fleet cannot be asked, those of others are assumed to last as
    /// long.
    pub lease: Duration,
    /// What to do while the fleet cannot be asked.
    pub when_lost: WhenLost,
    /// Whether gates are shared. If not, each process applies the whole of every limit locally.
    pub shared_gates: bool,
    /// The role of this process and the version of its rules, for displays of the fleet.
    pub about: String,
    /// Replaces the server's clock in tests.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for RedisSettings {
    fn default() -> Self {
        Self {
            prefix: "eclusa:".to_owned(),
            ack: Ack::Write,
            tls: Tls::default(),
            timeout: Duration::from_secs(2),
            max_wait: Duration::from_mins(1),
            term: Duration::from_secs(2),
            forget_within: FORGET_WITHIN,
            library: false,
            lease: Duration::from_secs(10),
            when_lost: WhenLost::Share,
            shared_gates: true,
            about: "library".to_owned(),
            clock: None,
        }
    }
}

/// A store on a Redis or Valkey server, shared by all processes that name it.
pub struct RedisStore {
    fleet: Arc<FleetAccess>,
    /// Asks the server for its state.
    inspector: Inspector,
    owner: Option<JoinHandle<()>>,
    subscriber: Option<JoinHandle<()>>,
}

impl RedisStore {
    /// Opens a store on the server at `url`. It connects in the background, as soon as the server is reachable.
    pub fn open(url: &str, settings: &RedisSettings, spec: &Spec) -> Result<Self, RedisError> {
        let client = client(url, &settings.tls).map_err(RedisError::Address)?;
        let process = ProcessId(fastrand::u64(1..));
        let keys = Keys::new(&settings.prefix, BASIN, client.get_connection_info().redis_settings().db());
        let stamp = crate::SystemClock.now().as_millis();
        let shared = Arc::new(Shared::new(SharedParts {
            keys: keys.clone(),
            membership: Membership::new(process, MemberRules::new(stamp, &settings.about, spec)),
            timeout: settings.timeout,
            max_wait: settings.max_wait,
            forget_within: settings.forget_within,
            clock: settings.clock.clone(),
        }));
        let promise = Promise { ack: settings.ack, keeps_jobs: !spec.lanes().is_empty() };
        let server = Server::new(client.clone(), settings.timeout, promise);
        let (wishes, wished) = tokio::sync::mpsc::unbounded_channel();
        let journal = RedisJournal::new(server, keys, process, settings.term.into());
        let owner =
            OwnerThread::new(Ownership::new(protocol(process, settings)), journal, shared.clone(), wishes);
        let owner = Builder::new().name("eclusa-owner".into()).spawn(move || owner.run());
        let owner = owner.map_err(RedisError::Thread)?;
        let inspector = Inspector::new(client.clone(), settings.timeout);
        let fleet = Arc::new(FleetAccess::new(shared, settings, spec));
        let subscriber = Builder::new().name("eclusa-fleet".into());
        let subscriber = subscriber.spawn({
            let fleet = fleet.clone();
            move || exchange_messages(&fleet, &client, wished)
        });
        Ok(Self {
            fleet,
            inspector,
            owner: Some(owner),
            subscriber: Some(subscriber.map_err(RedisError::Thread)?),
        })
    }

    /// The owner, if it is known.
    pub fn owner(&self) -> Option<OwnerView> {
        match self.fleet.shared.route() {
            Route::Nobody => None,
            Route::Own(_, owner) | Route::Ask(owner) => Some(owner),
        }
    }

    /// Whether this process is the owner.
    pub fn owns(&self) -> bool {
        matches!(self.fleet.shared.route(), Route::Own(..))
    }

    /// How many callers, at all processes, wait for the end of a job; 0 if this process is not the owner.
    pub fn waits(&self) -> u64 {
        match self.fleet.shared.route() {
            Route::Own(stage, _) => stage.wakes.waits(),
            Route::Nobody | Route::Ask(_) => 0,
        }
    }

    /// The id of this process in the fleet.
    pub fn process(&self) -> ProcessId {
        self.fleet.shared.membership.process
    }

    /// The processes that share the store, as last reported.
    pub fn instances(&self) -> Vec<RegistrationView> {
        self.fleet.shared.instances()
    }

    /// How often Redis was found to have lost what this process had acknowledged.
    pub fn losses(&self) -> u64 {
        self.fleet.shared.losses()
    }

    /// What went wrong lately, the newest first.
    pub fn faults(&self) -> Vec<StoreFault> {
        self.fleet.shared.faults.list()
    }

    /// How long the journal is; `None` where this process does not decide.
    pub fn journal_bytes(&self) -> Option<u64> {
        self.owns().then(|| self.fleet.shared.journal_bytes.load(Ordering::Relaxed))
    }

    /// Whether nothing replied for so long that callers are refused.
    pub fn is_away(&self) -> bool {
        self.fleet.shared.away().is_some()
    }

    /// The state of the server; `None` if it does not reply now.
    pub(crate) async fn server_facts(&self) -> Option<ServerFacts> {
        self.inspector.look().await
    }

    /// Applies other rules from now on. Nothing that waits or runs is lost.
    pub async fn configure(&self, about: &str, spec: &Spec) -> Result<(), StoreError> {
        self.fleet.configure(about, spec).await
    }

    /// The time by which the moments in answers are.
    pub fn now(&self) -> Time {
        self.fleet.shared.engine_now()
    }

    /// Sets how long a caller waits while the server replies but no process decides.
    pub(crate) fn set_max_wait(&self, max_wait: Duration) {
        self.fleet.shared.set_max_wait(max_wait);
    }

    /// Hands ownership to another process, if there is one, and asks that one from then on.
    pub(crate) fn step_down(&self) {
        self.fleet.shared.leaving.store(true, Ordering::Relaxed);
        self.fleet.shared.doorbell.ring();
    }

    pub(super) fn ask(&self, question: Question) -> impl Answer<Reply> {
        self.fleet.ask(question)
    }
}

store_by_asking!(RedisStore);

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.fleet.shared.stopping.store(true, Ordering::Relaxed);
        self.fleet.shared.doorbell.ring();
        if let Some(owner) = self.owner.take() {
            drop(owner.join());
        }
        // The subscriber ends because the owning thread held the sender of its commands.
        if let Some(subscriber) = self.subscriber.take() {
            drop(subscriber.join());
        }
    }
}

fn protocol(process: ProcessId, settings: &RedisSettings) -> Settings {
    Settings {
        process,
        term: settings.term.into(),
        patience: if settings.library { LIBRARY_PATIENCE } else { Duration::ZERO }.into(),
        format: FORMAT,
        ack: match settings.ack {
            Ack::Write => eclusa_fleet::Ack::Write,
            Ack::Fsync => eclusa_fleet::Ack::Fsync,
            Ack::Replicate => eclusa_fleet::Ack::Replicate,
        },
        seed: fastrand::u128(..),
    }
}

/// Receives and sends messages until the owning thread ends.
fn exchange_messages(fleet: &Arc<FleetAccess>, client: &Client, wished: UnboundedReceiver<Listen>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "The runtime for messages could not be started"),
    };
    runtime.spawn(subscriber::send(fleet.shared.clone(), client.clone()));
    runtime.spawn(look::run(fleet.clone()));
    runtime.block_on(subscriber::hear(fleet.shared.clone(), client.clone(), wished));
}

/// Examines the server that `store` names, without using it.
pub(crate) fn examine(url: &str, store: &StoreConfig) -> Result<Examined, redis::RedisError> {
    super::journal::redis::examine(&client(url, &store.tls)?, store.timeout, store.ack)
}

fn client(url: &str, tls: &Tls) -> Result<Client, redis::RedisError> {
    match certificates(tls) {
        Some(certificates) => Client::build_with_tls(url, certificates),
        None => Client::open(url),
    }
}

fn certificates(tls: &Tls) -> Option<TlsCertificates> {
    let client = tls.client.as_ref().map(|(certificate, key)| ClientTlsConfig {
        client_cert: certificate.clone(),
        client_key: key.reveal().into(),
    });
    let some = client.is_some() || tls.ca.is_some();
    some.then(|| TlsCertificates { client_tls: client, root_cert: tls.ca.clone() })
}
