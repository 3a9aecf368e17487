//! The store that the config names.

use eclusa_core::layout::{Question, Reply};
use eclusa_core::{SettleAnswer, Settlement, Spec, StoreError};

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
    /// Goes by other rules from now on; `about` is what other processes are told of this one.
    pub async fn configure(&self, about: &str, spec: &Spec) -> Result<(), StoreError> {
        match self {
            AnyStore::Embedded(store) => store.configure(spec).await,
            AnyStore::Redis(store) => store.configure(about, spec).await,
        }
    }

    /// How the server is that the state is kept on; `None` where there is none, or it does not tell now.
    pub(crate) async fn server_facts(&self) -> Option<ServerFacts> {
        match self {
            AnyStore::Embedded(_) => None,
            AnyStore::Redis(store) => store.server_facts().await,
        }
    }

    /// Ends a lease at once, for one who does not wait until that is durable; `None` if it can only be asked for.
    pub(crate) fn settle_now(&self, settlement: &Settlement) -> Option<SettleAnswer> {
        let AnyStore::Embedded(store) = self else { return None };
        match store.ask_now(Question::Settle(vec![settlement.clone()])) {
            Ok(Reply::Settled(answer)) => Some(answer),
            _ => None,
        }
    }

    /// Has another process decide, if there is one; this one goes on asking it. For a process that is about to stop.
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
