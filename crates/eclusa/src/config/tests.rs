//! Whole files: the values of valid ones and the errors of invalid ones.

mod mail;
mod mistakes;
mod policies;
mod refused;
mod secrets;
mod ses;
mod valid;

use super::{Config, ConfigErrors};

/// Reads `text` with these environment variables.
fn read(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    let find =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    Config::parse("eclusa.toml", text, &find)
}
