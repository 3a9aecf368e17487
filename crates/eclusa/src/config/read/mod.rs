//! Reads tables key by key.
//!
//! A reader asks a [`Table`] for each key, stating the key's type, default and description in the same call. That call
//! reads the value, registers the key (other keys are reported as unknown) and records its description: run on an empty
//! file, the same readers produce the JSON Schema and the reference. Errors are collected, so a reader asks for all its
//! keys before it gives up.

mod context;
mod describe;
mod table;
mod value;

pub(super) use context::{At, Context, Location, MAX_FILE_BYTES, RawValue};
pub(super) use describe::{KeyDoc, ValueKind};
pub(super) use table::Table;
pub(crate) use value::suggest;
pub(super) use value::{ByPattern, Entries, FromText, Show, Value, Wrong};
