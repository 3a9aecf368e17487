//! The program's parts from outside, over real files, processes and sockets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod callbacks;
mod chains;
mod cleaning;
mod cli;
mod cli_dead_letters;
mod cli_files;
mod cli_refusals;
mod conformance;
mod crash;
mod deploy;
mod dict;
mod direct_lane;
mod direct_lane_chain;
mod direct_lane_faults;
mod direct_lane_slow;
mod docs;
mod finding;
mod fleet_health;
mod following;
mod generation;
mod guarantees;
mod http_streams;
mod http_tls;
mod http_upstream;
mod in_time;
mod keeping_nothing;
mod key_pools;
mod learned_codes;
mod limits;
mod metrics;
mod policies;
mod program;
mod redis_server;
mod reload;
mod reopened;
mod schedules;
mod score_proxy;
mod shared;
mod shared_limits;
mod storing;
mod templates;
mod webhooks;
mod wrong_input;
