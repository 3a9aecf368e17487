//! One process's way to an answer: from its own engine if it owns, from the owner if not, from its own gates if nobody can be
//! asked.

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::layout::{Question, Reply};
use eclusa_core::{Clock, LeaseId, SettleAnswer, Settlement, Span, Spec, StoreError};
use tokio::sync::RwLock;
use tokio::time::timeout;

use super::RedisSettings;
use super::membership::Rules;
use super::shared::{Route, Shared, unavailable};
use crate::config::WhenLost;
use crate::store::fallback::{Fallback, concerns_gates, is_local};
use crate::store::verbs::is_repeatable;

/// How often somebody who waits looks whether anything still replies.
const LOOK: Duration = Duration::from_millis(50);

/// See the module.
pub(super) struct Fleet {
    pub(super) shared: Arc<Shared>,
    /// Absent where nothing is sent while the fleet cannot be asked.
    pub(super) fallback: Option<Fallback>,
    /// Whether gates are each process's own by choice.
    own_gates: bool,
    /// Held by those who decide here; taken whole while the owner hears what was decided.
    returning: RwLock<()>,
}

impl Fleet {
    pub(super) fn new(shared: Arc<Shared>, settings: &RedisSettings, spec: &Spec) -> Self {
        let own_gates = !settings.shared_gates;
        let clock: Arc<dyn Clock> = settings.clock.clone().unwrap_or_else(|| Arc::new(crate::SystemClock));
        let fallback = (own_gates || settings.when_lost == WhenLost::Share)
            .then(|| Fallback::new(spec, settings.lease.into(), clock));
        if let (Some(fallback), true) = (&fallback, own_gates) {
            fallback.begin();
        }
        Self { shared, fallback, own_gates, returning: RwLock::new(()) }
    }

    pub(super) async fn configure(&self, about: &str, spec: &Spec) -> Result<(), StoreError> {
        let stamp = crate::SystemClock.now().as_millis();
        let rules = self.shared.membership.change(Rules::new(stamp, about, spec));
        if let Some(fallback) = &self.fallback {
            fallback.configure(spec);
        }
        let Route::Own(stage, _) = self.shared.route() else {
            self.shared.asking.register_again();
            // Any answer says that the owner has heard.
            return self.ask_fleet(Question::Lanes).await.map(drop);
        };
        let registration = rules.registration(self.shared.membership.process);
        stage.change(|engine, now| engine.register(registration, now)).await
    }

    pub(super) async fn ask(&self, question: Question) -> Result<Reply, StoreError> {
        let Some(fallback) = &self.fallback else { return self.ask_fleet(question).await };
        let told = match &question {
            Question::Extend { leases, lease } if leases.iter().any(|lease| is_local(*lease)) => {
                return self.extend(fallback, leases.clone(), *lease).await;
            }
            Question::Settle(settlements) if settlements.iter().any(|one| is_local(one.lease)) => {
                return self.settle(fallback, settlements.clone()).await;
            }
            Question::Extend { .. } | Question::Settle(_) => return self.ask_fleet(question).await,
            gates if concerns_gates(gates) => return self.ask_gates(fallback, question).await,
            _ => self.ask_fleet(question.clone()).await?,
        };
        fallback.hear(&question, &told);
        Ok(told)
    }

    /// Asks the owner, or the gates of this process if it cannot be asked.
    async fn ask_gates(&self, fallback: &Fallback, question: Question) -> Result<Reply, StoreError> {
        if let Some(told) = self.decide_here(fallback, &question).await {
            return Ok(told);
        }
        match self.ask_fleet(question.clone()).await {
            Ok(told) => {
                fallback.hear(&question, &told);
                Ok(told)
            }
            Err(error) if error.is_transient() => {
                self.shared.membership.set_alone(true);
                fallback.begin();
                self.decide_here(fallback, &question).await.ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// The answer of this process's own gates, if they decide.
    async fn decide_here(&self, fallback: &Fallback, question: &Question) -> Option<Reply> {
        if !fallback.decides() {
            return None;
        }
        if self.own_gates || self.shared.away().is_some() || !self.come_back(fallback).await {
            let _here = self.returning.read().await;
            return fallback.ask(question);
        }
        None
    }

    /// The fleet may be asked again: the owner hears first what was decided without it. Says whether it has.
    async fn come_back(&self, fallback: &Fallback) -> bool {
        let _alone = self.returning.write().await;
        let own = self.shared.membership.process;
        let stage = match self.shared.route() {
            Route::Own(stage, _) => Some(stage),
            _ => None,
        };
        // The owner itself is the last: nothing is granted before all others are back.
        if stage.as_ref().is_some_and(|stage| stage.withheld.waits_for_others_than(own)) {
            return false;
        }
        let Some(absence) = fallback.absence() else { return true };
        let question = if absence.calls.is_empty() && absence.reports.is_empty() {
            Question::Lanes
        } else {
            // Told once: what may have been heard is not told again, for it would count twice.
            Question::CatchUp(absence)
        };
        let told = self.ask_fleet(question).await.is_ok();
        if told {
            fallback.end();
            self.shared.membership.set_alone(false);
            if let Some(stage) = stage {
                stage.withheld.caught_up(own);
            }
        }
        told
    }

    /// Comes back without being asked anything, once the fleet may be asked again. Says whether nothing is decided here.
    pub(super) async fn come_back_by_itself(&self) -> bool {
        match &self.fallback {
            Some(fallback) if fallback.decides() && !self.own_gates => self.come_back(fallback).await,
            _ => true,
        }
    }

    async fn extend(
        &self,
        fallback: &Fallback,
        leases: Vec<LeaseId>,
        lease: Span,
    ) -> Result<Reply, StoreError> {
        let (here, there): (Vec<_>, Vec<_>) = leases.iter().copied().partition(|lease| is_local(*lease));
        let own = Question::Extend { leases: here, lease };
        let own = match self.decide_here(fallback, &own).await {
            Some(told) => told,
            None => self.ask_fleet(own).await?,
        };
        let others = if there.is_empty() {
            Reply::Extended(Vec::new())
        } else {
            self.ask_fleet(Question::Extend { leases: there, lease }).await?
        };
        let (Reply::Extended(here), Reply::Extended(there)) = (own, others) else {
            return Err(unavailable("the answer does not fit the question"));
        };
        let (mut here, mut there) = (here.into_iter(), there.into_iter());
        let next = |lease: LeaseId| if is_local(lease) { here.next() } else { there.next() };
        Ok(Reply::Extended(leases.into_iter().map_while(next).collect()))
    }

    async fn settle(&self, fallback: &Fallback, settlements: Vec<Settlement>) -> Result<Reply, StoreError> {
        let whose: Vec<_> = settlements.iter().map(|settlement| is_local(settlement.lease)).collect();
        let (here, there): (Vec<_>, Vec<_>) =
            settlements.into_iter().partition(|settlement| is_local(settlement.lease));
        // Those of the owner first: if it cannot be asked, all are settled later.
        let others = if there.is_empty() {
            Reply::Settled(SettleAnswer::default())
        } else {
            self.ask_fleet(Question::Settle(there)).await?
        };
        let own = Question::Settle(here);
        let own = match self.decide_here(fallback, &own).await {
            Some(told) => told,
            None => self.ask_fleet(own).await?,
        };
        let (Reply::Settled(own), Reply::Settled(others)) = (own, others) else {
            return Err(unavailable("the answer does not fit the question"));
        };
        let (mut from_here, mut from_there) = (own.leases.into_iter(), others.leases.into_iter());
        let next = |here| if here { from_here.next() } else { from_there.next() };
        let leases = whose.into_iter().map_while(next).collect();
        Ok(Reply::Settled(SettleAnswer { leases, ended: [own.ended, others.ended].concat() }))
    }

    /// Asks the engine here if this process owns, else the owner.
    pub(super) async fn ask_fleet(&self, question: Question) -> Result<Reply, StoreError> {
        if matches!(question, Question::Enqueue(_) | Question::Replay { .. })
            && let Some(error) = self.shared.full()
        {
            return Err(error);
        }
        loop {
            if let Some(error) = self.shared.away() {
                return Err(error);
            }
            let Route::Own(stage, owner) = self.shared.route() else {
                let mut asked = self.shared.asking.ask(&question);
                return self.patiently(asked.answer()).await.map_err(|error| asked.in_doubt(error));
            };
            match self.patiently(stage.ask(question.clone())).await {
                // What ran here may have reached the journal: only what can be repeated is asked again.
                Err(StoreError::Unavailable { .. }) if self.shared.away().is_none() => {
                    if !is_repeatable(&question) {
                        let cause = "another process took over; this may have been counted".into();
                        return Err(StoreError::Unconfirmed { cause });
                    }
                    self.shared.leave_route(owner).await;
                }
                Err(StoreError::Unavailable { cause }) => return Err(StoreError::Unconfirmed { cause }),
                told => return told,
            }
        }
    }

    /// Waits for as long as anything replies.
    async fn patiently<T>(
        &self,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut answer = std::pin::pin!(answer);
        loop {
            match timeout(LOOK, &mut answer).await {
                Ok(told) => return told,
                Err(_) => {
                    if let Some(error) = self.shared.away() {
                        return Err(error);
                    }
                }
            }
        }
    }
}
