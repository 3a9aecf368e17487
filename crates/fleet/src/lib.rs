//! Ownership of a basin: which of the processes that share a journal decides, and what it may append.
//!
//! Pure: it is told the time and what the server replied, and says which command to send next. One command is under way at
//! a time. No I/O, no clock, no ambient randomness, so that a whole fleet can be simulated from one seed.
//!
//! What it promises, given that the server runs each command atomically:
//!
//! - An append counts only under the term that the server knows, so a process that was superseded changes nothing.
//! - The bytes of a chunk never change once they were sent; an append whose reply was lost is repeated.
//! - After the server may have lost data (another run, no term), nobody appends or takes over until those with state had
//!   one term of time to claim it. The one that knows most goes on and appends what is missing.

mod command;
mod follower;
mod handover;
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
pub use ownership::Ownership;
pub use settings::{Ack, Settings};
pub use step::{Batch, Event, Step, Wanted, Work};
pub use tenure::Chunk;
pub use term::{Position, ProcessId, RunId, TermId, TermView};
