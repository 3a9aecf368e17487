//! Ownership of a basin: which of the processes that share a journal decides, and what it may append.
//!
//! The state machine is pure: its inputs are the time and the server's replies, its output is the next command. One
//! command is in flight at a time. No I/O, no clock, no ambient randomness, so that a whole fleet can be simulated from
//! one seed.
//!
//! Guarantees, given that the server runs each command atomically:
//!
//! - An append counts only under the server's current term, so a superseded process changes nothing.
//! - The bytes of a chunk never change once sent; an append whose reply was lost is repeated.
//! - After the server may have lost data (another run, no term), nobody appends or takes over until processes with state had
//!   one term of time to claim it. The process with the most state takes over and appends what is missing.
//!
//! [`Outbox`] bounds the answers on their way to a process that asks the owner.

mod command;
mod follower;
mod handover;
mod outbox;
mod owner;
mod ownership;
mod settings;
mod settling;
mod step;
mod tenure;
mod term;
#[cfg(test)]
mod tests;

pub use command::{Append, Claim, Command, Look, Outgoing, Refusal, Reply, Take, TakeReason, Unanswered};
pub use outbox::{CONFIRMED_EVERY, Outbox, QueuedAnswer};
pub use ownership::Ownership;
pub use settings::{Ack, Settings};
pub use step::{Batch, Event, Step, Wanted, Work};
pub use tenure::Chunk;
pub use term::{Position, ProcessId, RunId, TermId, TermView};
