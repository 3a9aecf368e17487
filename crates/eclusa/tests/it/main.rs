//! The stores from outside, over real files and processes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cleaning;
mod conformance;
mod crash;
mod restarting;
