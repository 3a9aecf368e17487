//! The processes that share the store, and the store itself, as `/v1/health` and `/v1/events` show them.

use serde::Serialize;
use utoipa::ToSchema;

use super::model::iso;
use super::model::vocabulary::{AckLevel, FleetFaultCode, InstanceRole, StoreKind, StoreStatus};
use crate::config::{Ack, StoreConfig, StoreUrl};
use crate::peers::{self, Peers};
use crate::store::StoreFault;

/// The store and the processes that share it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fleet {
    /// The store.
    pub(super) store: StoreHealth,
    /// The process that owns the store; absent while none is known.
    pub(super) owner: Option<Owner>,
    /// Processes that share the store.
    pub(super) instances: Vec<Instance>,
    /// The version of the responding process.
    pub(super) version: &'static str,
    /// When the responding process was started.
    #[schema(format = DateTime)]
    pub(super) started_at: Option<String>,
    /// What went wrong lately with the store and between its processes, as the responding process saw it: at most 50, the
    /// newest first.
    pub(super) faults: Vec<FleetFault>,
}

/// The store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoreHealth {
    /// `embedded`, `memory` or `redis`.
    #[schema(value_type = StoreKind)]
    kind: &'static str,
    /// `ok`, or `lost` while it does not answer. Breakers and limits are then local to this process.
    #[schema(value_type = StoreStatus)]
    status: &'static str,
    /// How often Redis was found to have lost data that it had acknowledged to this process.
    losses: u64,
    /// What "accepted" means: `fsync`, `write` or `replicate`; absent in memory.
    #[schema(value_type = Option<AckLevel>)]
    ack: Option<&'static str>,
    /// How long the journal is; absent where this process does not write it.
    journal_bytes: Option<u64>,
    /// Its address, without user and password.
    url: String,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Instance {
    /// Its id.
    id: String,
    /// Its role: `all`, `api`, `worker`, or `library` for a program that uses the Rust library.
    #[schema(value_type = InstanceRole)]
    role: String,
    /// A version of its rules: equal for processes with the same rules. Absent where only one process can use the
    /// store.
    #[serde(skip_serializing_if = "String::is_empty")]
    rules: String,
    /// Lanes and upstreams whose rules in this process's config differ from those in force.
    differs: usize,
    /// The first 20 of them.
    differing: Vec<String>,
    /// Whether it is stopping and still serves requests.
    leaving: bool,
    /// Whether it is the responding process.
    #[serde(rename = "self")]
    own: bool,
    /// Whether it owns the store.
    owner: bool,
}

/// The process that owns the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Owner {
    /// Its id, as in `instances`.
    id: String,
    /// Increases with each change of owner.
    epoch: u64,
    /// When the responding process first saw this owner.
    #[schema(format = DateTime)]
    since: Option<String>,
}

/// Something that went wrong, or is right again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct FleetFault {
    /// When the responding process noticed.
    #[schema(format = DateTime)]
    at: Option<String>,
    /// `takeover`, `store_lost`, `store_back` or `data_lost`.
    #[schema(value_type = FleetFaultCode)]
    code: &'static str,
    /// The same in a sentence.
    text: String,
}

impl Fleet {
    pub(super) fn of(peers: &Peers, config: &StoreConfig) -> Self {
        let owner = peers.owner().map(Owner::from);
        let is_owner = |id: &str| owner.as_ref().is_some_and(|owner| owner.id == id);
        let own = peers.own_id();
        let instance = |one: peers::Peer| Instance {
            own: one.id == own,
            owner: is_owner(&one.id),
            id: one.id,
            role: one.role,
            rules: one.rules,
            differs: one.differs,
            differing: one.differing,
            leaving: one.leaving,
        };
        Self {
            store: StoreHealth {
                kind: kind(&config.url),
                status: if peers.is_cut_off() { "lost" } else { "ok" },
                losses: peers.losses(),
                ack: (config.url != StoreUrl::Memory).then(|| ack(config.ack)),
                journal_bytes: peers.journal_bytes(),
                url: config.url.to_string(),
            },
            instances: peers.instances().into_iter().map(instance).collect(),
            owner,
            version: env!("CARGO_PKG_VERSION"),
            started_at: iso(peers.started()),
            faults: peers.faults().into_iter().map(FleetFault::from).collect(),
        }
    }
}

impl From<peers::OwnerSeen> for Owner {
    fn from(peers::OwnerSeen { id, epoch, since }: peers::OwnerSeen) -> Self {
        Self { id, epoch, since: iso(since) }
    }
}

impl From<StoreFault> for FleetFault {
    fn from(StoreFault { at, code, text }: StoreFault) -> Self {
        Self { at: iso(at), code, text }
    }
}

const fn kind(url: &StoreUrl) -> &'static str {
    match url {
        StoreUrl::Embedded(_) => "embedded",
        StoreUrl::Memory => "memory",
        StoreUrl::Redis(_) => "redis",
    }
}

const fn ack(ack: Ack) -> &'static str {
    match ack {
        Ack::Fsync => "fsync",
        Ack::Write => "write",
        Ack::Replicate => "replicate",
    }
}
