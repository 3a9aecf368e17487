//! Where the state of the rules lives.

mod embedded;

pub use embedded::{Ack, EmbeddedStore, JournalError, OpenError};
