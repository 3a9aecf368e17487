//! How the command line ends: each kind of failure has its own exit code, so that scripts can tell them apart.

use std::io::Write;
use std::process::ExitCode;

/// 128 and the number of the signal.
const INTERRUPTED: u8 = 130;

/// Why a command failed.
#[derive(Debug)]
pub enum Exit {
    /// Something went wrong.
    Error(String),
    /// The arguments make no sense together; what clap sees by itself ends with the same code.
    Usage(String),
    /// There is no such thing.
    NotFound(String),
    /// No key, or one that may not do this.
    Auth(String),
    /// The server does not answer.
    Unreachable(String),
    /// The config is not valid; the text says all that is wrong with it, each thing under a title of its own.
    InvalidConfig(String),
    /// The job that was waited for did not succeed.
    JobFailed(String),
    /// Somebody pressed Ctrl-C; ends with the number that shells give to that.
    Interrupted(String),
    /// Whoever read the output has seen enough, as in `… | head`.
    BrokenPipe,
}

impl Exit {
    /// The number for the caller and the text for people.
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

    /// The text alone, for failures that are listed.
    pub(super) fn text(self) -> String {
        self.parts().1
    }

    /// Says why on standard error.
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

/// A line on standard error. Where nobody reads that, there is nobody to tell.
pub(super) fn note(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
