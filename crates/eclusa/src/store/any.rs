//! The store that the config names.

use std::time::Duration;

use eclusa_core::layout::{Question, Reply};
use eclusa_core::{SettleAnswer, Settlement, Spec, StoreError, Time};

use super::ask::store_by_asking;
use super::{EmbeddedStore, RedisStore, ServerFacts};

/// One of the stores.
pub enum AnyStore {
    /// For one process.
    Embedded(Box<EmbeddedStore>),
    /// For many.
    Redis(Box<RedisStore>),
}

impl AnyStore {
    /// Applies other rules from now on; `about` describes this process to the others.
    pub async fn configure(&self, about: &str, spec: &Spec) -> Result<(), StoreError> {
        match self {
            AnyStore::Embedded(store) => store.configure(spec).await,
            AnyStore::Redis(store) => store.configure(about, spec).await,
        }
    }

    /// The time by which the moments in answers are: of the engine that decides, wherever it is. A moment in an answer must
    /// not be compared with this machine's clock.
    pub fn now(&self) -> Time {
        match self {
            AnyStore::Embedded(store) => store.now(),
            AnyStore::Redis(store) => store.now(),
        }
    }

    /// Sets how long a caller waits while no process decides.
    pub(crate) fn set_max_wait(&self, max_wait: Duration) {
        if let AnyStore::Redis(store) = self {
            store.set_max_wait(max_wait);
        }
    }

    /// The state of the server that holds the data; `None` if there is no server, or it does not reply now.
    pub(crate) async fn server_facts(&self) -> Option<ServerFacts> {
        match self {
            AnyStore::Embedded(_) => None,
            AnyStore::Redis(store) => store.server_facts().await,
        }
    }

    /// Ends a lease at once, for a caller that does not wait until that is durable; `None` if the store cannot do that.
    pub(crate) fn settle_now(&self, settlement: &Settlement) -> Option<SettleAnswer> {
        let AnyStore::Embedded(store) = self else { return None };
        match store.ask_now(Question::Settle(vec![settlement.clone()])) {
            Ok(Reply::Settled(answer)) => Some(answer),
            _ => None,
        }
    }

    /// Hands ownership to another process, if there is one, and asks that one from then on. For a process that will
    /// stop soon.
    pub(crate) fn step_down(&self) {
        if let AnyStore::Redis(store) = self {
            store.step_down();
        }
    }

    async fn ask(&self, question: Question) -> Result<Reply, StoreError> {
        match self {
            AnyStore::Embedded(store) => store.ask(question).await,
            AnyStore::Redis(store) => store.ask(question).await,
        }
    }
}

store_by_asking!(AnyStore);
