//! The errors in a configuration file, shown at their location.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde_json::{Value, json};

/// All errors in a file, in file order.
#[derive(Clone)]
pub struct ConfigErrors {
    file: String,
    /// The contents of the file, with stars instead of secrets.
    text: String,
    errors: Vec<ConfigError>,
}

/// One error in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Where it is; `None` if it concerns the whole file.
    pub place: Option<LineColumn>,
    /// What is wrong.
    pub problem: String,
    /// How to fix it; may be empty.
    pub help: String,
    span: Option<Range<usize>>,
}

/// A position in a text, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineColumn {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

/// An error before its line and column are computed.
#[derive(Debug)]
pub(super) struct Mistake {
    pub(super) span: Range<usize>,
    pub(super) problem: String,
    pub(super) help: String,
}

impl ConfigErrors {
    /// The file cannot be read at all.
    pub(crate) fn unreadable(file: &str, problem: &str, help: &str) -> Self {
        Self::without_source(file, None, problem, help)
    }

    /// An error that is reported without the text of its line, as in a file of variables: each value may be a secret.
    pub(crate) fn without_source(file: &str, line: Option<usize>, problem: &str, help: &str) -> Self {
        let place = line.map(|line| LineColumn { line, column: 1 });
        let error = ConfigError { place, problem: problem.into(), help: help.into(), span: None };
        Self { file: file.into(), text: String::new(), errors: vec![error] }
    }

    /// The `mistakes` in `text`; `secrets` are never shown.
    pub(super) fn new(file: &str, text: &str, mut mistakes: Vec<Mistake>, secrets: &[Range<usize>]) -> Self {
        mistakes.sort_by_key(|mistake| (mistake.span.start, mistake.span.end));
        let text = hide(text, secrets);
        let errors = mistakes
            .into_iter()
            .map(|mistake| ConfigError {
                place: Some(line_column(&text, mistake.span.start)),
                problem: mistake.problem,
                help: mistake.help,
                span: Some(mistake.span),
            })
            .collect();
        Self { file: file.into(), text, errors }
    }

    /// The name of the file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The errors as JSON, for programs.
    pub fn to_json(&self) -> Value {
        let one = |error: &ConfigError| {
            let place = error.place;
            json!({
                "line": place.map(|place| place.line),
                "column": place.map(|place| place.column),
                "problem": error.problem,
                "help": error.help,
            })
        };
        json!({ "ok": false, "file": self.file, "errors": self.errors.iter().map(one).collect::<Vec<_>>() })
    }

    /// The errors, in file order.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.errors.iter()
    }

    /// Renders each error with its source line and a marker below the location.
    pub fn render(&self, colour: bool) -> String {
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let shown: Vec<String> = self.errors.iter().map(|error| self.render_one(&renderer, error)).collect();
        shown.join("\n\n")
    }

    fn render_one(&self, renderer: &Renderer, error: &ConfigError) -> String {
        let title = if error.span.is_some() {
            error.problem.clone()
        } else {
            let line = error.place.map(|place| format!(":{}", place.line)).unwrap_or_default();
            format!("{}{line}: {}", self.file, error.problem)
        };
        let mut group = annotate_snippets::Group::with_title(Level::ERROR.primary_title(title));
        if let Some(span) = &error.span {
            let mark = AnnotationKind::Primary.span(span.clone());
            group = group.element(Snippet::source(&self.text).path(&self.file).annotation(mark));
        }
        if !error.help.is_empty() {
            group = group.element(Level::HELP.message(&error.help));
        }
        renderer.render(&[group])
    }
}

/// A syntax error, with help.
pub(super) fn bad_syntax(error: &toml::de::Error) -> Mistake {
    let help = match error.message() {
        "duplicate key" => "a key may appear only once in a table: remove one of them",
        message if message.contains("string") => "strings need quotes, as in `listen = \"127.0.0.1:8080\"`",
        _ => "a line is `key = value` or `[table]`; strings need quotes",
    };
    let problem = format!("invalid TOML: {}", error.message());
    Mistake { span: error.span().unwrap_or(0..0), problem, help: help.into() }
}

/// The possible secrets in the line around `at`, where keys and values cannot be told apart: everything in quotes, and
/// every other word that is as long as a secret could be.
pub(super) fn possible_secrets(text: &str, at: usize) -> Vec<Range<usize>> {
    const LONG: usize = 12;
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
    let mut found = Vec::new();
    let (mut open, mut from) = (None, start);
    for (offset, c) in text[start..end].char_indices() {
        let here = start + offset;
        let ends = match open {
            Some(quote) => c == quote,
            None => c.is_whitespace() || matches!(c, '"' | '\'' | '=' | ',' | '{' | '}' | '[' | ']'),
        };
        if ends {
            if open.is_some() || here - from >= LONG {
                found.push(from..here);
            }
            open = if open.is_none() && matches!(c, '"' | '\'') { Some(c) } else { None };
            from = here + c.len_utf8();
        }
    }
    if open.is_some() || end - from >= LONG {
        found.push(from..end);
    }
    found
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

/// Same as `Display`: printing the file's text could reveal a secret that was not recognised.
impl fmt::Debug for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ConfigErrors {}

fn line_column(text: &str, at: usize) -> LineColumn {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    LineColumn { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
}

/// Replaces `secrets` in `text` with stars, except quotes and variable names, which help and reveal nothing. Byte offsets
/// stay the same.
fn hide(text: &str, secrets: &[Range<usize>]) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut in_variable = false;
    for (at, c) in text.char_indices() {
        let secret = secrets.iter().any(|span| span.contains(&at));
        in_variable = match c {
            '$' => text[at..].starts_with("${"),
            '{' | '_' => in_variable,
            _ => in_variable && c.is_ascii_alphanumeric(),
        };
        if !secret || in_variable || matches!(c, '"' | '\'' | '}' | '\r' | '\n') {
            shown.push(c);
        } else {
            shown.extend(std::iter::repeat_n('*', c.len_utf8()));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_without_moving_anything() {
        let text = "a = \"ção ${VAR:-abc}\"\nb = \"open\"";
        let first_value = 4..text.find('\n').unwrap();
        let hidden = hide(text, std::slice::from_ref(&first_value));
        assert_eq!(hidden, "a = \"******${VAR*****}\"\nb = \"open\"");
        assert_eq!(hidden.len(), text.len());
    }

    #[test]
    fn lines_and_columns_count_from_one_in_characters() {
        let place = |at| line_column("é = 1\nb = 2", at);
        assert_eq!(place(0), LineColumn { line: 1, column: 1 });
        assert_eq!(place(3), LineColumn { line: 1, column: 3 });
        assert_eq!(place(7), LineColumn { line: 2, column: 1 });
        assert_eq!(place(99), LineColumn { line: 2, column: 6 });
    }
}
