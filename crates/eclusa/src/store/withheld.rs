//! After an outage in which processes decided by themselves, each with its part of every limit: nothing is granted from the
//! whole limits until all of them have told what they did, or have been silent for long.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eclusa_core::gate::{NotUntil, Reason};
use eclusa_core::layout::{Question, Reply};
use eclusa_core::{Admission, Admitted, Dispatch, Dispatched, Engine, Span, Time};
use eclusa_fleet::ProcessId;
use tokio::time::Instant;

use super::verbs::apply;

/// Processes that stay silent are waited for this long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whoever is granted nothing may ask again after this long.
const SOON: Span = Span::from_millis(50);

/// Whether grants are withheld, and until whom is heard.
#[derive(Default)]
pub(super) struct Withheld(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Nothing,
    /// The others cannot be heard.
    Cut,
    /// They can: until all of these have caught up, or then.
    Until(BTreeSet<ProcessId>, Instant),
}

impl Withheld {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The journal cannot be reached: the others go by their parts of the limits, or are about to.
    pub(super) fn cut(&self) {
        *self.lock() = State::Cut;
    }

    /// The journal can be reached again: these processes are waited for.
    pub(super) fn wait_for(&self, processes: BTreeSet<ProcessId>) {
        *self.lock() = if processes.is_empty() {
            State::Nothing
        } else {
            State::Until(processes, Instant::now() + PATIENCE)
        };
    }

    /// Whether the journal could not be reached, and nobody is waited for yet.
    pub(super) fn is_cut(&self) -> bool {
        matches!(*self.lock(), State::Cut)
    }

    /// A process goes by what the owner says.
    pub(super) fn caught_up(&self, process: ProcessId) {
        let mut state = self.lock();
        if let State::Until(processes, _) = &mut *state {
            processes.remove(&process);
            if processes.is_empty() {
                *state = State::Nothing;
            }
        }
    }

    /// Whether somebody else than `process` is waited for, or cannot be heard.
    pub(super) fn waits_for_others_than(&self, process: ProcessId) -> bool {
        match &*self.lock() {
            State::Nothing => false,
            State::Cut => true,
            State::Until(processes, until) => {
                Instant::now() < *until && processes.iter().any(|one| *one != process)
            }
        }
    }

    fn withholds(&self) -> bool {
        match &*self.lock() {
            State::Nothing => false,
            State::Cut => true,
            State::Until(_, until) => Instant::now() < *until,
        }
    }

    /// Asks the engine, unless the question could be granted something and nothing is.
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

    /// The same for a dispatch.
    pub(super) fn dispatch(&self, engine: &mut Engine, ask: &Dispatch, now: Time) -> Dispatched {
        if !self.withholds() {
            return engine.dispatch(ask, now);
        }
        let (grants, ended, taken_up) = (Vec::new(), Vec::new(), Vec::new());
        Dispatched { grants, ended, taken_up, denied: None, now, next: now + SOON, held: Span::ZERO }
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
    async fn a_job_does_not_go_on_to_another_upstream_while_grants_are_withheld() {
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
        let told = withheld.apply(&mut engine, Question::Advance(failed), now);
        assert!(matches!(told, Reply::Advanced(Advanced::Waits(_))), "{told:?}");
        assert!(withheld.dispatch(&mut engine, &ask, now).grants.is_empty());
        withheld.wait_for(BTreeSet::new());
        let granted = withheld.dispatch(&mut engine, &Dispatch { nonce: 8, ..ask }, now).grants.remove(0);
        assert_eq!(granted.upstream, name("second"), "it goes on where it was");
    }

    fn these(processes: &[u64]) -> BTreeSet<ProcessId> {
        processes.iter().copied().map(ProcessId).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn grants_are_withheld_until_all_have_caught_up_or_were_silent_for_long() {
        let withheld = Withheld::default();
        assert!(!withheld.withholds());
        withheld.cut();
        withheld.caught_up(ProcessId(1));
        assert!(withheld.withholds() && withheld.is_cut(), "nobody can be heard");
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
        assert!(!withheld.withholds(), "nobody is waited for");
    }
}
