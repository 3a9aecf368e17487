//! The store that the config names.

use eclusa_core::gate::CallResult;
use eclusa_core::{
    Admit, Admitted, Advance, Advanced, Cancelled, DeadLetterView, Dispatch, Dispatched, EnqueueAnswer,
    JobId, JobPage, JobQuery, JobView, LaneView, LeaseId, Name, NewJob, Replayed, SettleAnswer, Settlement,
    Span, Store, StoreError, Swept, TenantView, UpstreamView, Why,
};

use super::{EmbeddedStore, SharedStore};

/// One of the stores.
pub enum AnyStore {
    /// For one process.
    Embedded(Box<EmbeddedStore>),
    /// For many.
    Redis(Box<SharedStore>),
}

/// What only whoever holds the jobs can answer.
macro_rules! ask {
    ($store:ident.$verb:ident($($arg:ident),*)) => {
        match $store {
            AnyStore::Embedded(store) => store.$verb($($arg),*).await,
            AnyStore::Redis(store) => store.redis().$verb($($arg),*).await,
        }
    };
}

/// What is about gates, or tells of them.
macro_rules! ask_gates {
    ($store:ident.$verb:ident($($arg:ident),*)) => {
        match $store {
            AnyStore::Embedded(store) => store.$verb($($arg),*).await,
            AnyStore::Redis(store) => store.$verb($($arg),*).await,
        }
    };
}

impl Store for AnyStore {
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<EnqueueAnswer, StoreError> {
        ask!(self.enqueue(jobs))
    }

    async fn dispatch(&self, asked: Dispatch) -> Result<Dispatched, StoreError> {
        ask_gates!(self.dispatch(asked))
    }

    async fn advance(&self, asked: Advance) -> Result<Advanced, StoreError> {
        ask_gates!(self.advance(asked))
    }

    async fn extend(&self, leases: Vec<LeaseId>, lease: Span) -> Result<Vec<bool>, StoreError> {
        ask_gates!(self.extend(leases, lease))
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> Result<SettleAnswer, StoreError> {
        ask_gates!(self.settle(settlements))
    }

    async fn cancel(&self, job: JobId) -> Result<Cancelled, StoreError> {
        ask!(self.cancel(job))
    }

    async fn admit(&self, asked: Admit) -> Result<Admitted, StoreError> {
        ask_gates!(self.admit(asked))
    }

    async fn record(&self, upstream: Name, result: CallResult) -> Result<Option<UpstreamView>, StoreError> {
        ask_gates!(self.record(upstream, result))
    }

    async fn recover(&self, upstream: Name) -> Result<Option<UpstreamView>, StoreError> {
        ask_gates!(self.recover(upstream))
    }

    async fn reset(&self, upstream: Name) -> Result<Option<UpstreamView>, StoreError> {
        ask_gates!(self.reset(upstream))
    }

    async fn replay(&self, lane: Name, letter: JobId, id: JobId) -> Result<Replayed, StoreError> {
        ask!(self.replay(lane, letter, id))
    }

    async fn discard(&self, lane: Name, letter: JobId) -> Result<bool, StoreError> {
        ask!(self.discard(lane, letter))
    }

    async fn pause(&self, lane: Name, paused: bool) -> Result<bool, StoreError> {
        ask!(self.pause(lane, paused))
    }

    async fn sweep(&self) -> Result<Swept, StoreError> {
        ask!(self.sweep())
    }

    async fn why(&self, job: JobId) -> Result<Option<Why>, StoreError> {
        ask!(self.why(job))
    }

    async fn job(&self, job: JobId) -> Result<Option<JobView>, StoreError> {
        ask!(self.job(job))
    }

    async fn jobs(&self, query: JobQuery) -> Result<JobPage, StoreError> {
        ask!(self.jobs(query))
    }

    async fn lanes(&self) -> Result<Vec<LaneView>, StoreError> {
        ask!(self.lanes())
    }

    async fn upstreams(&self) -> Result<Vec<UpstreamView>, StoreError> {
        ask_gates!(self.upstreams())
    }

    async fn tenants(&self, lane: Name, from: u32, max: usize) -> Result<Vec<(u32, TenantView)>, StoreError> {
        ask!(self.tenants(lane, from, max))
    }

    async fn dead_letter(&self, letter: JobId) -> Result<Option<DeadLetterView>, StoreError> {
        ask!(self.dead_letter(letter))
    }

    async fn dead_letters(
        &self,
        lane: Name,
        after: u64,
        max: usize,
    ) -> Result<Vec<(u64, DeadLetterView)>, StoreError> {
        ask!(self.dead_letters(lane, after, max))
    }
}
