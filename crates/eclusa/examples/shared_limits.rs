//! Twelve calls under a limit of ten per second, with a breaker that three consecutive failures open:
//!
//! ```console
//! cargo run -p eclusa --example shared_limits
//! REDIS_URL=redis://127.0.0.1:6379 cargo run -p eclusa --example shared_limits
//! ```
//!
//! Run two of them at once on one Redis: together they make ten calls per second, and they share the breaker. With
//! `USE_REDIS_CIRCUIT_BREAKER=false` each has its own limits.

use std::error::Error;
use std::time::Duration;

use eclusa::limits::{Limits, Rate};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limits = Limits::from_env();
    println!("limits are {}", if limits.are_shared() { "shared" } else { "this process's own" });
    let rate = Rate { calls: 10, per: Duration::from_secs(1), burst: 10 };
    let limiter = limits.rate_limiter("portal", rate)?;
    let breaker = limits.circuit_breaker("portal", 3, Duration::from_secs(5))?;

    for call in 1..=12 {
        if limiter.acquire().await {
            println!("call {call}: at once");
        } else if limiter.acquire_within(Duration::from_secs(5)).await {
            println!("call {call}: after a wait");
        } else {
            println!("call {call}: not within five seconds");
        }
    }
    for failure in 1..=3 {
        breaker.record_failure().await;
        println!("failure {failure}: degraded is {}", breaker.is_degraded().await);
    }
    breaker.record_success().await;
    println!("success: degraded is {}", breaker.is_degraded().await);
    Ok(())
}
