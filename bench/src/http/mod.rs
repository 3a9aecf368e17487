//! The program over HTTP, compared with a server that does nothing, with nginx, and with calling the upstream directly.

mod direct;
mod enqueue;
mod nginx;
mod peers;
mod program;
mod round_trip;
mod wrk;

pub(crate) use direct::{Ways, measure as direct};
pub(crate) use enqueue::measure as enqueue;
pub(crate) use peers::{serve_bare, serve_proxy, serve_upstream};
pub(crate) use program::Server;
pub(crate) use round_trip::{Times, client, measure as round_trip, trip};

/// The arguments that make this program a peer to compare with.
pub(crate) const BARE: &str = "serve-bare";
pub(crate) const PROXY: &str = "serve-proxy";
pub(crate) const UPSTREAM: &str = "serve-upstream";
