//! `eclusa schema`.

use super::{Exit, output};
use crate::config::schema;

/// Prints the JSON Schema of the config, for editors.
pub(super) fn run() -> Result<(), Exit> {
    output::write(&format!("{:#}\n", schema()))
}
