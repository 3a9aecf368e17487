//! What every store must do: scenarios that run on any [`Store`](eclusa_core::Store), with a clock that they control.
//!
//! A scenario is an async function named after the behaviour it checks. It opens a store with the rules it needs, runs
//! verbs, and panics if the store behaves differently. [`suite!`] turns each into a test. [`run`] drives a scenario.

#![expect(clippy::expect_used, reason = "all of this crate is test code, and a panic is how a test fails")]

mod clock;
mod harness;
mod rules;
pub mod scenarios;
mod suite;

pub use clock::ManualClock;
pub use harness::{Harness, Open};

/// Runs a scenario.
pub fn run<T>(scenario: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("there is a thread to run on").block_on(scenario)
}
