//! `eclusa breakers`.

use clap::Subcommand;
use clap::builder::NonEmptyStringValueParser;
use serde_json::Value;

use super::Exit;
use super::client::{Client, path};
use super::output::{Format, or_dash, table, typed_all};
use super::watch::{self, Listing, WatchArgs};
use crate::model::Breaker;

#[derive(Debug, Subcommand)]
pub(super) enum BreakersCommand {
    /// List breakers
    Ls(WatchArgs),
    /// Close a breaker, and clear its upstream's cooldown and Retry-After
    Reset {
        /// The upstream
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        name: String,
    },
}

/// Runs a command on breakers.
pub(super) fn run(args: &BreakersCommand, client: &Client, format: Format) -> Result<(), Exit> {
    match args {
        BreakersCommand::Ls(watch) => {
            watch::show(watch, format, || client.get("/v1/breakers").map(Listing::of), text)
        }
        BreakersCommand::Reset { name } => {
            let breaker = client.post(&path(&["v1", "breakers", name, "reset"]), None)?;
            format.one(&breaker, || text(std::slice::from_ref(&breaker)))
        }
    }
}

fn text(breakers: &[Value]) -> Result<String, Exit> {
    let row = |breaker: Breaker| {
        let until = or_dash(breaker.degraded_until.as_deref());
        vec![breaker.name, breaker.state, breaker.failures.to_string(), until]
    };
    let rows = typed_all(breakers)?.into_iter().map(row).collect();
    Ok(table(&["UPSTREAM", "STATE", "FAILURES", "OPEN UNTIL"], rows))
}
