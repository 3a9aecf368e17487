//! The whole screen, as the terminal would show it.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};
use serde_json::{Value, json};

use super::draw::draw;
use super::look::Look;
use super::view::View;
use crate::cli::events::fixtures::{lane, upstream};
use crate::cli::events::{Event, News};

fn now() -> Timestamp {
    "2026-11-16T14:03:24Z".parse().unwrap()
}

fn hear(view: &mut View, name: &str, data: &Value) {
    let event = Event { name: name.into(), data: data.to_string(), id: Some("7-1".into()) };
    view.hear(News::Event(event), now()).unwrap();
}

fn press(view: &mut View, keys: &[KeyCode]) {
    for key in keys {
        view.press(KeyEvent::new(*key, KeyModifiers::NONE), now());
    }
}

/// A lane that waits for the window of `bureau`, one that flows, and a direct one; three upstreams.
fn scene() -> View {
    let mut view = View::new("http://127.0.0.1:8080".into(), &Value::Null);
    let mut score = lane("score");
    score["queued"]["normal"] = 22.into();
    score["oldestWaitingAt"] = "2026-11-16T14:03:01Z".into();
    score["lastStart"] = "2026-11-16T14:04:00Z".into();
    score["held"] = json!({ "reason": "window", "upstream": "bureau", "until": "2026-11-16T14:03:38Z" });
    score["chain"] = json!(["bureau"]);
    score["processing"] = 1.into();
    score["rates"]["accepted"] = 1.24.into();
    score["rates"]["completed"] = 1.0.into();
    let mut render = lane("render");
    render["chain"] = json!(["moody", "flaky"]);
    render["deadLetters"] = 3.into();
    render["rates"]["started"] = 1.0.into();
    let mut quick = lane("quick");
    quick["mode"] = "direct".into();
    quick["capacity"] = Value::Null;
    quick["rates"]["answered"] = 250.4.into();
    let gate = |reason: &str, open: bool, until: Value, level: u64, limit: Value| json!({ "reason": reason, "open": open, "until": until, "level": level, "limit": limit });
    let mut bureau = upstream("bureau");
    let full = gate("window", false, json!("2026-11-16T14:03:38Z"), 60, json!(60));
    bureau["gates"].as_array_mut().unwrap().push(full);
    bureau["requestsLastMinute"] = 60.into();
    bureau["latencyMs"] = json!({ "p50": 12, "p95": 1_240 });
    let mut moody = upstream("moody");
    moody["breaker"] = "open".into();
    moody["gates"] = json!([
        gate("circuit_open", false, json!("2026-11-16T14:03:29Z"), 3, json!(3)),
        gate("cooldown", false, json!("2026-11-16T14:03:26Z"), 2, Value::Null),
    ]);
    moody["errorsLastMinute"] = 7.into();
    let mut flaky = upstream("flaky");
    flaky["gates"].as_array_mut().unwrap().push(gate("concurrency", true, Value::Null, 3, json!(10)));
    let snapshot = json!({
        "at": "2026-11-16T14:03:24Z", "lanes": [quick, render, score], "upstreams": [bureau, flaky, moody],
        "alerts": { "alerts": [], "recent": [] }, "fleet": { "faults": [] },
    });
    hear(&mut view, "snapshot", &snapshot);
    let remark = |code: &str, text: &str| json!({ "code": code, "args": {}, "text": text });
    let mut status = remark(
        "held",
        "`bureau` has used its 60 requests for this minute: 22 jobs wait, the last starts at 14:04:00 UTC.",
    );
    status["also"] = json!([remark("rest_flows", "Everything else flows.")]);
    let mut need = remark("breaker_open", "The breaker of `moody` is open until 14:03:29 UTC.");
    need["severity"] = "warning".into();
    let mut letters = remark("dead_letters", "3 dead letters in lane `render`.");
    letters["severity"] = "warning".into();
    status["needs"] = json!([need, letters]);
    hear(&mut view, "status", &status);
    let job = |event: &str, upstream: Option<&str>| {
        json!({ "at": "2026-11-16T14:03:23.500Z", "jobId": "01a1e1f7-23c4-7c6f-a077-d8d74f01c7c8",
            "id": "order-7", "lane": "score", "tenant": "acme", "priority": "high", "event": event,
            "status": "queued", "upstream": upstream })
    };
    hear(&mut view, "jobs", &json!([job("accepted", None), job("started", Some("bureau"))]));
    view
}

fn drawn(view: &View, now: Timestamp, colours: bool, (width, height): (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let look = Look { zone: TimeZone::UTC, colours };
    terminal.draw(|frame| draw(view, &look, now, frame)).unwrap();
    terminal.backend().buffer().clone()
}

/// The rows of the screen, without the spaces at their ends.
fn rows(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width);
    let row =
        |cells: &[ratatui::buffer::Cell]| cells.iter().map(ratatui::buffer::Cell::symbol).collect::<String>();
    buffer.content.chunks(width).map(|cells| row(cells).trim_end().to_owned()).collect()
}

fn screen(view: &View, size: (u16, u16)) -> Vec<String> {
    rows(&drawn(view, now(), true, size))
}

#[track_caller]
fn assert_has(rows: &[String], part: &str) {
    assert!(rows.iter().any(|row| row.contains(part)), "no {part:?} in\n{}", rows.join("\n"));
}

#[test]
fn everything_fits_on_the_smallest_screen() {
    let expected = [
        "● `bureau` has used its 60 requests for this minute: 22 jobs wait, the last",
        "  starts at 14:04:00 UTC.",
        "  Everything else flows.                         http://127.0.0.1:8080  14:03:24",
        "! The breaker of `moody` is open until 14:03:29 UTC.  (+1 more: eclusa status)",
        "",
        "LANES    HIGH NORM LOW LATER RUN IN/S OUT/S DEAD OLDEST OPENS HELD BY",
        "● quick                        0  250   250                   direct",
        "● render    0    0   0     0   0    0     0    3              -",
        "● score     0   22   0     0   1  1.2   1.0         23s   14s window of bureau",
        "",
        "UPSTREAMS BREAKER    WINDOW LEFT  SLOTS LEFT   ERR   P50   P95 OPENS CLOSED BY",
        "● bureau  closed     ▕     ▏ 0/60                0  12ms  1.2s   14s window",
        "● flaky   closed                  ▕███▌ ▏ 7/10   0                   -",
        "● moody   open 5s                                7                2s cooldown",
        "",
        "TIME      LANE   TENANT  JOB           LATEST EVENTS",
        "14:03:23  score  acme    d8d74f01c7c8  started at bureau",
        "14:03:23  score  acme    d8d74f01c7c8  accepted as order-7, high priority",
        "",
        "",
        "",
        "",
        "",
        "↑↓ choose   Tab upstreams   Enter details   p pause   ? help   q quit",
    ];
    let shown = screen(&scene(), (80, 24));
    assert_eq!(shown, expected, "\n{}", shown.join("\n"));
}

#[test]
fn a_wider_screen_shows_more_columns() {
    let narrow = screen(&scene(), (80, 24));
    let wide = screen(&scene(), (160, 40));
    for title in ["WAITING", "ROOM", "LAST IN"] {
        assert!(!narrow.iter().any(|row| row.contains(title)), "{title}");
        assert_has(&wide, title);
    }
}

#[test]
fn a_screen_that_is_too_small_says_so() {
    for size in [(79, 24), (80, 23), (20, 5)] {
        let shown = screen(&scene(), size);
        assert_has(&shown, &format!("{}x{}", size.0, size.1));
        assert!(!shown.iter().any(|row| row.contains("LANES")), "{shown:?}");
    }
    screen(&scene(), (1, 1));
}

#[test]
fn countdowns_and_ages_follow_the_time() {
    let later = now() + jiff::SignedDuration::from_secs(10);
    let shown = rows(&drawn(&scene(), later, true, (80, 24)));
    assert_has(&shown, "33s    4s window of bureau");
    assert_has(&shown, "4s window");
    let late = now() + jiff::SignedDuration::from_secs(13);
    let shown = rows(&drawn(&scene(), late, true, (80, 24)));
    assert!(!shown.iter().any(|row| row.contains("window of bureau")), "it opens within a second");
}

#[test]
fn a_lost_connection_is_on_the_first_line_with_its_length() {
    let mut view = scene();
    view.hear(News::Lost("Connection refused".into()), now()).unwrap();
    let later = now() + jiff::SignedDuration::from_secs(75);
    let shown = rows(&drawn(&view, later, true, (80, 24)));
    assert!(shown[0].starts_with("● No connection for 1m15s: Connection refused. Trying again"), "{shown:?}");
    assert_has(&shown, "score");
}

#[test]
fn the_chosen_row_is_reversed_to_its_end() {
    let reversed = |view: &View| -> Vec<usize> {
        let buffer = drawn(view, now(), false, (80, 24));
        let is_reversed = |row: &usize| {
            let from = row * 80;
            buffer.content[from..from + 80].iter().all(|cell| cell.modifier.contains(Modifier::REVERSED))
        };
        (0..24).filter(is_reversed).collect()
    };
    let row = |part: &str| screen(&scene(), (80, 24)).iter().position(|row| row.contains(part)).unwrap();
    let mut view = scene();
    assert_eq!(reversed(&view), [row("● quick")]);
    press(&mut view, &[KeyCode::Down]);
    assert_eq!(reversed(&view), [row("● render")]);
    press(&mut view, &[KeyCode::Tab, KeyCode::Down, KeyCode::Down]);
    assert_eq!(reversed(&view), [row("● moody")]);
}

#[test]
fn without_colours_no_cell_has_one() {
    let has_colour = |colours: bool| {
        let buffer = drawn(&scene(), now(), colours, (120, 40));
        buffer.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(has_colour(true) && !has_colour(false));
}

#[test]
fn long_lists_scroll_to_the_chosen_row() {
    let mut view = View::new("http://127.0.0.1:8080".into(), &Value::Null);
    let lanes: Vec<Value> = (0..60).map(|number| lane(&format!("lane-{number:02}"))).collect();
    let upstreams: Vec<Value> = (0..60).map(|number| upstream(&format!("up-{number:02}"))).collect();
    hear(&mut view, "snapshot", &json!({ "lanes": lanes, "upstreams": upstreams }));
    for (keys, shown, hidden) in [
        (&[][..], ["LANES 1-", "lane-00"], "lane-59"),
        (&[KeyCode::End], ["-60/60", "lane-59"], "lane-00"),
        (&[KeyCode::Tab, KeyCode::End], ["up-59", "LATEST EVENTS"], "up-00"),
    ] {
        press(&mut view, keys);
        let rows = screen(&view, (80, 24));
        shown.iter().for_each(|part| assert_has(&rows, part));
        assert!(!rows.iter().any(|row| row.contains(hidden)), "{hidden} in {rows:?}");
    }
}

#[test]
fn a_lane_is_shown_in_detail() {
    let mut view = scene();
    press(&mut view, &[KeyCode::End, KeyCode::Enter]);
    let shown = screen(&view, (80, 24));
    for part in [
        "LANE score (queue)",
        "held by window of bureau until 14:03:38, in 14s",
        "waiting     22 normal",
        "room        78 of 100",
        "the oldest has waited 23s; the last starts in 36s (14:04:00)",
        "60/60 in the last minute, full",
        "opens in 14s",
        "started at bureau",
    ] {
        assert_has(&shown, part);
    }
    press(&mut view, &[KeyCode::Home]);
    assert_has(&screen(&view, (80, 24)), "LANE quick (direct)");
}

#[test]
fn an_upstream_is_shown_in_detail() {
    let mut view = scene();
    press(&mut view, &[KeyCode::Tab, KeyCode::Enter]);
    let shown = screen(&view, (80, 24));
    for part in [
        "UPSTREAM bureau",
        "60 calls, 0 failed; half answered within 12ms, 95 % within 1.2s",
        "score (22 waiting)",
        "started at bureau",
    ] {
        assert_has(&shown, part);
    }
}

#[test]
fn popups_are_drawn_above_everything() {
    let mut view = scene();
    press(&mut view, &[KeyCode::End, KeyCode::Char('p')]);
    let shown = screen(&view, (80, 24));
    for part in ["Pause lane score?", "Waiting now: 22 jobs.", "y pause   any other key changes nothing"] {
        assert_has(&shown, part);
    }
    press(&mut view, &[KeyCode::Esc, KeyCode::Char('?')]);
    let shown = screen(&view, (80, 24));
    assert_has(&shown, "Any key closes this.");
    assert_has(&shown, "pause or resume the chosen lane; asks first");
}

#[test]
fn an_empty_server_has_empty_lists() {
    let mut view = View::new("http://127.0.0.1:8080".into(), &Value::Null);
    assert_has(&screen(&view, (80, 24)), "Waiting for the server…");
    hear(&mut view, "snapshot", &json!({ "lanes": [], "upstreams": [] }));
    let shown = screen(&view, (80, 24));
    assert_eq!(shown.iter().filter(|row| row.trim() == "none").count(), 2, "{shown:?}");
    press(&mut view, &[KeyCode::Enter, KeyCode::Down, KeyCode::Tab, KeyCode::Char('p')]);
    screen(&view, (80, 24));
}
