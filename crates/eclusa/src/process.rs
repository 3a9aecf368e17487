//! Assembles the parts of one process.

use std::sync::Arc;

use eclusa_core::Clock;

use crate::api::{Api, ApiState, Streams};
use crate::config::{Config, StoreUrl};
use crate::decide::Decider;
use crate::execute::http::TlsError;
use crate::ids::{Ids, own_nonce, seed_maps};
use crate::leases::Leases;
use crate::life::Life;
use crate::peers::{Peers, ProcessRole};
use crate::policy::Scopes;
use crate::rules::{BadCertificates, CurrentRules, Rules};
use crate::store::{AnyStore, EmbeddedStore, OpenError, RedisError, RedisSettings, RedisStore};
use crate::telemetry::traces::{Exporter, Traces};
use crate::telemetry::{Metrics, Rates};
use crate::turns::Turns;
use crate::work::Workers;

/// Why a process could not be assembled.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The store on Redis cannot be used.
    #[error("store.url: {0}")]
    Redis(#[from] RedisError),
    /// The role leaves work to other processes, but the store cannot be shared.
    #[error(
        "--role {role} leaves the rest to other processes, which cannot share this store: set `store.url` to `redis://…`, or leave out --role"
    )]
    NotShared {
        /// The role of this process.
        role: &'static str,
    },
    /// The certificates of an upstream cannot be used.
    #[error(transparent)]
    Tls(#[from] BadCertificates),
    /// The CA certificates for the trace collector cannot be used.
    #[error("traces: {0}")]
    Traces(#[from] TlsError),
}

/// See the module.
pub(crate) struct Process {
    /// Accepts jobs and answers for them.
    pub(crate) api: Api,
    /// Runs jobs.
    pub(crate) workers: Workers,
    /// Sends spans, if configured.
    pub(crate) exporter: Option<Exporter>,
}

/// Opens the store and prepares everything; nothing runs yet.
pub(crate) fn open(config: Config, role: ProcessRole, clock: Arc<dyn Clock>) -> Result<Process, StartError> {
    if role != ProcessRole::All && !matches!(config.store.url, StoreUrl::Redis(_)) {
        return Err(StartError::NotShared { role: role.as_str() });
    }
    seed_maps();
    let id = own_nonce();
    let rules = Rules::new(config)?;
    let store = Arc::new(open_store(&rules, role, &clock)?);
    let peers = Arc::new(Peers::new(role, id, clock.now(), store.clone()));
    let metrics = Arc::new(Metrics::default());
    metrics.expect(&rules.config);
    let (traces, exporter) = Traces::new(rules.config.traces.as_ref(), id, &metrics)?;
    let traces = Arc::new(traces);
    let rules = Arc::new(CurrentRules::new(rules));
    let (life, turns, leases) = (Arc::<Life>::default(), Arc::<Turns>::default(), Arc::<Leases>::default());
    let decider = Decider::new(store.clone(), clock.clone(), metrics.clone(), turns.clone(), life.clone());
    let decider = Arc::new(decider);
    let workers = Workers {
        decider: decider.clone(),
        rules: rules.clone(),
        leases: leases.clone(),
        life: life.clone(),
        metrics: metrics.clone(),
        traces: traces.clone(),
        clock: clock.clone(),
        seed: id,
    };
    let ids = Arc::new(Ids::new(clock.clone()));
    let scopes = Arc::new(Scopes::new(store.clone(), ids.clone()));
    let (rates, streams) = (Arc::<Rates>::default(), Arc::<Streams>::default());
    let parts = ApiState {
        decider,
        store,
        rules,
        ids,
        scopes,
        leases,
        turns,
        peers,
        life,
        streams,
        live: Arc::default(),
        metrics,
        traces,
        rates,
        clock,
    };
    Ok(Process { api: Api(Arc::new(parts)), workers, exporter })
}

fn open_store(rules: &Rules, role: ProcessRole, clock: &Arc<dyn Clock>) -> Result<AnyStore, StartError> {
    let config = &rules.config;
    let (store, spec) = (&config.store, &config.spec);
    Ok(match &store.url {
        StoreUrl::Memory => AnyStore::Embedded(Box::new(EmbeddedStore::memory(spec, clock.clone()))),
        StoreUrl::Embedded(dir) => AnyStore::Embedded(Box::new(EmbeddedStore::open_forgetting(
            dir,
            store.ack,
            store.forget_within,
            spec,
            clock.clone(),
        )?)),
        StoreUrl::Redis(url) => {
            let settings = RedisSettings {
                prefix: store.prefix.clone(),
                ack: store.ack,
                tls: store.tls.clone(),
                timeout: store.timeout,
                max_wait: config.server.max_wait,
                term: store.term,
                forget_within: store.forget_within,
                library: false,
                lease: config.workers.lease,
                when_lost: store.when_lost,
                shared_gates: store.shared_gates,
                about: role.about(rules),
                clock: None,
            };
            AnyStore::Redis(Box::new(RedisStore::open(url.reveal(), &settings, spec)?))
        }
    })
}
