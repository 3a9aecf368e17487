//! The reference of all keys, as Markdown. It is generated from the readers, so it cannot differ from them.

use std::fmt::Write;

use super::describe;
use super::read::{KeyDoc, ValueKind};

const INTRODUCTION: &str = "\
# Configuration

One TOML file. All errors, unknown keys included, are reported at once, with line and column:
`eclusa check FILE`. Editors complete and check it with the JSON Schema that `eclusa schema` prints.

- Strings may take values from the environment: `\"${VAR}\"` (must be set), `\"${VAR:-default}\"`,
  `\"${VAR:?message}\"`; `$$` is a literal `$`. A string that is one variable may represent a number or a boolean.
- Durations are a whole number and `ms`, `s`, `m`, `h` or `d`: `\"500ms\"`, `\"24h\"`.
- Sizes are a number of bytes, or a whole number and a unit: `\"512KiB\"`, `\"1MiB\"`, `\"10MB\"`.
- Rates are a whole number per `s`, `min`, `h` or `day`: `\"10/s\"`, `\"40/day\"`.
- Paths of files are relative to the config file's directory.
- Names of lanes and upstreams are 1 to 64 letters, digits, `-`, `_` or `.`.
";

/// The whole page.
pub fn reference() -> String {
    let mut page = INTRODUCTION.to_owned();
    for section in describe() {
        add_section(&mut page, section.name, &section);
    }
    page
}

/// Adds a heading and a table of keys; tables of tables get their own sections.
fn add_section(page: &mut String, path: &str, section: &KeyDoc) {
    let (heading, keys) = match &section.kind {
        ValueKind::Named(keys) => (format!("[{path}.NAME]"), keys),
        ValueKind::Tables(keys) => (format!("[[{path}]]"), keys),
        ValueKind::Table(keys) => (format!("[{path}]"), keys),
        _ => return,
    };
    if let [only] = keys.as_slice()
        && matches!(only.kind, ValueKind::Tables(_))
    {
        return add_section(page, &format!("{path}.{}", only.name), only);
    }
    // Writing to a string cannot fail.
    let _ = write!(
        page,
        "\n## `{heading}`\n\n{}\n\n| key | type | default | meaning |\n|---|---|---|---|\n",
        section.doc
    );
    let named = matches!(section.kind, ValueKind::Named(_));
    let (lists, rows): (Vec<_>, Vec<_>) =
        keys.iter().partition(|key| named && matches!(key.kind, ValueKind::Tables(_)));
    rows.into_iter().for_each(|key| add_row(page, "", key));
    for list in lists {
        add_section(page, &format!("{path}.NAME.{}", list.name), list);
    }
}

fn add_row(page: &mut String, outer: &str, key: &KeyDoc) {
    let default = match (&key.default, key.required) {
        (Some(default), _) => format!("`{default}`"),
        (None, true) => "required".to_owned(),
        (None, false) => String::new(),
    };
    let doc = key.doc.replace('|', "\\|");
    let _ = writeln!(page, "| `{outer}{}` | {} | {default} | {doc} |", key.name, type_name(&key.kind));
    if let ValueKind::Table(keys)
    | ValueKind::Switch(keys)
    | ValueKind::Tables(keys)
    | ValueKind::OneOrMore(keys) = &key.kind
    {
        keys.iter().for_each(|inner| add_row(page, &format!("{outer}{}.", key.name), inner));
    }
    if let ValueKind::Map(value) = &key.kind
        && let ValueKind::Table(keys) = &**value
    {
        keys.iter().for_each(|inner| add_row(page, &format!("{outer}{}.NAME.", key.name), inner));
    }
}

fn type_name(kind: &ValueKind) -> String {
    let bare = |what: &str| what.trim_start_matches("a ").trim_start_matches("an ").to_owned();
    match kind {
        ValueKind::Duration => "duration".to_owned(),
        ValueKind::Size => "size".to_owned(),
        ValueKind::Rate => "rate".to_owned(),
        ValueKind::Integer(0) => "whole number".to_owned(),
        ValueKind::Integer(least) => format!("whole number, at least {least}"),
        ValueKind::Json => "any value".to_owned(),
        ValueKind::Boolean => "`true` or `false`".to_owned(),
        ValueKind::Off => "`false`".to_owned(),
        ValueKind::Fraction => "number from 0 to 1".to_owned(),
        ValueKind::Text(what) => bare(what),
        ValueKind::Words(words) => {
            words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", ")
        }
        ValueKind::List(item) => format!("list ({})", type_name(item)),
        ValueKind::Map(value) => format!("table ({})", type_name(value)),
        ValueKind::Table(_) | ValueKind::Named(_) => "table".to_owned(),
        ValueKind::Switch(_) => "table or `false`".to_owned(),
        ValueKind::Tables(_) => "list of tables".to_owned(),
        ValueKind::OneOrMore(_) => "table or list of tables".to_owned(),
        ValueKind::Either(one, other) => format!("{} or {}", type_name(one), type_name(other)),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_documentation_page_is_up_to_date() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/config.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, reference()).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == reference(),
            "docs/reference/config.md is out of date: run `UPDATE_DOCS=1 cargo nextest run -p eclusa config::reference`"
        );
    }
}
