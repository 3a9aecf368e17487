//! `eclusa top`: lanes, upstreams and the latest events, live on the whole terminal.
//!
//! [`view`] is what is shown, changed by events and keys; [`draw`] draws it; this file waits for both.

mod detail;
mod draw;
mod lanes;
mod look;
mod overview;
mod table;
#[cfg(test)]
mod tests;
mod upstreams;
mod view;

use std::io::{self, IsTerminal};
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use jiff::tz::TimeZone;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use self::draw::draw;
use self::look::Look;
use self::view::{Action, View};
use super::Exit;
use super::client::{Client, path};
use super::events::Listener;
use super::output::{Format, has_colours};
use super::span::now;

/// Countdowns are drawn this often.
const TICK: Duration = Duration::from_millis(500);
/// Keys that are not handled yet.
const KEYS: usize = 64;

/// Shows everything until the user quits.
pub(super) fn run(client: &Client, format: Format) -> Result<(), Exit> {
    if format != Format::Text || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let help = "help: `eclusa status` prints the state once, `eclusa tail` prints events as they happen";
        return Err(Exit::Usage(format!("`eclusa top` draws on a terminal, and there is none\n{help}")));
    }
    client.run(async {
        // Errors are printed before the screen changes.
        let listener = Listener::open(client, "/v1/events".into()).await?;
        // A server that does not know sessions refuses by itself what the key may not do.
        let session = client.look("/v1/session", Duration::ZERO).await.unwrap_or_default();
        let view = View::new(client.base(), &session);
        let mut terminal = ratatui::try_init().map_err(|error| broken(&error))?;
        let ended = follow(view, client, listener, &mut terminal).await;
        ratatui::try_restore().map_err(|error| broken(&error))?;
        ended
    })
}

async fn follow(
    mut view: View,
    client: &Client,
    listener: Listener<'_>,
    terminal: &mut DefaultTerminal,
) -> Result<(), Exit> {
    let look = Look { zone: TimeZone::system(), colours: has_colours() };
    let mut inputs = inputs();
    let mut news = pin!(listener.news());
    let mut ended = pin!(asked_to_end());
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut order: Option<LocalBoxFuture<'_, Result<Value, Exit>>> = None;
    loop {
        terminal.draw(|frame| draw(&view, &look, now(), frame)).map_err(|error| broken(&error))?;
        tokio::select! {
            biased;
            () = &mut ended => return Ok(()),
            input = inputs.recv() => match input {
                Some(Event::Key(key)) => match view.press(key, now()) {
                    Action::Quit => return Ok(()),
                    Action::Pause { lane, pause } => order = Some(Box::pin(set_paused(client, lane, pause))),
                    Action::Nothing => {}
                },
                // A resize: the next drawing has the new size.
                Some(_) => {}
                None => return Ok(()),
            },
            answer = finished(&mut order) => {
                order = None;
                view.done(answer, now());
            }
            Some(one) = news.next() => view.hear(one?, now())?,
            _ = ticks.tick() => {}
        }
    }
}

/// What the terminal sends, read on a thread of its own: reading blocks. The thread ends with the process.
fn inputs() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(KEYS);
    std::thread::spawn(move || {
        while let Ok(input) = event::read() {
            if sender.blocking_send(input).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Completes when the process is asked to end, so that the terminal is restored first.
async fn asked_to_end() {
    let kinds = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()];
    let signals = kinds.map(|kind| {
        Box::pin(async move {
            match signal(kind) {
                Ok(mut signal) => signal.recv().await,
                Err(_) => std::future::pending().await,
            }
        })
    });
    futures_util::future::select_all(signals).await;
}

async fn set_paused(client: &Client, lane: String, pause: bool) -> Result<Value, Exit> {
    client.order(&path(&["v1", "lanes", &lane, if pause { "pause" } else { "resume" }])).await
}

/// The answer to the order, if there is one.
async fn finished(order: &mut Option<LocalBoxFuture<'_, Result<Value, Exit>>>) -> Result<Value, Exit> {
    match order {
        Some(order) => order.await,
        None => std::future::pending().await,
    }
}

fn broken(error: &io::Error) -> Exit {
    Exit::Error(format!("cannot draw on the terminal: {error}"))
}
