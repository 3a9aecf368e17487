//! Reads tables key by key.
//!
//! A reader asks a [`Table`] for each key it knows, with the key's type, default and meaning in the same line. That
//! one line reads the value, makes the key known (what is left over is reported as unknown), and describes it: run
//! over an empty file, the same readers yield the JSON Schema and the reference. Errors are collected, so a reader
//! always asks for all its keys before it gives up on one.

mod context;
mod describe;
mod table;
mod value;

pub(super) use context::{At, Context, Location, MAX_FILE_BYTES, RawValue};
pub(super) use describe::{KeyDoc, ValueKind};
pub(super) use table::Table;
pub(crate) use value::suggest;
pub(super) use value::{ByPattern, Entries, FromText, Show, Value, Wrong};
