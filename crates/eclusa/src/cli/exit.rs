//! How the command line ends: each kind of failure has its own exit code, so that scripts can tell them apart.

use std::process::ExitCode;

/// Why a command failed.
#[derive(Debug)]
pub enum Exit {
    /// Something went wrong.
    Error(String),
    /// There is no such thing.
    NotFound(String),
    /// No key, or one that may not do this.
    Auth(String),
    /// The server does not answer.
    Unreachable(String),
    /// The config is not valid; the text says all that is wrong with it.
    InvalidConfig(String),
    /// The job that was waited for did not succeed.
    JobFailed(String),
}

impl Exit {
    /// Says why on standard error.
    pub fn tell(self) -> ExitCode {
        let (code, text) = match self {
            Exit::Error(text) => (1, text),
            Exit::NotFound(text) => (3, text),
            Exit::Auth(text) => (4, text),
            Exit::Unreachable(text) => (5, text),
            Exit::InvalidConfig(text) => (6, text),
            Exit::JobFailed(text) => (7, text),
        };
        eprintln!("{}", text.trim_end());
        ExitCode::from(code)
    }
}
