//! Eclusa: what stands around the rules of [`eclusa_core`].

mod clock;
pub mod config;
pub mod execute;
pub mod fake;
pub mod request;
pub mod store;

pub use clock::SystemClock;

/// The README's example is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
