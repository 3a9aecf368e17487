//! Amounts with units: durations, sizes, rates, fractions.

use std::time::Duration;

use eclusa_core::Span;
use toml::de::DeValue;

use super::read::{FromText, RawValue, Show, Value, ValueKind, Wrong};

const DURATIONS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZES: [(&str, u64); 7] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];
const RATES: [(&str, u64); 4] = [("s", 1), ("min", 60), ("h", 3_600), ("day", 86_400)];

/// The longest duration; short enough to be added to any date.
const LONGEST: Span = Span::from_secs(100 * 365 * 86_400);

pub(crate) const DURATION_HELP: &str =
    "write a whole number and a unit: \"500ms\", \"10s\", \"5m\", \"24h\", \"7d\"";
const SIZE_HELP: &str =
    "write a whole number and a unit: \"512KiB\", \"1MiB\", \"10MB\"; or a number of bytes";
const RATE_HELP: &str = "write a whole number per time: \"10/s\", \"1200/min\", \"5/h\", \"40/day\"";

const BYTE_RATE_HELP: &str = "write a size per second: \"1KiB/s\", \"500B/s\"";

/// Splits `text` into a number and the unit after it.
fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

fn factor(units: &[(&str, u64)], unit: &str) -> Option<u64> {
    units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor)
}

/// Writes `amount` in the largest of `units` that needs no fraction.
fn show(units: &[(&str, u64)], amount: u64) -> String {
    let fits = units.iter().filter(|(_, factor)| amount > 0 && amount.is_multiple_of(*factor));
    let (unit, factor) = fits.max_by_key(|(_, factor)| *factor).unwrap_or(&units[0]);
    format!("\"{}{unit}\"", amount / factor)
}

impl FromText for Span {
    const WHAT: &'static str = "a duration";
    const HELP: &'static str = DURATION_HELP;

    fn kind() -> ValueKind {
        ValueKind::Duration
    }

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let parsed = split(text).and_then(|(number, unit)| Some((number, factor(&DURATIONS, unit)?)));
        let Some((number, factor)) = parsed else {
            let bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            return Err(Wrong::new(if bare { "has no unit" } else { "is not a duration" }, DURATION_HELP));
        };
        let span = number.checked_mul(factor).map(Span::from_millis).filter(|span| *span <= LONGEST);
        span.ok_or_else(|| Wrong::new("is too long", "write at most \"36500d\""))
    }
}

/// Parses a duration in the config's notation; the error says what is wrong.
pub fn parse_duration(text: &str) -> Result<Span, String> {
    Span::from_text(text).map_err(|wrong| format!("{}: {}", wrong.problem, wrong.help))
}

impl Show for Span {
    fn show(&self) -> String {
        show(&DURATIONS, self.as_millis())
    }
}

/// Converts to the standard library's type.
pub(super) fn duration(span: Span) -> Duration {
    Duration::from_millis(span.as_millis())
}

/// A duration that is not zero.
#[derive(Debug, Clone, Copy)]
pub(super) struct PositiveSpan(pub(super) Span);

impl FromText for PositiveSpan {
    const WHAT: &'static str = Span::WHAT;
    const HELP: &'static str = DURATION_HELP;

    fn kind() -> ValueKind {
        ValueKind::Duration
    }

    fn from_text(text: &str) -> Result<Self, Wrong> {
        match Span::from_text(text)? {
            Span::ZERO => Err(Wrong::new("must be longer than zero", DURATION_HELP)),
            span => Ok(Self(span)),
        }
    }
}

impl Show for PositiveSpan {
    fn show(&self) -> String {
        self.0.show()
    }
}

/// A number of bytes, not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size(pub(super) u64);

impl Value for Size {
    fn kind() -> ValueKind {
        ValueKind::Size
    }

    fn read(raw: RawValue<'_>) -> Option<Self> {
        match raw.value() {
            DeValue::Integer(_) => raw.integer(1).map(Self),
            DeValue::String(_) => SizeText::read(raw).map(|size| Self(size.0)),
            _ => {
                raw.mistyped("a size", SIZE_HELP);
                None
            }
        }
    }
}

impl Show for Size {
    fn show(&self) -> String {
        show(&SIZES, self.0)
    }
}

/// A size that is written as a string.
#[derive(Debug)]
struct SizeText(u64);

impl FromText for SizeText {
    const WHAT: &'static str = "a size";
    const HELP: &'static str = SIZE_HELP;

    fn from_text(text: &str) -> Result<Self, Wrong> {
        // A variable may hold a plain number of bytes.
        let factor = |unit| if str::is_empty(unit) { Some(1) } else { factor(&SIZES, unit) };
        let Some((number, factor)) = split(text).and_then(|(number, unit)| Some((number, factor(unit)?)))
        else {
            return Err(Wrong::new("is not a size", SIZE_HELP));
        };
        match number.checked_mul(factor) {
            None => Err(Wrong::new("is too large", "write a smaller size")),
            Some(0) => Err(Wrong::new("must be greater than zero", SIZE_HELP)),
            Some(bytes) => Ok(Self(bytes)),
        }
    }
}

/// A count per time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RateValue {
    pub(super) count: u32,
    pub(super) per: Span,
}

impl FromText for RateValue {
    const WHAT: &'static str = "a rate";
    const HELP: &'static str = RATE_HELP;

    fn kind() -> ValueKind {
        ValueKind::Rate
    }

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let parts =
            split(text).and_then(|(count, per)| Some((count, factor(&RATES, per.strip_prefix('/')?)?)));
        let Some((count, secs)) = parts else {
            return Err(Wrong::new("is not a rate", RATE_HELP));
        };
        match u32::try_from(count) {
            Ok(0) => Err(Wrong::new("must be greater than zero", RATE_HELP)),
            Ok(count) => Ok(Self { count, per: Span::from_secs(secs) }),
            Err(_) => Err(Wrong::new("is too large", "write a smaller number")),
        }
    }
}

impl Show for RateValue {
    fn show(&self) -> String {
        let unit =
            RATES.iter().find(|(_, secs)| Span::from_secs(*secs) == self.per).map_or("s", |(unit, _)| unit);
        format!("\"{}/{unit}\"", self.count)
    }
}

/// Bytes per second, not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ByteRate(pub(super) u64);

impl FromText for ByteRate {
    const WHAT: &'static str = "bytes per second";
    const HELP: &'static str = BYTE_RATE_HELP;

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let Some(size) = text.strip_suffix("/s").and_then(|size| SizeText::from_text(size).ok()) else {
            return Err(Wrong::new("is not a number of bytes per second", BYTE_RATE_HELP));
        };
        Ok(Self(size.0))
    }
}

impl Show for ByteRate {
    fn show(&self) -> String {
        format!("{}/s\"", show(&SIZES, self.0).trim_end_matches('"'))
    }
}

/// A share, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Percent(pub(super) u8);

impl Value for Percent {
    fn kind() -> ValueKind {
        ValueKind::Fraction
    }

    fn read(raw: RawValue<'_>) -> Option<Self> {
        let micros = fraction(&raw, "`0.25` is a quarter")?;
        u8::try_from((micros + 5_000) / 10_000).ok().map(Self)
    }
}

/// Reads a number from 0 to 1, in millionths.
fn fraction(raw: &RawValue<'_>, help: &str) -> Option<u64> {
    let number: Option<f64> = match raw.value() {
        DeValue::Float(number) => number.as_str().parse().ok(),
        DeValue::Integer(number) => number.as_str().parse().ok(),
        _ => match raw.text().ok()? {
            Some(done) if done.whole => done.text.trim().parse().ok(),
            _ => {
                raw.mistyped("a number", "write it without quotes, such as `0.25`");
                return None;
            }
        },
    };
    let micros = number.filter(|number| (0.0..=1.0).contains(number)).map(|number| (number * 1e6).round());
    if micros.is_none() {
        raw.wrong("must be between 0 and 1", help);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is between 0 and a million"
    )]
    micros.map(|micros| micros as u64)
}

/// A share, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fraction {
    pub(super) micros: u64,
}

impl Value for Fraction {
    fn kind() -> ValueKind {
        ValueKind::Fraction
    }

    fn read(raw: RawValue<'_>) -> Option<Self> {
        fraction(&raw, "`0.02` is two percent").map(|micros| Self { micros })
    }
}

impl Show for Fraction {
    fn show(&self) -> String {
        #[expect(clippy::cast_precision_loss, reason = "it is between 0 and a million")]
        let share = self.micros as f64 / 1e6;
        share.to_string()
    }
}

impl Show for Percent {
    fn show(&self) -> String {
        (f64::from(self.0) / 100.0).to_string()
    }
}

/// Parses an environment variable that turns something on or off, if it is one of the usual words.
pub(crate) fn on_or_off(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "on" | "yes" => Some(true),
        "false" | "0" | "off" | "no" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> Result<u64, String> {
        Span::from_text(text).map(Span::as_millis).map_err(|wrong| wrong.problem)
    }

    #[test]
    fn durations() {
        let good = [("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("24h", 86_400_000), ("0s", 0)];
        for (text, expected) in good {
            assert_eq!(ms(text), Ok(expected), "{text}");
        }
        assert_eq!(ms("10"), Err("has no unit".into()));
        for text in ["", "s", "-1s", "1.5s", "10 s", "10S", "1w", "10sec"] {
            assert_eq!(ms(text), Err("is not a duration".into()), "{text}");
        }
        for text in ["36501d", "99999999999999999d"] {
            assert_eq!(ms(text), Err("is too long".into()), "{text}");
        }
        assert_eq!(PositiveSpan::from_text("0ms").unwrap_err().problem, "must be longer than zero");
    }

    #[test]
    fn sizes() {
        let bytes = |text| SizeText::from_text(text).map(|size| size.0).map_err(|wrong| wrong.problem);
        let good = [("1MiB", 1 << 20), ("512KiB", 512 << 10), ("10MB", 10_000_000), ("7B", 7), ("12", 12)];
        for (text, expected) in good {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "MiB", "1mib", "1 MiB", "-1MiB", "1.5MiB"] {
            assert_eq!(bytes(text), Err("is not a size".into()), "{text}");
        }
        assert_eq!(bytes("0KiB"), Err("must be greater than zero".into()));
        assert_eq!(bytes("99999999999999GiB"), Err("is too large".into()));
    }

    #[test]
    fn rates() {
        let rate = |text| {
            RateValue::from_text(text).map(|rate| (rate.count, rate.per)).map_err(|wrong| wrong.problem)
        };
        let good = [("10/s", 10, 1), ("1200/min", 1_200, 60), ("5/h", 5, 3_600), ("40/day", 40, 86_400)];
        for (text, count, secs) in good {
            assert_eq!(rate(text), Ok((count, Span::from_secs(secs))), "{text}");
        }
        for text in ["10", "/s", "10/", "10/m", "10 / s", "10s", "1.5/s"] {
            assert_eq!(rate(text), Err("is not a rate".into()), "{text}");
        }
        assert_eq!(rate("0/s"), Err("must be greater than zero".into()));
        assert_eq!(rate("4294967296/s"), Err("is too large".into()));
    }

    #[test]
    fn amounts_are_shown_in_the_largest_unit_without_a_fraction() {
        assert_eq!(Span::from_millis(1_500).show(), "\"1500ms\"");
        assert_eq!(Span::from_secs(90).show(), "\"90s\"");
        assert_eq!(Span::from_secs(7 * 86_400).show(), "\"7d\"");
        assert_eq!(Span::ZERO.show(), "\"0ms\"");
        assert_eq!(Size(1 << 30).show(), "\"1GiB\"");
        assert_eq!(Size(8_323_072).show(), "\"8128KiB\"");
        assert_eq!(Percent(25).show(), "0.25");
    }
}
