//! Where the state of the rules lives.

mod ack;
mod alone;
mod any;
mod embedded;
mod redis;
mod shared;

pub use ack::Ack;
pub use any::AnyStore;
pub use embedded::{EmbeddedStore, JournalError, OpenError};
pub use redis::{News, RedisError, RedisSettings, RedisStore};
pub use shared::{SharedStore, WhenLost};
