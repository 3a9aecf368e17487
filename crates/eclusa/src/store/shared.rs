//! A store on Redis, with gates of this process's own for when Redis does not answer.
//!
//! Jobs are on Redis and stay there; what needs only gates goes on: direct lanes, leave for workers elsewhere, breakers.

use std::sync::Arc;

use eclusa_core::gate::{CallResult, GateSpecs, Part};
use eclusa_core::{
    Admission, Admit, Admitted, Advance, Advanced, Clock, Dispatch, Dispatched, Engine, LeaseId, Name,
    SettleAnswer, Settlement, Span, Spec, Starts, Store, StoreError, Time, Tokens, UpstreamView,
};
use futures_util::future::try_join_all;

use super::RedisStore;
use super::alone::Alone;

/// What to do while Redis does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenLost {
    /// Each process goes on with its part of every limit.
    Share,
    /// Nothing is sent.
    Stop,
}

/// So many calls are charged at a time.
const CHARGED_AT_ONCE: u32 = 1_000;

/// See the module.
pub struct SharedStore {
    redis: Arc<RedisStore>,
    spec: Spec,
    /// Absent where nothing is sent while Redis does not answer.
    alone: Option<Alone>,
}

impl SharedStore {
    /// What `redis` says as long as it answers. Leases last for `lease`.
    pub fn new(
        redis: RedisStore,
        spec: &Spec,
        when_lost: WhenLost,
        lease: Span,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let alone = (when_lost == WhenLost::Share).then(|| Alone::new(spec, lease, clock));
        Self { redis: Arc::new(redis), spec: spec.clone(), alone }
    }

    /// The store on Redis.
    pub const fn redis(&self) -> &Arc<RedisStore> {
        &self.redis
    }

    /// Looks at the gates, to go on from there if Redis is lost. What falls to this process then is `part`.
    pub async fn look(&self, part: Part) -> Result<(), StoreError> {
        let Some(alone) = &self.alone else { return Ok(()) };
        let before = alone.started();
        let (lanes, upstreams) = tokio::try_join!(self.redis.lanes(), self.redis.upstreams())?;
        alone.see(part, lanes, upstreams, &before);
        Ok(())
    }

    /// Asks Redis, or the gates of this process if it does not answer.
    async fn ask<T>(
        &self,
        shared: impl Future<Output = Result<T, StoreError>>,
        here: impl FnOnce(&mut Engine, Time) -> T,
    ) -> Result<T, StoreError> {
        let Some(alone) = &self.alone else { return shared.await };
        if alone.may_answer() {
            match shared.await {
                Ok(answer) => {
                    if let Some(spent) = alone.spent() {
                        Box::pin(self.find(alone, &spent)).await;
                    }
                    return Ok(answer);
                }
                Err(error) => alone.lose(&error),
            }
        }
        Ok(alone.run(here))
    }

    /// Redis answers again: it hears what was spent meanwhile before anybody takes from it.
    async fn find(&self, alone: &Alone, spent: &Starts) {
        for ((lane, upstream), count) in spent {
            if self.charge(lane.as_ref(), upstream, *count).await.is_err() {
                return;
            }
        }
        alone.find();
    }

    /// Takes what `count` calls take, as far as it is there.
    async fn charge(&self, lane: Option<&Name>, upstream: &Name, count: u32) -> Result<(), StoreError> {
        let lane_rules = lane.and_then(|lane| self.spec.lane(lane)).map(|lane| &lane.gates);
        let rules = self.spec.upstream(upstream).map(|upstream| &upstream.gates);
        let most = [lane_rules, rules].into_iter().flatten().map(at_once).max().unwrap_or(0);
        let ask = || Admit {
            lane: lane.cloned(),
            chain: vec![upstream.clone()],
            holds: Vec::new(),
            lease: Span::ZERO,
            nonce: 0,
        };
        let mut left = count.min(most);
        while left > 0 {
            let some = left.min(CHARGED_AT_ONCE);
            let told = try_join_all((0..some).map(|_| self.redis.admit(ask()))).await?;
            if told.iter().any(|told| !matches!(told.admission, Admission::Granted { .. })) {
                break;
            }
            left -= some;
        }
        Ok(())
    }

    /// See [`Store::dispatch`].
    pub(super) async fn dispatch(&self, ask: Dispatch) -> Result<Dispatched, StoreError> {
        let lane = ask.lane.clone();
        let told = self.redis.dispatch(ask).await?;
        if let Some(alone) = &self.alone {
            told.grants.iter().for_each(|grant| alone.start(Some(&lane), &grant.upstream));
        }
        Ok(told)
    }

    /// See [`Store::advance`].
    pub(super) async fn advance(&self, ask: Advance) -> Result<Advanced, StoreError> {
        let told = self.redis.advance(ask).await?;
        if let (Some(alone), Advanced::To(upstream)) = (&self.alone, &told) {
            alone.start(None, upstream);
        }
        Ok(told)
    }

    /// See [`Store::admit`].
    pub(super) async fn admit(&self, ask: Admit) -> Result<Admitted, StoreError> {
        let told =
            self.ask(Box::pin(self.redis.admit(ask.clone())), |engine, now| engine.admit(&ask, now)).await?;
        let Some(alone) = &self.alone else { return Ok(told) };
        match &told.admission {
            Admission::Granted { lease, upstream, .. } if Alone::gave(*lease) => {
                alone.spend(ask.lane.as_ref(), upstream);
            }
            Admission::Granted { upstream, .. } => alone.start(ask.lane.as_ref(), upstream),
            _ => {}
        }
        Ok(told)
    }

    /// See [`Store::record`].
    pub(super) async fn record(
        &self,
        upstream: Name,
        result: CallResult,
    ) -> Result<Option<UpstreamView>, StoreError> {
        let here = upstream.clone();
        let shared = self.hear(Box::pin(self.redis.record(upstream, result)));
        self.ask(shared, |engine, now| engine.record(&here, result, now)).await
    }

    /// See [`Store::recover`].
    pub(super) async fn recover(&self, upstream: Name) -> Result<Option<UpstreamView>, StoreError> {
        let here = upstream.clone();
        let shared = self.hear(Box::pin(self.redis.recover(upstream)));
        self.ask(shared, |engine, now| engine.recover(&here, now)).await
    }

    /// See [`Store::reset`].
    pub(super) async fn reset(&self, upstream: Name) -> Result<Option<UpstreamView>, StoreError> {
        let here = upstream.clone();
        let shared = self.hear(Box::pin(self.redis.reset(upstream)));
        self.ask(shared, |engine, now| engine.reset(&here, now)).await
    }

    /// See [`Store::upstreams`].
    pub(super) async fn upstreams(&self) -> Result<Vec<UpstreamView>, StoreError> {
        self.ask(self.hear(Box::pin(self.redis.upstreams())), |engine, now| engine.upstreams(now)).await
    }

    /// What Redis says of upstreams, which is remembered.
    async fn hear<T>(&self, told: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError>
    where
        for<'a> &'a T: IntoIterator<Item = &'a UpstreamView>,
    {
        let told = told.await?;
        if let Some(alone) = &self.alone {
            alone.hear(&told);
        }
        Ok(told)
    }

    /// See [`Store::extend`].
    pub(super) async fn extend(&self, leases: Vec<LeaseId>, lease: Span) -> Result<Vec<bool>, StoreError> {
        let (here, there): (Vec<_>, Vec<_>) = leases.iter().copied().partition(|lease| Alone::gave(*lease));
        let mut here = self.run(|engine, now| engine.extend(&here, lease, now)).into_iter();
        let mut there = self.redis.extend(there, lease).await?.into_iter();
        let next = |lease: LeaseId| if Alone::gave(lease) { here.next() } else { there.next() };
        Ok(leases.into_iter().map_while(next).collect())
    }

    /// See [`Store::settle`].
    pub(super) async fn settle(&self, settlements: Vec<Settlement>) -> Result<SettleAnswer, StoreError> {
        let whose: Vec<_> = settlements.iter().map(|settlement| Alone::gave(settlement.lease)).collect();
        let (here, there) = settlements.into_iter().partition(|settlement| Alone::gave(settlement.lease));
        let there = self.redis.settle(there).await?;
        let here = self.run(|engine, now| engine.settle(here, now));
        let (mut from_here, mut from_there) = (here.leases.into_iter(), there.leases.into_iter());
        let next = |here| if here { from_here.next() } else { from_there.next() };
        Ok(SettleAnswer { leases: whose.into_iter().map_while(next).collect(), ended: there.ended })
    }

    fn run<T: Default>(&self, verb: impl FnOnce(&mut Engine, Time) -> T) -> T {
        self.alone.as_ref().map_or_else(T::default, |alone| alone.run(verb))
    }
}

/// How many calls these rules let begin at once at the most, if they count them.
fn at_once(rules: &GateSpecs) -> u32 {
    let bucket = rules.bucket.map_or(0, |rule| rule.capacity().as_micro() / Tokens::ONE.as_micro());
    let window = rules.window.map_or(0, |rule| rule.limit());
    window.max(u32::try_from(bucket).unwrap_or(u32::MAX))
}
