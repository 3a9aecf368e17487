//! Long random sequences of all verbs on the engine and on Redis, under one clock: every answer is the same, and so is all
//! that can be seen.
//!
//! A seed decides rules and steps. `ECLUSA_DIFFERENTIAL_STEPS=100000` plays that many steps under seeds that nobody chose,
//! `ECLUSA_DIFFERENTIAL_SEED=42` one seed alone. A seed that fails is written to `seeds.txt` and tried first from then on.

mod calls;
mod plan;
mod play;
mod views;
mod world;

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Arc;

use eclusa::store::{EmbeddedStore, RedisStore};
use eclusa_conformance::ManualClock;
use fastrand::Rng;

use self::plan::Op;
use self::play::{Play, Verdict};
use self::world::World;
use crate::redis_server::RedisServer;

/// Steps under one seed: another number makes other sequences of all of them.
const STEPS: usize = 250;
/// Steps under new seeds in a run that does not ask for more.
const DEFAULT_STEPS: usize = 2_000;
/// How often a sequence that failed is tried with some steps left out.
const MAX_TRIES: usize = 400;
const SEEDS: &str = include_str!("seeds.txt");
const SEEDS_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/differential/seeds.txt");

#[test]
fn redis_answers_as_the_engine_does_under_known_seeds() {
    known_seeds().for_each(check);
}

#[test]
fn redis_answers_as_the_engine_does_under_new_seeds() {
    if let Some(seed) = asked("ECLUSA_DIFFERENTIAL_SEED") {
        return check(seed);
    }
    let steps = asked("ECLUSA_DIFFERENTIAL_STEPS").map_or(DEFAULT_STEPS, |steps| steps.try_into().unwrap());
    for _ in 0..steps.div_ceil(STEPS) {
        check(fastrand::u64(..));
    }
}

fn known_seeds() -> impl Iterator<Item = u64> {
    let lines = SEEDS.lines().filter_map(|line| line.split('#').next()).map(str::trim);
    lines.filter(|line| !line.is_empty()).map(|line| line.parse().unwrap())
}

fn asked(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().unwrap())
}

/// Plays one seed; a failure is kept, cut down to few steps and told.
fn check(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let world = World::new(seed, &mut rng);
    let ops = plan::ops(world.kind, STEPS, &mut rng);
    let Err(problem) = play(&world, &ops) else { return };
    if !known_seeds().any(|known| known == seed) {
        let mut file = OpenOptions::new().append(true).create(true).open(SEEDS_FILE).unwrap();
        writeln!(file, "{seed}").unwrap();
    }
    let (ops, shorter) = shrink(&world, ops, problem.clone());
    let steps: Vec<_> = ops.iter().map(|op| format!("  {op:?}\n")).collect();
    let steps = steps.concat();
    panic!(
        "seed {seed}: {problem}\n\nThe same under {:?}\nwith {} steps:\n{steps}{shorter}\nseed {seed}, {:?}",
        world.spec,
        ops.len(),
        world.kind
    );
}

fn play(world: &World, ops: &[Op]) -> Verdict {
    let clock = Arc::new(ManualClock::default());
    let (server, prefix) = RedisServer::shared();
    let engine = EmbeddedStore::memory(&world.spec, clock.clone());
    let redis = RedisStore::new(&server.url(), &prefix, &world.spec).unwrap().with_clock(clock.clone());
    let forgotten = eclusa_conformance::run(Play::new(world, clock, (engine, redis)).all(ops))?;
    let left = keys_left(server, &prefix);
    if forgotten && !left.is_empty() {
        return Err(format!("all is forgotten, but Redis still has {left:#?}"));
    }
    Ok(())
}

/// What Redis keeps once there are no jobs: lanes, upstreams and tenants, by design.
fn keys_left(server: &RedisServer, prefix: &str) -> Vec<String> {
    const MAY_STAY: [&str; 8] =
        ["", "lanes", "upstreams", "tenants", "arrivals", "idle", "circuit_breaker", "rate_limiter"];
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg(format!("{prefix}*")).query(&mut connection).unwrap();
    let may_stay = |key: &String| MAY_STAY.contains(&key.split(':').nth(2).unwrap_or_default());
    let keys = keys.iter().map(|key| String::from_utf8_lossy(key).into_owned());
    keys.filter(|key| !may_stay(key)).collect()
}

/// Leaves out steps, many and then few at a time, then parts of steps, as long as what is left still fails.
fn shrink(world: &World, ops: Vec<Op>, problem: String) -> (Vec<Op>, String) {
    let (mut ops, mut problem, mut tries) = (ops, problem, 0);
    let mut fails = |fewer: &[Op]| {
        tries += 1;
        if tries > MAX_TRIES { None } else { play(world, fewer).err() }
    };
    let mut size = ops.len() / 2;
    while size > 0 {
        let mut from = 0;
        while from < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(from..(from + size).min(ops.len()));
            match fails(&fewer) {
                None => from += size,
                Some(again) => (ops, problem) = (fewer, again),
            }
        }
        size /= 2;
    }
    for at in 0..ops.len() {
        for part in (0..ops[at].parts()).rev() {
            let mut fewer = ops.clone();
            fewer[at].leave_out(part);
            if let Some(again) = fails(&fewer) {
                (ops, problem) = (fewer, again);
            }
        }
    }
    (ops, problem)
}
