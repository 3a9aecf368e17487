//! Calls to Amazon SES, with version 2 of its API.
//!
//! SES accepts a message for all its recipients or for none. An error has a name, which becomes the failure's code.

mod answer;
mod client;
mod credentials;
mod metadata;
mod sign;

pub use client::SesUpstream;
