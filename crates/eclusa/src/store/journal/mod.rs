//! Journals: where chunks of records are kept.

pub(in crate::store) mod file;
pub(in crate::store) mod redis;

pub use file::JournalError;
