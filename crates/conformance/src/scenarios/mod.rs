//! The scenarios, by theme. Their names state the behaviour they check.

#![allow(missing_docs, reason = "a scenario's name is its documentation")]

pub mod admit;
pub mod alerts;
pub mod awaiting;
pub mod bad_input;
pub mod bulk;
pub mod cache;
pub mod callbacks;
pub mod cancel;
pub mod capacity;
pub mod chain;
pub mod coalescing;
pub mod codes;
pub mod completing;
pub mod dead_letters;
pub mod delays;
pub mod direct;
pub mod endings;
pub mod fairness;
pub mod flood;
pub mod gates;
pub mod health;
pub mod history;
pub mod idempotency;
pub mod in_time;
pub mod keys;
pub mod leases;
pub mod letters;
pub mod lines;
pub mod observing;
pub mod partial_sends;
pub mod policies;
pub mod priority;
pub mod reads;
pub mod redrive;
pub mod repeats;
pub mod retention;
pub mod retry;
pub mod retry_budget;
pub mod schedules;
pub mod scoped;
pub mod tenant_limits;
pub mod ttl;
pub mod why;
