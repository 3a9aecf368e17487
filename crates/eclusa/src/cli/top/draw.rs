//! Draws the screen: a pure function of the view, the time and the size.

use jiff::Timestamp;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Clear, Padding, Paragraph, Wrap};

use super::look::{Look, dim};
use super::view::{Link, List, Popup, View};
use super::{detail, overview};
use crate::cli::events::{Tone, clock_time};
use crate::cli::output::one_line;
use crate::cli::span::span;

/// The smallest screen.
const WIDTH: u16 = 80;
const HEIGHT: u16 = 24;
/// The widest text of a popup.
const POPUP: usize = 64;
/// The status sentence has at most this many lines.
const SENTENCE: usize = 2;

const HELP: [(&str, &str); 8] = [
    ("↑ ↓, Home End", "choose a lane or an upstream"),
    ("Tab", "go to the other list"),
    ("Enter, Esc", "show the chosen one in detail, and back"),
    ("p", "pause or resume the chosen lane; asks first"),
    ("?", "this help"),
    ("q, Ctrl-C", "quit"),
    ("LATER", "jobs that are scheduled or between attempts"),
    ("bars", "what is left: calls of this minute, slots, tokens"),
];

/// Draws the screen. `now` is the time of this machine.
pub(super) fn draw(view: &View, look: &Look, now: Timestamp, frame: &mut Frame) {
    let area = frame.area();
    if area.width < WIDTH || area.height < HEIGHT {
        let text = format!(
            "This terminal has {}x{} cells.\neclusa top needs at least {WIDTH}x{HEIGHT}.\nEnlarge it, or press q to quit.",
            area.width, area.height
        );
        return frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
    }
    let width = usize::from(area.width);
    // Times of the server are compared with its own clock.
    let store_now = view.state.store_time(now);
    let mut lines = header(view, look, now, width, area.height);
    let room = usize::from(area.height).saturating_sub(lines.len() + 1);
    lines.extend(if view.detail {
        detail::lines(view, look, store_now, width, room)
    } else {
        overview::lines(view, look, store_now, width, room)
    });
    lines.truncate(usize::from(area.height) - 1);
    for (row, line) in (area.y..).zip(&lines) {
        put(frame, row, line);
    }
    put(frame, area.bottom() - 1, &footer(view, look, now));
    match &view.popup {
        Some(Popup::Help) => popup(frame, "Help", help()),
        Some(Popup::Confirm { lane, pause }) => popup(frame, "Confirm", confirmation(view, lane, *pause)),
        None => {}
    }
}

/// Writes a line; its own style, as that of a heading or of the chosen row, goes to the end of the row.
fn put(frame: &mut Frame, row: u16, line: &Line<'_>) {
    let area = Rect { y: row, height: 1, ..frame.area() };
    let buffer = frame.buffer_mut();
    buffer.set_line(area.x, row, line, area.width);
    buffer.set_style(area, line.style);
}

/// The status sentence, or that the connection is lost; what else there is to say; what needs attention.
fn header(view: &View, look: &Look, now: Timestamp, width: usize, height: u16) -> Vec<Line<'static>> {
    let (tone, sentence) = sentence(view, now);
    let bold = look.tone(tone).bold();
    let mut lines: Vec<Line> = wrapped(&sentence, width - 2, SENTENCE)
        .into_iter()
        .enumerate()
        .map(|(at, text)| {
            let dot = if at == 0 { "● " } else { "  " };
            Line::from(vec![Span::styled(dot, look.tone(tone)), Span::styled(text, bold)])
        })
        .collect();
    let status = view.state.status.as_ref();
    let also = status.map(|status| status.also.iter().map(|also| also.text.as_str()).collect::<Vec<_>>());
    let also = one_line(&also.unwrap_or_default().join(" "));
    let here = format!("{}  {}", view.server, clock_time(now, &look.zone));
    let room = width.saturating_sub(2 + here.chars().count() + 2);
    let also: String = wrapped(&also, room, 1).into_iter().next().unwrap_or_default();
    let gap = " ".repeat(room.saturating_sub(also.chars().count()) + 2);
    lines.push(Line::from(vec![dim(format!("  {also}{gap}{here}"))]));
    let needs = status.map(|status| status.needs.as_slice()).unwrap_or_default();
    let shown = if height < 32 { 1 } else { 4 };
    for (at, need) in needs.iter().take(shown).enumerate() {
        let tone = if need.severity == "critical" { Tone::Bad } else { Tone::Warning };
        let hidden = needs.len().saturating_sub(shown);
        let more = (at + 1 == shown && hidden > 0).then(|| format!("  (+{hidden} more: eclusa status)"));
        let text = format!("! {}", one_line(&need.remark.text));
        lines.push(Line::from(vec![look.toned(text, tone), dim(more.unwrap_or_default())]));
    }
    lines.push(Line::default());
    lines
}

fn sentence(view: &View, now: Timestamp) -> (Tone, String) {
    if let Link::Lost { since, why } = &view.link {
        let lost = span(now.duration_since(*since));
        return (
            Tone::Bad,
            format!("No connection for {lost}: {why}. Trying again; this is the last known state."),
        );
    }
    let Some(status) = &view.state.status else { return (Tone::Plain, "Waiting for the server…".into()) };
    let tone = match status.remark.code.as_str() {
        "flows" | "fresh" => Tone::Good,
        "store_lost" | "rules_gone" => Tone::Bad,
        _ => Tone::Warning,
    };
    (tone, one_line(&status.remark.text))
}

/// Breaks text at spaces into at most `most` lines of `width` characters; what does not fit ends with an ellipsis.
fn wrapped(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    let cut = lines.len() > most;
    lines.truncate(most);
    for line in &mut lines {
        *line = line.chars().take(width).collect();
    }
    if let Some(last) = lines.last_mut().filter(|_| cut) {
        *last = last.chars().take(width.saturating_sub(1)).chain(['…']).collect();
    }
    lines
}

/// A message, or the keys.
fn footer(view: &View, look: &Look, now: Timestamp) -> Line<'static> {
    if let Some((tone, text)) = view.message(now) {
        return Line::from(look.toned(one_line(text), tone));
    }
    let other = if view.list == List::Lanes { "upstreams" } else { "lanes" };
    let enter = if view.detail { "back" } else { "details" };
    let pause = match view.chosen_lane() {
        Some(lane) if view.list == List::Lanes => Some(("p", if lane.paused { "resume" } else { "pause" })),
        _ => None,
    };
    let keys = [("↑↓", "choose"), ("Tab", other), ("Enter", enter)].into_iter();
    let keys = keys.chain(pause).chain([("?", "help"), ("q", "quit")]);
    let bold = Style::new().bold();
    keys.flat_map(|(key, does)| [Span::styled(key, bold), dim(format!(" {does}   "))]).collect()
}

fn help() -> Text<'static> {
    let line = |(key, does): (&'static str, &'static str)| {
        Line::from(vec![Span::styled(format!("{key:14}"), Style::new().bold()), Span::raw(does)])
    };
    let end = [Line::default(), Line::from(dim("Any key closes this."))];
    HELP.map(line).into_iter().chain(end).collect()
}

fn confirmation(view: &View, lane: &str, pause: bool) -> Text<'static> {
    let [question, effect] = view.confirmation(lane, pause);
    let bold = Style::new().bold();
    let answers = vec![
        Span::styled("y", bold),
        Span::raw(if pause { " pause   " } else { " resume   " }),
        Span::styled("any other key", bold),
        Span::raw(" changes nothing"),
    ];
    Text::from(vec![Line::styled(question, bold), Line::raw(effect), Line::default(), Line::from(answers)])
}

/// Draws `text` in a frame, in the middle.
fn popup(frame: &mut Frame, title: &'static str, text: Text<'static>) {
    let area = frame.area();
    let columns = text.width().min(POPUP);
    let rows: usize = text.lines.iter().map(|line| line.width().div_ceil(columns).max(1)).sum();
    // The border and a space on each side.
    let (width, height) = (columns + 4, rows + 2);
    let (width, height) =
        (u16::try_from(width).unwrap_or(u16::MAX), u16::try_from(height).unwrap_or(u16::MAX));
    let place = area.centered(Constraint::Length(width), Constraint::Length(height));
    frame.render_widget(Clear, place);
    let block = Block::bordered().title(format!(" {title} ")).padding(Padding::horizontal(1));
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }).block(block), place);
}
