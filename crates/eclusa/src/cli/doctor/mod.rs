//! `eclusa doctor`: checks that this machine, the store and the upstreams fit the config.

mod certificate;
mod machine;
mod store;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::output::{Format, count};
use super::{Exit, probe, serve};
use crate::config::{Config, ConfigErrors};

pub(super) use store::examine as examine_store;

#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// The config file
    #[arg(value_name = "FILE", default_value = "eclusa.toml", env = "ECLUSA_CONFIG")]
    file: PathBuf,
    /// A file of variables for the config, one `NAME=value` per line; the environment takes precedence
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Ok,
    /// It works, but not as well or as safely as it could.
    Warning,
    /// The server does not start, or a part of it does not work.
    Error,
}

impl Level {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// What was checked, such as `store`.
    check: String,
    pub(super) level: Level,
    found: String,
    /// How to fix it, unless it is fine.
    fix: Option<String>,
}

impl Finding {
    fn ok(check: &str, found: impl Into<String>) -> Self {
        Self { check: check.into(), level: Level::Ok, found: found.into(), fix: None }
    }

    fn warning(check: &str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { level: Level::Warning, fix: Some(fix.into()), ..Self::ok(check, found) }
    }

    fn error(check: &str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { level: Level::Error, ..Self::warning(check, found, fix) }
    }

    pub(super) fn json(&self) -> Value {
        json!({ "check": self.check, "level": self.level.as_str(), "found": self.found, "fix": self.fix })
    }
}

/// Runs all checks and prints the findings.
pub(super) fn run(args: &DoctorArgs, format: Format) -> Result<(), Exit> {
    let config = serve::read(&args.file, args.env_file.as_deref());
    let is_invalid = config.is_err();
    let findings = match config {
        Ok(config) => examine(&args.file, &config)?,
        // Without a config, there is only this machine to check.
        Err(errors) => config_errors(&errors).chain(machine::files(None)).collect(),
    };
    let items: Vec<Value> = findings.iter().map(Finding::json).collect();
    let found = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (errors, warnings) = (found(Level::Error), found(Level::Warning));
    let whole = json!({ "ok": errors == 0, "errors": errors, "warnings": warnings, "findings": items });
    format.many(&whole, &items, || Ok(text(&findings)))?;
    let summary = || format!("{} and {}", count(errors, "error"), count(warnings, "warning"));
    match errors {
        0 => Ok(()),
        _ if is_invalid => Err(Exit::InvalidConfig(format!("error: {}", summary()))),
        _ => Err(Exit::Error(summary())),
    }
}

fn examine(file: &Path, config: &Config) -> Result<Vec<Finding>, Exit> {
    let (lanes, upstreams) = (count(config.lanes.len(), "lane"), count(config.upstreams.len(), "upstream"));
    let mut findings = vec![Finding::ok("config", format!("{}: {lanes} and {upstreams}", file.display()))];
    let warned = config.warnings();
    findings
        .extend(warned.iter().map(|warning| Finding::warning("config", warning.to_string(), &warning.help)));
    findings.push(machine::listen(config.server.listen));
    findings.extend(config.server.tls.as_ref().map(certificate::examine));
    findings.extend(store::examine(config));
    findings.extend(machine::files(Some(config)));
    findings.extend(examine_upstreams(config)?);
    Ok(findings)
}

/// A finding for each error in the config.
fn config_errors(errors: &ConfigErrors) -> impl Iterator<Item = Finding> {
    errors.iter().map(|error| {
        let place = error.place.map(|place| format!(":{}:{}", place.line, place.column)).unwrap_or_default();
        let found = format!("{}{place}: {}", errors.file(), error.problem);
        let fix = if error.help.is_empty() { "correct the file" } else { &error.help };
        Finding::error("config", found, fix)
    })
}

fn examine_upstreams(config: &Config) -> Result<Vec<Finding>, Exit> {
    let probed = probe::upstreams(config)?;
    let finding = |((name, upstream), probed): ((&eclusa_core::Name, _), probe::Probed)| {
        let (check, address) = (format!("upstream {name}"), probe::address(upstream));
        match probed {
            Ok(()) => Finding::ok(&check, format!("{address} can be reached")),
            Err(problem) => {
                let fix =
                    "check its address in the config, DNS, firewalls and certificates from this machine";
                Finding::error(&check, format!("{address} cannot be reached: {problem}"), fix)
            }
        }
    };
    Ok(config.upstreams.iter().zip(probed).map(finding).collect())
}

/// One line per finding, with the fix below it.
pub(super) fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or_default();
    let line = |Finding { check, level, found, fix }: &Finding| {
        let fix = fix.as_ref().map(|fix| format!("{:9}{:width$}  fix: {fix}\n", "", "")).unwrap_or_default();
        format!("{:7}  {check:width$}  {found}\n{fix}", level.as_str())
    };
    findings.iter().map(line).collect()
}
