//! Asking for confirmation.

use std::io::{self, BufRead, IsTerminal, Write};

use super::Exit;

/// `Ok` if the user confirms on the terminal; otherwise an error that says `nothing`.
pub(super) fn confirm(question: &str, nothing: &str) -> Result<(), Exit> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Exit::Usage(format!(
            "{question} There is no terminal to confirm on\nhelp: give --yes or --dry-run"
        )));
    }
    let _ = write!(io::stderr().lock(), "{question} [y/N] ");
    if says_yes(io::stdin().lock()) { Ok(()) } else { Err(Exit::Error(nothing.into())) }
}

/// Whether the answer is "y" or "yes".
fn says_yes(mut answer: impl BufRead) -> bool {
    let mut line = String::new();
    let read = answer.read_line(&mut line);
    read.is_ok() && matches!(line.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_explicit_yes_confirms() {
        for (answer, yes) in [("y\n", true), (" YES \n", true), ("\n", false), ("", false), ("yeah\n", false)]
        {
            assert_eq!(says_yes(answer.as_bytes()), yes, "{answer:?}");
        }
    }
}
