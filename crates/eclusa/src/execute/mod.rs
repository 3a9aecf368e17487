//! Making the calls that jobs ask for.

pub mod http;
