//! Log format: for people on a terminal, JSON elsewhere.

use std::fmt;
use std::io::{IsTerminal, Write, stderr};
use std::sync::{Arc, OnceLock};

use eclusa_core::Clock;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use super::log_writer::LogWriter;
use crate::config::{LogConfig, LogFormat};
use crate::words::iso;

/// Where lines go once logging has started.
static WRITER: OnceLock<LogWriter> = OnceLock::new();

/// Starts logging to standard error.
pub(crate) fn start(log: &LogConfig, clock: Arc<dyn Clock>) -> Result<(), LogError> {
    let filter =
        EnvFilter::try_new(filter(&log.filter)).map_err(|error| LogError::Filter(error.to_string()))?;
    let json = match log.format {
        LogFormat::Json => true,
        LogFormat::Text => false,
        LogFormat::Auto => !stderr().is_terminal(),
    };
    let writer = LogWriter::start(stderr()).map_err(LogError::Thread)?;
    let lines = WRITER.get_or_init(|| writer).clone();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(move || lines.clone());
    if json {
        builder.event_format(JsonLines { clock }).finish().try_init()?;
    } else {
        builder.with_target(false).with_ansi(stderr().is_terminal()).finish().try_init()?;
    }
    Ok(())
}

/// Waits until all lines are written, but not for long if nobody reads them. Called before the process ends.
pub(crate) fn flush() {
    if let Some(writer) = WRITER.get() {
        writer.wait_written();
    }
}

/// Prints a line to standard error, after those of the log; a closed standard error is ignored.
pub(crate) fn print(text: &str) {
    let line = format!("{text}\n");
    if let Some(writer) = WRITER.get() {
        let _ = writer.clone().write_all(line.as_bytes());
        writer.wait_written();
    } else {
        let _ = stderr().lock().write_all(line.as_bytes());
    }
}

/// Lines dropped because nobody read them.
pub(super) fn dropped_lines() -> u64 {
    WRITER.get().map_or(0, LogWriter::dropped)
}

/// Audit and access lines are enabled by other settings than the level: only `off`, or a level for their own target,
/// disables them.
fn filter(level: &str) -> String {
    let named = |target: &str| level.split(',').any(|part| part.trim().starts_with(target));
    let mut filter = level.to_owned();
    for target in ["audit", "access"] {
        if level.trim() != "off" && !named(target) {
            filter.extend([",", target, "=info"]);
        }
    }
    filter
}

/// Why logging could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    /// The filter is invalid.
    #[error("log.level: {0}")]
    Filter(String),
    /// The thread that writes cannot be started.
    #[error("cannot start the thread that writes the log: {0}")]
    Thread(std::io::Error),
    /// A logger is already installed.
    #[error(transparent)]
    Started(#[from] TryInitError),
}

/// One flat JSON object per line: `timestamp`, `level`, `message`, then the fields.
struct JsonLines {
    clock: Arc<dyn Clock>,
}

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = JsonFields(Map::new());
        fields.0.insert("timestamp".into(), iso(self.clock.now()).into());
        fields.0.insert("level".into(), event.metadata().level().as_str().to_lowercase().into());
        event.record(&mut fields);
        writeln!(writer, "{}", Value::Object(fields.0))
    }
}

struct JsonFields(Map<String, Value>);

impl Visit for JsonFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().into(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_and_access_lines_are_written_at_every_level_except_off() {
        assert_eq!(filter("error"), "error,audit=info,access=info");
        assert_eq!(filter("info,audit=off"), "info,audit=off,access=info");
        assert_eq!(filter("off"), "off");
        assert!(EnvFilter::try_new(filter("warn,eclusa=debug")).is_ok());
    }
}
