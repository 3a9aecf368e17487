//! The acceptance criteria of shared limits: the example in real processes on a real Redis, and the library in the test's
//! own process.

mod breaker;
mod gateway;
mod limiter;
mod places;

use std::time::Duration;

use eclusa::limits::{CircuitBreaker, Limits, Rate, RateLimiter};

use super::program::{Program, example};
use super::redis_server::RedisServer;

const EXAMPLE: &str = "shared-limits.toml";
const FAILURES: &str = "circuit_breaker:pncp:failures";
const DEGRADED_UNTIL: &str = "circuit_breaker:pncp:degraded_until";
const LIMITER: &str = "rate_limiter:pncp";

/// A process of the example on `redis`.
async fn worker(redis: &RedisServer, env: &[(&str, &str)]) -> Program {
    let url = redis.url();
    Program::start_example(EXAMPLE, &[&[("REDIS_URL", url.as_str())], env].concat()).await
}

/// A process of the example, with no refill while the test runs.
async fn worker_without_refill(redis: &RedisServer) -> Program {
    let config = std::fs::read_to_string(example(EXAMPLE)).unwrap();
    let config = config.replace("127.0.0.1:8080", "127.0.0.1:0").replace("\"10/s\"", "\"10/h\"");
    Program::start(&config, &[("REDIS_URL", &redis.url())]).await
}

/// The portal's breaker, as in the example.
fn breaker_of(limits: &Limits) -> CircuitBreaker {
    limits.circuit_breaker("pncp", 50, Duration::from_mins(2)).unwrap()
}

/// Its limiter, with no refill while the test runs.
fn limiter_of(limits: &Limits) -> RateLimiter {
    limits.rate_limiter("pncp", Rate { calls: 10, per: Duration::from_hours(1), burst: 10 }).unwrap()
}

/// The remaining lifetime of a key, in milliseconds.
fn lives_for(redis: &RedisServer, key: &str) -> i64 {
    redis.command(&["PTTL", key]).parse().unwrap()
}
