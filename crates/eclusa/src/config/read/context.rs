//! What all tables of one file share, and values that are not interpreted yet.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeValue;

use super::super::error::Mistake;
use super::super::interpolate::{Interpolated, interpolate, variables};
use super::super::texts::FilePath;

/// The largest key or certificate file.
pub(in super::super) const MAX_FILE_BYTES: u64 = 1 << 20;

/// One file being read.
pub(in super::super) struct Context<'a> {
    text: &'a str,
    dir: PathBuf,
    env: &'a dyn Fn(&str) -> Option<String>,
    /// Enters every table without reading anything, to collect the keys.
    pub(super) describing: bool,
    mistakes: RefCell<Vec<Mistake>>,
    secrets: RefCell<Vec<Range<usize>>>,
    /// The names of lanes and upstreams, which are not secret.
    names: RefCell<BTreeSet<String>>,
}

impl<'a> Context<'a> {
    /// For a file named `name` that contains `text`.
    pub(in super::super) fn new(name: &str, text: &'a str, env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        let dir = Path::new(name).parent().map(Path::to_owned).unwrap_or_default();
        let (mistakes, secrets, names) = (RefCell::default(), RefCell::default(), RefCell::default());
        Self { text, dir, env, describing: false, mistakes, secrets, names }
    }

    /// For collecting the keys without a file.
    pub(in super::super) fn describing() -> Context<'static> {
        Context { describing: true, ..Context::new("", "", &|_| None) }
    }

    /// The environment variable `name`.
    pub(in super::super) fn variable(&self, name: &str) -> Option<String> {
        (self.env)(name)
    }

    /// Notes that the value at `place` is invalid. The message names the variables it came from, never the value.
    pub(in super::super) fn wrong(&self, place: &Location, problem: &str, help: &str) {
        let names: Vec<&str> = place.variables.iter().map(String::as_str).collect();
        let origin =
            if names.is_empty() { String::new() } else { format!(" (set by `{}`)", names.join("`, `")) };
        self.note(place.span.clone(), format!("`{}` {problem}{origin}", place.path), help.to_owned());
    }

    /// Notes a mistake that is not about one value.
    pub(super) fn note(&self, span: Range<usize>, problem: String, help: String) {
        self.mistakes.borrow_mut().push(Mistake { span, problem, help });
    }

    /// Adds names that are not secret, wherever they appear.
    pub(in super::super) fn add_public_names(&self, names: &[String]) {
        self.names.borrow_mut().extend(names.iter().cloned());
    }

    /// Hides every string in `value` from all errors; if `all`, also numbers, booleans and the names of lanes and upstreams.
    pub(super) fn hide(&self, value: &Spanned<DeValue<'_>>, all: bool) {
        match value.get_ref() {
            DeValue::Array(items) => items.iter().for_each(|item| self.hide(item, all)),
            DeValue::Table(table) => table.iter().for_each(|(_, item)| self.hide(item, all)),
            other if !all && other.as_str().is_some_and(|text| self.names.borrow().contains(text)) => {}
            other if all || other.is_str() => self.secrets.borrow_mut().push(value.span()),
            _ => {}
        }
    }

    /// Returns all mistakes, and the spans of secrets.
    pub(in super::super) fn finish(self) -> (Vec<Mistake>, Vec<Range<usize>>) {
        (self.mistakes.into_inner(), self.secrets.into_inner())
    }

    /// The path of a file that the config names.
    pub(in super::super) fn path(&self, path: &At<FilePath>) -> PathBuf {
        self.dir.join(&path.value.0)
    }

    /// The contents of a file that the config names, relative to the config's directory.
    pub(in super::super) fn file(&self, path: &At<FilePath>) -> Option<Vec<u8>> {
        let read = || {
            let mut bytes = Vec::new();
            std::fs::File::open(self.path(path))?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
            Ok::<_, std::io::Error>(bytes)
        };
        match read() {
            Ok(bytes) if bytes.len() as u64 <= MAX_FILE_BYTES => return Some(bytes),
            Ok(_) => self.wrong(&path.place, "names a file of more than 1 MiB", "name the right file"),
            Err(error) => {
                let help = "paths are relative to the config file's directory";
                self.wrong(&path.place, &format!("names a file that cannot be read: {error}"), help);
            }
        }
        None
    }
}

/// Where a value is in the file.
#[derive(Debug, Clone)]
pub(in super::super) struct Location {
    /// The byte range in the text.
    pub(super) span: Range<usize>,
    /// Its full name, such as `lanes.score.ttl`.
    pub(super) path: String,
    /// The variables it contains.
    pub(super) variables: BTreeSet<String>,
}

/// A value and its location.
#[derive(Debug, Clone)]
pub(in super::super) struct At<T> {
    pub(in super::super) value: T,
    pub(in super::super) place: Location,
}

/// A value of the file, not interpreted yet.
pub(in super::super) struct RawValue<'a> {
    pub(super) ctx: &'a Context<'a>,
    pub(super) value: &'a Spanned<DeValue<'a>>,
    pub(super) place: Location,
}

impl<'a> RawValue<'a> {
    /// The value at `path`.
    pub(super) fn new(ctx: &'a Context<'a>, value: &'a Spanned<DeValue<'a>>, path: String) -> Self {
        let variables = value.get_ref().as_str().map(variables).unwrap_or_default();
        Self { ctx, value, place: Location { span: value.span(), path, variables } }
    }

    /// The TOML value.
    pub(in super::super) fn value(&self) -> &'a DeValue<'a> {
        self.value.get_ref()
    }

    /// Notes that this value is invalid.
    pub(in super::super) fn wrong(&self, problem: &str, help: &str) {
        self.ctx.wrong(&self.place, problem, help);
    }

    /// Notes that this value has the wrong type.
    pub(in super::super) fn mistyped(&self, wanted: &str, help: &str) {
        let found = match self.value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.wrong(&format!("must be {wanted}, not {found}"), help);
    }

    /// The text with variables replaced, if it is a string; `Err` if a mistake was noted.
    pub(in super::super) fn text(&self) -> Result<Option<Interpolated>, ()> {
        let Some(text) = self.value.get_ref().as_str() else {
            return Ok(None);
        };
        let errors = match interpolate(text, self.ctx.env) {
            Ok(done) => return Ok(Some(done)),
            Err(errors) => errors,
        };
        for error in errors {
            let span = self.span_of(&error.written);
            self.ctx.note(span, format!("`{}` {}", self.place.path, error.problem), error.help);
        }
        Err(())
    }

    /// The span of `part` in this string, or of the whole string if escapes hide it.
    fn span_of(&self, part: &str) -> Range<usize> {
        let whole = self.value.span();
        let found = self.ctx.text.get(whole.clone()).and_then(|source| source.find(part));
        found.map_or(whole.clone(), |at| whole.start + at..whole.start + at + part.len())
    }
}
