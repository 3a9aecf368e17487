//! A table whose keys are read one by one.

use std::collections::BTreeSet;

use eclusa_core::{Name, SpecError};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::texts::FilePath;
use super::{At, Context, FromText, KeyDoc, Location, RawValue, Show, Value, ValueKind, suggest};

/// A table of the file, possibly missing.
pub(in super::super) struct Table<'a> {
    ctx: &'a Context<'a>,
    entries: Option<&'a DeTable<'a>>,
    place: Location,
    /// The keys read so far.
    docs: Vec<KeyDoc>,
}

impl<'a> Table<'a> {
    /// The whole file.
    pub(in super::super) fn root(ctx: &'a Context<'a>, entries: &'a DeTable<'a>) -> Self {
        let place = Location { span: 0..0, path: String::new(), variables: BTreeSet::new() };
        Self { ctx, entries: Some(entries), place, docs: Vec::new() }
    }

    /// What all tables of the file share.
    pub(in super::super) fn context(&self) -> &'a Context<'a> {
        self.ctx
    }

    /// Reads an optional key.
    pub(in super::super) fn get<T: Value>(&mut self, key: &'static str, doc: &'static str) -> Option<T> {
        self.describe(key, T::kind(), None, false, doc);
        self.read(key)
    }

    /// Reads a key with a default, which also replaces an invalid value after noting the mistake.
    pub(in super::super) fn or<T: Value + Show>(
        &mut self,
        key: &'static str,
        default: T,
        doc: &'static str,
    ) -> T {
        self.describe(key, T::kind(), Some(default.show()), false, doc);
        self.read(key).unwrap_or(default)
    }

    /// Reads a required key; `example` shows how to write it.
    pub(in super::super) fn need<T: Value>(
        &mut self,
        key: &'static str,
        example: &str,
        doc: &'static str,
    ) -> Option<T> {
        self.describe(key, T::kind(), None, true, doc);
        if !self.has(key) {
            self.wrong(key, "is missing", &format!("add `{key} = {example}`"));
        }
        self.read(key)
    }

    /// Reads the contents of the file that an optional key names.
    pub(in super::super) fn file(&mut self, key: &'static str, doc: &'static str) -> Option<Vec<u8>> {
        let path = self.get::<At<FilePath>>(key, doc)?;
        self.ctx.file(&path)
    }

    /// Reads a table even if it is missing; then all its keys have their defaults.
    pub(in super::super) fn section<T>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        read: impl FnOnce(&mut Table<'a>) -> T,
    ) -> T {
        let entries = self.raw(key).and_then(|raw| raw.table());
        let (value, docs) = self.child(key, entries, read);
        self.describe(key, ValueKind::Table(docs), None, false, doc);
        value
    }

    /// Reads an optional table.
    pub(in super::super) fn table<T>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        read: impl FnOnce(&mut Table<'a>) -> T,
    ) -> Option<T> {
        let entries = self.raw(key).and_then(|raw| raw.table());
        if entries.is_none() && !self.ctx.describing {
            self.describe(key, ValueKind::Table(Vec::new()), None, false, doc);
            return None;
        }
        let (value, docs) = self.child(key, entries, read);
        self.describe(key, ValueKind::Table(docs), None, false, doc);
        Some(value)
    }

    /// Reads a table as [`Table::section`] does, unless the key is `false`.
    pub(in super::super) fn switch<T>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        read: impl FnOnce(&mut Table<'a>) -> T,
    ) -> Option<T> {
        let raw = self.raw(key);
        let entries = raw.as_ref().and_then(|raw| raw.value.get_ref().as_table());
        let off = match &raw {
            Some(raw) if entries.is_none() => {
                raw.boolean("false or a table", "write `false` or `{ … }`") == Some(false)
            }
            _ => false,
        };
        let (value, docs) = self.child(key, entries, read);
        self.describe(key, ValueKind::Switch(docs), None, false, doc);
        (!off).then_some(value)
    }

    /// Reads a table of tables under names that the user chooses. Tables whose reader gave up are omitted.
    pub(in super::super) fn named<T>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        read: impl Fn(&Name, &mut Table<'a>) -> Option<T>,
    ) -> Vec<(Name, T)> {
        let mut docs = Vec::new();
        let mut values = Vec::new();
        if self.ctx.describing
            && let Ok(name) = Name::new("NAME")
        {
            docs = self.child(key, None, |table| read(&name, table)).1;
        }
        for (name, raw) in
            self.raw(key).and_then(|raw| raw.table()).into_iter().flat_map(|table| entries(table))
        {
            let raw = RawValue::new(self.ctx, raw, join(&join(&self.place.path, key), name.get_ref()));
            let place =
                Location { span: name.span(), path: raw.place.path.clone(), variables: BTreeSet::new() };
            let Some(table) = raw.table() else { continue };
            let valid = Name::from_text(name.get_ref());
            if let Err(wrong) = &valid {
                self.ctx.wrong(&place, &wrong.problem, &wrong.help);
            }
            if name.get_ref().starts_with('_') {
                let problem = "begins with `_`, which is reserved for Eclusa";
                self.ctx.wrong(&place, problem, "choose another name");
            }
            // Read even under an invalid name, so that its contents are checked too.
            let Ok(known) = valid.or_else(|_| Name::new("NAME")) else { continue };
            let value = Table::of(self.ctx, Some(table), raw.place).run(|table| read(&known, table)).0;
            values.extend(value.map(|value| (known, value)));
        }
        self.describe(key, ValueKind::Named(docs), None, false, doc);
        values
    }

    /// Reads a table of tables under any keys. Tables whose reader gave up are omitted.
    pub(in super::super) fn keyed<T>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        read: impl Fn(&mut Table<'a>) -> Option<T>,
    ) -> Vec<(String, T)> {
        let mut values = Vec::new();
        let docs = if self.ctx.describing { self.child(key, None, &read).1 } else { Vec::new() };
        let path = join(&self.place.path, key);
        for (name, raw) in
            self.raw(key).and_then(|raw| raw.table()).into_iter().flat_map(|table| entries(table))
        {
            let raw = RawValue::new(self.ctx, raw, join(&path, name.get_ref()));
            let Some(table) = raw.table() else { continue };
            let value = Table::of(self.ctx, Some(table), raw.place).run(&read).0;
            values.extend(value.map(|value| (name.get_ref().to_string(), value)));
        }
        self.describe(key, ValueKind::Map(Box::new(ValueKind::Table(docs))), None, false, doc);
        values
    }

    /// Reads a list of tables.
    pub(in super::super) fn tables<T>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        read: impl Fn(&mut Table<'a>) -> T,
    ) -> Vec<T> {
        let mut docs = Vec::new();
        let mut values = Vec::new();
        if self.ctx.describing {
            docs = self.child(key, None, &read).1;
        }
        let path = join(&self.place.path, key);
        for raw in self.raw(key).and_then(|raw| raw.list()).into_iter().flatten() {
            let raw = RawValue::new(self.ctx, raw, path.clone());
            let Some(table) = raw.table() else { continue };
            values.push(Table::of(self.ctx, Some(table), raw.place).run(&read).0);
        }
        self.describe(key, ValueKind::Tables(docs), None, false, doc);
        values
    }

    /// Reads a table, or a list of tables.
    pub(in super::super) fn one_or_more<T>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        read: impl Fn(&mut Table<'a>) -> T,
    ) -> Vec<T> {
        let raw = self.raw(key);
        if raw.as_ref().is_some_and(|raw| raw.value.get_ref().is_array()) {
            return self.tables(key, doc, read);
        }
        let entries = raw.and_then(|raw| raw.table());
        if entries.is_none() && !self.ctx.describing {
            self.describe(key, ValueKind::OneOrMore(Vec::new()), None, false, doc);
            return Vec::new();
        }
        let (value, docs) = self.child(key, entries, read);
        self.describe(key, ValueKind::OneOrMore(docs), None, false, doc);
        vec![value]
    }

    /// Whether the key is present.
    pub(in super::super) fn has(&self, key: &str) -> bool {
        self.entries.is_some_and(|entries| entries.contains_key(key))
    }

    /// The names under a key that holds tables, including invalid ones.
    pub(in super::super) fn names_under(&self, key: &str) -> Vec<String> {
        let value = self.entries.and_then(|entries| entries.get(key));
        let below = value.and_then(|value| value.get_ref().as_table());
        below.into_iter().flat_map(DeTable::keys).map(|name| name.get_ref().to_string()).collect()
    }

    /// Whether `key` of `table` is a non-empty list, before either is read.
    pub(in super::super) fn lists(&self, table: &str, key: &str) -> bool {
        let table = self.entries.and_then(|entries| entries.get(table)?.get_ref().as_table());
        let list = table.and_then(|table| table.get(key)?.get_ref().as_array());
        list.is_some_and(|list| !list.is_empty())
    }

    /// Notes that something is missing that is not a key of this table.
    pub(in super::super) fn missing(&self, problem: &str, help: &str) {
        self.ctx.wrong(&self.place, problem, help);
    }

    /// Notes that the value of a key is invalid or missing.
    pub(in super::super) fn wrong(&self, key: &str, problem: &str, help: &str) {
        let missing = Location { path: join(&self.place.path, key), ..self.place.clone() };
        let place = self.raw(key).map_or(missing, |raw| raw.place);
        self.ctx.wrong(&place, problem, help);
    }

    /// Notes that a key does not belong here.
    pub(in super::super) fn misplaced(&self, key: &str, problem: &str, help: &str) {
        let path = join(&self.place.path, key);
        let place = self.place_of(key).unwrap_or_else(|| Location { path, ..self.place.clone() });
        self.ctx.wrong(&place, problem, help);
    }

    /// Where a key is, if it is present.
    pub(in super::super) fn place_of(&self, key: &str) -> Option<Location> {
        let (name, _) = self.entries?.get_key_value(key)?;
        let path = join(&self.place.path, key);
        Some(Location { span: name.span(), path, variables: BTreeSet::new() })
    }

    /// Returns the value of a rule; an error is noted at the key that it names.
    pub(in super::super) fn rule<T>(&self, made: Result<T, SpecError>) -> Option<T> {
        made.map_err(|error| {
            let key = error.field.rsplit('.').find(|part| self.has(part)).unwrap_or(&error.field);
            self.wrong(key, &error.problem, "");
        })
        .ok()
    }

    /// Notes unknown keys, and returns the descriptions of the known ones.
    pub(in super::super) fn close(self) -> Vec<KeyDoc> {
        for (key, value) in self.entries.into_iter().flat_map(|table| entries(table)) {
            let name = key.get_ref();
            if self.docs.iter().any(|known| known.name == name) {
                continue;
            }
            // The value of a misspelt or misplaced key may be a secret.
            self.ctx.hide(value, false);
            let known = self.docs.iter().map(|known| known.name);
            let within = match self.place.path.as_str() {
                "" => String::new(),
                path => format!(" in `{path}`"),
            };
            let help = suggest(name, known.clone())
                .unwrap_or_else(|| format!("known keys: `{}`", known.collect::<Vec<_>>().join("`, `")));
            self.ctx.note(key.span(), format!("unknown key `{name}`{within}"), help);
        }
        self.docs
    }

    fn of(ctx: &'a Context<'a>, entries: Option<&'a DeTable<'a>>, place: Location) -> Self {
        Self { ctx, entries, place, docs: Vec::new() }
    }

    fn run<T>(mut self, read: impl FnOnce(&mut Self) -> T) -> (T, Vec<KeyDoc>) {
        let value = read(&mut self);
        (value, self.close())
    }

    fn child<T>(
        &self,
        key: &str,
        entries: Option<&'a DeTable<'a>>,
        read: impl FnOnce(&mut Table<'a>) -> T,
    ) -> (T, Vec<KeyDoc>) {
        let missing = Location { path: join(&self.place.path, key), ..self.place.clone() };
        let place = self.raw(key).map_or(missing, |raw| raw.place);
        Table::of(self.ctx, entries, place).run(read)
    }

    fn read<T: Value>(&self, key: &str) -> Option<T> {
        let raw = self.raw(key)?;
        if T::SECRET {
            self.ctx.hide(raw.value, true);
        }
        T::read(raw)
    }

    fn raw(&self, key: &str) -> Option<RawValue<'a>> {
        let value = self.entries?.get(key)?;
        Some(RawValue::new(self.ctx, value, join(&self.place.path, key)))
    }

    fn describe(
        &mut self,
        name: &'static str,
        kind: ValueKind,
        default: Option<String>,
        required: bool,
        doc: &'static str,
    ) {
        debug_assert!(self.docs.iter().all(|known| known.name != name), "`{name}` is asked for once");
        self.docs.push(KeyDoc { name, kind, default, required, doc });
    }
}

/// The entries in file order.
pub(super) fn entries<'a>(
    table: &'a DeTable<'a>,
) -> Vec<(&'a Spanned<toml::de::DeString<'a>>, &'a Spanned<DeValue<'a>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

pub(super) fn join(path: &str, key: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let key = if key.chars().all(plain) { key.to_owned() } else { format!("{key:?}") };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}
