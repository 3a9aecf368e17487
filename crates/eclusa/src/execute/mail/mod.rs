//! Calls to upstreams that take messages.
//!
//! A message has several recipients, and an upstream may accept it for some of them only. Those are never sent it again:
//! what is left goes back to the store with the end of the call.

mod delivery;
mod mime;
mod smtp;

pub use delivery::{Delivery, Fate};
pub use mime::to_mime;
pub use smtp::SmtpUpstream;
