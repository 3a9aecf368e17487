//! The table of lanes.

use jiff::Timestamp;
use ratatui::text::Span;

use super::look::{
    Look, age, bar, countdown, dim, hold, lane_tone, number, rate, share, shortened, signed, waiting,
};
use super::table::{Cell, Column};
use crate::cli::output::short;
use crate::model::Lane;

/// The columns; the first has the title of the list.
pub(super) fn columns(lanes: &[Lane], title: &str, look: &Look, now: Timestamp) -> Vec<Column> {
    let column = |cell: &dyn Fn(&Lane) -> Cell| lanes.iter().map(cell).collect::<Vec<_>>();
    // Nothing waits in a direct lane.
    let queued = |count: fn(&Lane) -> u64| {
        column(&|lane| if is_direct(lane) { vec![] } else { vec![number(count(lane))] })
    };
    let some = |count: fn(&Lane) -> u64| {
        column(&|lane| if count(lane) == 0 { vec![] } else { vec![number(count(lane))] })
    };
    let span = |text: Option<String>| text.map(Span::raw).into_iter().collect::<Cell>();
    let name = column(&|lane| vec![look.toned("● ", lane_tone(lane, now)), Span::raw(shortened(&lane.name))]);
    let oldest = column(&|lane| span(lane.oldest_waiting_at.as_deref().and_then(|at| age(at, now))));
    let last = column(&|lane| span(lane.last_start.as_deref().and_then(|at| countdown(at, now))));
    let opens = column(&|lane| span(hold(lane, now).and_then(|hold| hold.left)));
    let held = column(&|lane| match hold(lane, now) {
        Some(hold) => vec![look.toned(hold.what, hold.tone)],
        None if is_direct(lane) => vec![dim("direct")],
        None => vec![dim("-")],
    });
    vec![
        Column::left(title, 0, name),
        Column::right("WAITING", 3, queued(waiting)),
        Column::right("HIGH", 0, queued(|lane| lane.queued.high)),
        Column::right("NORM", 0, queued(|lane| lane.queued.normal)),
        Column::right("LOW", 0, queued(|lane| lane.queued.low)),
        Column::right("LATER", 0, queued(|lane| lane.pending)),
        Column::left("ROOM", 4, column(&room)).if_any(),
        Column::right("RUN", 0, column(&|lane| vec![number(lane.processing)])),
        Column::right("IN/S", 0, column(&|lane| vec![rate(lane.rates.accepted + lane.rates.answered)])),
        Column::right("OUT/S", 0, column(&|lane| vec![rate(ends(lane))])),
        Column::right("DEAD", 2, some(|lane| lane.dead_letters)).if_any(),
        Column::right("EXPIRE", 5, some(|lane| lane.will_expire)),
        Column::right("OLDEST", 0, oldest),
        Column::right("LAST IN", 6, last),
        Column::right("OPENS", 0, opens),
        Column::left("HELD BY", 0, held),
    ]
}

pub(super) fn is_direct(lane: &Lane) -> bool {
    lane.mode == "direct"
}

/// Jobs that end per second, well or not, and requests that are answered.
fn ends(lane: &Lane) -> f64 {
    let rates = &lane.rates;
    rates.completed + rates.failed + rates.dropped + rates.answered
}

/// How many more jobs may wait.
fn room(lane: &Lane) -> Cell {
    let Some(capacity) = lane.capacity.filter(|capacity| *capacity > 0) else { return vec![] };
    let free = capacity.saturating_sub(waiting(lane));
    vec![Span::raw(format!("{} {}", bar(share(signed(free), signed(capacity)), 5), short(free)))]
}
