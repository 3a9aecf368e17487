//! The journal on real files: what it promises over reopening and damage.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "helpers of tests are tests")]

mod basics;
mod damage;
mod refusal;
mod support;
