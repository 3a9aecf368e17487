//! Eclusa: the program around the rules of [`eclusa_core`].

pub mod api;
mod awaited;
pub mod cli;
mod clients;
mod clock;
pub mod config;
mod decide;
pub mod demo;
pub mod execute;
pub mod fake;
mod file_stamp;
mod ids;
mod intake;
mod leases;
mod letters;
mod life;
pub mod limits;
mod load;
pub mod model;
mod peers;
mod policy;
mod process;
mod reload;
pub mod request;
mod rules;
mod run_to_completion;
mod serve;
mod server;
mod shard;
mod standard_webhooks;
pub mod store;
mod telemetry;
mod turns;
mod verify;
mod web;
mod words;
mod work;

pub use clock::SystemClock;
pub use serve::{ServeError, serve};

/// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
