//! `eclusa completions`.

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use super::{Arguments, Exit, output};

/// Prints the completion script for `shell`.
pub(super) fn run(shell: Shell) -> Result<(), Exit> {
    let mut script = Vec::new();
    generate(shell, &mut Arguments::command(), "eclusa", &mut script);
    output::write(&String::from_utf8_lossy(&script))
}
