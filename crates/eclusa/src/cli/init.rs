//! `eclusa init`.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

use super::Exit;
use super::exit::note;
use crate::config::INIT;

/// Writes an example config; never overwrites a file.
pub(super) fn run(path: &Path) -> Result<(), Exit> {
    let shown = path.display();
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let written = file.and_then(|mut file| file.write_all(INIT.as_bytes()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            Exit::Error(format!("{shown} already exists and was not changed\nhelp: choose another file name"))
        }
        _ => Exit::Error(format!("cannot write {shown}: {error}")),
    })?;
    note(&format!("Wrote {shown}. Next: `eclusa check {shown}`, then `eclusa serve --config {shown}`"));
    Ok(())
}
