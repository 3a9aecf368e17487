//! The program's parts from outside, over real files, processes and sockets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cleaning;
mod cli;
mod cli_dead_letters;
mod cli_files;
mod cli_refusals;
mod conformance;
mod crash;
mod http_streams;
mod http_tls;
mod http_upstream;
#[allow(dead_code, reason = "not every helper has a user yet")]
mod program;
mod restarting;
