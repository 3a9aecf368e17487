//! The program's parts from outside, over real files, processes and sockets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cleaning;
mod conformance;
mod crash;
mod http_streams;
mod http_tls;
mod http_upstream;
mod restarting;
