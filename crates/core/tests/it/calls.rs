//! Verbs with their arguments and answers, as values.

use eclusa_core::gate::CallResult;
use eclusa_core::{
    Admission, Admit, Admitted, Advance, Advanced, Cancelled, Dispatch, Dispatched, Ended, Engine,
    EnqueueAnswer, JobId, LeaseId, Name, NewJob, Replay, Replayed, SettleAnswer, Settled, Settlement, Span,
    Swept, Time, UpstreamView,
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
    Record(Option<UpstreamView>),
    Recover(Option<UpstreamView>),
    Reset(Option<UpstreamView>),
    Replay(Replayed),
    Discard(bool),
    Pause(bool),
    Sweep(Swept),
}

impl Call {
    pub(crate) fn make(self, engine: &mut Engine, now: Time) -> Reply {
        match self {
            Call::Enqueue(jobs) => Reply::Enqueue(engine.enqueue(jobs, now)),
            Call::Dispatch(ask) => Reply::Dispatch(engine.dispatch(&ask, now)),
            Call::Advance(ask) => Reply::Advance(engine.advance(ask, now)),
            Call::Extend(leases, span) => Reply::Extend(engine.extend(&leases, span, now)),
            Call::Settle(settlements) => Reply::Settle(engine.settle(settlements, now)),
            Call::Cancel(job) => Reply::Cancel(engine.cancel(job, now)),
            Call::Admit(ask) => Reply::Admit(engine.admit(&ask, now)),
            Call::Record(upstream, result) => Reply::Record(engine.record(&upstream, result, now)),
            Call::Recover(upstream) => Reply::Recover(engine.recover(&upstream, now)),
            Call::Reset(upstream) => Reply::Reset(engine.reset(&upstream, now)),
            Call::Replay(lane, letter, id) => {
                Reply::Replay(engine.replay(Replay { lane, letter, id, edit: None }, now))
            }
            Call::Discard(lane, letter) => Reply::Discard(engine.discard(&lane, letter)),
            Call::Pause(lane, paused) => Reply::Pause(engine.pause(&lane, paused, now)),
            Call::Sweep => Reply::Sweep(engine.sweep(now)),
        }
    }

    /// The same call with every lease replaced.
    pub(crate) fn with_leases(mut self, other: impl Fn(LeaseId) -> LeaseId) -> Self {
        match &mut self {
            Call::Advance(ask) => ask.lease = other(ask.lease),
            Call::Extend(leases, _) => leases.iter_mut().for_each(|lease| *lease = other(*lease)),
            Call::Settle(all) => {
                for settlement in all {
                    settlement.lease = other(settlement.lease);
                }
            }
            _ => {}
        }
        self
    }
}

impl Reply {
    /// The jobs that it reports as ended.
    pub(crate) fn ended(&self) -> &[Ended] {
        match self {
            Reply::Enqueue(answer) => &answer.ended,
            Reply::Dispatch(given) => &given.ended,
            Reply::Settle(answer) => &answer.ended,
            Reply::Admit(answer) => &answer.ended,
            Reply::Cancel(Cancelled::Yes(ended)) => std::slice::from_ref(ended),
            Reply::Replay(Replayed::As(_, ended)) => ended,
            Reply::Sweep(swept) => &swept.ended,
            _ => &[],
        }
    }

    /// The same answer without what is counted since the engine began, and decides nothing.
    pub(crate) fn without_counts(mut self) -> Self {
        if let Reply::Record(Some(view)) | Reply::Recover(Some(view)) | Reply::Reset(Some(view)) = &mut self {
            forget_counts(view);
        }
        self
    }

    /// The same answer with every lease replaced.
    pub(crate) fn with_leases(mut self, other: impl Fn(LeaseId) -> LeaseId) -> Self {
        match &mut self {
            Reply::Dispatch(given) => {
                given.grants.iter_mut().for_each(|grant| grant.lease = other(grant.lease));
            }
            Reply::Settle(answer) => answer.leases.iter_mut().for_each(|settled| {
                if let Settled::Awaiting(lease) = settled {
                    *lease = other(*lease);
                }
            }),
            Reply::Admit(Admitted { admission: Admission::Granted { lease, .. }, .. }) => {
                *lease = other(*lease);
            }
            _ => {}
        }
        self
    }
}

/// Forgets what is counted since the engine began, and decides nothing.
pub(crate) fn forget_counts(view: &mut UpstreamView) {
    (view.errors_last_minute, view.latency) = (0, None);
}
