//! Colours, bars and numbers.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use ratatui::style::{Color, Style};
use ratatui::text::Span;

use crate::cli::events::{Tone, time};
use crate::cli::output::{one_line, short};
use crate::cli::span::span;
use crate::model::{Gate, Lane, Upstream};

/// A wait that ends within this time is not worth showing.
const BRIEF: SignedDuration = SignedDuration::from_secs(1);
/// Longer names of lanes, upstreams and tenants are shortened.
const MAX_NAME: usize = 20;
/// Eighths of a block, from nothing to a whole one.
const EIGHTHS: [char; 9] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// How the screen looks, besides what it shows.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) zone: TimeZone,
    pub(super) colours: bool,
}

impl Look {
    /// The style of something good or bad.
    pub(super) fn tone(&self, tone: Tone) -> Style {
        let colour = match tone {
            Tone::Plain => None,
            Tone::Good => Some(Color::Green),
            Tone::Warning => Some(Color::Yellow),
            Tone::Bad => Some(Color::Red),
        };
        colour.filter(|_| self.colours).map_or_else(Style::new, |colour| Style::new().fg(colour))
    }

    /// Text in the style of something good or bad.
    pub(super) fn toned(&self, text: impl Into<String>, tone: Tone) -> Span<'static> {
        Span::styled(text.into(), self.tone(tone))
    }
}

/// Text that matters less.
pub(super) fn dim(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().dim())
}

/// A name from outside, in at most [`MAX_NAME`] characters.
pub(super) fn shortened(name: &str) -> String {
    let name = one_line(name);
    match name.char_indices().nth(MAX_NAME) {
        Some(_) => name.chars().take(MAX_NAME - 1).chain(['…']).collect(),
        None => name,
    }
}

/// The count as the type that gates count in.
pub(super) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A count; zero matters less.
pub(super) fn number(count: u64) -> Span<'static> {
    if count == 0 { dim("0") } else { Span::raw(short(count)) }
}

/// A rate per second; zero matters less.
pub(super) fn rate(per_second: f64) -> Span<'static> {
    match per_second {
        0.0 => dim("0"),
        ..10.0 => Span::raw(format!("{per_second:.1}")),
        _ => Span::raw(format!("{per_second:.0}")),
    }
}

/// How long until `until`, in whole seconds; a second that has begun counts.
pub(super) fn countdown(until: &str, now: Timestamp) -> Option<String> {
    let left = time(until)?.duration_since(now);
    let begun = SignedDuration::from_millis(999);
    Some(span(left + begun))
}

/// How long ago `at` was.
pub(super) fn age(at: &str, now: Timestamp) -> Option<String> {
    Some(span(now.duration_since(time(at)?)))
}

/// A bar of `cells` cells that is filled by `share`, 0 to 1. Something that is left is never shown as nothing, and something
/// that is gone never as full.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1, times a small width")]
pub(super) fn bar(share: f64, cells: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a small width")]
    let exact = share.clamp(0.0, 1.0) * cells as f64 * 8.0;
    let eighths = if exact < 1.0 { exact.ceil() as usize } else { exact.floor() as usize };
    let cell = |at: usize| EIGHTHS[eighths.saturating_sub(at * 8).min(8)];
    let filled: String = (0..cells).map(cell).collect();
    format!("▕{filled}▏")
}

/// What is left of a gate's limit, and the limit; `None` if the gate counts nothing that runs out.
pub(super) fn left(gate: &Gate) -> Option<(i64, i64)> {
    let limit = gate.limit.filter(|limit| *limit > 0)?;
    match gate.reason.as_str() {
        "rate_limit" => Some((gate.level, limit)),
        "window" | "concurrency" => Some((limit.saturating_sub(gate.level), limit)),
        _ => None,
    }
}

/// The share of a limit.
#[expect(clippy::cast_precision_loss, reason = "a bar needs no more precision")]
pub(super) fn share(left: i64, limit: i64) -> f64 {
    left as f64 / limit as f64
}

/// The name of a gate, by the reason it denies with, or of another reason to wait.
pub(super) fn gate_name(reason: &str) -> &str {
    match reason {
        "retry_backoff" => "backoff",
        "behind" => "jobs before",
        "rate_limit" => "bucket",
        "concurrency" => "slots",
        "circuit_open" => "breaker",
        "upstream_retry_after" => "Retry-After",
        "coalesced" => "equal job",
        "awaiting_webhook" => "webhook",
        "no_worker" => "worker",
        "rules_gone" => "no rules",
        "store_unavailable" => "store",
        other => other,
    }
}

/// Whether errors closed the gate.
fn is_trouble(reason: &str) -> bool {
    matches!(
        reason,
        "circuit_open" | "cooldown" | "upstream_retry_after" | "rules_gone" | "store_unavailable"
    )
}

/// Whether a wait that ends at `until` is too short to show.
fn is_brief(until: Option<&str>, now: Timestamp) -> bool {
    until.and_then(time).is_some_and(|until| until.duration_since(now) <= BRIEF)
}

/// Jobs that wait, including scheduled ones and retries.
pub(super) fn waiting(lane: &Lane) -> u64 {
    lane.queued.high + lane.queued.normal + lane.queued.low + lane.pending
}

/// What holds a lane.
pub(super) struct Hold {
    pub(super) tone: Tone,
    /// `window of bureau`.
    pub(super) what: String,
    /// How long it will, if that is known.
    pub(super) left: Option<String>,
}

/// What holds a lane; `None` if it flows or nothing waits.
pub(super) fn hold(lane: &Lane, now: Timestamp) -> Option<Hold> {
    if lane.paused {
        return Some(Hold { tone: Tone::Warning, what: "paused".into(), left: None });
    }
    let held = lane.held.as_ref().filter(|held| !is_brief(held.until.as_deref(), now))?;
    let tone = if is_trouble(&held.reason) { Tone::Bad } else { Tone::Warning };
    let of = held.upstream.as_deref().map(|upstream| format!(" of {upstream}")).unwrap_or_default();
    let left = held.until.as_deref().and_then(|until| countdown(until, now));
    Some(Hold { tone, what: format!("{}{of}", gate_name(&held.reason)), left })
}

/// How a lane is, for its dot.
pub(super) fn lane_tone(lane: &Lane, now: Timestamp) -> Tone {
    let idle = waiting(lane) + lane.processing == 0 && lane.rates.started + lane.rates.answered == 0.0;
    match hold(lane, now) {
        Some(hold) => hold.tone,
        None if idle => Tone::Plain,
        None => Tone::Good,
    }
}

/// The closed gate of an upstream that opens last, apart from the breaker; `None` if none is closed for long.
pub(super) fn closed_by(gates: &[Gate], now: Timestamp) -> Option<&Gate> {
    let closed = gates.iter().filter(|gate| !gate.open && gate.reason != "circuit_open");
    let lasting = closed.filter(|gate| !is_brief(gate.until.as_deref(), now));
    lasting.max_by_key(|gate| gate.until.as_deref().and_then(time).unwrap_or(Timestamp::MAX))
}

/// How an upstream is, for its dot.
pub(super) fn upstream_tone(upstream: &Upstream, now: Timestamp) -> Tone {
    let closed = closed_by(&upstream.gates, now);
    match upstream.breaker.as_deref() {
        Some("open") => Tone::Bad,
        _ if closed.is_some_and(|gate| is_trouble(&gate.reason)) => Tone::Bad,
        Some("half_open") => Tone::Warning,
        _ if closed.is_some() => Tone::Warning,
        _ if upstream.requests_last_minute == 0 && upstream.in_flight == 0 => Tone::Plain,
        _ => Tone::Good,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_show_eighths_and_never_lie_at_the_ends() {
        for (share, expected) in [
            (0.0, "▕    ▏"),
            (0.001, "▕▏   ▏"),
            (0.5, "▕██  ▏"),
            (0.66, "▕██▋ ▏"),
            (0.999, "▕███▉▏"),
            (1.0, "▕████▏"),
            (-0.2, "▕    ▏"),
            (7.0, "▕████▏"),
        ] {
            assert_eq!(bar(share, 4), expected, "{share}");
        }
    }

    #[test]
    fn a_countdown_ends_when_the_gate_opens() {
        let now = "2026-11-16T14:03:24.000Z".parse().unwrap();
        let left = |until: &str| countdown(until, now).unwrap();
        assert_eq!(left("2026-11-16T14:03:24.000Z"), "0s");
        assert_eq!(left("2026-11-16T14:03:24.001Z"), "1s");
        assert_eq!(left("2026-11-16T14:03:25.000Z"), "1s");
        assert_eq!(left("2026-11-16T14:05:25.500Z"), "2m02s");
        assert_eq!(left("2026-11-16T14:00:00.000Z"), "0s", "it is late");
        assert_eq!(countdown("soon", now), None);
    }

    #[test]
    fn what_is_left_counts_down_for_every_gate() {
        let gate = |reason: &str, level, limit| {
            let reason = reason.into();
            Gate { reason, open: true, level, limit, ..Gate::default() }
        };
        assert_eq!(left(&gate("window", 45, Some(60))), Some((15, 60)));
        assert_eq!(left(&gate("concurrency", 3, Some(10))), Some((7, 10)));
        assert_eq!(left(&gate("rate_limit", 3, Some(10))), Some((3, 10)));
        assert_eq!(left(&gate("rate_limit", 3, None)), None);
        assert_eq!(left(&gate("pace", 250, None)), None);
        assert_eq!(left(&gate("circuit_open", 1, Some(5))), None);
    }
}
