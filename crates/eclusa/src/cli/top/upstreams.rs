//! The table of upstreams.

use jiff::Timestamp;
use ratatui::text::Span;

use super::look::{
    Look, bar, closed_by, countdown, dim, gate_name, left, number, share, shortened, upstream_tone,
};
use super::table::{Cell, Column};
use crate::cli::events::Tone;
use crate::cli::output::short;
use crate::model::{Gate, Latency, Upstream};

/// An upstream, or one of its keys as `upstream/key`.
pub(super) struct UpstreamRow<'a> {
    pub(super) name: String,
    gates: &'a [Gate],
    calls: u64,
    /// Absent for a key.
    upstream: Option<&'a Upstream>,
}

/// Upstreams, each followed by its keys.
pub(super) fn rows(upstreams: &[Upstream]) -> Vec<UpstreamRow<'_>> {
    let mut rows = Vec::new();
    for upstream in upstreams {
        let Upstream { name, gates, keys, .. } = upstream;
        let calls = upstream.requests_last_minute;
        rows.push(UpstreamRow { name: name.clone(), gates, calls, upstream: Some(upstream) });
        rows.extend(keys.iter().map(|key| UpstreamRow {
            name: format!("{name}/{}", key.name),
            gates: &key.gates,
            calls: key.requests_last_minute,
            upstream: None,
        }));
    }
    rows
}

/// The cells of a bar on a screen of this width.
pub(super) fn bar_width(screen: usize) -> usize {
    if screen < 110 { 5 } else { 10 }
}

/// The columns; the first has the title of the list.
pub(super) fn columns(
    rows: &[UpstreamRow<'_>],
    title: &str,
    look: &Look,
    now: Timestamp,
    bar: usize,
) -> Vec<Column> {
    let column = |cell: &dyn Fn(&UpstreamRow<'_>) -> Cell| rows.iter().map(cell).collect::<Vec<_>>();
    let gauges = |reason: &str| column(&|row| gauge_of(row.gates, reason, look, bar));
    let latency = |of: fn(Latency) -> u64| {
        column(&|row| {
            let latency = row.upstream.and_then(|upstream| upstream.latency_ms);
            latency.map(|latency| Span::raw(millis(of(latency)))).into_iter().collect()
        })
    };
    let name = column(&|row| {
        let tone = row.upstream.map(|upstream| upstream_tone(upstream, now));
        let dot = tone.map_or(Span::raw("  "), |tone| look.toned("● ", tone));
        vec![dot, Span::raw(shortened(&row.name))]
    });
    let breakers = column(&|row| row.upstream.map(|one| breaker_cell(one, look, now)).unwrap_or_default());
    let errors = column(&|row| match row.upstream.map(|upstream| upstream.errors_last_minute) {
        Some(0) => vec![dim("0")],
        Some(errors) => vec![look.toned(short(errors), Tone::Bad)],
        None => vec![],
    });
    let closed = column(&|row| match closed_by(row.gates, now) {
        Some(gate) => vec![look.toned(gate_name(&gate.reason), Tone::Warning)],
        None => vec![dim("-")],
    });
    let opens = column(&|row| {
        let until = closed_by(row.gates, now).and_then(|gate| gate.until.as_deref());
        until.and_then(|until| countdown(until, now)).map(Span::raw).into_iter().collect()
    });
    vec![
        Column::left(title, 0, name),
        Column::left("BREAKER", 1, breakers).if_any().least(10),
        Column::left("WINDOW LEFT", 1, gauges("window")).if_any(),
        Column::left("SLOTS LEFT", 1, gauges("concurrency")).if_any(),
        Column::left("TOKENS LEFT", 1, gauges("rate_limit")).if_any(),
        Column::right("PACE", 5, column(&pace)).if_any(),
        Column::right("CALLS/MIN", 4, column(&|row| vec![number(row.calls)])),
        Column::right("ERR", 1, errors),
        Column::right("P50", 2, latency(|latency| latency.p50)).least(5),
        Column::right("P95", 2, latency(|latency| latency.p95)).least(5),
        Column::right("OPENS", 0, opens),
        Column::left("CLOSED BY", 0, closed),
    ]
}

fn breaker_cell(upstream: &Upstream, look: &Look, now: Timestamp) -> Cell {
    let gate = upstream.gates.iter().find(|gate| gate.reason == "circuit_open");
    let (Some(gate), Some(state)) = (gate, upstream.breaker.as_deref()) else { return vec![] };
    match (state, gate.limit) {
        ("open", _) => {
            let left = gate.until.as_deref().and_then(|until| countdown(until, now)).unwrap_or_default();
            vec![look.toned(format!("open {left}").trim_end(), Tone::Bad)]
        }
        ("half_open", _) => vec![look.toned("half-open", Tone::Warning)],
        (_, Some(limit)) if gate.level > 0 => vec![Span::raw(format!("closed {}/{limit}", gate.level))],
        _ => vec![dim("closed")],
    }
}

/// The bar of the gate with this reason, and the numbers; nothing if there is no such gate.
fn gauge_of(gates: &[Gate], reason: &str, look: &Look, cells: usize) -> Cell {
    let gate = gates.iter().find(|gate| gate.reason == reason);
    gate.map(|gate| gauge(gate, look, cells)).unwrap_or_default()
}

/// What is left of a gate's limit: a bar and the numbers; nothing for gates without a limit.
pub(super) fn gauge(gate: &Gate, look: &Look, cells: usize) -> Cell {
    let Some((left, limit)) = left(gate) else { return vec![] };
    let share = share(left, limit);
    let tone = match share {
        ..=0.0 => Tone::Bad,
        ..0.25 => Tone::Warning,
        _ => Tone::Good,
    };
    vec![look.toned(bar(share, cells), tone), Span::raw(format!(" {left}/{limit}"))]
}

fn pace(row: &UpstreamRow<'_>) -> Cell {
    let pace = row.upstream.and_then(|upstream| upstream.pace.as_ref());
    pace.map(|pace| Span::raw(format!("{:.1}/s", pace.rate))).into_iter().collect()
}

/// `12ms`, `1.2s`.
pub(super) fn millis(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis}ms"),
        1_000..10_000 => format!("{}.{}s", millis / 1_000, millis / 100 % 10),
        _ => format!("{}s", millis / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::events::fixtures::upstream;

    #[test]
    fn keys_follow_their_upstream() {
        let mut fal = upstream("fal");
        let key = |name: &str| json!({ "name": name, "inFlight": 0, "requestsLastMinute": 3, "gates": [] });
        fal["keys"] = json!([key("a"), key("b")]);
        let upstreams: Vec<Upstream> =
            [fal, upstream("ses")].map(|one| serde_json::from_value(one).unwrap()).into();
        let rows = rows(&upstreams);
        let shown: Vec<(&str, u64, bool)> =
            rows.iter().map(|row| (row.name.as_str(), row.calls, row.upstream.is_some())).collect();
        assert_eq!(shown, [("fal", 0, true), ("fal/a", 3, false), ("fal/b", 3, false), ("ses", 0, true)]);
    }

    #[test]
    fn latencies_are_short() {
        let shown = [0, 999, 1_000, 9_999, 10_000, 65_000].map(millis);
        assert_eq!(shown, ["0ms", "999ms", "1.0s", "9.9s", "10s", "65s"]);
    }
}
