//! Progress of an awaited job, on standard error: its id at once, on a terminal what it waits for, and after Ctrl-C how to
//! continue.

use std::io::{IsTerminal, Write, stderr};
use std::time::Duration;

use ratatui::crossterm::terminal;
use ratatui::text::Span;
use serde_json::Value;

use super::Exit;
use super::client::{Client, path, with_query};
use super::exit::note;
use super::jobs::state;
use super::output::one_line;

/// The polling interval until the server knows the job.
const SOON: Duration = Duration::from_millis(30);
/// The interval at which the display is refreshed.
const RENEWED: Duration = Duration::from_secs(1);
/// The width of a terminal that does not report it.
const WIDTH: u16 = 80;

/// The progress display of one job.
pub(super) struct JobProgress<'a> {
    client: &'a Client,
    lane: &'a str,
    /// The caller's id of the job, until the server has returned its own.
    known_as: &'a str,
    /// The job's own id.
    id: Option<String>,
    terminal: bool,
    /// Whether there is an unfinished line, which the next one overwrites.
    open: bool,
}

impl<'a> JobProgress<'a> {
    /// For the job of `lane` with the caller's id `known_as`.
    pub(super) fn of(client: &'a Client, lane: &'a str, known_as: &'a str) -> Self {
        Self { client, lane, known_as, id: None, terminal: stderr().is_terminal(), open: false }
    }

    /// Waits for `answer` and shows the job's progress meanwhile.
    pub(super) async fn until<T>(
        &mut self,
        answer: impl Future<Output = Result<T, Exit>>,
    ) -> Result<T, Exit> {
        let mut answer = std::pin::pin!(answer);
        let mut interrupted = std::pin::pin!(interrupted());
        loop {
            let pause = if self.id.is_some() { RENEWED } else { SOON };
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                () = &mut interrupted => return Err(self.interrupted()),
                () = tokio::time::sleep(pause), if self.terminal || self.id.is_none() => {
                    // Keep waiting for the answer. Failing to show progress is not an error.
                    tokio::select! {
                        biased;
                        answer = &mut answer => return answer,
                        () = self.look() => {}
                    }
                }
            }
        }
    }

    /// Prints the job's id, once.
    pub(super) fn found(&mut self, job: &Value) {
        let text = |name: &str| job.get(name).and_then(Value::as_str);
        if let (None, Some(id)) = (&self.id, text("jobId")) {
            note(&format!("Job {id} {} in {}", state(text("status").unwrap_or("accepted")), self.lane));
            self.id = Some(id.to_owned());
        }
    }

    /// Clears the display.
    pub(super) fn close(&mut self) {
        if std::mem::take(&mut self.open) {
            let _ = write!(stderr().lock(), "\r\x1b[K");
        }
    }

    async fn look(&mut self) {
        let lane = [("lane", Some(self.lane))];
        let Some(id) = &self.id else {
            let job = path(&["v1", "jobs", self.known_as]);
            if let Ok(job) = self.client.look(&with_query(&job, &lane), Duration::ZERO).await {
                self.found(&job);
            }
            return;
        };
        let why = path(&["v1", "jobs", id, "why"]);
        if let Ok(why) = self.client.look(&why, Duration::ZERO).await {
            let text = |name: &str| why.get(name).and_then(Value::as_str);
            let detail = text("detail").map(|detail| format!(": {detail}")).unwrap_or_default();
            let line = format!("{}{detail}", text("status").unwrap_or_default());
            let width = terminal::size().map_or(WIDTH, |(width, _)| width);
            let _ = write!(stderr().lock(), "\r\x1b[K{}", one_row(&line, width));
            let _ = stderr().lock().flush();
            self.open = true;
        }
    }

    fn interrupted(&mut self) -> Exit {
        self.close();
        // The terminal's `^C` gets its own line.
        let line = if self.terminal { "\n" } else { "" };
        let lane = if self.id.is_some() { String::new() } else { format!(" --lane {}", self.lane) };
        let id = self.id.as_deref().unwrap_or(self.known_as);
        Exit::Interrupted(format!(
            "{line}The job continues.\nhelp: `eclusa jobs wait {id}{lane}` waits for it, `eclusa jobs cancel {id}{lane}` stops it"
        ))
    }
}

/// `text` cut to fit in one row: a wrapped row would not be cleared. The last column stays empty, because some terminals wrap
/// as soon as it is written.
fn one_row(text: &str, width: u16) -> String {
    let room = usize::from(width.saturating_sub(1));
    let text = one_line(text);
    if columns(&text) <= room {
        return text;
    }
    let mut row = String::new();
    for c in text.chars() {
        if columns(&row) + columns(c.encode_utf8(&mut [0; 4])) >= room {
            break;
        }
        row.push(c);
    }
    if room > 0 { row + "…" } else { row }
}

fn columns(text: &str) -> usize {
    Span::raw(text).width()
}

/// Completes on Ctrl-C.
pub(super) async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_never_reaches_the_last_column() {
        assert_eq!(one_row("queued", 7), "queued");
        assert_eq!(one_row("queued", 6), "queu…");
        assert_eq!(one_row("列に並ぶ", 8), "列に並…", "each of these takes two columns");
        assert_eq!(one_row("列に並ぶ", 7), "列に…");
        assert_eq!((one_row("queued", 2).as_str(), one_row("queued", 1).as_str()), ("…", ""));
    }
}
