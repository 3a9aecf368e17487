//! Whole files: what they mean, and what is said about the wrong ones.

mod mail;
mod mistakes;
mod policies;
mod refused;
mod secrets;
mod ses;
mod valid;

use super::{Config, ConfigErrors};

/// Reads `text` with `VARIABLE = value` for variables.
fn read(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    let find =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    Config::parse("eclusa.toml", text, &find)
}
