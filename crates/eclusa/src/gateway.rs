//! What decides and reports ends: the store's verbs as the program uses them, counted, logged and done to their end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use eclusa_core::{
    Cancelled, Clock, Ended, EnqueueAnswer, JobId, LeaseId, Name, NewJob, Outcome, Replayed, Report, Settled,
    Settlement, Store, StoreError,
};
use uuid::Builder;

use crate::config::{Config, StoreUrl};
use crate::leases::Leases;
use crate::life::Life;
use crate::peers::{Duty, Peers};
use crate::random::Random;
use crate::rules::{BadCertificates, CurrentRules, Rules};
use crate::store::{AnyStore, EmbeddedStore, OpenError, RedisError, RedisSettings, RedisStore};
use crate::telemetry::{Metrics, Rates, log_end};
use crate::turns::Turns;

/// How long to wait before asking a store again that did not answer.
const STORE_PAUSE: Duration = Duration::from_millis(250);

/// Set in the nonce of every lease that was given to a worker elsewhere, and in none of our own.
pub(crate) const FOREIGN: u64 = 1 << 63;

/// One running Eclusa.
pub struct Gateway {
    /// The processes that share the store.
    pub(crate) peers: Peers,
    /// The rules it goes by.
    pub(crate) rules: CurrentRules,
    /// Where everything is decided and kept.
    pub store: Arc<AnyStore>,
    /// For ids and for what the caller is shown; decisions take the store's time.
    pub clock: Arc<dyn Clock>,
    /// Who may ask for a call next.
    pub(crate) turns: Turns,
    /// What is counted.
    pub metrics: Metrics,
    /// How fast lanes move.
    pub(crate) rates: Rates,
    /// The life of the process.
    pub(crate) life: Life,
    /// Their leases.
    pub(crate) leases: Arc<Leases>,
    /// Whether the store did not answer when it was last asked.
    store_lost: AtomicBool,
    /// Makes lease ids of this process its own.
    pub nonce: u64,
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
    #[error(transparent)]
    Tls(#[from] BadCertificates),
}

impl Gateway {
    /// Opens the store and gets ready to run; nothing runs yet.
    pub fn open(config: Config, duty: Duty, clock: Arc<dyn Clock>) -> Result<Arc<Self>, StartError> {
        if duty != Duty::All && !matches!(config.store.url, StoreUrl::Redis(_)) {
            return Err(StartError::NotShared { duty: duty.as_str() });
        }
        let nonce = fastrand::u64(..FOREIGN);
        let rules = Rules::new(config)?;
        let store = Arc::new(open_store(&rules, duty, &clock)?);
        let peers = Peers::new(duty, nonce, clock.now(), store.clone());
        let metrics = Metrics::default();
        metrics.expect(&rules.config);
        Ok(Arc::new(Self {
            turns: Turns::default(),
            metrics,
            rates: Rates::default(),
            rules: CurrentRules::new(rules),
            store,
            clock,
            life: Life::default(),
            leases: Arc::default(),
            store_lost: AtomicBool::new(false),
            peers,
            nonce,
            random: Random::default(),
        }))
    }

    /// A number for one ask of our own, by which its answer is found again.
    pub(crate) fn new_nonce() -> u64 {
        fastrand::u64(..FOREIGN)
    }

    /// An id that nobody else has or can guess, and that sorts by time.
    pub fn new_job_id(&self) -> JobId {
        let now = self.clock.now().as_millis();
        JobId(Builder::from_unix_timestamp_millis(now, &self.random.take()).into_uuid().as_u128())
    }

    /// Hands jobs to the store and says what became of each and where it is, read in the same breath.
    pub async fn enqueue(self: &Arc<Self>, jobs: Vec<NewJob>) -> Result<EnqueueAnswer, StoreError> {
        let gateway = self.clone();
        let put = async move {
            let answer = gateway.store.enqueue(jobs).await?;
            gateway.note(&answer.ended);
            Ok(answer)
        };
        self.life.to_the_end(put).await
    }

    /// Cancels a job.
    pub async fn cancel(self: &Arc<Self>, job: JobId) -> Result<Cancelled, StoreError> {
        let gateway = self.clone();
        let cancel = async move {
            let cancelled = gateway.store.cancel(job).await?;
            if let Cancelled::Yes(ended) = &cancelled {
                gateway.note(std::slice::from_ref(&**ended));
            }
            Ok(cancelled)
        };
        self.life.to_the_end(cancel).await
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
            let replayed = gateway.store.replay(lane, letter, id).await?;
            if let Replayed::As(_, ended) = &replayed {
                gateway.note(ended);
            }
            Ok(replayed)
        };
        self.life.to_the_end(replay).await
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
        self.turns.ring(upstream);
        Ok(answer.leases.pop())
    }

    /// The same where nobody waits for what comes of it.
    pub(crate) fn end_call(self: &Arc<Self>, upstream: Name, lease: LeaseId, report: Report) {
        let gateway = self.clone();
        self.life.running.spawn(async move {
            let settlement = Settlement { lease, report, outcome: Outcome::Release, answer: None };
            gateway.settle(settlement).await;
            gateway.turns.ring(&upstream);
        });
    }

    /// The one place that hears of every job that ended: it is counted and logged.
    pub fn note(&self, ended: &[Ended]) {
        for ended in ended {
            self.metrics.count_end(ended, self.clock.now());
            log_end(ended);
        }
    }

    /// Jobs whose worker vanished stand in their lines again.
    pub fn note_taken_up(&self, jobs: &[JobId]) {
        for job in jobs {
            tracing::warn!(jobId = %job, "Job taken up: its worker did not come back");
        }
        if !jobs.is_empty() {
            self.turns.ring_all();
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
        self.life.fail();
        false
    }

    /// Whether the store did not answer when it was last asked.
    pub(crate) fn store_is_lost(&self) -> bool {
        self.store_lost.load(Ordering::Relaxed)
    }

    /// The store has answered.
    pub fn store_answers(&self) {
        if self.store_lost.swap(false, Ordering::Relaxed) {
            tracing::info!("The store answers again");
            self.turns.ring_all();
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
        self.life.to_the_end(settle).await.ok().flatten()
    }
}

fn open_store(rules: &Rules, duty: Duty, clock: &Arc<dyn Clock>) -> Result<AnyStore, StartError> {
    let config = &rules.config;
    let (store, spec) = (&config.store, &config.spec);
    Ok(match &store.url {
        StoreUrl::Memory => AnyStore::Embedded(Box::new(EmbeddedStore::memory(spec, clock.clone()))),
        StoreUrl::Embedded(dir) => {
            AnyStore::Embedded(Box::new(EmbeddedStore::open(dir, store.ack, spec, clock.clone())?))
        }
        StoreUrl::Redis(url) => {
            let settings = RedisSettings {
                prefix: store.prefix.clone(),
                ack: store.ack,
                tls: store.tls.clone(),
                timeout: store.timeout,
                term: store.term,
                library: false,
                lease: config.workers.lease,
                when_lost: store.when_lost,
                shared_gates: store.shared_gates,
                about: duty.about(rules),
                clock: None,
            };
            AnyStore::Redis(Box::new(RedisStore::open(url.reveal(), &settings, spec)?))
        }
    })
}
