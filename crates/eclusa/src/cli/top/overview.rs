//! The overview: lanes, upstreams and the latest events.

use std::ops::Range;

use jiff::Timestamp;
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};

use super::look::{Look, dim, shortened};
use super::table::{Cell, Column, table};
use super::view::{List, View};
use super::{lanes, upstreams};
use crate::cli::events::{Happening, clock_time};
use crate::cli::output::one_line;

/// Events have this many rows, if there is room for more than lanes and upstreams.
const MIN_EVENTS: usize = 4;

/// The lines below the header, at most `room` of them.
pub(super) fn lines(
    view: &View,
    look: &Look,
    now: Timestamp,
    width: usize,
    room: usize,
) -> Vec<Line<'static>> {
    let all_lanes = &view.state.lanes;
    let all_upstreams = upstreams::rows(&view.state.upstreams);
    // Three headings and two empty lines.
    let free = room.saturating_sub(5);
    let for_lists = free.saturating_sub(MIN_EVENTS.min(free / 3));
    let lane_rows = all_lanes.len().min((for_lists / 2).max(for_lists.saturating_sub(all_upstreams.len())));
    let upstream_rows = all_upstreams.len().min(for_lists - lane_rows);

    let chosen = view.chosen_lane().map(|chosen| chosen.name.as_str());
    let chosen = all_lanes.iter().position(|lane| Some(lane.name.as_str()) == chosen);
    let shown = Shown::of(chosen, lane_rows, all_lanes.len());
    let columns = lanes::columns(&all_lanes[shown.range()], &shown.title("LANES"), look, now);
    let mut lines = shown.list(table(columns, width, heading()), view.list == List::Lanes);
    lines.push(Line::default());

    let chosen = view.chosen_upstream().map(|chosen| chosen.name.as_str());
    let chosen = all_upstreams.iter().position(|row| Some(row.name.as_str()) == chosen);
    let shown = Shown::of(chosen, upstream_rows, all_upstreams.len());
    let rows = &all_upstreams[shown.range()];
    let columns = upstreams::columns(rows, &shown.title("UPSTREAMS"), look, now, upstreams::bar_width(width));
    lines.extend(shown.list(table(columns, width, heading()), view.list == List::Upstreams));
    lines.push(Line::default());
    let rest = room.saturating_sub(lines.len());
    lines.extend(events(view.happenings.iter(), "LATEST EVENTS", look, width, rest));
    lines
}

/// The style of headings.
pub(super) fn heading() -> Style {
    Style::new().bold().underlined()
}

/// The part of a list that is shown.
struct Shown {
    first: usize,
    count: usize,
    all: usize,
    chosen: Option<usize>,
}

impl Shown {
    /// `count` rows of `all`, so that the chosen one is among them.
    fn of(chosen: Option<usize>, count: usize, all: usize) -> Self {
        let first = (chosen.unwrap_or_default() + 1).saturating_sub(count).min(all - count);
        Self { first, count, all, chosen }
    }

    fn range(&self) -> Range<usize> {
        self.first..self.first + self.count
    }

    /// The title of the list, with the rows that are shown if not all are.
    fn title(&self, name: &str) -> String {
        if self.count == self.all {
            return name.to_owned();
        }
        format!("{name} {}-{}/{}", self.first + 1, self.first + self.count, self.all)
    }

    /// The lines of the list; the chosen row is marked if the list has the focus.
    fn list(&self, mut lines: Vec<Line<'static>>, focus: bool) -> Vec<Line<'static>> {
        if self.all == 0 {
            lines.push(Line::from(dim("  none")));
        }
        let row = self.chosen.and_then(|chosen| chosen.checked_sub(self.first)).filter(|_| focus);
        if let Some(line) = row.and_then(|row| lines.get_mut(row + 1)) {
            // Without colours: reversed ones would be a patchwork.
            *line = Line::raw(line.to_string()).reversed();
        }
        lines
    }
}

/// Events under a title, at most `rows` lines in all.
pub(super) fn events<'a>(
    happenings: impl Iterator<Item = &'a Happening>,
    title: &'static str,
    look: &Look,
    width: usize,
    rows: usize,
) -> Vec<Line<'static>> {
    let shown: Vec<&Happening> = happenings.take(rows.saturating_sub(1)).collect();
    let column = |cell: &dyn Fn(&Happening) -> Span<'static>| -> Vec<Cell> {
        shown.iter().map(|happening| vec![cell(happening)]).collect()
    };
    let or_dash = |text: Option<&str>| dim(text.map_or_else(|| "-".to_owned(), shortened));
    let time = |at| clock_time(at, &look.zone);
    let columns = vec![
        Column::left("TIME", 0, column(&|one| dim(one.at.map(time).unwrap_or_default()))),
        Column::left("LANE", 0, column(&|one| or_dash(one.lane.as_deref()))),
        Column::left("TENANT", 0, column(&|one| or_dash(one.tenant.as_deref()))),
        Column::left("JOB", 0, column(&|one| or_dash(one.short_job()))),
        Column::left(title, 0, column(&|one| look.toned(one_line(&one.sentence(time)), one.tone))),
    ];
    let mut lines = table(columns, width, heading());
    if shown.is_empty() {
        lines.push(Line::from(dim("  none yet")));
    }
    lines.truncate(rows);
    lines
}
