//! Prints lists, once or repeatedly (`--watch`).

use std::io::{IsTerminal, stdout};
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::Exit;
use super::exit::note;
use super::output::{Format, painted, write};
use super::pages::Pages;

/// Moves to the upper left corner and clears the screen from there.
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

#[derive(Debug, Args)]
pub(super) struct WatchArgs {
    /// Refresh the list every SECONDS, until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
}

/// A list from the server.
#[derive(Debug)]
pub(super) struct Listing {
    /// As the server returned it.
    whole: Value,
    items: Vec<Value>,
    /// A remark about the list, such as that there is more.
    note: Option<String>,
}

impl Listing {
    /// A list without pages.
    pub(super) fn of(whole: Value) -> Self {
        let items = whole.as_array().cloned().unwrap_or_default();
        Self { whole, items, note: None }
    }

    /// A list that was read in pages, with its items under `member`; `things` is the noun for them.
    pub(super) fn pages(pages: Pages, member: &str, things: &str) -> Self {
        Self { whole: pages.whole(member), note: pages.rest(things), items: pages.items }
    }
}

/// Prints the list that `read` returns, repeatedly with `--watch`. While watching, an unreachable server is not an error.
#[expect(
    clippy::disallowed_methods,
    reason = "the list is refreshed at an interval; there is no event to wait for"
)]
pub(super) fn show(
    watch: &WatchArgs,
    format: Format,
    read: impl Fn() -> Result<Listing, Exit>,
    text: impl Fn(&[Value]) -> Result<String, Exit>,
) -> Result<(), Exit> {
    let screen = watch.watch.is_some() && format == Format::Text && stdout().is_terminal();
    let print = |listing: &Listing| {
        let text = || text(&listing.items);
        match format {
            Format::Text => {
                let shown = painted(&text()?);
                write(&format!("{}{shown}", if screen { CLEAR } else { "" }))
            }
            Format::Json | Format::Jsonl => format.many(&listing.whole, &listing.items, text),
        }?;
        listing.note.iter().for_each(|said| note(said));
        Ok(())
    };
    print(&read()?)?;
    let Some(seconds) = watch.watch else { return Ok(()) };
    loop {
        std::thread::sleep(Duration::from_secs(seconds));
        match read() {
            Ok(listing) => print(&listing)?,
            Err(Exit::Unreachable(why)) => note(&why),
            Err(other) => return Err(other),
        }
    }
}
