//! Reads the config file. This is above [`crate::config`] because the jobs of `[schedules]` are checked as if a caller
//! had sent them.

use std::path::Path;

use crate::config::{self, Config, ConfigErrors};
use crate::model::JobRequest;

impl Config {
    /// Reads the file at `path`; `env` returns the value of an environment variable.
    pub fn load(path: &Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigErrors> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let help = match error.kind() {
                std::io::ErrorKind::NotFound => "create one with `eclusa init`",
                std::io::ErrorKind::InvalidData => "save it as UTF-8",
                _ => "",
            };
            ConfigErrors::unreadable(&name, &format!("cannot be read: {error}"), help)
        })?;
        Self::parse(&name, &text, env)
    }

    /// Reads `text`, the contents of the file `name`. Paths in it are relative to that file's directory.
    pub fn parse(name: &str, text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, ConfigErrors> {
        config::parse(name, text, env, JobRequest::check)
    }
}
