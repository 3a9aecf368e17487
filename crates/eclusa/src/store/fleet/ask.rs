//! How a process gets an answer: from its own engine if it owns the basin, from the owner if not, or from its local
//! gates if nobody can be asked.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use eclusa_core::layout::{Question, Reply};
use eclusa_core::{Clock, LeaseId, SettleAnswer, Settlement, Span, Spec, StoreError};
use tokio::sync::RwLock;
use tokio::time::{Instant, timeout, timeout_at};

use super::RedisSettings;
use super::membership::MemberRules;
use super::shared::{Route, Shared, unavailable};
use crate::config::WhenLost;
use crate::store::fallback::{Fallback, concerns_gates, is_local};
use crate::store::verbs::is_repeatable;

/// How often a waiting caller checks whether anything still replies.
const LOOK: Duration = Duration::from_millis(50);

/// Why a question failed although Redis replies.
const LATE: &str = "no process that decides answered within `server.max_wait`";

/// See the module.
pub(super) struct FleetAccess {
    pub(super) shared: Arc<Shared>,
    /// `None` if nothing may be sent while the fleet cannot be asked.
    pub(super) fallback: Option<Fallback>,
    /// Whether gates are local to each process by configuration.
    own_gates: bool,
    /// Whether this process only uses the library.
    library: bool,
    /// Read-locked by local decisions; write-locked while they are reported to the owner.
    returning: RwLock<()>,
}

/// A report to the owner of what was decided without it. What the owner may have counted is not reported again, even if
/// the caller stops waiting for the answer.
struct CatchingUp<'a> {
    fallback: &'a Fallback,
    may_be_counted: bool,
}

impl Drop for CatchingUp<'_> {
    fn drop(&mut self) {
        if self.may_be_counted {
            self.fallback.forget_reported();
        }
    }
}

impl FleetAccess {
    pub(super) fn new(shared: Arc<Shared>, settings: &RedisSettings, spec: &Spec) -> Self {
        let own_gates = !settings.shared_gates;
        let clock: Arc<dyn Clock> = settings.clock.clone().unwrap_or_else(|| Arc::new(crate::SystemClock));
        let fallback = (own_gates || settings.when_lost == WhenLost::Share)
            .then(|| Fallback::new(spec, settings.lease.into(), clock));
        if let (Some(fallback), true) = (&fallback, own_gates) {
            fallback.begin(shared.engine_now());
        }
        Self { shared, fallback, own_gates, library: settings.library, returning: RwLock::new(()) }
    }

    /// Registers other rules. If they are refused, the old ones apply again; a program that uses the library gets the
    /// reason with each of its calls instead.
    pub(super) async fn configure(&self, about: &str, spec: &Spec) -> Result<(), StoreError> {
        let stamp = crate::SystemClock.now().as_millis();
        let old = self.shared.membership.rules();
        let rules = self.shared.membership.change(MemberRules::new(stamp, about, spec));
        let registered = self.register(&rules).await;
        if !self.library && registered.as_ref().is_err_and(|error| !error.is_transient()) {
            // With a newer stamp: the owner may have kept the others.
            self.shared.membership.change(MemberRules::clone(&old));
            self.shared.asking.register_again();
        } else if let Some(fallback) = &self.fallback {
            fallback.configure(spec);
        }
        registered
    }

    async fn register(&self, rules: &MemberRules) -> Result<(), StoreError> {
        let Route::Own(stage, _) = self.shared.route() else {
            self.shared.asking.register_again();
            // Any answer shows that the owner has the rules.
            return self.ask_fleet(&Question::Lanes).await.map(drop);
        };
        let registration = rules.registration(self.shared.membership.process);
        stage.change(|engine, now| engine.register(registration, now)).await
    }

    /// Rare branches are boxed: every caller's future is as large as its largest branch. For the same reason the question
    /// is passed on by reference.
    pub(super) async fn ask(&self, question: Question) -> Result<Reply, StoreError> {
        let Some(fallback) = &self.fallback else { return self.ask_fleet(&question).await };
        match &question {
            Question::Extend { leases, lease } if leases.iter().any(|lease| is_local(*lease)) => {
                return Box::pin(self.extend(fallback, leases, *lease)).await;
            }
            Question::Settle(settlements) if settlements.iter().any(|one| is_local(one.lease)) => {
                return Box::pin(self.settle(fallback, settlements)).await;
            }
            Question::Extend { .. } | Question::Settle(_) => return self.ask_fleet(&question).await,
            _ => {}
        }
        if concerns_gates(&question)
            && fallback.decides()
            && let Some(reply) = Box::pin(self.decide_locally(fallback, &question)).await
        {
            return Ok(reply);
        }
        match self.ask_fleet(&question).await {
            Ok(reply) => {
                fallback.observe(&question, &reply);
                Ok(reply)
            }
            Err(error)
                if concerns_gates(&question) && error.is_transient() && self.shared.away().is_some() =>
            {
                self.start_fallback(fallback).await;
                Box::pin(self.decide_locally(fallback, &question)).await.ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Decides locally from now on. Not during a report to the owner: the end of that report would end this too.
    async fn start_fallback(&self, fallback: &Fallback) {
        let _here = self.returning.read().await;
        self.shared.membership.set_in_fallback(true);
        fallback.begin(self.shared.engine_now());
    }

    /// The answer of the local gates, if they decide.
    async fn decide_locally(&self, fallback: &Fallback, question: &Question) -> Option<Reply> {
        if !fallback.decides() {
            return None;
        }
        if self.own_gates || self.shared.away().is_some() || !self.rejoin(fallback).await {
            let _here = self.returning.read().await;
            return fallback.ask(question);
        }
        None
    }

    /// Reports to the owner what was decided without it, now that the fleet may be asked again; returns whether that
    /// succeeded.
    async fn rejoin(&self, fallback: &Fallback) -> bool {
        let _exclusive = self.returning.write().await;
        let own = self.shared.membership.process;
        let stage = match self.shared.route() {
            Route::Own(stage, _) => Some(stage),
            _ => None,
        };
        // The owner itself comes last: nothing is granted before all others have reported.
        if stage.as_ref().is_some_and(|stage| stage.withheld.waits_for_others_than(own)) {
            return false;
        }
        let Some(fallback_log) = fallback.fallback_log() else { return true };
        if self.shared.away().is_some() {
            return false;
        }
        let question = if fallback_log.calls.is_empty() && fallback_log.reports.is_empty() {
            Question::Lanes
        } else {
            Question::CatchUp(fallback_log)
        };
        let mut catching_up = CatchingUp { fallback, may_be_counted: true };
        let reply = self.ask_fleet(&question).await;
        catching_up.may_be_counted = !matches!(reply, Err(StoreError::Unavailable { .. }));
        if reply.is_ok() {
            // Local decisions stop last: a caller that then asks the owner must not be denied because it still waits.
            if let Some(stage) = stage {
                stage.withheld.caught_up(own);
            }
            self.shared.membership.set_in_fallback(false);
            fallback.end();
        }
        reply.is_ok()
    }

    /// Rejoins without a question, once the fleet may be asked again. Returns whether nothing is decided locally.
    pub(super) async fn rejoin_if_possible(&self) -> bool {
        match &self.fallback {
            Some(fallback) if fallback.decides() && !self.own_gates => self.rejoin(fallback).await,
            _ => true,
        }
    }

    async fn extend(
        &self,
        fallback: &Fallback,
        leases: &[LeaseId],
        lease: Span,
    ) -> Result<Reply, StoreError> {
        let (here, there): (Vec<_>, Vec<_>) = leases.iter().copied().partition(|lease| is_local(*lease));
        let own = Question::Extend { leases: here, lease };
        let own = match self.decide_locally(fallback, &own).await {
            Some(reply) => reply,
            None => self.ask_fleet(&own).await?,
        };
        let others = if there.is_empty() {
            Reply::Extended(Vec::new())
        } else {
            self.ask_fleet(&Question::Extend { leases: there, lease }).await?
        };
        let (Reply::Extended(here), Reply::Extended(there)) = (own, others) else {
            return Err(unavailable("the answer does not fit the question"));
        };
        let (mut here, mut there) = (here.into_iter(), there.into_iter());
        let next = |lease: LeaseId| if is_local(lease) { here.next() } else { there.next() };
        Ok(Reply::Extended(leases.iter().copied().map_while(next).collect()))
    }

    async fn settle(&self, fallback: &Fallback, settlements: &[Settlement]) -> Result<Reply, StoreError> {
        let local: Vec<_> = settlements.iter().map(|settlement| is_local(settlement.lease)).collect();
        let (here, there): (Vec<_>, Vec<_>) =
            settlements.iter().cloned().partition(|settlement| is_local(settlement.lease));
        // The owner's first: if it cannot be asked, all are settled later.
        let others = if there.is_empty() {
            Reply::Settled(SettleAnswer::default())
        } else {
            self.ask_fleet(&Question::Settle(there)).await?
        };
        let own = Question::Settle(here);
        let own = match self.decide_locally(fallback, &own).await {
            Some(reply) => reply,
            None => self.ask_fleet(&own).await?,
        };
        let (Reply::Settled(own), Reply::Settled(others)) = (own, others) else {
            return Err(unavailable("the answer does not fit the question"));
        };
        let (mut from_here, mut from_there) = (own.leases.into_iter(), others.leases.into_iter());
        let next = |here| if here { from_here.next() } else { from_there.next() };
        let leases = local.into_iter().map_while(next).collect();
        Ok(Reply::Settled(SettleAnswer { leases, ended: [own.ended, others.ended].concat() }))
    }

    /// Asks the engine here if this process is the owner, else the owner.
    pub(super) async fn ask_fleet(&self, question: &Question) -> Result<Reply, StoreError> {
        if matches!(question, Question::Enqueue(_) | Question::Replay { .. })
            && let Some(error) = self.shared.full()
        {
            return Err(error);
        }
        let until = Instant::now() + self.shared.max_wait() + held_for(question);
        loop {
            if let Some(error) = self.shared.away() {
                return Err(error);
            }
            let Route::Own(stage, owner) = self.shared.route() else {
                let mut asked = self.shared.asking.ask(question);
                let reply = self.wait_while_replies_arrive(until, pin!(asked.answer())).await;
                return reply.map_err(|error| asked.in_doubt(error));
            };
            match self.wait_while_replies_arrive(until, pin!(stage.ask(question.clone()))).await {
                // What ran here may have reached the journal: only repeatable questions are asked again.
                Err(StoreError::Unavailable { .. }) if self.shared.away().is_none() => {
                    if !is_repeatable(question) {
                        let cause = "another process took over; this may have been counted".into();
                        return Err(StoreError::Unconfirmed { cause });
                    }
                    if timeout_at(until, self.shared.until_route_changes(owner)).await.is_err() {
                        return Err(StoreError::Unconfirmed { cause: LATE.into() });
                    }
                }
                Err(StoreError::Unavailable { cause }) => return Err(StoreError::Unconfirmed { cause }),
                reply => return reply,
            }
        }
    }

    /// Waits for an answer as long as the server or the owner replies, but not beyond `until`.
    async fn wait_while_replies_arrive<T>(
        &self,
        until: Instant,
        mut answer: Pin<&mut impl Future<Output = Result<T, StoreError>>>,
    ) -> Result<T, StoreError> {
        loop {
            if let Ok(reply) = timeout(LOOK, &mut answer).await {
                return reply;
            }
            if let Some(error) = self.shared.away() {
                return Err(error);
            }
            if Instant::now() > until {
                return Err(unavailable(LATE));
            }
        }
    }
}

/// How long the owner may hold a question.
fn held_for(question: &Question) -> Duration {
    let span = match question {
        Question::Dispatch(ask) => ask.wait,
        Question::Observe(ask) => ask.wait,
        Question::Wait(ask) => ask.timeout,
        _ => Span::ZERO,
    };
    Duration::from_millis(span.as_millis())
}

#[cfg(test)]
mod tests;
