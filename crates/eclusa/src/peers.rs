//! The processes that share the store, including this one.

use std::sync::Arc;

use eclusa_core::{RegistrationView, StoreError, Time};

use crate::rules::Rules;
use crate::store::{AnyStore, StoreFault};

/// The role that programs using the Rust library report.
const LIBRARY: &str = "library";

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ProcessRole {
    /// Accepts jobs and runs them.
    #[default]
    All,
    /// Only accepts jobs and answers for them.
    Api,
    /// Only runs jobs; over HTTP it only reports its health.
    Worker,
}

impl ProcessRole {
    /// The name of the role.
    pub const fn as_str(self) -> &'static str {
        match self {
            ProcessRole::All => "all",
            ProcessRole::Api => "api",
            ProcessRole::Worker => "worker",
        }
    }

    /// What a process with this role and these rules reports to others.
    pub(crate) fn about(self, rules: &Rules) -> String {
        format!("{} {}", self.as_str(), rules.version())
    }
}

/// See the module.
pub(crate) struct Peers {
    /// The role of this process.
    pub(crate) role: ProcessRole,
    /// The id of this process, used if the store cannot be shared.
    id: u64,
    started: Time,
    store: Arc<AnyStore>,
}

/// A process that shares the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Its id.
    pub(crate) id: String,
    /// Its role: `all`, `api`, `worker`, or `library` for a program that uses the Rust library.
    pub(crate) role: String,
    /// The version of its rules: equal for equal rules.
    pub(crate) rules: String,
    /// Lanes and upstreams whose rules in its config differ from those in force.
    pub(crate) differs: usize,
    /// The first of them by name.
    pub(crate) differing: Vec<String>,
    /// Whether it is stopping.
    pub(crate) leaving: bool,
}

/// The process that owns the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnerSeen {
    /// Its id.
    pub(crate) id: String,
    /// Increases with each change of owner.
    pub(crate) epoch: u64,
    /// When this process first saw it as the owner.
    pub(crate) since: Time,
}

impl Peers {
    /// This process, started now, and those that share `store` with it.
    pub(crate) fn new(role: ProcessRole, id: u64, started: Time, store: Arc<AnyStore>) -> Self {
        Self { role, id, started, store }
    }

    /// Processes that share the store; only this one if it cannot be shared.
    pub(crate) fn instances(&self) -> Vec<Peer> {
        match &*self.store {
            AnyStore::Redis(store) => store.instances().iter().map(Peer::of).collect(),
            AnyStore::Embedded(_) => vec![Peer {
                id: id(self.id),
                role: self.role.as_str().to_owned(),
                rules: String::new(),
                differs: 0,
                differing: Vec::new(),
                leaving: false,
            }],
        }
    }

    /// The owner of the store, if known.
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

    /// The id of this process.
    pub(crate) fn own_id(&self) -> String {
        match &*self.store {
            AnyStore::Redis(store) => id(store.process().0),
            AnyStore::Embedded(_) => id(self.id),
        }
    }

    /// When this process was started.
    pub(crate) fn started(&self) -> Time {
        self.started
    }

    /// What went wrong lately, the newest first.
    pub(crate) fn faults(&self) -> Vec<StoreFault> {
        match &*self.store {
            AnyStore::Redis(store) => store.faults(),
            AnyStore::Embedded(_) => Vec::new(),
        }
    }

    /// How long the journal is, if this process writes one.
    pub(crate) fn journal_bytes(&self) -> Option<u64> {
        match &*self.store {
            AnyStore::Redis(store) => store.journal_bytes(),
            AnyStore::Embedded(store) => store.journal_bytes(),
        }
    }

    /// How often the store was found to have lost data that it had acknowledged to this process.
    pub(crate) fn losses(&self) -> u64 {
        match &*self.store {
            AnyStore::Redis(store) => store.losses(),
            // The embedded store does not start on a directory that lost data.
            AnyStore::Embedded(_) => 0,
        }
    }

    /// Whether this process owns the store.
    pub(crate) fn owns(&self) -> bool {
        match &*self.store {
            AnyStore::Redis(store) => store.owns(),
            AnyStore::Embedded(_) => true,
        }
    }

    /// Whether this process evaluates alerts.
    pub(crate) fn evaluates_alerts(&self) -> bool {
        match &*self.store {
            AnyStore::Redis(store) => store
                .owner()
                .is_some_and(|owner| evaluates(store.process().0, owner.process.0, &store.instances())),
            AnyStore::Embedded(_) => true,
        }
    }

    /// Callers that wait for the end of a job, if this process owns the store.
    pub(crate) fn waits(&self) -> u64 {
        match &*self.store {
            AnyStore::Redis(store) => store.waits(),
            AnyStore::Embedded(store) => store.waits(),
        }
    }

    /// Whether the store cannot be reached now.
    pub(crate) fn is_cut_off(&self) -> bool {
        match &*self.store {
            AnyStore::Redis(store) => store.is_away(),
            AnyStore::Embedded(_) => false,
        }
    }

    /// Registers changed rules with the store and the other processes.
    pub(crate) async fn configure(&self, rules: &Rules) -> Result<(), StoreError> {
        let configured = self.store.configure(&self.role.about(rules), &rules.config.spec).await;
        if configured.as_ref().map_or_else(StoreError::is_transient, |()| true) {
            self.store.set_max_wait(rules.config.server.max_wait);
        }
        configured
    }
}

impl Peer {
    /// Parses what a process reported about itself.
    fn of(registration: &RegistrationView) -> Self {
        let mut words = registration.about.split(' ').map(ToOwned::to_owned);
        let (role, rules) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        Self {
            id: id(registration.process.0),
            role,
            rules,
            differs: registration.differs,
            differing: registration.differing.iter().map(ToString::to_string).collect(),
            leaving: words.next().is_some(),
        }
    }
}

/// The owner evaluates alerts. If the owner is a program that uses the library, which has no rules for alerts, the
/// gateway with the lowest id does. If two processes briefly evaluate, each alert still fires once.
fn evaluates(own: u64, owner: u64, instances: &[RegistrationView]) -> bool {
    let library = |one: &&RegistrationView| one.about.starts_with(LIBRARY);
    if !instances.iter().filter(library).any(|one| one.process.0 == owner) {
        return own == owner;
    }
    instances.iter().filter(|one| !library(one)).map(|one| one.process.0).min() == Some(own)
}

fn id(process: u64) -> String {
    format!("{process:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_evaluates_alerts() {
        let process = |id, about: &str| RegistrationView {
            process: eclusa_core::ProcessId(id),
            stamp: 1,
            about: about.into(),
            last_heard: None,
            differs: 0,
            differing: Vec::new(),
        };
        let fleet = [process(3, "all 7f"), process(2, "worker 7f"), process(1, "library")];
        let who = |owner| [1, 2, 3].map(|own| evaluates(own, owner, &fleet));
        assert_eq!(who(3), [false, false, true]);
        assert_eq!(who(1), [false, true, false], "the library has no alerts");
        assert!(evaluates(7, 7, &[]), "no other process is known yet");
    }
}
