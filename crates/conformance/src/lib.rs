//! What every store must do: scenarios that run on any [`Store`](eclusa_core::Store), under a clock they move.
//!
//! A scenario is an async function whose name is the sentence it proves. It asks for a store with the rules it needs,
//! plays, and panics if the store does otherwise. [`suite!`] makes one test of each, so that a run lists them by name.
//! Scenarios are driven by [`run`].

#![expect(clippy::expect_used, reason = "all of this crate is test code, and a panic is how a test fails")]

mod clock;
mod harness;
mod rules;
pub mod scenarios;
mod suite;

pub use clock::ManualClock;
pub use harness::{Harness, Open};

/// Plays a scenario.
pub fn run<T>(scenario: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("there is a thread to run on").block_on(scenario)
}
