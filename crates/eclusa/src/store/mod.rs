//! Where the state of the rules lives: the engine behind a journal.
//!
//! - `stage` runs verbs on the engine and groups their changes; `waiting` holds questions until something happens.
//! - `writer` writes groups to a journal on disk; `fleet` to one on Redis that processes share.
//! - `withheld` withholds grants after an outage until all processes have reported what they did meanwhile.
//! - `fallback` decides about gates while the fleet cannot be asked.

mod aging;
mod any;
mod ask;
mod cleaning;
mod doorbell;
mod embedded;
mod fallback;
mod faults;
mod fleet;
mod gate_log;
mod group;
mod journal;
mod stage;
mod verbs;
mod waiting;
mod wake;
mod withheld;
mod writer;

pub use crate::config::{Ack, WhenLost};
pub use any::AnyStore;
pub use embedded::{EmbeddedStore, OpenError};
pub use faults::StoreFault;
pub(crate) use fleet::examine;
pub use fleet::{OwnerView, RedisError, RedisSettings, RedisStore};
pub use journal::JournalError;
pub(crate) use journal::redis::{Examined, ServerFacts};
