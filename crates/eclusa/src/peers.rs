//! The processes that share the store, this one among them.

use std::sync::Arc;

use eclusa_core::{RegistrationView, StoreError, Time};

use crate::rules::Rules;
use crate::store::AnyStore;

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

    /// What other processes are told of one with this duty and these rules.
    pub(crate) fn about(self, rules: &Rules) -> String {
        format!("{} {}", self.as_str(), rules.version())
    }
}

/// See the module.
pub(crate) struct Peers {
    /// What this process does.
    pub(crate) duty: Duty,
    /// The id of this process where the store cannot be shared.
    id: u64,
    started: Time,
    store: Arc<AnyStore>,
}

/// A process that shares the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instance {
    /// Its id.
    pub(crate) id: String,
    /// What it does: `all`, `api`, `worker`, or `library` for a program with limits of its own.
    pub(crate) role: String,
    /// Which rules it goes by: those with the same word go by the same.
    pub(crate) rules: String,
    /// Lanes and upstreams for which it was given other rules than those in force.
    pub(crate) differs: usize,
}

/// The process that decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerSeen {
    /// Its id.
    pub(crate) id: String,
    /// Rises with each change of owner.
    pub(crate) epoch: u64,
    /// When this process first saw it own.
    pub(crate) since: Time,
}

impl Peers {
    /// This process, started now, and those it shares `store` with.
    pub(crate) fn new(duty: Duty, id: u64, started: Time, store: Arc<AnyStore>) -> Self {
        Self { duty, id, started, store }
    }

    /// Processes that share the store; this one alone where it cannot be shared.
    pub(crate) fn instances(&self) -> Vec<Instance> {
        match &*self.store {
            AnyStore::Redis(store) => store.instances().iter().map(Instance::of).collect(),
            AnyStore::Embedded(_) => vec![Instance {
                id: id(self.id),
                role: self.duty.as_str().to_owned(),
                rules: String::new(),
                differs: 0,
            }],
        }
    }

    /// The process that decides, if that is known.
    pub(crate) fn owner(&self) -> Option<OwnerSeen> {
        match &*self.store {
            AnyStore::Redis(store) => {
                let owner = store.owner()?;
                Some(OwnerSeen { id: id(owner.process.0), epoch: owner.epoch, since: owner.since() })
            }
            AnyStore::Embedded(store) => {
                Some(OwnerSeen { id: id(self.id), epoch: store.epoch(), since: self.started })
            }
        }
    }

    /// How often the store was found to have lost what this process had acknowledged.
    pub(crate) fn losses(&self) -> u64 {
        match &*self.store {
            AnyStore::Redis(store) => store.losses(),
            // It does not start on a directory that lost something.
            AnyStore::Embedded(_) => 0,
        }
    }

    /// Whether this process decides.
    pub(crate) fn owns(&self) -> bool {
        match &*self.store {
            AnyStore::Redis(store) => store.owns(),
            AnyStore::Embedded(_) => true,
        }
    }

    /// How many callers wait for the end of a job, if this process decides.
    pub(crate) fn waits(&self) -> u64 {
        match &*self.store {
            AnyStore::Redis(store) => store.waits(),
            AnyStore::Embedded(store) => store.waits(),
        }
    }

    /// Whether the store cannot be asked now.
    pub(crate) fn is_cut_off(&self) -> bool {
        match &*self.store {
            AnyStore::Redis(store) => store.is_away(),
            AnyStore::Embedded(_) => false,
        }
    }

    /// Has the store and the other processes hear of other rules.
    pub(crate) async fn configure(&self, rules: &Rules) -> Result<(), StoreError> {
        self.store.configure(&self.duty.about(rules), &rules.config.spec).await
    }
}

impl Instance {
    /// What a process told of itself.
    fn of(told: &RegistrationView) -> Self {
        let (role, rules) = told.about.split_once(' ').unwrap_or((&told.about, ""));
        Self { id: id(told.process.0), role: role.to_owned(), rules: rules.to_owned(), differs: told.differs }
    }
}

fn id(process: u64) -> String {
    format!("{process:016x}")
}
