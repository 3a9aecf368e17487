//! Calls to upstreams that accept messages.
//!
//! A message has several recipients, and an upstream may accept it for only some of them. It is never sent to those
//! again: what is left returns to the store with the result of the call.

mod delivery;
mod mime;
mod smtp;

pub use delivery::{Delivery, RecipientResult};
pub use mime::to_mime;
pub use smtp::SmtpUpstream;
