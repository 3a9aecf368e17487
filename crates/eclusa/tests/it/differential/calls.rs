//! Verbs with their arguments, and what a store answered, as values.

use eclusa_core::gate::CallResult;
use eclusa_core::{
    Admit, Admitted, Advance, Advanced, Cancelled, Dispatch, Dispatched, EnqueueAnswer, JobId, LeaseId, Name,
    NewJob, Replayed, SettleAnswer, Settlement, Span, Store, StoreError, Swept, UpstreamView,
};

#[derive(Debug, Clone)]
pub(crate) enum Call {
    Enqueue(Vec<NewJob>),
    Dispatch(Dispatch),
    Advance(Advance),
    Extend(Vec<LeaseId>, Span),
    Settle(Vec<Settlement>),
    Cancel(JobId),
    Admit(Admit),
    Record(Name, CallResult),
    Recover(Name),
    Reset(Name),
    Replay(Name, JobId, JobId),
    Discard(Name, JobId),
    Pause(Name, bool),
    Sweep,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Enqueue(EnqueueAnswer),
    Dispatch(Dispatched),
    Advance(Advanced),
    Extend(Vec<bool>),
    Settle(SettleAnswer),
    Cancel(Cancelled),
    Admit(Admitted),
    Upstream(Option<UpstreamView>),
    Replay(Replayed),
    Found(bool),
    Sweep(Swept),
}

impl Call {
    pub(crate) async fn make(self, store: &impl Store) -> Result<Reply, StoreError> {
        Ok(match self {
            Call::Enqueue(jobs) => Reply::Enqueue(store.enqueue(jobs).await?),
            Call::Dispatch(ask) => Reply::Dispatch(store.dispatch(ask).await?),
            Call::Advance(ask) => Reply::Advance(store.advance(ask).await?),
            Call::Extend(leases, span) => Reply::Extend(store.extend(leases, span).await?),
            Call::Settle(settlements) => Reply::Settle(store.settle(settlements).await?),
            Call::Cancel(job) => Reply::Cancel(store.cancel(job).await?),
            Call::Admit(ask) => Reply::Admit(store.admit(ask).await?),
            Call::Record(upstream, result) => Reply::Upstream(store.record(upstream, result).await?),
            Call::Recover(upstream) => Reply::Upstream(store.recover(upstream).await?),
            Call::Reset(upstream) => Reply::Upstream(store.reset(upstream).await?),
            Call::Replay(lane, letter, id) => Reply::Replay(store.replay(lane, letter, id).await?),
            Call::Discard(lane, letter) => Reply::Found(store.discard(lane, letter).await?),
            Call::Pause(lane, paused) => Reply::Found(store.pause(lane, paused).await?),
            Call::Sweep => Reply::Sweep(store.sweep().await?),
        })
    }
}

impl Reply {
    /// Jobs whose state the verb has changed.
    pub(crate) fn jobs(&self) -> Vec<JobId> {
        let ended = match self {
            Reply::Enqueue(answer) => answer.ended.as_slice(),
            Reply::Dispatch(given) => &given.ended,
            Reply::Settle(answer) => &answer.ended,
            Reply::Admit(answer) => &answer.ended,
            Reply::Sweep(swept) => &swept.ended,
            _ => &[],
        };
        let started = match self {
            Reply::Dispatch(given) => given.grants.iter().map(|grant| grant.job).collect(),
            Reply::Replay(Replayed::As(job, _)) => vec![*job],
            _ => Vec::new(),
        };
        let taken_up = match self {
            Reply::Dispatch(given) => given.taken_up.as_slice(),
            Reply::Sweep(swept) => &swept.taken_up,
            _ => &[],
        };
        ended.iter().map(|ended| ended.job).chain(started).chain(taken_up.iter().copied()).collect()
    }
}
