//! Where the state of the rules lives.

mod embedded;
mod redis;

pub use embedded::{Ack, EmbeddedStore, JournalError, OpenError};
pub use redis::{RedisError, RedisStore};
