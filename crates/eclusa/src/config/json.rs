//! JSON written in TOML.

use serde_json::{Number, Value as Any};
use toml::de::DeValue;

use super::read::{Entries, RawValue, Value, ValueKind};

/// A JSON value whose strings are read as `S`.
pub(super) enum Json<S> {
    /// A number or a boolean.
    Plain(Any),
    Text(S),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
    /// A part with a mistake, which was noted. The other parts are still checked.
    Invalid,
}

impl<S: Value> Value for Json<S> {
    fn kind() -> ValueKind {
        ValueKind::Json
    }

    fn read(raw: RawValue<'_>) -> Option<Self> {
        let read = match raw.value() {
            DeValue::String(_) => S::read(raw).map(Self::Text),
            DeValue::Array(_) => Vec::read(raw).map(Self::List),
            DeValue::Table(_) => {
                let members = Entries::<Self>::read(raw)?.valid();
                Some(Self::Object(members.map(|(name, value)| (name.value, value)).collect()))
            }
            _ => plain(&raw).map(Self::Plain),
        };
        Some(read.unwrap_or(Self::Invalid))
    }
}

impl Json<String> {
    /// The JSON value; `None` if a part is invalid.
    pub(super) fn into_value(self) -> Option<Any> {
        match self {
            Self::Plain(value) => Some(value),
            Self::Text(text) => Some(text.into()),
            Self::List(items) => items.into_iter().map(Self::into_value).collect(),
            Self::Object(members) => {
                let members = members.into_iter().map(|(name, value)| Some((name, value.into_value()?)));
                members.collect::<Option<_>>().map(Any::Object)
            }
            Self::Invalid => None,
        }
    }
}

/// Reads a number or a boolean; notes anything else as a mistake.
fn plain(raw: &RawValue<'_>) -> Option<Any> {
    let number = match raw.value() {
        DeValue::Boolean(value) => return Some((*value).into()),
        DeValue::Integer(number) => {
            let number = i128::from_str_radix(number.as_str(), number.radix()).ok();
            number.and_then(Number::from_i128)
        }
        DeValue::Float(number) => number.as_str().parse().ok().and_then(Number::from_f64),
        _ => {
            raw.mistyped("a JSON value", "write the date in quotes");
            return None;
        }
    };
    if number.is_none() {
        raw.wrong("is a number that JSON cannot represent", "write a smaller number");
    }
    number.map(Into::into)
}
