//! Printing to standard output: text for people, or the server's JSON for programs.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Exit;

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Text for people
    Text,
    /// The server's JSON, indented
    Json,
    /// One JSON object per line
    Jsonl,
}

impl Format {
    /// Prints one object.
    pub(super) fn one(self, value: &Value, text: impl FnOnce() -> Result<String, Exit>) -> Result<(), Exit> {
        self.many(value, std::slice::from_ref(value), text)
    }

    /// Prints a list: `whole` as the server returned it, or its `items` line by line.
    pub(super) fn many(
        self,
        whole: &Value,
        items: &[Value],
        text: impl FnOnce() -> Result<String, Exit>,
    ) -> Result<(), Exit> {
        match self {
            Format::Text => write_text(&text()?),
            Format::Json => write(&format!("{whole:#}\n")),
            Format::Jsonl => write(&lines(items.iter().map(Value::to_string))),
        }
    }
}

/// Writes to standard output. `print!` would panic on a closed pipe.
pub(super) fn write(text: &str) -> Result<(), Exit> {
    write_bytes(text.as_bytes())
}

/// Writes bytes to standard output.
pub(super) fn write_bytes(bytes: &[u8]) -> Result<(), Exit> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Exit::BrokenPipe,
        _ => Exit::Error(format!("cannot write to standard output: {error}")),
    })
}

/// Writes text to standard output; on a terminal without control characters, because the text may come from outside.
pub(super) fn write_text(text: &str) -> Result<(), Exit> {
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    if io::stdout().is_terminal() {
        return write(&format!("{}{end}", harmless(text)));
    }
    write(&format!("{text}{end}"))
}

/// Replaces control characters in `text`, except line breaks and tabs.
fn harmless(text: &str) -> String {
    let spelled = |c: char| if c.is_control() && !matches!(c, '\n' | '\t') { '\u{fffd}' } else { c };
    text.chars().map(spelled).collect()
}

/// Words for states, with their ANSI colours.
const COLOURS: [(&str, u8); 9] = [
    ("running", 32),
    ("completed", 32),
    ("closed", 32),
    ("paused", 33),
    ("half-open", 33),
    ("open", 31),
    ("failed", 31),
    ("dropped", 31),
    ("full", 33),
];

/// Whether standard output is a terminal and `NO_COLOR` is not set.
pub(super) fn has_colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Colours a list, if colours are wanted.
pub(super) fn painted(text: &str) -> String {
    if has_colours() { paint(&harmless(text)) } else { text.to_owned() }
}

/// Colours a list. The first line is the heading; words are separated by spaces and may end with a comma or semicolon.
fn paint(text: &str) -> String {
    let word = |word: &str| {
        let bare = word.trim_end_matches([',', ';', '\n']);
        let colour = COLOURS.iter().find(|(known, _)| *known == bare).map(|(_, colour)| colour);
        match colour {
            Some(colour) => format!("\u{1b}[{colour}m{bare}\u{1b}[0m{}", &word[bare.len()..]),
            None => word.to_owned(),
        }
    };
    let line = |(at, line): (usize, &str)| match at {
        0 => format!("\u{1b}[1m{}\u{1b}[0m\n", line.trim_end()),
        _ => line.split(' ').map(word).collect::<Vec<_>>().join(" "),
    };
    text.split_inclusive('\n').enumerate().map(line).collect()
}

/// A number in at most four characters, up to a billion.
pub(super) fn short(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..1_000_000 => format!("{}k", number / 1_000),
        1_000_000..10_000_000 => format!("{}.{}M", number / 1_000_000, number / 100_000 % 10),
        _ => format!("{}M", number / 1_000_000),
    }
}

/// Parses a response of the server.
pub(super) fn typed<T: DeserializeOwned>(value: &Value) -> Result<T, Exit> {
    T::deserialize(value).map_err(|error| {
        let help = "help: `-o json` prints it; does the server have another version?";
        Exit::Error(format!("the server's response has an unexpected form: {error}\n{help}"))
    })
}

/// Parses a list in a response of the server.
pub(super) fn typed_all<T: DeserializeOwned>(items: &[Value]) -> Result<Vec<T>, Exit> {
    items.iter().map(typed).collect()
}

/// Aligned columns under a heading; empty if there are no rows.
pub(super) fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.iter().copied());
    for at in 0..head.len() {
        let numbers = rows.iter().all(|row| row.get(at).is_some_and(|cell| is_number(cell)));
        if let Some(column) = table.column_mut(at) {
            column.set_padding((0, 2));
            if numbers {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    for row in rows {
        table.add_row(row.iter().map(|cell| one_line(cell)));
    }
    lines(table.lines().map(|line| line.trim_end().to_owned()))
}

fn is_number(cell: &str) -> bool {
    !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// Replaces line breaks and other control characters in a cell.
pub(super) fn one_line(cell: &str) -> String {
    cell.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Names and values, one pair per line; missing values are omitted.
pub(super) fn fields(fields: &[(&str, Option<String>)]) -> String {
    let width = fields.iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name.len()).max();
    let width = width.unwrap_or_default();
    let line = |(name, value): &(&str, Option<String>)| {
        value.as_ref().map(|value| format!("{name:width$}  {}", one_line(value)))
    };
    lines(fields.iter().filter_map(line))
}

/// Indents `text` under a title; empty if there is no text.
pub(super) fn section(title: &str, text: &str) -> String {
    let indented = |line: &str| if line.is_empty() { String::new() } else { format!("  {line}") };
    let body = lines(text.lines().map(indented));
    if body.is_empty() { body } else { format!("\n{title}\n{body}") }
}

/// Joins lines, each with a line break.
fn lines(lines: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// JSON for people: strings unquoted, anything else indented.
pub(super) fn readable(value: &Value) -> String {
    value.as_str().map_or_else(|| format!("{value:#}"), ToOwned::to_owned)
}

/// The value, or a dash.
pub(super) fn or_dash(value: Option<&str>) -> String {
    value.unwrap_or("-").to_owned()
}

/// `1 job`, `2 jobs`.
pub(super) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    #[test]
    fn columns_are_aligned_and_numbers_are_right_aligned() {
        let shown = table(&["LANE", "WAIT"], vec![row(&["a", "7"]), row(&["longer", "10"])]);
        assert_eq!(shown, "LANE    WAIT\na          7\nlonger    10\n");
        assert_eq!(table(&["LANE"], Vec::new()), "");
    }

    #[test]
    fn states_are_coloured_without_moving_columns() {
        assert_eq!(
            paint("LANE  STATE\na     paused\nopen  running\nb     breaker: open; x\n"),
            "\u{1b}[1mLANE  STATE\u{1b}[0m\na     \u{1b}[33mpaused\u{1b}[0m\n\u{1b}[31mopen\u{1b}[0m  \u{1b}[32mrunning\u{1b}[0m\n\
             b     breaker: \u{1b}[31mopen\u{1b}[0m; x\n"
        );
    }

    #[test]
    fn large_numbers_are_shortened() {
        let shown = [0, 9_999, 10_000, 999_999, 1_000_000, 9_999_999, 12_345_678].map(short);
        assert_eq!(shown, ["0", "9999", "10k", "999k", "1.0M", "9.9M", "12M"]);
    }

    #[test]
    fn control_characters_from_outside_are_replaced() {
        assert_eq!(table(&["A"], vec![row(&["x\ny\u{1b}[31m"])]), "A\nx y [31m\n");
        assert_eq!(harmless("a\tb\n\u{1b}]0;t\u{7}"), "a\tb\n\u{fffd}]0;t\u{fffd}");
    }

    #[test]
    fn missing_fields_are_omitted() {
        let shown = fields(&[("id", Some("1".into())), ("absent", None), ("lane", Some("mail".into()))]);
        assert_eq!(shown, "id    1\nlane  mail\n");
    }
}
