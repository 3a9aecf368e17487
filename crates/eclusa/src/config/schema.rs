//! The JSON Schema of the file, for editors. It is generated from the readers, so it cannot differ from them.

use serde_json::{Map, Value, json};

use super::describe;
use super::read::{KeyDoc, ValueKind};

/// The schema, draft 2020-12.
pub fn schema() -> Value {
    let mut schema = table(&describe());
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Eclusa configuration");
    schema["$defs"] = json!({
        "variable": {
            "type": "string",
            "pattern": "^\\$\\{[^}]*\\}$",
            "description": "An environment variable: `${VAR}`, `${VAR:-default}` or `${VAR:?message}`.",
        },
        "duration": text_like("[0-9]+(ms|s|m|h|d)", "A whole number and `ms`, `s`, `m`, `h` or `d`."),
        "size": {
            "anyOf": [
                text_like("[0-9]+(B|KiB|MiB|GiB|KB|MB|GB)", "A whole number and a unit."),
                { "type": "integer", "minimum": 1, "description": "A number of bytes." },
            ],
        },
        "rate": text_like("[0-9]+/(s|min|h|day)", "A whole number per `s`, `min`, `h` or `day`."),
    });
    schema
}

/// A string of this form, or any string that contains a variable.
fn text_like(pattern: &str, description: &str) -> Value {
    json!({ "type": "string", "pattern": format!("^{pattern}$|\\$\\{{"), "description": description })
}

fn table(keys: &[KeyDoc]) -> Value {
    let properties: Map<String, Value> =
        keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let required: Vec<&str> = keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    let mut table = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        table["required"] = json!(required);
    }
    table
}

fn property(key: &KeyDoc) -> Value {
    let mut property = kind(&key.kind);
    property["description"] = json!(key.doc);
    if let Some(default) = key.default.as_deref().and_then(from_toml) {
        property["default"] = default;
    }
    property
}

fn kind(kind: &ValueKind) -> Value {
    let variable = || json!({ "$ref": "#/$defs/variable" });
    match kind {
        ValueKind::Duration => json!({ "$ref": "#/$defs/duration" }),
        ValueKind::Size => json!({ "$ref": "#/$defs/size" }),
        ValueKind::Rate => json!({ "$ref": "#/$defs/rate" }),
        ValueKind::Integer(least) => {
            json!({ "anyOf": [{ "type": "integer", "minimum": least }, variable()] })
        }
        ValueKind::Boolean => json!({ "anyOf": [{ "type": "boolean" }, variable()] }),
        ValueKind::Off => json!({ "const": false }),
        ValueKind::Fraction => {
            json!({ "anyOf": [{ "type": "number", "minimum": 0, "maximum": 1 }, variable()] })
        }
        ValueKind::Json => json!({}),
        ValueKind::Text(_) => json!({ "type": "string" }),
        ValueKind::Words(words) => json!({ "anyOf": [{ "enum": words }, variable()] }),
        ValueKind::List(item) => json!({ "type": "array", "items": self::kind(item) }),
        ValueKind::Map(value) => json!({ "type": "object", "additionalProperties": self::kind(value) }),
        ValueKind::Table(keys) => table(keys),
        ValueKind::Switch(keys) => json!({ "anyOf": [{ "type": "boolean" }, table(keys), variable()] }),
        ValueKind::Named(keys) => json!({
            "type": "object",
            "propertyNames": { "pattern": "^[A-Za-z0-9._-]{1,64}$" },
            "additionalProperties": table(keys),
        }),
        ValueKind::Tables(keys) => json!({ "type": "array", "items": table(keys) }),
        ValueKind::OneOrMore(keys) => {
            json!({ "anyOf": [table(keys), { "type": "array", "items": table(keys) }] })
        }
        ValueKind::Either(one, other) => json!({ "anyOf": [self::kind(one), self::kind(other)] }),
    }
}

/// Parses a value in TOML notation.
fn from_toml(text: &str) -> Option<Value> {
    let table: toml::Table = format!("value = {text}").parse().ok()?;
    serde_json::to_value(table.get("value")?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_a_type_a_default_and_a_description() {
        let schema = schema();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        let lane = &schema["properties"]["lanes"]["additionalProperties"];
        assert_eq!(lane.get("required"), None);
        assert_eq!(schema["properties"]["upstreams"]["additionalProperties"]["required"], json!(["url"]));
        assert_eq!(lane["additionalProperties"], false);
        assert_eq!(
            lane["properties"]["capacity"],
            json!({
                "anyOf": [{ "type": "integer", "minimum": 1 }, { "$ref": "#/$defs/variable" }],
                "default": 1_000_000,
                "description": "The most jobs that may wait, over all priorities.",
            })
        );
        assert_eq!(lane["properties"]["mode"]["anyOf"][0], json!({ "enum": ["queue", "direct"] }));
        assert_eq!(lane["properties"]["retry"]["properties"]["jitter"]["default"], 0.25);
        assert_eq!(schema["properties"]["server"]["properties"]["listen"]["default"], "127.0.0.1:8080");
    }

    #[test]
    fn every_default_parses_and_every_key_is_described() {
        fn check(keys: &[KeyDoc]) {
            for key in keys {
                assert!(key.doc.ends_with('.'), "{} is described by a sentence", key.name);
                assert_eq!(
                    key.default.is_some(),
                    key.default.as_deref().and_then(from_toml).is_some(),
                    "{}",
                    key.name
                );
                if let ValueKind::Table(keys)
                | ValueKind::Switch(keys)
                | ValueKind::Named(keys)
                | ValueKind::Tables(keys)
                | ValueKind::OneOrMore(keys) = &key.kind
                {
                    assert!(!keys.is_empty(), "{}", key.name);
                    check(keys);
                }
                if let ValueKind::Map(value) = &key.kind
                    && let ValueKind::Table(keys) = &**value
                {
                    check(keys);
                }
            }
        }
        check(&describe());
    }
}
