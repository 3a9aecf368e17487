//! Several processes on one Redis.

mod ack;
mod acl;
mod fallback;
mod faults;
mod fifo;
pub(crate) mod fleet;
mod large;
mod loss;
mod outage;
mod own_gates;
mod processes;
mod refusing;
mod scripts;
mod stopping;
mod tls;
mod versions;

use crate::program::Program;
use crate::redis_server::RedisServer;

/// A process on `redis` with these lanes and upstreams, once it is ready.
pub(crate) async fn start(redis: &RedisServer, rules: &str) -> Program {
    start_as(redis, "all", rules).await
}

/// Starts a process with a role.
async fn start_as(redis: &RedisServer, role: &str, rules: &str) -> Program {
    let program = begin(redis, role, rules).await;
    program.until("/readyz", |answer| answer.status == 200).await;
    program
}

/// Starts a process without waiting until it is ready.
async fn begin(redis: &RedisServer, role: &str, rules: &str) -> Program {
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{}\"\nterm = \"500ms\"\n{rules}",
        redis.url()
    );
    Program::start_as(role, &config).await
}

/// A lane and its upstream, each with these additional rules.
fn lane(upstream: &str, lane_rules: &str, upstream_rules: &str) -> String {
    format!(
        "[lanes.work]\nchain = [\"up\"]\n{lane_rules}\n[upstreams.up]\nurl = \"{upstream}\"\n{upstream_rules}\n"
    )
}
