//! What the parts of the running program share: rules, store, upstreams, and the ways they wake each other.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eclusa_core::{
    Cancelled, Clock, Ended, EnqueueAnswer, JobId, JobView, LeaseId, Name, NewJob, Outcome, Replayed, Report,
    Settled, Settlement, Store, StoreError,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Builder;

use crate::config::{Config, StoreUrl};
use crate::execute::http::{HttpUpstream, TlsError};
use crate::random::Random;
use crate::store::{AnyStore, EmbeddedStore, OpenError, RedisError, RedisSettings, RedisStore, SharedStore};
use crate::telemetry::{Metrics, Rates, log_end};
use crate::to_the_end::ToTheEnd;
use crate::turns::Turns;
use crate::wake::{Bells, Waiters};
use crate::work::{Leases, shared_slots};

/// How long to wait before asking a store again that did not answer.
const STORE_PAUSE: Duration = Duration::from_millis(250);

/// Set in the nonce of every lease that was given to a worker elsewhere, and in none of our own.
pub(crate) const FOREIGN: u32 = 1 << 31;

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Duty {
    /// Takes jobs in and runs them.
    #[default]
    All,
    /// Only takes jobs in and answers for them.
    Api,
    /// Only runs jobs; over HTTP it tells nothing but its health.
    Worker,
}

impl Duty {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Duty::All => "all",
            Duty::Api => "api",
            Duty::Worker => "worker",
        }
    }
}

/// A process that shares the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instance {
    /// Its id.
    pub(crate) id: String,
    /// What it does: `all`, `api` or `worker`.
    pub(crate) role: String,
    /// Which rules it goes by: those with the same word go by the same.
    pub(crate) rules: String,
}

impl Instance {
    /// What others are told of it.
    pub(crate) fn about(&self) -> String {
        format!("{} {}", self.role, self.rules)
    }

    /// The opposite of [`Instance::about`].
    pub(crate) fn read(id: String, about: &str) -> Self {
        let (role, rules) = about.split_once(' ').unwrap_or((about, ""));
        Self { id, role: role.to_owned(), rules: rules.to_owned() }
    }
}

/// One running Eclusa.
pub struct Gateway {
    /// What this process does.
    pub duty: Duty,
    /// The rules it was started with.
    pub config: Config,
    /// Where everything is decided and kept.
    pub store: AnyStore,
    /// For ids and for what the caller is shown; decisions take the store's time.
    pub clock: Arc<dyn Clock>,
    /// Clients to the upstreams.
    pub upstreams: BTreeMap<Name, HttpUpstream>,
    /// Wake the dispatch loops.
    pub bells: Bells,
    /// Wake those who wait for a job to end.
    pub(crate) waiters: Waiters,
    /// Who may ask for a call next.
    pub(crate) turns: Turns,
    /// What is counted.
    pub metrics: Metrics,
    /// How fast lanes move.
    pub(crate) rates: Rates,
    /// Jobs that this process may still take on, besides those that each lane is sure of.
    pub slots: Arc<Semaphore>,
    /// Calls under way.
    pub running: TaskTracker,
    /// Their leases.
    pub(crate) leases: Arc<Leases>,
    /// Set when nothing new is to be begun.
    pub stopping: CancellationToken,
    /// Set when calls under way can be waited for no longer.
    pub aborting: CancellationToken,
    /// Set when nothing runs any more.
    pub finished: CancellationToken,
    /// Set when the process cannot go on.
    pub broken: CancellationToken,
    /// Whether the store did not answer when it was last asked.
    store_lost: AtomicBool,
    /// Processes that share the store, as last heard.
    instances: Mutex<Vec<Instance>>,
    /// Makes lease ids of this process its own.
    pub nonce: u32,
    /// For ids: who knows one may see its job.
    pub(crate) random: Random,
}

/// Why a gateway could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The store on Redis cannot be used.
    #[error("store.url: {0}")]
    Redis(#[from] RedisError),
    /// Half of the work is left to other processes, and there can be none.
    #[error(
        "--role {duty} leaves the rest to other processes, which cannot share this store: set `store.url` to `redis://…`, or leave out --role"
    )]
    NotShared {
        /// Which half this process was to do.
        duty: &'static str,
    },
    /// The certificates of an upstream cannot be used.
    #[error("upstreams.{upstream}.tls: {source}")]
    Tls {
        /// Which.
        upstream: Name,
        /// What is wrong.
        source: TlsError,
    },
}

impl Gateway {
    /// Opens the store and gets ready to run; nothing runs yet.
    pub fn open(config: Config, duty: Duty, clock: Arc<dyn Clock>) -> Result<Arc<Self>, StartError> {
        if duty != Duty::All && !matches!(config.store.url, StoreUrl::Redis(_)) {
            return Err(StartError::NotShared { duty: duty.as_str() });
        }
        let nonce = fastrand::u32(..FOREIGN);
        let store = open_store(&config, &instance_id(nonce), &clock)?;
        let client = |(name, rules): (&Name, _)| match HttpUpstream::new(rules) {
            Ok(client) => Ok((name.clone(), client)),
            Err(source) => Err(StartError::Tls { upstream: name.clone(), source }),
        };
        let upstreams = config.upstreams.iter().map(client).collect::<Result<_, _>>()?;
        Ok(Arc::new(Self {
            bells: Bells::new(&config),
            turns: Turns::new(&config),
            metrics: Metrics::new(&config),
            rates: Rates::default(),
            slots: Arc::new(Semaphore::new(shared_slots(&config))),
            config,
            store,
            clock,
            upstreams,
            waiters: Waiters::default(),
            running: TaskTracker::new(),
            leases: Arc::default(),
            stopping: CancellationToken::new(),
            aborting: CancellationToken::new(),
            finished: CancellationToken::new(),
            broken: CancellationToken::new(),
            store_lost: AtomicBool::new(false),
            instances: Mutex::default(),
            duty,
            nonce,
            random: Random::default(),
        }))
    }

    /// An id that nobody else has or can guess, and that sorts by time.
    pub fn new_job_id(&self) -> JobId {
        let now = self.clock.now().as_millis();
        JobId(Builder::from_unix_timestamp_millis(now, &self.random.take()).into_uuid().as_u128())
    }

    /// Does `work` to its end even if whoever asked for it goes away meanwhile: what a verb did must be told and undone in
    /// any case.
    pub async fn to_the_end<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        ToTheEnd::new(self.running.track_future(work)).await
    }

    /// Hands jobs to the store and says what became of each and where it is, read in the same breath. The workers of the
    /// lane are woken at once: they need not wait until this answer is durable, for their own is before they act on it.
    pub async fn enqueue(
        self: &Arc<Self>,
        lane: Name,
        jobs: Vec<NewJob>,
    ) -> Result<EnqueueAnswer, StoreError> {
        let gateway = self.clone();
        let put = async move {
            let ring = async { gateway.bells.ring_arrival(&lane) };
            let (answer, ()) = tokio::join!(biased; gateway.store.enqueue(jobs), ring);
            let answer = answer?;
            gateway.note(&answer.ended);
            Ok(answer)
        };
        self.to_the_end(put).await
    }

    /// Cancels a job.
    pub async fn cancel(self: &Arc<Self>, job: JobId) -> Result<Cancelled, StoreError> {
        let gateway = self.clone();
        let cancel = async move {
            let cancelled = gateway.store.cancel(job).await?;
            if let Cancelled::Yes(ended) = &cancelled {
                gateway.note(std::slice::from_ref(&**ended));
                gateway.bells.ring(&ended.lane);
            }
            Ok(cancelled)
        };
        self.to_the_end(cancel).await
    }

    /// Enqueues a dead letter again, as job `id`.
    pub async fn replay(
        self: &Arc<Self>,
        lane: Name,
        letter: JobId,
        id: JobId,
    ) -> Result<Replayed, StoreError> {
        let gateway = self.clone();
        let replay = async move {
            let replayed = gateway.store.replay(lane.clone(), letter, id).await?;
            if let Replayed::As(_, ended) = &replayed {
                gateway.note(ended);
                gateway.bells.ring(&lane);
            }
            Ok(replayed)
        };
        self.to_the_end(replay).await
    }

    /// Ends a call without a job and tells the gates how it went.
    pub(crate) async fn settle_call(
        &self,
        upstream: &Name,
        lease: LeaseId,
        report: Report,
    ) -> Result<Option<Settled>, StoreError> {
        let settlement = Settlement { lease, report, outcome: Outcome::Release, answer: None };
        let mut answer = self.store.settle(vec![settlement]).await?;
        self.note(&answer.ended);
        self.bells.ring_users(upstream);
        Ok(answer.leases.pop())
    }

    /// The same where nobody waits for what comes of it.
    pub(crate) fn end_call(self: &Arc<Self>, upstream: Name, lease: LeaseId, report: Report) {
        let gateway = self.clone();
        self.running.spawn(async move {
            let settlement = Settlement { lease, report, outcome: Outcome::Release, answer: None };
            gateway.settle(settlement).await;
            gateway.bells.ring_users(&upstream);
        });
    }

    /// The one place that hears of every job that ended: it is counted, logged, and told to who waits for it.
    pub fn note(&self, ended: &[Ended]) {
        for ended in ended {
            self.metrics.count_end(ended, self.clock.now());
            log_end(ended);
            self.waiters.wake(ended);
        }
    }

    /// Jobs whose worker vanished stand in their lines again.
    pub fn note_taken_up(&self, jobs: &[JobId]) {
        for job in jobs {
            tracing::warn!(jobId = %job, "Job taken up: its worker did not come back");
        }
        if !jobs.is_empty() {
            self.bells.ring_all();
        }
    }

    /// Says that somebody here waits for a job of a lane that forgets jobs as they end, if another process may end it. Known
    /// before the job can end, it is handed over then.
    pub(crate) async fn want(&self, lane: &Name, job: JobId, wait: Duration) {
        let forgets = self.config.spec.lane(lane).is_some_and(|rules| rules.keep.max == 0);
        if let (AnyStore::Redis(store), true) = (&self.store, forgets)
            && let Err(error) = store.redis().want(job, wait).await
        {
            tracing::debug!(jobId = %job, %error, "It could not be said that somebody waits for the job");
        }
    }

    /// A job that somebody here waited for, if another process ended it and its lane forgot it then.
    pub(crate) async fn gone(&self, job: JobId) -> Result<Option<JobView>, StoreError> {
        match &self.store {
            AnyStore::Redis(store) => store.redis().gone(job).await,
            AnyStore::Embedded(_) => Ok(None),
        }
    }

    /// Waits a little if the store may come back by itself, and says whether to go on. If it is gone for good the process
    /// must end, for it can keep no promise any more.
    pub async fn bear(&self, error: &StoreError) -> bool {
        if error.is_transient() {
            if !self.store_lost.swap(true, Ordering::Relaxed) {
                tracing::warn!(error = %error, "The store does not answer; trying until it does");
            }
            tokio::time::sleep(STORE_PAUSE).await;
            return true;
        }
        tracing::error!(error = %error, "The store failed");
        self.broken.cancel();
        self.stopping.cancel();
        false
    }

    /// This process, which goes by these rules.
    pub(crate) fn instance(&self, rules: &str) -> Instance {
        let id = instance_id(self.nonce);
        Instance { id, role: self.duty.as_str().to_owned(), rules: rules.to_owned() }
    }

    /// These processes share the store, this one included.
    pub(crate) fn meet(&self, alive: Vec<Instance>) {
        *self.instances.lock().unwrap_or_else(PoisonError::into_inner) = alive;
    }

    /// Processes that share the store; this one alone where it cannot be shared.
    pub(crate) fn instances(&self) -> Vec<Instance> {
        let known = self.instances.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if known.is_empty() { vec![self.instance("")] } else { known }
    }

    /// Whether the store did not answer when it was last asked.
    pub(crate) fn store_is_lost(&self) -> bool {
        self.store_lost.load(Ordering::Relaxed)
    }

    /// The store has answered.
    pub fn store_answers(&self) {
        if self.store_lost.swap(false, Ordering::Relaxed) {
            tracing::info!("The store answers again");
            self.bells.ring_all();
        }
    }

    /// Ends a lease, however long the store takes to come back: a call that was made must be told. If the lease has passed
    /// to somebody else meanwhile, nothing comes of it.
    pub async fn settle(self: &Arc<Self>, settlement: Settlement) -> Option<Settled> {
        let gateway = self.clone();
        let settle = async move {
            loop {
                match gateway.store.settle(vec![settlement.clone()]).await {
                    Ok(mut answer) => {
                        gateway.note(&answer.ended);
                        return Ok(answer.leases.pop());
                    }
                    Err(error) if !gateway.bear(&error).await => return Err(error),
                    Err(_) => {}
                }
            }
        };
        self.to_the_end(settle).await.ok().flatten()
    }
}

fn instance_id(nonce: u32) -> String {
    format!("{nonce:08x}")
}

fn open_store(config: &Config, instance: &str, clock: &Arc<dyn Clock>) -> Result<AnyStore, StartError> {
    let (store, spec) = (&config.store, &config.spec);
    Ok(match &store.url {
        StoreUrl::Memory => AnyStore::Embedded(Box::new(EmbeddedStore::memory(spec, clock.clone()))),
        StoreUrl::Embedded(dir) => {
            AnyStore::Embedded(Box::new(EmbeddedStore::open(dir, store.ack, spec, clock.clone())?))
        }
        StoreUrl::Redis(url) => {
            let own_gates = (!store.shared_gates).then_some(instance);
            let settings =
                RedisSettings { prefix: &store.prefix, ack: store.ack, own_gates, tls: &store.tls };
            let redis = RedisStore::with(url.reveal(), settings, spec)?;
            let lease = config.workers.lease.into();
            AnyStore::Redis(Box::new(SharedStore::new(redis, spec, store.when_lost, lease, clock.clone())))
        }
    })
}
