//! Where the state of the rules lives.

mod any;
mod embedded;
mod redis;

pub use any::AnyStore;
pub use embedded::{Ack, EmbeddedStore, JournalError, OpenError};
pub use redis::{News, RedisError, RedisStore};
