//! Where the state of the rules lives.

mod alone;
mod any;
mod embedded;
mod redis;
mod shared;

pub use any::AnyStore;
pub use embedded::{Ack, EmbeddedStore, JournalError, OpenError};
pub use redis::{News, RedisError, RedisStore};
pub use shared::{SharedStore, WhenLost};
