//! Tables that fit any width: columns have the width of their contents, and unimportant ones go when there is no room.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// The last column keeps at least this width; before it would have less, other columns go.
const MIN_LAST: usize = 18;

/// Columns from this rank on are extras for wide screens.
const EXTRA: u8 = 3;

/// A cell: spans side by side.
pub(super) type Cell = Vec<Span<'static>>;

/// A column.
pub(super) struct Column {
    title: String,
    right: bool,
    /// 0 for a column that always stays; of the others, the one with the highest number goes first.
    rank: u8,
    /// Left out while all its cells are empty.
    if_any: bool,
    /// Its least width, so that other columns do not move when its contents change.
    least: usize,
    cells: Vec<Cell>,
}

impl Column {
    /// A column whose text begins at the left.
    pub(super) fn left(title: impl Into<String>, rank: u8, cells: Vec<Cell>) -> Self {
        let title: String = title.into();
        Self { least: title.len(), title, right: false, rank, if_any: false, cells }
    }

    /// A column whose numbers end at the right.
    pub(super) fn right(title: impl Into<String>, rank: u8, cells: Vec<Cell>) -> Self {
        Self { right: true, ..Self::left(title, rank, cells) }
    }

    /// The column, left out while all its cells are empty.
    pub(super) fn if_any(self) -> Self {
        Self { if_any: true, ..self }
    }

    /// The column, at least this wide.
    pub(super) fn least(self, width: usize) -> Self {
        Self { least: width, ..self }
    }

    fn width(&self) -> usize {
        self.cells.iter().map(cell_width).max().unwrap_or_default().max(self.least)
    }

    fn is_empty(&self) -> bool {
        self.cells.iter().all(|cell| cell_width(cell) == 0)
    }
}

fn cell_width(cell: &Cell) -> usize {
    cell.iter().map(Span::width).sum()
}

/// The columns as lines: the heading, then the rows. The last column is cut off where the line ends.
pub(super) fn table(columns: Vec<Column>, width: usize, heading: Style) -> Vec<Line<'static>> {
    let kept = columns.into_iter().filter(|column| !column.if_any || !column.is_empty()).collect();
    let (columns, gap) = fitting(kept, width);
    let rows = columns.first().map(|column| column.cells.len()).unwrap_or_default();
    let titles: Vec<Cell> = columns.iter().map(|column| vec![Span::raw(column.title.clone())]).collect();
    let mut lines = vec![line(&columns, &titles, gap).style(heading)];
    for row in 0..rows {
        let cells: Vec<Cell> = columns.iter().map(|column| column.cells[row].clone()).collect();
        lines.push(line(&columns, &cells, gap));
    }
    lines
}

/// The columns that fit, and the gap between them. Columns of rank [`EXTRA`] and above go before the gaps shrink.
fn fitting(mut columns: Vec<Column>, width: usize) -> (Vec<Column>, usize) {
    loop {
        if needed(&columns, 2) <= width {
            return (columns, 2);
        }
        let ranked = columns.iter().enumerate().filter(|(_, column)| column.rank > 0);
        let next = ranked.max_by_key(|(index, column)| (column.rank, *index));
        match next.map(|(index, column)| (index, column.rank)) {
            Some((index, EXTRA..)) => columns.remove(index),
            Some((index, _)) if needed(&columns, 1) > width => columns.remove(index),
            _ => return (columns, 1),
        };
    }
}

/// The width that the columns need.
fn needed(columns: &[Column], gap: usize) -> usize {
    let Some((last, others)) = columns.split_last() else { return 0 };
    let last = if last.right { last.width() } else { last.width().min(MIN_LAST) };
    others.iter().map(|column| column.width() + gap).sum::<usize>() + last
}

fn line(columns: &[Column], cells: &[Cell], gap: usize) -> Line<'static> {
    let mut spans = Vec::new();
    for (column, cell) in columns.iter().zip(cells) {
        let room = " ".repeat(column.width().saturating_sub(cell_width(cell)));
        if column.right {
            spans.push(Span::raw(room));
            spans.extend(cell.iter().cloned());
        } else {
            spans.extend(cell.iter().cloned());
            spans.push(Span::raw(room));
        }
        spans.push(Span::raw(" ".repeat(gap)));
    }
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(texts: &[&'static str]) -> Vec<Cell> {
        texts.iter().map(|text| vec![Span::raw(*text)]).collect()
    }

    fn columns() -> Vec<Column> {
        vec![
            Column::left("LANE", 0, cells(&["mail", "a-long-name"])),
            Column::right("WAIT", 3, cells(&["7", "1234567"])),
            Column::right("RUN", 2, cells(&["1", "2"])),
            Column::left("NONE", 1, cells(&["", ""])).if_any(),
            Column::right("OPENS", 0, cells(&["", ""])),
            Column::left("HELD BY", 0, cells(&["window of bureau, 14s", ""])),
        ]
    }

    fn shown(width: usize) -> Vec<String> {
        let lines = table(columns(), width, Style::new());
        lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect()
    }

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        assert_eq!(
            shown(80),
            [
                "LANE            WAIT  RUN  OPENS  HELD BY",
                "mail               7    1         window of bureau, 14s",
                "a-long-name  1234567    2",
            ]
        );
    }

    #[test]
    fn extras_go_then_gaps_shrink_then_columns_go_by_their_rank() {
        let row = |width| shown(width)[0].clone();
        assert_eq!(row(52), "LANE            WAIT  RUN  OPENS  HELD BY");
        assert_eq!(row(51), "LANE         RUN  OPENS  HELD BY");
        assert_eq!(row(43), "LANE         RUN  OPENS  HELD BY");
        assert_eq!(row(42), "LANE        RUN OPENS HELD BY");
        assert_eq!(row(40), "LANE        RUN OPENS HELD BY");
        assert_eq!(row(39), "LANE         OPENS  HELD BY");
        assert_eq!(row(5), "LANE        OPENS HELD BY", "the rest is cut off");
    }

    #[test]
    fn a_least_width_keeps_other_columns_in_place() {
        let columns = vec![
            Column::left("BREAKER", 0, cells(&["closed"])).least(10),
            Column::left("CLOSED BY", 0, cells(&["-"])),
        ];
        let lines = table(columns, 80, Style::new());
        assert_eq!(lines[1].to_string().trim_end(), "closed      -");
    }
}
