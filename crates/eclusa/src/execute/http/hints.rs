//! What an upstream's answer says about its limits.
//!
//! The fields come from outside: invalid ones are ignored, and none closes an upstream for longer than a day.

use std::time::{SystemTime, UNIX_EPOCH};

use eclusa_core::{Span, Time};
use http::HeaderMap;
use http::header::{DATE, RETRY_AFTER};

/// The longest closure that an upstream can ask for.
const LONGEST: Span = Span::from_secs(24 * 60 * 60);

/// Numbers from here on are timestamps in seconds since 1970; smaller ones are waits. As a timestamp it is in 2001, as
/// a wait 31 years.
const FIRST_EPOCH_SECOND: u64 = 1_000_000_000;
/// From here on they are timestamps in milliseconds.
const FIRST_EPOCH_MILLI: u64 = FIRST_EPOCH_SECOND * 1_000;

/// What an answer says about when to call again, counted from its arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hints {
    /// `Retry-After`.
    pub retry_after: Option<Span>,
    /// The time until a used-up limit is renewed.
    pub exhausted_for: Option<Span>,
}

impl Hints {
    /// Reads the headers of an answer that arrived at `now`.
    pub fn read(headers: &HeaderMap, now: Time) -> Self {
        // Most answers have none of these.
        if !headers.keys().any(|name| *name == RETRY_AFTER || name.as_str().contains("ratelimit")) {
            return Self::default();
        }
        // The upstream's timestamps are by its own clock, which its `Date` shows.
        let now = text(headers, DATE.as_str()).and_then(http_date).unwrap_or(now);
        Self { retry_after: retry_after(headers, now), exhausted_for: exhausted(headers, now) }
    }

    /// How long an answer of this status asks for no further calls. `Retry-After` wins, but only if the status is an
    /// error that a later call may not meet; with other statuses it means something else. A used-up limit always
    /// counts.
    pub fn close_for(&self, status: u16) -> Option<Span> {
        let asked = self.retry_after.filter(|_| matches!(status, 403 | 429 | 500..=599));
        asked.or(self.exhausted_for).filter(|span| !span.is_zero())
    }
}

fn retry_after(headers: &HeaderMap, now: Time) -> Option<Span> {
    let value = text(headers, RETRY_AFTER.as_str())?;
    let asked = match value.parse() {
        Ok(secs) => seconds(secs),
        Err(_) if is_digits(value) => LONGEST,
        Err(_) => http_date(value)?.since(now),
    };
    Some(asked.min(LONGEST))
}

/// The longest wait of all limits that are used up: before that, one of them denies.
fn exhausted(headers: &HeaderMap, now: Time) -> Option<Span> {
    let pairs = [
        ("ratelimit-remaining", "ratelimit-reset"),
        ("x-ratelimit-remaining", "x-ratelimit-reset"),
        ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
        ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ];
    let by_pair = pairs.iter().filter_map(|(remaining, reset)| {
        is_zero(text(headers, remaining)?).then_some(())?;
        wait(text(headers, reset)?, now)
    });
    let fields = headers.get_all("ratelimit").iter().filter_map(|value| value.to_str().ok());
    let by_field = fields.filter_map(|field| rate_limit(field, now));
    by_pair.chain(by_field).max().map(|span| span.min(LONGEST))
}

/// `RateLimit: "burst";r=0;t=30, "day";r=9;t=600`, or as older drafts had it, `limit=10, remaining=0, reset=30`.
fn rate_limit(field: &str, now: Time) -> Option<Span> {
    let members = split_unquoted(field, ',');
    let older = |key| members.iter().find_map(|member| member.strip_prefix(key)?.trim().strip_prefix('='));
    if let (Some(remaining), Some(reset)) = (older("remaining"), older("reset")) {
        return is_zero(remaining.trim()).then(|| wait(reset.trim(), now))?;
    }
    members.iter().filter_map(|member| quota(member, now)).max()
}

/// One `"name";r=0;t=30`.
fn quota(member: &str, now: Time) -> Option<Span> {
    let parameters = split_unquoted(member, ';');
    let find = |key| parameters.iter().skip(1).find_map(|parameter| parameter.strip_prefix(key));
    is_zero(find("r=")?).then_some(())?;
    wait(find("t=")?, now)
}

/// Parts between separators that are not inside quotes.
fn split_unquoted(text: &str, separator: char) -> Vec<&str> {
    let (mut quoted, mut escaped) = (false, false);
    let outside = |char: char| {
        let was_escaped = escaped;
        escaped = quoted && char == '\\' && !was_escaped;
        if char == '"' && !was_escaped {
            quoted = !quoted;
        }
        char == separator && !quoted
    };
    text.split(outside).map(str::trim).collect()
}

/// A wait in any form that upstreams use: `30`, `1.5`, a timestamp, or `6m0s`.
fn wait(text: &str, now: Time) -> Option<Span> {
    let Some(ms) = decimal_millis(text) else { return units(text) };
    let secs = ms / 1_000;
    let moment = match secs {
        0..FIRST_EPOCH_SECOND => return Some(Span::from_millis(ms)),
        FIRST_EPOCH_SECOND..FIRST_EPOCH_MILLI => Time::from_millis(ms),
        _ => Time::from_millis(secs),
    };
    Some(moment.since(now))
}

/// `6m0s`, `1s`, `20ms`, `1h2m3.5s`, `1d`.
fn units(text: &str) -> Option<Span> {
    let mut rest = text;
    let mut total = 0_u64;
    while !rest.is_empty() {
        let digits = rest.find(|char: char| !char.is_ascii_digit() && char != '.')?;
        let (number, after) = rest.split_at(digits);
        let unit = after.find(|char: char| !char.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        // In thousandths of the unit.
        let number = decimal_millis(number)?;
        let ms = match unit {
            "ms" => number / 1_000,
            "s" => number,
            "m" => number.saturating_mul(60),
            "h" => number.saturating_mul(3_600),
            "d" => number.saturating_mul(86_400),
            _ => return None,
        };
        total = total.saturating_add(ms);
        rest = after;
    }
    (!text.is_empty()).then_some(Span::from_millis(total))
}

/// A non-negative number, with or without decimals, in thousandths.
fn decimal_millis(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if !is_digits(whole) || !is_digits(decimals) {
        return None;
    }
    let thousandths =
        decimals.bytes().chain(*b"000").take(3).fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(thousandths)
}

fn is_zero(text: &str) -> bool {
    decimal_millis(text) == Some(0)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn seconds(secs: u64) -> Span {
    Span::from_millis(secs.saturating_mul(1_000))
}

fn http_date(text: &str) -> Option<Time> {
    let moment: SystemTime = httpdate::parse_http_date(text).ok()?;
    let ms = moment.duration_since(UNIX_EPOCH).ok()?.as_millis();
    Some(Time::from_millis(u64::try_from(ms).ok()?))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    /// Sunday, 6 November 1994, 08:49:37.
    const NOW: Time = Time::from_millis(784_111_777_000);

    fn read(headers: &[(&'static str, &str)]) -> Hints {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        Hints::read(&map, NOW)
    }

    fn retry_after(value: &str) -> Option<u64> {
        read(&[("retry-after", value)]).retry_after.map(Span::as_millis)
    }

    fn exhausted(headers: &[(&'static str, &str)]) -> Option<u64> {
        read(headers).exhausted_for.map(Span::as_millis)
    }

    #[test]
    fn retry_after_in_seconds() {
        assert_eq!(retry_after("0"), Some(0));
        assert_eq!(retry_after("120"), Some(120_000));
        assert_eq!(retry_after(" 7 "), Some(7_000));
    }

    #[test]
    fn retry_after_as_a_date_in_each_form() {
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60_000));
        assert_eq!(retry_after("Sunday, 06-Nov-94 08:50:37 GMT"), Some(60_000));
        assert_eq!(retry_after("Sun Nov  6 08:50:37 1994"), Some(60_000));
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0), "in the past");
    }

    #[test]
    fn a_date_is_read_by_the_clock_of_the_upstream() {
        let date = ("date", "Sun, 06 Nov 1994 10:00:00 GMT");
        let hints = read(&[date, ("retry-after", "Sun, 06 Nov 1994 10:00:30 GMT")]);
        assert_eq!(hints.retry_after, Some(Span::from_secs(30)));
        let hints = read(&[("date", "yesterday"), ("retry-after", "Sun, 06 Nov 1994 08:50:37 GMT")]);
        assert_eq!(hints.retry_after, Some(Span::from_secs(60)));
    }

    #[test]
    fn no_answer_closes_for_longer_than_a_day() {
        let day = Some(LONGEST.as_millis());
        assert_eq!(retry_after("86401"), day);
        assert_eq!(retry_after("18446744073709551615"), day);
        assert_eq!(retry_after("99999999999999999999999999"), day);
        assert_eq!(retry_after("Fri, 31 Dec 9999 23:59:59 GMT"), day);
        assert_eq!(exhausted(&[("ratelimit", "\"d\";r=0;t=999999")]), day);
        assert_eq!(exhausted(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "99999999999")]), day);
    }

    #[test]
    fn invalid_values_are_ignored() {
        for value in
            ["", "soon", "-1", "1.5", "1e3", "0x10", "5s", "Sun, 99 Nov 1994 08:49:37 GMT", "é", "1, 2"]
        {
            assert_eq!(retry_after(value), None, "{value:?}");
        }
        for value in [
            "",
            "x",
            "\"a\"",
            "\"a\";r=0",
            "\"a\";t=5",
            "\"a\";r=;t=",
            "\"a\";r=-1;t=5",
            "r=0;t=5",
            "\"a;r=0;t=5",
            "\"a\\\";r=0;t=5",
            ",,;;",
            "remaining=0",
            "remaining=x, reset=5",
            "remaining=0, reset=",
        ] {
            assert_eq!(exhausted(&[("ratelimit", value)]), None, "{value:?}");
        }
        for (remaining, reset) in [
            ("0", ""),
            ("0", "-5"),
            ("0", "."),
            ("0", "5."),
            ("0", "s"),
            ("0", "5x"),
            ("0", "5s5"),
            ("-1", "5"),
            ("", "5"),
            ("0, 0", "5"),
            ("00x", "5"),
            ("0", "99999999999999999999"),
        ] {
            let headers = [("x-ratelimit-remaining", remaining), ("x-ratelimit-reset", reset)];
            assert_eq!(exhausted(&headers), None, "{remaining:?} {reset:?}");
        }
    }

    #[test]
    fn the_rate_limit_field_closes_when_nothing_remains() {
        assert_eq!(exhausted(&[("ratelimit", "\"burst\";r=0;t=30")]), Some(30_000));
        assert_eq!(exhausted(&[("ratelimit", "burst;t=30;r=0;pk=:abc=:")]), Some(30_000));
        assert_eq!(exhausted(&[("ratelimit", "\"burst\";r=50;t=30")]), None);
        let several = "\"burst\";r=0;t=5, \"a,b;r=0;t=9\";r=3;t=7 ,\"day\"; r=0; t=600";
        assert_eq!(exhausted(&[("ratelimit", several)]), Some(600_000));
        let lines = [("ratelimit", "\"a\";r=0;t=5"), ("ratelimit", "\"b\";r=0;t=6")];
        assert_eq!(exhausted(&lines), Some(6_000));
    }

    #[test]
    fn older_drafts_are_understood() {
        assert_eq!(exhausted(&[("ratelimit", "limit=10, remaining=0, reset=50")]), Some(50_000));
        assert_eq!(exhausted(&[("ratelimit", "limit=10, remaining=1, reset=50")]), None);
        assert_eq!(exhausted(&[("ratelimit-remaining", "0"), ("ratelimit-reset", "50")]), Some(50_000));
        assert_eq!(exhausted(&[("ratelimit-remaining", "2"), ("ratelimit-reset", "50")]), None);
        assert_eq!(exhausted(&[("ratelimit-remaining", "0")]), None);
    }

    #[test]
    fn resets_are_waits_or_timestamps() {
        let reset = |value| exhausted(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", value)]);
        assert_eq!(reset("30"), Some(30_000));
        assert_eq!(reset("1.5"), Some(1_500));
        assert_eq!(reset("0.0019"), Some(1));
        // As GitHub does it. The upstream's clock says 2026-01-01 00:00:00.
        let date = ("date", "Thu, 01 Jan 2026 00:00:00 GMT");
        let moment = |value| exhausted(&[date, ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", value)]);
        assert_eq!(moment("1767225660"), Some(60_000));
        assert_eq!(moment("1767225660.25"), Some(60_250));
        assert_eq!(moment("1767225660250"), Some(60_250));
        assert_eq!(moment("1767225000"), Some(0), "in the past");
    }

    #[test]
    fn resets_with_units() {
        let reset =
            |value| exhausted(&[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", value)]);
        for (text, ms) in [
            ("6m0s", 360_000),
            ("1s", 1_000),
            ("20ms", 20),
            ("1h2m3.5s", 3_723_500),
            ("1d", 86_400_000),
            ("7.66s", 7_660),
        ] {
            assert_eq!(reset(text), Some(ms), "{text}");
        }
        let both = [
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "20ms"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-tokens", "6m0s"),
        ];
        assert_eq!(exhausted(&both), Some(20), "what is left of the other limit does not matter");
    }

    #[test]
    fn retry_after_wins_with_statuses_that_ask_for_a_pause() {
        let secs = Span::from_secs;
        let hints = Hints { retry_after: Some(secs(5)), exhausted_for: Some(secs(60)) };
        for status in [403, 429, 500, 503, 599] {
            assert_eq!(hints.close_for(status), Some(secs(5)), "{status}");
        }
        for status in [200, 202, 301, 400, 404, 413] {
            assert_eq!(hints.close_for(status), Some(secs(60)), "{status}");
        }
        let only_asked = Hints { exhausted_for: None, ..hints };
        assert_eq!(only_asked.close_for(202), None);
        let now = Hints { retry_after: Some(Span::ZERO), ..hints };
        assert_eq!(now.close_for(429), None, "call again at once");
        assert_eq!(Hints::default().close_for(429), None);
    }
}
