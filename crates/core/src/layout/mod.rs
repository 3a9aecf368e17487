//! Layouts: the bytes of what is stored and of what processes send each other.
//!
//! A layout is a struct or enum of its own, converted from and to the domain type, so that the bytes change only when
//! somebody changes a layout. Fields and variants are written in the order in which they are declared, encoded by postcard
//! after one byte with the version. To change what is written, raise the version, keep reading the previous one and renew
//! the golden files:
//!
//! ```text
//! ECLUSA_WRITE_GOLDEN=1 cargo nextest run -p eclusa-core layout
//! ```

mod alert;
mod callback;
mod convert;
mod letters;
mod question;
mod record;
mod reply;
mod shared;
mod spec;
#[cfg(test)]
mod tests;
mod view;

pub use alert::Delivery;
pub use question::Question;
pub(crate) use record::{RECORD_VERSION, append_record, read_mentions, read_records};
pub use reply::Reply;
pub(crate) use spec::{decode_gates, decode_lane, encode_gates, encode_lane};
pub use spec::{decode_spec, encode_spec};
use thiserror::Error;

/// Why bytes could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// A newer program wrote them.
    #[error("written in version {found} of the layout, but only versions up to {known} are known here")]
    NewerVersion {
        /// The version of the bytes.
        found: u8,
        /// The newest version that this program reads.
        known: u8,
    },
    /// They are damaged or were never meant to be read as this.
    #[error("unreadable: {0}")]
    Unreadable(String),
}

impl LayoutError {
    /// Whether the same bytes may be read later: never.
    pub const fn is_transient(&self) -> bool {
        false
    }
}

impl From<crate::SpecError> for LayoutError {
    fn from(error: crate::SpecError) -> Self {
        LayoutError::Unreadable(error.to_string())
    }
}
