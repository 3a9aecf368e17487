//! `eclusa tail`.

use std::io::stdout;
use std::os::fd::AsFd;
use std::pin::pin;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use futures_util::StreamExt;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use tokio::io::Interest;
use tokio::net::unix::pipe::Sender;

use super::Exit;
use super::client::{Client, with_query};
use super::events::{Event, Happening, Listener, News, State, Tone};
use super::exit::note;
use super::output::{Format, has_colours, one_line, write};
use super::progress::interrupted;
use super::span::{now, span};

/// Longer names of lanes and tenants are shortened.
const MAX_NAME: usize = 24;
/// The width of the short id of a job.
const SHORT_ID: usize = 12;

#[derive(Debug, Args)]
pub(super) struct TailArgs {
    /// Only events of this lane: its jobs, its alerts, and the gates and alerts of its upstreams
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    lane: Option<String>,
    /// Only events of this tenant: its jobs and its alerts
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    tenant: Option<String>,
}

/// Prints events until Ctrl-C.
pub(super) fn run(args: &TailArgs, client: &Client, format: Format) -> Result<(), Exit> {
    let topics = match args.tenant {
        Some(_) => "jobs,alerts",
        None if args.lane.is_some() => "jobs,alerts,lanes,upstreams",
        None => "jobs,alerts,lanes,upstreams,fleet",
    };
    let parameters =
        [("topics", Some(topics)), ("lane", args.lane.as_deref()), ("tenant", args.tenant.as_deref())];
    let path = with_query("/v1/events", &parameters);
    client.run(async {
        let follow = async {
            let listener = Listener::open(client, path).await?;
            let mut printer = Printer::new(args, client.base(), format);
            let mut news = pin!(listener.news());
            while let Some(one) = news.next().await {
                printer.take(one?)?;
            }
            Ok(())
        };
        tokio::select! {
            biased;
            () = interrupted() => Ok(()),
            () = output_closed() => Err(Exit::BrokenPipe),
            ended = follow => ended,
        }
    })
}

/// Completes when the reader of standard output goes away, as in `… | head -1`. Without this, a command that waits for events
/// would notice only at the next one.
async fn output_closed() {
    // Only watched, never written to, so it may block. A file cannot be watched, and nobody closes it.
    let watched = stdout().as_fd().try_clone_to_owned().and_then(Sender::from_owned_fd_unchecked);
    if let Ok(output) = watched {
        while let Ok(ready) = output.ready(Interest::ERROR).await {
            if ready.is_error() {
                return;
            }
        }
    }
    std::future::pending::<()>().await;
}

/// Prints what the listener reports.
struct Printer<'a> {
    args: &'a TailArgs,
    server: String,
    format: Format,
    lines: Lines,
    state: State,
    lost_at: Option<Timestamp>,
    /// Whether the first snapshot has arrived: from then on nothing is missed.
    following: bool,
    /// Whether the user already knows of the gap that comes next.
    knows_of_gap: bool,
}

impl<'a> Printer<'a> {
    fn new(args: &'a TailArgs, server: String, format: Format) -> Self {
        let lines = Lines { zone: TimeZone::system(), colours: has_colours(), lane: 4, tenant: 6 };
        let state = State::default();
        Self { args, server, format, lines, state, lost_at: None, following: false, knows_of_gap: false }
    }

    fn take(&mut self, news: News) -> Result<(), Exit> {
        match news {
            News::Event(event) => {
                if event.name == "gap" && !std::mem::take(&mut self.knows_of_gap) {
                    note("Some events were missed");
                }
                return self.event(&event);
            }
            News::Lost(why) => {
                self.lost_at = Some(now());
                note(&format!("Lost the connection to {}: {why}; reconnecting", self.server));
            }
            News::Back { missed } => {
                self.knows_of_gap = missed;
                let away = self.lost_at.take().map(|at| span(now().duration_since(at))).unwrap_or_default();
                let events = if missed { "events in between were missed" } else { "no events were missed" };
                note(&format!("Connected again after {away}; {events}"));
            }
        }
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<(), Exit> {
        if self.format != Format::Text {
            return write(&json_line(event)?);
        }
        let happenings = self.state.apply(event, now())?;
        if event.name == "snapshot" && !std::mem::replace(&mut self.following, true) {
            note(&format!("Following {}; Ctrl-C stops", self.server));
        }
        self.lines.fit(self.state.lanes.iter().map(|lane| lane.name.as_str()));
        let shown = happenings.iter().filter(|happening| is_shown(happening, self.args, &self.state));
        let text: String = shown.map(|happening| self.lines.line(happening)).collect();
        if text.is_empty() { Ok(()) } else { write(&text) }
    }
}

/// The event as it was received, on one line.
fn json_line(event: &Event) -> Result<String, Exit> {
    let data: Value = serde_json::from_str(&event.data)
        .map_err(|error| Exit::Error(format!("the server sent an event that is not JSON: {error}")))?;
    let mut line = json!({ "event": event.name, "data": data });
    if let Some(id) = &event.id {
        line["id"] = id.as_str().into();
    }
    Ok(format!("{line}\n"))
}

/// Whether the user asked for it. The server filters only jobs and lanes.
fn is_shown(happening: &Happening, args: &TailArgs, state: &State) -> bool {
    let of_tenant = args.tenant.is_none() || happening.tenant == args.tenant;
    let of_lane = args.lane.as_ref().is_none_or(|only| match (&happening.lane, &happening.upstream) {
        (Some(lane), _) => lane == only,
        (None, Some(upstream)) => state.lane(only).is_some_and(|lane| lane.chain.contains(upstream)),
        (None, None) => false,
    });
    of_tenant && of_lane
}

/// Lines with aligned columns; a column grows when something longer comes.
struct Lines {
    zone: TimeZone,
    colours: bool,
    lane: usize,
    tenant: usize,
}

impl Lines {
    /// Makes room for lanes.
    fn fit<'a>(&mut self, lanes: impl Iterator<Item = &'a str>) {
        self.lane = lanes.map(width).max().unwrap_or_default().max(self.lane);
    }

    /// One happening as a line.
    fn line(&mut self, happening: &Happening) -> String {
        let cell = |text: &Option<String>| text.as_deref().map_or_else(|| "-".into(), shortened);
        let (lane, tenant) = (cell(&happening.lane), cell(&happening.tenant));
        self.fit(std::iter::once(lane.as_str()));
        self.tenant = self.tenant.max(width(&tenant));
        let clock = |at: Timestamp| at.to_zoned(self.zone.clone()).strftime("%H:%M:%S%.3f").to_string();
        let time = happening.at.map_or_else(|| "-".into(), clock);
        let job = happening.short_job().unwrap_or("-");
        let text = one_line(&happening.sentence(clock));
        let (lanes, tenants) = (self.lane, self.tenant);
        let before = format!("{time:12}  {lane:lanes$}  {tenant:tenants$}  {job:SHORT_ID$}");
        let colour = match happening.tone {
            _ if !self.colours => return format!("{before}  {text}\n"),
            Tone::Plain => return format!("\u{1b}[2m{before}\u{1b}[0m  {text}\n"),
            Tone::Good => 32,
            Tone::Warning => 33,
            Tone::Bad => 31,
        };
        format!("\u{1b}[2m{before}\u{1b}[0m  \u{1b}[{colour}m{text}\u{1b}[0m\n")
    }
}

fn width(name: &str) -> usize {
    name.chars().count().min(MAX_NAME)
}

/// A name without control characters, in at most [`MAX_NAME`] characters.
fn shortened(name: &str) -> String {
    let name = one_line(name);
    match name.char_indices().nth(MAX_NAME) {
        Some(_) => name.chars().take(MAX_NAME - 1).chain(['…']).collect(),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::events::fixtures::lane;

    fn happening(lane: Option<&str>, tenant: Option<&str>, text: &str) -> Happening {
        Happening {
            at: Some("2026-11-16T14:03:24.120Z".parse().unwrap()),
            lane: lane.map(ToOwned::to_owned),
            tenant: tenant.map(ToOwned::to_owned),
            upstream: None,
            job: lane.map(|_| "01a1e1f7-23c4-7c6f-a077-d8d74f01c7c8".into()),
            tone: Tone::Good,
            text: text.into(),
            when: None,
        }
    }

    fn lines(colours: bool) -> Lines {
        Lines { zone: TimeZone::fixed(jiff::tz::offset(-3)), colours, lane: 4, tenant: 6 }
    }

    #[test]
    fn columns_are_aligned_and_grow() {
        let mut lines = lines(false);
        lines.fit(["score"].into_iter());
        assert_eq!(
            lines.line(&happening(Some("mail"), Some("acme"), "completed")),
            "11:03:24.120  mail   acme    d8d74f01c7c8  completed\n"
        );
        assert_eq!(
            lines.line(&happening(None, None, "breaker of fal is closed")),
            "11:03:24.120  -      -       -             breaker of fal is closed\n"
        );
        assert_eq!(
            lines.line(&happening(Some("mail"), Some("a tenant with a very long name"), "x")),
            "11:03:24.120  mail   a tenant with a very lo…  d8d74f01c7c8  x\n"
        );
        assert_eq!(
            lines.line(&happening(Some("mail"), Some("acme"), "x")),
            "11:03:24.120  mail   acme                      d8d74f01c7c8  x\n"
        );
    }

    #[test]
    fn colours_surround_only_the_text() {
        assert_eq!(
            lines(true).line(&happening(Some("mail"), Some("acme"), "completed")),
            "\u{1b}[2m11:03:24.120  mail  acme    d8d74f01c7c8\u{1b}[0m  \u{1b}[32mcompleted\u{1b}[0m\n"
        );
    }

    #[test]
    fn control_characters_from_outside_are_replaced() {
        let line = lines(false).line(&happening(Some("mail"), Some("a\nb\u{1b}[31m"), "x\u{7}y"));
        assert_eq!(line, "11:03:24.120  mail  a b [31m  d8d74f01c7c8  x y\n");
    }

    #[test]
    fn filters_apply_to_jobs_gates_and_alerts() {
        let mut state = State::default();
        let snapshot = json!({ "lanes": [lane("mail")] }).to_string();
        state.apply(&Event { name: "snapshot".into(), data: snapshot, id: None }, now()).unwrap();
        let gate =
            |upstream: &str| Happening { upstream: Some(upstream.into()), ..happening(None, None, "open") };
        let (own, other) = (happening(Some("mail"), Some("acme"), "x"), happening(Some("bulk"), None, "x"));
        let all = [own, other, gate("fal"), gate("elsewhere"), happening(None, None, "takeover")];
        let shown = |lane: Option<&str>, tenant: Option<&str>| {
            let args = TailArgs { lane: lane.map(ToOwned::to_owned), tenant: tenant.map(ToOwned::to_owned) };
            all.iter().map(|one| is_shown(one, &args, &state)).collect::<Vec<_>>()
        };
        assert_eq!(shown(None, None), [true; 5]);
        assert_eq!(shown(Some("mail"), None), [true, false, true, false, false]);
        assert_eq!(shown(None, Some("acme")), [true, false, false, false, false]);
        assert_eq!(shown(Some("bulk"), Some("acme")), [false; 5]);
    }

    #[test]
    fn json_has_the_event_as_received() {
        let event = Event { name: "gap".into(), data: "{}".into(), id: Some("7-1".into()) };
        assert_eq!(json_line(&event).unwrap(), "{\"data\":{},\"event\":\"gap\",\"id\":\"7-1\"}\n");
    }
}
