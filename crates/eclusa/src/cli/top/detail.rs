//! One lane or upstream in detail.

use jiff::Timestamp;
use ratatui::text::{Line, Span};

use super::lanes::is_direct;
use super::look::{Hold, Look, age, countdown, dim, gate_name, hold, lane_tone, shortened, waiting};
use super::overview::{events, heading};
use super::table::{Cell, Column, table};
use super::upstreams::{bar_width, gauge, millis};
use super::view::{List, View};
use crate::cli::events::{State, Tone, clock_time, time};
use crate::cli::gates;
use crate::cli::output::one_line;
use crate::model::{Gate, Lane, QuoteErrors, Upstream};

/// The lines below the header, at most `room` of them: facts, gates, and events with what is left of the room.
pub(super) fn lines(
    view: &View,
    look: &Look,
    now: Timestamp,
    width: usize,
    room: usize,
) -> Vec<Line<'static>> {
    let (mut lines, own) = match (view.list, view.chosen_lane(), view.chosen_upstream()) {
        (List::Lanes, Some(lane), _) => {
            let own = view.happenings.iter().filter(|one| one.lane.as_ref() == Some(&lane.name));
            (lane_lines(lane, &view.state, look, now, width), own.collect::<Vec<_>>())
        }
        (List::Upstreams, _, Some(upstream)) => {
            let own = view.happenings.iter().filter(|one| one.upstream.as_ref() == Some(&upstream.name));
            (upstream_lines(upstream, &view.state, look, now, width), own.collect())
        }
        _ => return vec![Line::from(dim("  none"))],
    };
    lines.push(Line::default());
    let rest = room.saturating_sub(lines.len());
    lines.extend(events(own.into_iter(), "ITS EVENTS", look, width, rest));
    lines
}

/// A fact: a name and its value.
fn fact(name: &str, value: impl Into<String>) -> Line<'static> {
    Line::from(vec![dim(format!("  {name:12}")), Span::raw(value.into())])
}

/// `3 high, 2 low`: the counts that are not zero.
fn counts(counts: &[(u64, &str)]) -> String {
    let shown = counts.iter().filter(|(count, _)| *count > 0);
    let shown: Vec<String> = shown.map(|(count, what)| format!("{count} {what}")).collect();
    if shown.is_empty() { "none".into() } else { shown.join(", ") }
}

/// `1.2 in, 1.0 completed`: the rates that are not zero.
fn rates(rates: &[(f64, &str)]) -> String {
    let shown = rates.iter().filter(|(rate, _)| *rate > 0.0);
    let shown: Vec<String> = shown.map(|(rate, what)| format!("{rate:.1} {what}")).collect();
    if shown.is_empty() { "none".into() } else { shown.join(", ") }
}

fn lane_lines(lane: &Lane, state: &State, look: &Look, now: Timestamp, width: usize) -> Vec<Line<'static>> {
    let mode = if is_direct(lane) { "direct" } else { "queue" };
    let mut lines = vec![Line::styled(format!("LANE {} ({mode})", lane.name), heading())];
    lines.push(Line::from(vec![dim("  state       "), lane_state(lane, look, now)]));
    if !is_direct(lane) {
        lines.extend(queue_lines(lane, look, now));
    }
    lines.push(fact("running", lane.processing.to_string()));
    let speed = &lane.rates;
    let speeds = [
        (speed.accepted, "in"),
        (speed.started, "started"),
        (speed.completed, "completed"),
        (speed.failed, "failed"),
        (speed.dropped, "dropped"),
        (speed.answered, "answered"),
    ];
    lines.push(fact("per second", rates(&speeds)));
    let totals = &lane.totals;
    let all = [
        (totals.accepted, "accepted"),
        (totals.completed + totals.coalesced, "completed"),
        (totals.cache_hits + totals.fallbacks, "from the cache"),
        (totals.failed, "failed"),
        (totals.expired, "expired"),
        (totals.preempted, "evicted"),
        (totals.refused, "refused"),
        (totals.cancelled, "cancelled"),
    ];
    lines.push(fact("in all", counts(&all)));
    if lane.dead_letters > 0 {
        lines.push(fact("dead letters", lane.dead_letters.to_string()));
    }
    lines.push(fact("chain", lane.chain.join(" → ")));
    lines.push(Line::default());
    let mut rows: Vec<GateRow<'_>> = GateRow::all("lane", &lane.gates, None).collect();
    for upstream in lane.chain.iter().filter_map(|name| state.upstream(name)) {
        rows.extend(GateRow::all(&upstream.name, &upstream.gates, upstream.breaker.as_deref()));
    }
    lines.extend(gate_lines(&rows, look, now, width));
    lines
}

fn lane_state(lane: &Lane, look: &Look, now: Timestamp) -> Span<'static> {
    let Some(Hold { tone, what, left }) = hold(lane, now) else {
        let idle = lane_tone(lane, now) == Tone::Plain;
        return if idle { Span::raw("idle") } else { look.toned("flows", Tone::Good) };
    };
    if lane.paused {
        return look.toned(what, tone);
    }
    let until = lane.held.as_ref().and_then(|held| held.until.as_deref()).and_then(time);
    let until = until.map(|until| clock_time(until, &look.zone)).zip(left);
    let until = until.map(|(until, left)| format!(" until {until}, in {left}")).unwrap_or_default();
    look.toned(format!("held by {what}{until}"), tone)
}

/// What waits, and for how long.
fn queue_lines(lane: &Lane, look: &Look, now: Timestamp) -> Vec<Line<'static>> {
    let queued = &lane.queued;
    let levels = [
        (queued.high, "high"),
        (queued.normal, "normal"),
        (queued.low, "low"),
        (lane.pending, "later (scheduled or between attempts)"),
    ];
    let mut lines = vec![fact("waiting", counts(&levels))];
    let oldest = lane.oldest_waiting_at.as_deref().and_then(|at| age(at, now));
    let last = lane.last_start.as_deref().and_then(|at| {
        Some(format!("the last starts in {} ({})", countdown(at, now)?, clock_time(time(at)?, &look.zone)))
    });
    let expire = (lane.will_expire > 0).then(|| format!("about {} expire before", lane.will_expire));
    let oldest = oldest.map(|oldest| format!("the oldest has waited {oldest}"));
    let outlook: Vec<String> = [oldest, last, expire].into_iter().flatten().collect();
    if !outlook.is_empty() {
        lines.push(fact("", outlook.join("; ")));
    }
    let room =
        lane.capacity.map(|capacity| format!("{} of {capacity}", capacity.saturating_sub(waiting(lane))));
    let ttl = lane.ttl_sec.map(|ttl| format!("; a job waits at most {ttl} s"));
    if let Some(room) = room {
        lines.push(fact("room", room + &ttl.unwrap_or_default()));
    }
    if let Some(QuoteErrors { count, p50_sec, p95_sec }) = &lane.quotes {
        let text = format!("off by {p50_sec:.1} s (p50), {p95_sec:.1} s (p95) in {count} starts");
        lines.push(fact("estimates", text));
    }
    lines
}

fn upstream_lines(
    upstream: &Upstream,
    state: &State,
    look: &Look,
    now: Timestamp,
    width: usize,
) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled(format!("UPSTREAM {}", upstream.name), heading())];
    lines.push(fact("running", upstream.in_flight.to_string()));
    let latency = upstream.latency_ms.map_or_else(String::new, |latency| {
        format!("; half answered within {}, 95 % within {}", millis(latency.p50), millis(latency.p95))
    });
    let (calls, errors) = (upstream.requests_last_minute, upstream.errors_last_minute);
    lines.push(fact("last minute", format!("{calls} calls, {errors} failed{latency}")));
    if let Some(failure) = &upstream.last_failure {
        let ago = failure.at.as_deref().and_then(|at| age(at, now)).map(|ago| format!(", {ago} ago"));
        lines.push(fact("last error", one_line(&format!("{}{}", failure.code, ago.unwrap_or_default()))));
    }
    if let Some(pace) = &upstream.pace {
        let adaptive = if pace.adaptive { ", adaptive" } else { "" };
        lines.push(fact("pace", format!("{:.2} starts a second{adaptive}", pace.rate)));
    }
    let lanes = state.lanes.iter().filter(|lane| lane.chain.contains(&upstream.name));
    let lanes: Vec<String> = lanes.map(|lane| format!("{} ({} waiting)", lane.name, waiting(lane))).collect();
    lines.push(fact("lanes", if lanes.is_empty() { "none".into() } else { lanes.join(", ") }));
    lines.push(Line::default());
    let mut rows: Vec<GateRow<'_>> =
        GateRow::all(&upstream.name, &upstream.gates, upstream.breaker.as_deref()).collect();
    for key in &upstream.keys {
        rows.extend(GateRow::all(&format!("{}/{}", upstream.name, key.name), &key.gates, None));
    }
    lines.extend(gate_lines(&rows, look, now, width));
    lines
}

/// A gate to show.
struct GateRow<'a> {
    /// The lane, the upstream, or the upstream and its key.
    of: String,
    gate: &'a Gate,
    /// The state of the upstream's breaker.
    breaker: Option<&'a str>,
}

impl<'a> GateRow<'a> {
    fn all(of: &str, gates: &'a [Gate], breaker: Option<&'a str>) -> impl Iterator<Item = Self> {
        gates.iter().map(move |gate| Self { of: shortened(of), gate, breaker })
    }
}

/// Gates with their state, one per line.
fn gate_lines(rows: &[GateRow<'_>], look: &Look, now: Timestamp, width: usize) -> Vec<Line<'static>> {
    if rows.is_empty() {
        return vec![Line::styled("GATES", heading()), Line::from(dim("  none"))];
    }
    let column = |cell: &dyn Fn(&GateRow<'_>) -> Cell| rows.iter().map(cell).collect::<Vec<_>>();
    let opens = column(&|GateRow { gate, .. }| {
        let left = gate.until.as_deref().filter(|_| !gate.open).and_then(|until| countdown(until, now));
        left.map(|left| look.toned(format!("opens in {left}"), Tone::Warning)).into_iter().collect()
    });
    let columns = vec![
        Column::left("GATES", 0, column(&|row| vec![Span::raw(row.of.clone())])),
        Column::left("", 0, column(&|row| vec![Span::raw(gate_name(&row.gate.reason).to_owned())])),
        Column::left("LEFT", 1, column(&|row| gauge(row.gate, look, bar_width(width)))),
        Column::left("STATE", 0, column(&|row| vec![Span::raw(gates::state(row.gate, row.breaker))])),
        Column::left("", 0, opens),
    ];
    table(columns, width, heading())
}
