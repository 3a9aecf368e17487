//! What `top` shows: what the stream has said, and what the user chose. Keys and news change it; it does no I/O.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::Value;

use super::look::waiting;
use crate::cli::Exit;
use crate::cli::events::{Happening, News, State, Tone};
use crate::cli::output::{count, typed};
use crate::model::{Lane, Upstream};

/// Happenings that are kept.
const KEPT: usize = 300;
/// How long a message is shown.
const MESSAGE: SignedDuration = SignedDuration::from_secs(6);

/// The two lists to choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    Lanes,
    Upstreams,
}

/// Whether the server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Link {
    Live,
    Lost { since: Timestamp, why: String },
}

/// What is shown above everything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Popup {
    Help,
    /// Asks whether to pause or resume a lane.
    Confirm {
        lane: String,
        pause: bool,
    },
}

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Quit,
    Pause { lane: String, pause: bool },
}

/// See the module.
pub(super) struct View {
    pub(super) server: String,
    pub(super) state: State,
    /// The newest first.
    pub(super) happenings: VecDeque<Happening>,
    pub(super) link: Link,
    /// The list that has the focus.
    pub(super) list: List,
    /// The chosen lane and upstream, if the user chose one.
    lane: Option<String>,
    upstream: Option<String>,
    /// Whether the chosen one is shown in detail.
    pub(super) detail: bool,
    pub(super) popup: Option<Popup>,
    message: Option<(Timestamp, Tone, String)>,
    /// Why the key may not pause lanes.
    refusal: Option<String>,
}

impl View {
    /// Before anything was heard. `session` is what the server says of the key.
    pub(super) fn new(server: String, session: &Value) -> Self {
        Self {
            server,
            state: State::default(),
            happenings: VecDeque::new(),
            link: Link::Live,
            list: List::Lanes,
            lane: None,
            upstream: None,
            detail: false,
            popup: None,
            message: None,
            refusal: refusal(session),
        }
    }

    /// Takes in what the listener reports.
    pub(super) fn hear(&mut self, news: News, now: Timestamp) -> Result<(), Exit> {
        match news {
            News::Event(event) => {
                for happening in self.state.apply(&event, now)? {
                    self.happenings.push_front(happening);
                }
                self.happenings.truncate(KEPT);
            }
            News::Lost(why) => self.link = Link::Lost { since: now, why },
            News::Back { missed } => {
                let events = if missed { "Events in between were missed" } else { "No events were missed" };
                self.say(now, Tone::Plain, &format!("Connected again. {events}"));
                self.link = Link::Live;
            }
        }
        Ok(())
    }

    /// Takes in how pausing or resuming a lane ended.
    pub(super) fn done(&mut self, answer: Result<Value, Exit>, now: Timestamp) {
        let lane = answer.and_then(|lane| typed::<Lane>(&lane));
        match lane {
            Ok(lane) => {
                let did = if lane.paused { "is paused" } else { "is resumed" };
                self.say(now, Tone::Good, &format!("Lane {} {did}", lane.name));
                self.state.set_lane(lane);
            }
            Err(error) => self.say(now, Tone::Bad, error.text().lines().next().unwrap_or_default()),
        }
    }

    /// Takes in a key.
    pub(super) fn press(&mut self, key: KeyEvent, now: Timestamp) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Nothing;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Action::Quit;
        }
        if let Some(popup) = self.popup.take() {
            return match (popup, key.code) {
                (Popup::Confirm { lane, pause }, KeyCode::Char('y')) => Action::Pause { lane, pause },
                // Any other key closes it.
                _ => Action::Nothing,
            };
        }
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('?') => self.popup = Some(Popup::Help),
            KeyCode::Char('p') => self.ask_to_pause(now),
            KeyCode::Tab | KeyCode::BackTab | KeyCode::Left | KeyCode::Right => {
                self.list = if self.list == List::Lanes { List::Upstreams } else { List::Lanes };
            }
            KeyCode::Up | KeyCode::Char('k') => self.choose(|at, _| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.choose(|at, last| (at + 1).min(last)),
            KeyCode::Home => self.choose(|_, _| 0),
            KeyCode::End => self.choose(|_, last| last),
            KeyCode::Enter => self.detail = !self.detail,
            KeyCode::Esc | KeyCode::Backspace => self.detail = false,
            _ => {}
        }
        Action::Nothing
    }

    fn ask_to_pause(&mut self, now: Timestamp) {
        if self.list != List::Lanes {
            return self.say(now, Tone::Plain, "Choose a lane to pause or resume it (Tab)");
        }
        if let Some(refusal) = self.refusal.clone() {
            return self.say(now, Tone::Warning, &refusal);
        }
        let lane = self.chosen_lane().map(|lane| (lane.name.clone(), !lane.paused));
        self.popup = lane.map(|(lane, pause)| Popup::Confirm { lane, pause });
    }

    /// Moves the choice within the list that has the focus, from its place and the last place.
    fn choose(&mut self, to: impl Fn(usize, usize) -> usize) {
        let (names, chosen) = match self.list {
            List::Lanes => (self.lane_names(), &mut self.lane),
            List::Upstreams => (self.upstream_names(), &mut self.upstream),
        };
        let at = names.iter().position(|name| Some(name) == chosen.as_ref()).unwrap_or_default();
        *chosen = names.get(to(at, names.len().saturating_sub(1))).cloned();
    }

    fn lane_names(&self) -> Vec<String> {
        self.state.lanes.iter().map(|lane| lane.name.clone()).collect()
    }

    fn upstream_names(&self) -> Vec<String> {
        self.state.upstreams.iter().map(|upstream| upstream.name.clone()).collect()
    }

    /// The chosen lane; the first if none was chosen, or the chosen one is gone.
    pub(super) fn chosen_lane(&self) -> Option<&Lane> {
        let chosen = self.lane.as_deref().and_then(|name| self.state.lane(name));
        chosen.or_else(|| self.state.lanes.first())
    }

    /// The chosen upstream.
    pub(super) fn chosen_upstream(&self) -> Option<&Upstream> {
        let chosen = self.upstream.as_deref().and_then(|name| self.state.upstream(name));
        chosen.or_else(|| self.state.upstreams.first())
    }

    /// The message to show.
    pub(super) fn message(&self, now: Timestamp) -> Option<(Tone, &str)> {
        let (since, tone, text) = self.message.as_ref()?;
        (now.duration_since(*since) < MESSAGE).then_some((*tone, text))
    }

    fn say(&mut self, now: Timestamp, tone: Tone, text: &str) {
        self.message = Some((now, tone, text.to_owned()));
    }

    /// What a confirmation says: the question, and what the answer "yes" does.
    pub(super) fn confirmation(&self, lane: &str, pause: bool) -> [String; 2] {
        let jobs = self.state.lane(lane).map(waiting).unwrap_or_default();
        let jobs = count(usize::try_from(jobs).unwrap_or(usize::MAX), "job");
        if pause {
            let effect = "No more jobs of it start, in any process. Calls that run are finished, and new jobs are still \
                          accepted";
            [format!("Pause lane {lane}?"), format!("{effect}. Waiting now: {jobs}.")]
        } else {
            let effect = "Its jobs start again as its gates allow";
            [format!("Resume lane {lane}?"), format!("{effect}. Waiting now: {jobs}.")]
        }
    }
}

/// Why the key of a session may not pause lanes. A server that does not know sessions decides by itself.
fn refusal(session: &Value) -> Option<String> {
    let name = session["name"].as_str().unwrap_or_default();
    match session["role"].as_str() {
        None | Some("operator" | "admin") => {}
        Some(role) => {
            return Some(format!("The key {name} has the role {role}: pausing needs operator or admin"));
        }
    }
    let bound = session["tenants"].as_array().is_some_and(|tenants| !tenants.is_empty());
    bound.then(|| format!("The key {name} is bound to some tenants: it may not pause a lane"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::events::Event;
    use crate::cli::events::fixtures::{lane, upstream};

    fn now() -> Timestamp {
        "2026-11-16T14:03:24Z".parse().unwrap()
    }

    fn event(name: &str, data: &Value) -> News {
        News::Event(Event { name: name.into(), data: data.to_string(), id: Some("7-1".into()) })
    }

    fn view(session: &Value) -> View {
        let mut view = View::new("http://127.0.0.1:8080".into(), session);
        let lanes = ["a", "b", "c"].map(lane);
        let snapshot = json!({ "lanes": lanes, "upstreams": [upstream("x"), upstream("y")] });
        view.hear(event("snapshot", &snapshot), now()).unwrap();
        view
    }

    fn press(view: &mut View, code: KeyCode) -> Action {
        view.press(KeyEvent::new(code, KeyModifiers::NONE), now())
    }

    fn chosen(view: &View) -> (&str, &str) {
        (&view.chosen_lane().unwrap().name, &view.chosen_upstream().unwrap().name)
    }

    #[test]
    fn keys_choose_in_the_list_that_has_the_focus() {
        let mut view = view(&Value::Null);
        assert_eq!(chosen(&view), ("a", "x"));
        for (key, expected) in [
            (KeyCode::Up, ("a", "x")),
            (KeyCode::Down, ("b", "x")),
            (KeyCode::Char('j'), ("c", "x")),
            (KeyCode::Down, ("c", "x")),
            (KeyCode::Tab, ("c", "x")),
            (KeyCode::Down, ("c", "y")),
            (KeyCode::Home, ("c", "x")),
            (KeyCode::End, ("c", "y")),
            (KeyCode::BackTab, ("c", "y")),
            (KeyCode::Char('k'), ("b", "y")),
        ] {
            assert_eq!(press(&mut view, key), Action::Nothing);
            assert_eq!(chosen(&view), expected, "{key:?}");
        }
        view.hear(event("lanes", &json!([{ "name": "b", "removed": true }])), now()).unwrap();
        assert_eq!(chosen(&view), ("a", "y"), "the chosen one is gone");
    }

    #[test]
    fn enter_opens_and_esc_closes_the_detail() {
        let mut view = view(&Value::Null);
        for (key, expected) in [
            (KeyCode::Enter, true),
            (KeyCode::Down, true),
            (KeyCode::Esc, false),
            (KeyCode::Esc, false),
            (KeyCode::Enter, true),
            (KeyCode::Enter, false),
        ] {
            press(&mut view, key);
            assert_eq!(view.detail, expected, "{key:?}");
        }
    }

    #[test]
    fn q_and_ctrl_c_quit() {
        let mut view = view(&Value::Null);
        assert_eq!(press(&mut view, KeyCode::Char('q')), Action::Quit);
        assert_eq!(press(&mut view, KeyCode::Char('c')), Action::Nothing);
        press(&mut view, KeyCode::Char('?'));
        assert_eq!(view.popup, Some(Popup::Help));
        let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(view.press(ctrl_c, now()), Action::Quit, "also while a popup is open");
    }

    #[test]
    fn a_lane_is_paused_only_after_a_confirmation() {
        let mut view = view(&Value::Null);
        press(&mut view, KeyCode::Down);
        for (answer, expected) in [
            (KeyCode::Char('n'), Action::Nothing),
            (KeyCode::Enter, Action::Nothing),
            (KeyCode::Char('y'), Action::Pause { lane: "b".into(), pause: true }),
        ] {
            assert_eq!(press(&mut view, KeyCode::Char('p')), Action::Nothing);
            assert_eq!(view.popup, Some(Popup::Confirm { lane: "b".into(), pause: true }));
            assert_eq!(press(&mut view, answer), expected);
            assert_eq!(view.popup, None);
        }
        let mut paused = lane("b");
        paused["paused"] = true.into();
        view.done(Ok(paused), now());
        assert_eq!(view.message(now()), Some((Tone::Good, "Lane b is paused")));
        press(&mut view, KeyCode::Char('p'));
        assert_eq!(
            view.popup,
            Some(Popup::Confirm { lane: "b".into(), pause: false }),
            "it is known at once"
        );
        let refused = Exit::Auth("Not allowed: the key `k` may not\nhelp: x".into());
        view.done(Err(refused), now());
        assert_eq!(view.message(now()), Some((Tone::Bad, "Not allowed: the key `k` may not")));
        let later = now() + MESSAGE;
        assert_eq!(view.message(later), None);
    }

    #[test]
    fn a_confirmation_says_what_will_happen() {
        let mut view = view(&Value::Null);
        let mut busy = lane("a");
        busy["queued"]["low"] = 1.into();
        view.hear(event("lanes", &json!([busy])), now()).unwrap();
        let [question, effect] = view.confirmation("a", true);
        assert_eq!(question, "Pause lane a?");
        assert!(effect.contains("new jobs are still accepted. Waiting now: 1 job."), "{effect}");
        assert_eq!(view.confirmation("a", false)[0], "Resume lane a?");
    }

    #[test]
    fn keys_that_may_not_pause_are_not_asked() {
        for (session, expected) in [
            (json!({ "required": false, "role": "admin" }), None),
            (json!({ "required": true, "name": "k", "role": "operator" }), None),
            (json!({ "required": true, "name": "k", "role": "operator", "lanes": ["a"] }), None),
            (
                json!({ "required": true, "name": "k", "role": "viewer" }),
                Some("The key k has the role viewer: pausing needs operator or admin"),
            ),
            (
                json!({ "required": true, "name": "k", "role": "operator", "tenants": ["acme"] }),
                Some("The key k is bound to some tenants: it may not pause a lane"),
            ),
        ] {
            let mut view = view(&session);
            press(&mut view, KeyCode::Char('p'));
            assert_eq!(view.popup.is_none(), expected.is_some(), "{session}");
            assert_eq!(view.message(now()).map(|(_, text)| text), expected);
        }
        let mut view = view(&Value::Null);
        press(&mut view, KeyCode::Tab);
        press(&mut view, KeyCode::Char('p'));
        assert_eq!(view.popup, None, "an upstream cannot be paused");
        assert!(view.message(now()).is_some());
    }

    #[test]
    fn a_lost_connection_is_known_until_it_is_back() {
        let mut view = view(&Value::Null);
        view.hear(News::Lost("refused".into()), now()).unwrap();
        assert_eq!(view.link, Link::Lost { since: now(), why: "refused".into() });
        assert_eq!(view.state.lanes.len(), 3, "what was known stays");
        view.hear(News::Back { missed: true }, now()).unwrap();
        assert_eq!(view.link, Link::Live);
        assert_eq!(view.message(now()).unwrap().1, "Connected again. Events in between were missed");
    }

    #[test]
    fn the_newest_event_comes_first_and_old_ones_go() {
        let mut view = view(&Value::Null);
        let job = |number: usize| {
            json!({ "at": null, "jobId": number.to_string(), "id": "", "lane": "a", "tenant": "t",
                "priority": "normal", "event": "completed", "status": "completed" })
        };
        let jobs: Vec<Value> = (0..=KEPT).map(job).collect();
        view.hear(event("jobs", &json!(jobs)), now()).unwrap();
        assert_eq!(view.happenings.len(), KEPT);
        assert_eq!(view.happenings[0].job.as_deref(), Some(KEPT.to_string().as_str()));
    }
}
