//! A policy with a bucket for each of a million users: decisions per second in the engine, compared with the `governor`
//! crate, and bytes per bucket in the engine and on Redis.

use std::num::NonZeroU32;
use std::process::Command;
use std::{env, hint};

use eclusa_core::gate::{BucketSpec, GateSpecs};
use eclusa_core::{
    Admission, Admit, BucketId, BucketQuery, Engine, HashKey, Hold, MAX_BATCH, Name, Span, Spec, Time,
    Tokens, UpstreamSpec,
};
use governor::{Quota, RateLimiter};

use crate::Failed;
use crate::memory::resident;
use crate::timing::{now, per_second};

/// The argument that makes this program measure its own memory.
pub(crate) const ARGUMENT: &str = "bucket-memory";

pub(crate) const USERS: usize = 1_000_000;
/// Decisions between two readings of the clock.
const GROUP: usize = 1_000;
const START: Time = Time::from_millis(1_700_000_000_000);
/// The DICT's limit for a person.
const CAPACITY: u32 = 100;
const PER_MINUTE: u32 = 2;
/// After this long any bucket is full.
const FULL: Span = Span::from_secs(3_600);

/// The figures.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct Buckets {
    pub(crate) decisions_per_second: f64,
    pub(crate) governor_per_second: f64,
    pub(crate) bytes: f64,
    /// Buckets that remain once all are full.
    pub(crate) left_when_full: usize,
}

pub(crate) fn measure() -> Result<Buckets, Failed> {
    let child = Command::new(env::current_exe()?).arg(ARGUMENT).output()?;
    let output = String::from_utf8_lossy(&child.stdout);
    let (bytes, left) =
        output.trim().split_once(' ').ok_or_else(|| String::from_utf8_lossy(&child.stderr).into_owned())?;
    Ok(Buckets {
        decisions_per_second: decisions()?,
        governor_per_second: governor_decisions()?,
        bytes: bytes.parse()?,
        left_when_full: left.parse()?,
    })
}

/// The main function of the separate process: bytes per bucket that is not full, and the buckets kept when all are full.
pub(crate) fn measure_memory_here() -> Result<(f64, usize), Failed> {
    let policy = Policy::new()?;
    let mut engine = Engine::new(&policy.spec);
    let before = resident()?;
    for user in 0..USERS {
        policy.decide(&mut engine, &policy.hold(user)?, START)?;
        engine.forget_changes();
    }
    let bytes = resident()?.saturating_sub(before) as f64 / USERS as f64;
    let later = START + FULL;
    while engine.sweep(later).next <= later {
        engine.forget_changes();
    }
    Ok((bytes, count(&engine, later)))
}

/// How many buckets the engine keeps.
fn count(engine: &Engine, time: Time) -> usize {
    let mut query = BucketQuery { max: MAX_BATCH, ..BucketQuery::default() };
    let mut kept = 0;
    loop {
        let page = engine.buckets(&query, time);
        kept += page.buckets.len();
        let Some(next) = page.next else { return kept };
        query.after = next;
    }
}

/// Users in random order, each asking for one token.
fn decisions() -> Result<f64, Failed> {
    let policy = Policy::new()?;
    let holds: Vec<Hold> = (0..USERS).map(|user| policy.hold(user)).collect::<Result<_, _>>()?;
    let (mut engine, mut random, mut time) = (Engine::new(&policy.spec), fastrand::Rng::with_seed(1), START);
    for hold in &holds {
        policy.decide(&mut engine, hold, time)?;
        engine.forget_changes();
    }
    let groups = per_second(|| {
        time = time + Span::from_millis(1);
        let asks: Vec<Admit> = (0..GROUP).map(|_| policy.ask(&holds[random.usize(..USERS)])).collect();
        let started = now();
        for ask in &asks {
            hint::black_box(engine.admit(ask, time));
        }
        let took = now() - started;
        engine.forget_changes();
        Ok::<_, Failed>(took)
    })?;
    Ok(groups * GROUP as f64)
}

/// Decisions of the `governor` crate's limiter, which keeps one number per user.
fn governor_decisions() -> Result<f64, Failed> {
    let quota = Quota::per_minute(NonZeroU32::new(PER_MINUTE).ok_or("no rate")?)
        .allow_burst(NonZeroU32::new(CAPACITY).ok_or("no capacity")?);
    let limiter = RateLimiter::dashmap(quota);
    let key = HashKey::new(7);
    let users: Vec<_> = (0..USERS).map(|user| key.scope(&user.to_string())).collect();
    let mut random = fastrand::Rng::with_seed(1);
    for user in &users {
        hint::black_box(limiter.check_key(user).is_ok());
    }
    let groups = per_second(|| {
        let asks: Vec<_> = (0..GROUP).map(|_| users[random.usize(..USERS)]).collect();
        let started = now();
        for user in &asks {
            hint::black_box(limiter.check_key(user).is_ok());
        }
        Ok::<_, Failed>(now() - started)
    })?;
    Ok(groups * GROUP as f64)
}

/// One upstream with one policy.
pub(crate) struct Policy {
    pub(crate) spec: Spec,
    upstream: Name,
    name: Name,
    rule: BucketSpec,
    key: HashKey,
}

impl Policy {
    pub(crate) fn new() -> Result<Self, Failed> {
        let upstream = Name::new("dict")?;
        let upstreams = vec![UpstreamSpec::new(upstream.clone(), GateSpecs::default())];
        Ok(Self {
            spec: Spec::new(Vec::new(), upstreams).map_err(|errors| format!("{errors:?}"))?,
            upstream,
            name: Name::new("ENTRIES_READ_USER_ANTISCAN")?,
            rule: BucketSpec::new(CAPACITY, PER_MINUTE, Span::from_secs(60))?,
            key: HashKey::new(7),
        })
    }

    /// One token of a user's bucket.
    pub(crate) fn hold(&self, user: usize) -> Result<Hold, Failed> {
        let scope = Some(self.key.scope(&user.to_string()));
        let bucket =
            BucketId { upstream: self.upstream.clone(), policy: self.name.clone(), class: None, scope };
        Ok(Hold::new(self.upstream.clone(), &bucket.key(), self.rule, Tokens::ONE)?)
    }

    /// Without a lease: the token is spent at once.
    pub(crate) fn ask(&self, hold: &Hold) -> Admit {
        let (chain, holds) = (vec![self.upstream.clone()], vec![hold.clone()]);
        Admit {
            lane: None,
            tenant: None,
            chain,
            holds,
            correlation: None,
            lease: Span::ZERO,
            nonce: fastrand::u64(..),
            after: None,
            probe: true,
        }
    }

    fn decide(&self, engine: &mut Engine, hold: &Hold, time: Time) -> Result<(), Failed> {
        match engine.admit(&self.ask(hold), time).admission {
            Admission::Granted { .. } => Ok(()),
            other => Err(format!("{other:?}").into()),
        }
    }
}
