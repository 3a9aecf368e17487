//! How a command ends: each kind of failure has its own exit code, so that scripts can tell them apart.

use std::process::ExitCode;

use crate::telemetry;

/// 128 plus the number of SIGINT.
const INTERRUPTED: u8 = 130;

/// Why a command failed.
#[derive(Debug)]
pub enum Exit {
    /// Any other failure.
    Error(String),
    /// The arguments do not fit together. Usage errors that clap detects have the same exit code.
    Usage(String),
    /// Something was not found.
    NotFound(String),
    /// There is no key, or it is not allowed to do this.
    Auth(String),
    /// The server cannot be reached.
    Unreachable(String),
    /// The config is invalid. The text lists all errors, each with its own title.
    InvalidConfig(String),
    /// The awaited job did not complete.
    JobFailed(String),
    /// Ctrl-C was pressed; the exit code is the one shells use for it.
    Interrupted(String),
    /// The reader of the output closed it, as in `… | head`.
    BrokenPipe,
}

impl Exit {
    /// The exit code and the message.
    fn parts(self) -> (u8, String) {
        match self {
            Exit::Error(text) => (1, text),
            Exit::Usage(text) => (2, text),
            Exit::NotFound(text) => (3, text),
            Exit::Auth(text) => (4, text),
            Exit::Unreachable(text) => (5, text),
            Exit::InvalidConfig(text) => (6, text),
            Exit::JobFailed(text) => (7, text),
            Exit::Interrupted(text) => (INTERRUPTED, text),
            Exit::BrokenPipe => (0, String::new()),
        }
    }

    /// The message, for lists of failures.
    pub(super) fn text(self) -> String {
        self.parts().1
    }

    /// Prints the message to standard error and returns the exit code.
    pub fn report(self) -> ExitCode {
        let titled = matches!(self, Exit::InvalidConfig(_));
        let (code, text) = self.parts();
        match text.trim_end() {
            "" => {}
            text if titled || code == INTERRUPTED => note(text),
            text => note(&format!("error: {text}")),
        }
        ExitCode::from(code)
    }
}

/// Prints a line to standard error; a closed standard error is ignored.
pub(super) fn note(text: &str) {
    telemetry::print(text);
}
