//! The store on Redis: one process at a time owns the basin and decides, the others ask it through Redis.
//!
//! - `owner` is the thread that owns, or would: it follows the protocol of `eclusa-fleet`. `tenure`, `outage` and `leaving`
//!   are what it does when the owner changes, after nothing replied, and at the end.
//! - `subscriber` is the thread that hears questions and answers and sends questions.
//! - `asking` keeps questions until they are answered; `answering` makes each take effect once.

mod answering;
mod ask;
mod asking;
mod clock;
mod leaving;
mod loader;
mod look;
mod membership;
mod messages;
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
use eclusa_core::{Clock, RegistrationView, Spec, StoreError};
use eclusa_fleet::{Ownership, ProcessId, Settings};
use redis::{Client, ClientTlsConfig, TlsCertificates};
use thiserror::Error;
use tokio::sync::mpsc::UnboundedReceiver;

use self::ask::Fleet;
use self::membership::{Membership, Rules};
use self::owner::Owner;
pub use self::shared::OwnerView;
use self::shared::{Parts, Route, Shared};
use self::subscriber::Listen;
use super::Ack;
use super::ask::store_by_asking;
use super::journal::redis::{Examined, Inspector, Keys, Promise, RedisJournal, Server, ServerFacts, VERSION};
use crate::config::{FORGET_WITHIN, StoreConfig, Tls, WhenLost};

/// The only basin.
const BASIN: &str = "main";

/// How much longer than gateways programs that only use the library wait before they take over.
const LIBRARY_PATIENCE: Duration = Duration::from_millis(500);

/// Why a Redis store could not be made.
#[derive(Debug, Error)]
pub enum RedisError {
    /// The address makes no sense.
    #[error("{0}")]
    Address(redis::RedisError),
    /// A thread could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(std::io::Error),
}

/// How a process uses a server.
#[derive(Clone)]
pub struct RedisSettings {
    /// What the names of all keys begin with.
    pub prefix: String,
    /// What "accepted" means.
    pub ack: Ack,
    /// For `rediss://`.
    pub tls: Tls,
    /// How long the server and the owner may be silent before callers are refused.
    pub timeout: Duration,
    /// How long an owner may be silent before another process takes over.
    pub term: Duration,
    /// How long after something expired it may still be in the journal.
    pub forget_within: Duration,
    /// Whether this process only uses the library: it takes over only if no gateway does.
    pub library: bool,
    /// How long leases last that this process gives: those of others are thought to last as long while nobody can be asked.
    pub lease: Duration,
    /// What to do while the fleet cannot be asked.
    pub when_lost: WhenLost,
    /// Whether gates are shared; else each process has the whole of every limit for what it decides about gates alone.
    pub shared_gates: bool,
    /// What others are told of this process: its role and the version of its rules.
    pub about: String,
    /// Tells the time instead of the server, in tests.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for RedisSettings {
    fn default() -> Self {
        Self {
            prefix: "eclusa:".to_owned(),
            ack: Ack::Write,
            tls: Tls::default(),
            timeout: Duration::from_secs(2),
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
    fleet: Arc<Fleet>,
    /// Asks the server how it is.
    inspector: Inspector,
    owner: Option<JoinHandle<()>>,
    subscriber: Option<JoinHandle<()>>,
}

impl RedisStore {
    /// A store on the server at `url`. It connects by itself, now or when the server is there.
    pub fn open(url: &str, settings: &RedisSettings, spec: &Spec) -> Result<Self, RedisError> {
        let client = client(url, &settings.tls).map_err(RedisError::Address)?;
        let process = ProcessId(fastrand::u64(1..));
        let keys = Keys::new(&settings.prefix, BASIN, client.get_connection_info().redis_settings().db());
        let stamp = crate::SystemClock.now().as_millis();
        let shared = Arc::new(Shared::new(Parts {
            keys: keys.clone(),
            membership: Membership::new(process, Rules::new(stamp, &settings.about, spec)),
            timeout: settings.timeout,
            forget_within: settings.forget_within,
            clock: settings.clock.clone(),
        }));
        let promise = Promise { ack: settings.ack, keeps_jobs: !spec.lanes().is_empty() };
        let server = Server::new(client.clone(), settings.timeout, promise);
        let (wishes, wished) = tokio::sync::mpsc::unbounded_channel();
        let journal = RedisJournal::new(server, keys, process, settings.term.into());
        let owner = Owner::new(Ownership::new(protocol(process, settings)), journal, shared.clone(), wishes);
        let owner = Builder::new().name("eclusa-owner".into()).spawn(move || owner.run());
        let owner = owner.map_err(RedisError::Thread)?;
        let inspector = Inspector::new(client.clone(), settings.timeout);
        let fleet = Arc::new(Fleet::new(shared, settings, spec));
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

    /// Who decides, if that is known.
    pub fn owner(&self) -> Option<OwnerView> {
        match self.fleet.shared.route() {
            Route::Nobody => None,
            Route::Own(_, owner) | Route::Ask(owner) => Some(owner),
        }
    }

    /// Whether this process decides.
    pub fn owns(&self) -> bool {
        matches!(self.fleet.shared.route(), Route::Own(..))
    }

    /// How many callers, at all processes, wait for the end of a job; 0 where this process does not decide.
    pub fn waits(&self) -> u64 {
        match self.fleet.shared.route() {
            Route::Own(stage, _) => stage.wakes.waits(),
            Route::Nobody | Route::Ask(_) => 0,
        }
    }

    /// This process, as others see it.
    pub fn process(&self) -> ProcessId {
        self.fleet.shared.membership.process
    }

    /// The processes that share the store, as last heard.
    pub fn instances(&self) -> Vec<RegistrationView> {
        self.fleet.shared.instances()
    }

    /// How often Redis was found to have lost what this process had acknowledged.
    pub fn losses(&self) -> u64 {
        self.fleet.shared.losses()
    }

    /// Whether nothing has replied for so long that callers are refused.
    pub fn is_away(&self) -> bool {
        self.fleet.shared.away().is_some()
    }

    /// How the server is; `None` if it does not tell now.
    pub(crate) async fn server_facts(&self) -> Option<ServerFacts> {
        self.inspector.look().await
    }

    /// Goes by other rules from now on. Nothing that waits or runs is lost.
    pub async fn configure(&self, about: &str, spec: &Spec) -> Result<(), StoreError> {
        self.fleet.configure(about, spec).await
    }

    /// Has another process decide, if there is one; this one goes on asking it.
    pub(crate) fn step_down(&self) {
        self.fleet.shared.leaving.store(true, Ordering::Relaxed);
        self.fleet.shared.doorbell.ring();
    }

    pub(super) async fn ask(&self, question: Question) -> Result<Reply, StoreError> {
        self.fleet.ask(question).await
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
        // The owning thread held the other end of what this one listens to.
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
        format: VERSION.into(),
        ack: match settings.ack {
            Ack::Write => eclusa_fleet::Ack::Write,
            Ack::Fsync => eclusa_fleet::Ack::Fsync,
            Ack::Replicate => eclusa_fleet::Ack::Replicate,
        },
        seed: fastrand::u128(..),
    }
}

/// Hears and sends messages until the owning thread ends.
fn exchange_messages(fleet: &Arc<Fleet>, client: &Client, wished: UnboundedReceiver<Listen>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "There is no runtime for messages"),
    };
    runtime.spawn(subscriber::send(fleet.shared.clone(), client.clone()));
    runtime.spawn(look::run(fleet.clone()));
    runtime.block_on(subscriber::hear(fleet.shared.clone(), client.clone(), wished));
}

/// Asks the server that `store` names what it is like, in place of using it.
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
