//! JSON values written in TOML.

use serde_json::{Map, Number, Value as Any};
use toml::de::DeValue;

use super::read::{Entries, RawValue, Value, ValueKind};

/// Any JSON value, with variables replaced in its strings.
pub(super) struct JsonValue(pub(super) Any);

impl Value for JsonValue {
    fn kind() -> ValueKind {
        ValueKind::Json
    }

    fn read(raw: RawValue<'_>) -> Option<Self> {
        let value = match raw.value() {
            DeValue::String(_) => raw.text().ok()??.text.into(),
            // An invalid item was noted; without it the value would be a different one.
            DeValue::Array(items) => {
                let read = Vec::<Self>::read(raw)?;
                if read.len() < items.len() {
                    return None;
                }
                read.into_iter().map(|item| item.0).collect()
            }
            DeValue::Table(_) => {
                let members = Entries::<Self>::read(raw)?.all();
                Any::Object(
                    members
                        .map(|(name, value)| Some((name.value, value?.0)))
                        .collect::<Option<Map<_, _>>>()?,
                )
            }
            _ => plain(&raw)?,
        };
        Some(Self(value))
    }
}

/// Reads a number or a boolean; notes anything else as a mistake.
pub(super) fn plain(raw: &RawValue<'_>) -> Option<Any> {
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
