//! Withholds grants after an outage in which processes decided on their own, each with its share of every limit:
//! nothing is granted from the whole limits until all of them have reported what they did, or were silent for too long.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eclusa_core::gate::{NotUntil, Reason};
use eclusa_core::layout::{Question, Reply};
use eclusa_core::{Admission, Admitted, Dispatch, Dispatched, Engine, Span, Time};
use eclusa_fleet::ProcessId;
use tokio::time::Instant;

use super::verbs::apply;

/// How long to wait for processes that stay silent.
const PATIENCE: Duration = Duration::from_secs(5);

/// When to ask again while grants are withheld.
const SOON: Span = Span::from_millis(50);

/// Whether grants are withheld, and which processes must report first.
#[derive(Default)]
pub(super) struct Withheld(Mutex<WithheldState>);

#[derive(Default)]
enum WithheldState {
    #[default]
    Nothing,
    /// The other processes cannot be reached.
    Cut,
    /// They can be reached: until all of these have caught up, or until this time.
    Until(BTreeSet<ProcessId>, Instant),
}

impl Withheld {
    fn lock(&self) -> MutexGuard<'_, WithheldState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Withholds grants: the journal cannot be reached, and the others use their shares of the limits, or are about to.
    pub(super) fn cut(&self) {
        *self.lock() = WithheldState::Cut;
    }

    /// Waits for these processes: the journal can be reached again.
    pub(super) fn wait_for(&self, processes: BTreeSet<ProcessId>) {
        *self.lock() = if processes.is_empty() {
            WithheldState::Nothing
        } else {
            WithheldState::Until(processes, Instant::now() + PATIENCE)
        };
    }

    /// Whether the journal could not be reached and [`wait_for`](Self::wait_for) was not called yet.
    pub(super) fn is_cut(&self) -> bool {
        matches!(*self.lock(), WithheldState::Cut)
    }

    /// Notes that a process follows the owner again.
    pub(super) fn caught_up(&self, process: ProcessId) {
        let mut state = self.lock();
        if let WithheldState::Until(processes, _) = &mut *state {
            processes.remove(&process);
            if processes.is_empty() {
                *state = WithheldState::Nothing;
            }
        }
    }

    /// Whether processes other than `process` must still report, or cannot be reached.
    pub(super) fn waits_for_others_than(&self, process: ProcessId) -> bool {
        match &*self.lock() {
            WithheldState::Nothing => false,
            WithheldState::Cut => true,
            WithheldState::Until(processes, until) => {
                Instant::now() < *until && processes.iter().any(|one| *one != process)
            }
        }
    }

    fn withholds(&self) -> bool {
        match &*self.lock() {
            WithheldState::Nothing => false,
            WithheldState::Cut => true,
            WithheldState::Until(_, until) => Instant::now() < *until,
        }
    }

    /// Asks the engine, unless the question asks for a grant and grants are withheld.
    pub(super) fn apply(&self, engine: &mut Engine, question: Question, now: Time) -> Reply {
        match question {
            Question::Dispatch(ask) => Reply::Dispatched(self.dispatch(engine, &ask, now)),
            Question::Admit(_) if self.withholds() => {
                let admission = Admission::Denied {
                    upstream: None,
                    denial: denial(now),
                    quota: None,
                    gate: None,
                    sooner: false,
                };
                Reply::Admitted(Admitted { admission, ended: Vec::new(), now })
            }
            Question::Advance(ask) if self.withholds() => {
                Reply::Advanced(engine.advance_later(denial(now), ask, now))
            }
            question => apply(engine, question, now),
        }
    }

    /// Dispatches, unless grants are withheld.
    pub(super) fn dispatch(&self, engine: &mut Engine, ask: &Dispatch, now: Time) -> Dispatched {
        if !self.withholds() {
            return engine.dispatch(ask, now);
        }
        let (grants, ended, recovered) = (Vec::new(), Vec::new(), Vec::new());
        Dispatched { grants, ended, recovered, denied: None, now, next: now + SOON, held: Span::ZERO }
    }
}

/// Why nothing is granted now.
fn denial(now: Time) -> NotUntil {
    NotUntil { reason: Reason::StoreUnavailable, at: now + SOON }
}

#[cfg(test)]
mod tests {
    use eclusa_core::gate::{CallResult, GateSpecs};
    use eclusa_core::{
        Advance, Advanced, CallFailure, Chain, FailureReason, JobId, LaneSpec, Name, NewJob, Report, Spec,
        UpstreamSpec,
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_job_does_not_continue_at_another_upstream_while_grants_are_withheld() {
        let name = |text| Name::new(text).unwrap();
        let (lane, chain) = (name("work"), [name("first"), name("second")]);
        let upstreams = chain.clone().map(|name| UpstreamSpec::new(name, GateSpecs::default()));
        let rules = LaneSpec::new(lane.clone(), Chain::new(chain.to_vec()).unwrap());
        let mut engine = Engine::new(&Spec::new(vec![rules], upstreams.to_vec()).unwrap());
        let (withheld, now) = (Withheld::default(), Time::from_millis(1_000));
        engine.enqueue(vec![NewJob::new(JobId(1), lane.clone(), "acme", Vec::new())], now);
        let (wait, lease) = (Span::ZERO, Span::from_secs(10));
        let ask = Dispatch { lane, max: 1, lease, nonce: 7, wait, denied: None };
        let granted = withheld.dispatch(&mut engine, &ask, now).grants.remove(0);
        withheld.cut();
        let failed = Advance {
            lease: granted.lease,
            upstream: granted.upstream,
            report: Report::from(CallResult::Failed),
            failure: CallFailure { reason: FailureReason::fixed("502"), code: None, upstream: None },
            unsent: None,
        };
        let reply = withheld.apply(&mut engine, Question::Advance(failed), now);
        assert!(matches!(reply, Reply::Advanced(Advanced::Waits(_))), "{reply:?}");
        assert!(withheld.dispatch(&mut engine, &ask, now).grants.is_empty());
        withheld.wait_for(BTreeSet::new());
        let granted = withheld.dispatch(&mut engine, &Dispatch { nonce: 8, ..ask }, now).grants.remove(0);
        assert_eq!(granted.upstream, name("second"), "it continues where it was");
    }

    fn these(processes: &[u64]) -> BTreeSet<ProcessId> {
        processes.iter().copied().map(ProcessId).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn grants_are_withheld_until_all_have_caught_up_or_patience_ends() {
        let withheld = Withheld::default();
        assert!(!withheld.withholds());
        withheld.cut();
        withheld.caught_up(ProcessId(1));
        assert!(withheld.withholds() && withheld.is_cut(), "nothing can be reached");
        withheld.wait_for(these(&[1, 2]));
        withheld.caught_up(ProcessId(2));
        assert!(withheld.withholds() && !withheld.waits_for_others_than(ProcessId(1)));
        withheld.caught_up(ProcessId(1));
        assert!(!withheld.withholds());

        withheld.wait_for(these(&[1, 2]));
        tokio::time::advance(PATIENCE.saturating_sub(Duration::from_millis(1))).await;
        assert!(withheld.withholds() && withheld.waits_for_others_than(ProcessId(1)));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!withheld.withholds() && !withheld.waits_for_others_than(ProcessId(1)));

        withheld.wait_for(BTreeSet::new());
        assert!(!withheld.withholds(), "there is nothing to wait for");
    }
}
