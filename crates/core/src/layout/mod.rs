//! Layouts: the bytes of everything that is stored or sent between processes.
//!
//! A layout is a separate struct or enum, converted from and to the domain type, so that the bytes change only if a
//! layout is changed. Fields and variants are encoded by postcard in the order of their declaration, after one byte
//! with the version. To change what is written, raise the version, keep reading the previous one, keep a golden file of
//! it in `golden/previous/`, and regenerate the others:
//!
//! ```text
//! ECLUSA_WRITE_GOLDEN=1 cargo nextest run -p eclusa-core layout
//! ```

mod alert;
mod callback;
mod convert;
mod history;
mod letters;
mod messages;
mod question;
mod record;
mod reply;
mod shared;
mod spec;
#[cfg(test)]
mod tests;
mod versions;
mod view;

pub use alert::Delivery;
pub use messages::{Answers, Questions, QuestionsHeader, ReceivedAnswers, SentRules};
pub use question::Question;
pub(crate) use record::{append_record, read_records};
pub use reply::Reply;
pub(crate) use reply::encode_state;
pub(crate) use spec::{decode_gates, decode_lane, encode_gates, encode_lane};
pub use spec::{decode_spec, encode_spec};
use thiserror::Error;
pub use versions::FORMAT;
pub(crate) use versions::RECORD_VERSION;

/// Why bytes could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// Written by a newer program.
    #[error("written in version {found} of the layout; versions up to {known} are supported")]
    NewerVersion {
        /// The version of the bytes.
        found: u8,
        /// The newest version that this program reads.
        known: u8,
    },
    /// Damaged, or not bytes of this layout.
    #[error("unreadable: {0}")]
    Unreadable(String),
}

impl LayoutError {
    /// Whether reading the same bytes may succeed later: never.
    pub const fn is_transient(&self) -> bool {
        false
    }
}

impl From<crate::SpecError> for LayoutError {
    fn from(error: crate::SpecError) -> Self {
        LayoutError::Unreadable(error.to_string())
    }
}
