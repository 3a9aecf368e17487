//! Reading values, one type at a time.

use std::collections::BTreeSet;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};

use eclusa_core::Patterns;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::table::{entries, join};
use super::{At, Location, RawValue, ValueKind};

/// A type that can be read from a value.
pub(in super::super) trait Value: Sized {
    /// Whether it must never be shown.
    const SECRET: bool = false;
    /// Its description.
    fn kind() -> ValueKind;
    /// Reads it; `None` if a mistake was noted.
    fn read(raw: RawValue<'_>) -> Option<Self>;
}

/// A type that can be a default, which is shown in the config's notation.
pub(in super::super) trait Show {
    /// Includes quotes.
    fn show(&self) -> String;
}

/// What is wrong with a text, and how to fix it.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Wrong {
    pub(in super::super) problem: String,
    pub(in super::super) help: String,
    /// Whether the text may contain a secret.
    pub(in super::super) hide: bool,
}

impl Wrong {
    pub(in super::super) fn new(problem: impl Into<String>, help: impl Into<String>) -> Self {
        Self { problem: problem.into(), help: help.into(), hide: false }
    }
}

/// A type that is written as a string.
pub(in super::super) trait FromText: Sized {
    /// What it is, with its article: "a duration".
    const WHAT: &'static str;
    /// Whether it must never be shown.
    const SECRET: bool = false;
    /// How to write it, shown with errors.
    const HELP: &'static str;
    /// Its description.
    fn kind() -> ValueKind {
        ValueKind::Text(Self::WHAT)
    }
    /// Parses `text`.
    fn from_text(text: &str) -> Result<Self, Wrong>;
}

impl<T: FromText> Value for T {
    const SECRET: bool = T::SECRET;

    fn kind() -> ValueKind {
        T::kind()
    }

    fn read(raw: RawValue<'_>) -> Option<Self> {
        let Some(text) = raw.text().ok()? else {
            raw.mistyped(T::WHAT, T::HELP);
            return None;
        };
        let wrong = match T::from_text(&text.text) {
            Ok(value) => return Some(value),
            Err(wrong) => wrong,
        };
        if wrong.hide {
            raw.ctx.hide(raw.value, true);
        }
        raw.wrong(&wrong.problem, &wrong.help);
        None
    }
}

/// Returns "did you mean …?" if one of `known` is close to `word`.
pub(crate) fn suggest<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<String> {
    let word = word.to_lowercase();
    let distance = |known: &str| strsim::damerau_levenshtein(&word, &known.to_lowercase());
    let close = known.into_iter().map(|known| (distance(known), known)).min()?;
    let few = close.1.chars().count().max(word.chars().count()) / 3;
    (close.0 <= few.max(1)).then(|| format!("did you mean `{}`?", close.1))
}

impl<T: Value> Value for At<T> {
    const SECRET: bool = T::SECRET;

    fn kind() -> ValueKind {
        T::kind()
    }

    fn read(raw: RawValue<'_>) -> Option<Self> {
        let place = raw.place.clone();
        Some(At { value: T::read(raw)?, place })
    }
}

impl<T: Value> Value for Vec<T> {
    const SECRET: bool = T::SECRET;

    fn kind() -> ValueKind {
        ValueKind::List(Box::new(T::kind()))
    }

    fn read(raw: RawValue<'_>) -> Option<Self> {
        let read = |item| T::read(RawValue::new(raw.ctx, item, raw.place.path.clone()));
        let items = raw.list()?;
        let valid: Vec<T> = items.iter().filter_map(|item| read(item)).collect();
        // Invalid items were noted; the rest is checked further.
        (items.is_empty() || !valid.is_empty()).then_some(valid)
    }
}

/// A table with any keys. An invalid value is `None`, so that its key is still checked.
pub(in super::super) struct Entries<T>(Vec<(At<String>, Option<T>)>);

impl<T> Entries<T> {
    /// All entries.
    pub(in super::super) fn all(self) -> impl Iterator<Item = (At<String>, Option<T>)> {
        self.0.into_iter()
    }

    /// The entries with a valid value.
    pub(in super::super) fn valid(self) -> impl Iterator<Item = (At<String>, T)> {
        self.0.into_iter().filter_map(|(key, value)| Some((key, value?)))
    }
}

impl<T: Value> Value for Entries<T> {
    const SECRET: bool = T::SECRET;

    fn kind() -> ValueKind {
        ValueKind::Map(Box::new(T::kind()))
    }

    fn read(raw: RawValue<'_>) -> Option<Self> {
        let read = |(key, value): (&Spanned<toml::de::DeString<'_>>, _)| {
            let path = join(&raw.place.path, key.get_ref());
            let place = Location { span: key.span(), path: path.clone(), variables: BTreeSet::new() };
            let value = T::read(RawValue::new(raw.ctx, value, path));
            (At { value: key.get_ref().to_string(), place }, value)
        };
        Some(Entries(entries(raw.table()?).into_iter().map(read).collect()))
    }
}

/// One value for all, or a table of values by pattern.
pub(in super::super) struct ByPattern<T>(Patterns<T>);

impl<T> ByPattern<T> {
    /// Maps the values.
    pub(in super::super) fn map<U>(&self, change: impl Fn(&T) -> Option<U>) -> Patterns<U> {
        self.0.iter().filter_map(|(pattern, value)| Some((pattern.to_owned(), change(value)?))).collect()
    }
}

impl<T: Value> Value for ByPattern<T> {
    fn kind() -> ValueKind {
        ValueKind::Either(Box::new(T::kind()), Box::new(ValueKind::Map(Box::new(T::kind()))))
    }

    fn read(raw: RawValue<'_>) -> Option<Self> {
        let Some(table) = raw.value.get_ref().as_table() else {
            return Some(Self(Patterns::of_all(T::read(raw)?)));
        };
        if table.is_empty() {
            raw.wrong("is empty", "write one value for all tenants, or `{ \"PATTERN\" = … }`");
        }
        Some(Self(Entries::<T>::read(raw)?.valid().map(|(pattern, value)| (pattern.value, value)).collect()))
    }
}

impl<'a> RawValue<'a> {
    pub(super) fn table(&self) -> Option<&'a DeTable<'a>> {
        let table = self.value.get_ref().as_table();
        if table.is_none() {
            self.mistyped("a table", "write `{ key = value }`, or a section in `[…]`");
        }
        table
    }

    pub(super) fn list(&self) -> Option<Vec<&'a Spanned<DeValue<'a>>>> {
        let list = self.value.get_ref().as_array();
        if list.is_none() {
            self.mistyped("a list", "write it in brackets: `[…]`");
        }
        Some(list?.iter().collect())
    }

    pub(super) fn boolean(&self, wanted: &str, help: &str) -> Option<bool> {
        if let Some(value) = self.value.get_ref().as_bool() {
            return Some(value);
        }
        match self.text().ok()? {
            Some(done) if done.whole => match done.text.as_str() {
                "true" => return Some(true),
                "false" => return Some(false),
                _ => self.wrong("must be `true` or `false`", help),
            },
            _ => self.mistyped(wanted, help),
        }
        None
    }

    /// Reads a whole number, at least `least`.
    pub(in super::super) fn integer(&self, least: u64) -> Option<u64> {
        let number = match self.value.get_ref() {
            DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => match self.text().ok()? {
                Some(done) if done.whole => done.text.trim().parse().ok(),
                _ => {
                    self.mistyped("a whole number", "write it without quotes, unit or fraction");
                    return None;
                }
            },
        };
        match number {
            Some(number) if number < i128::from(least) && least > 0 => {
                self.wrong("must be greater than zero", "a limit of zero would admit nothing");
            }
            Some(number) if number < 0 => self.wrong("must not be negative", "write a whole number"),
            Some(number) => {
                let number = u64::try_from(number).ok();
                if number.is_none() {
                    self.too_large();
                }
                return number;
            }
            None => self.wrong("must be a whole number", "write it without unit or fraction"),
        }
        None
    }

    fn too_large(&self) {
        self.wrong("is too large", "write a smaller number");
    }
}

impl Value for bool {
    fn kind() -> ValueKind {
        ValueKind::Boolean
    }

    fn read(raw: RawValue<'_>) -> Option<Self> {
        raw.boolean("true or false", "write it without quotes")
    }
}

impl Show for bool {
    fn show(&self) -> String {
        self.to_string()
    }
}

macro_rules! integer {
    ($type:ty, $least:literal, $make:expr) => {
        impl Value for $type {
            fn kind() -> ValueKind {
                ValueKind::Integer($least)
            }

            fn read(raw: RawValue<'_>) -> Option<Self> {
                let number = raw.integer($least)?;
                let made = $make(number);
                if made.is_none() {
                    raw.too_large();
                }
                made
            }
        }

        impl Show for $type {
            fn show(&self) -> String {
                self.to_string()
            }
        }
    };
}

integer!(u64, 0, Some);
integer!(NonZeroU64, 1, NonZeroU64::new);
integer!(NonZeroU32, 1, |number| u32::try_from(number).ok().and_then(NonZeroU32::new));
integer!(NonZeroUsize, 1, |number| usize::try_from(number).ok().and_then(NonZeroUsize::new));
