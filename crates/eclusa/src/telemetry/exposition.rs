//! The two text formats for metrics: Prometheus text 0.0.4, and `OpenMetrics` on request.

use std::fmt::Write;

/// A text format for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// Prometheus text 0.0.4.
    Prometheus,
    /// `OpenMetrics` 1.0.0.
    OpenMetrics,
}

impl Exposition {
    /// The format that an `Accept` header prefers; by default the one that every scraper reads.
    pub fn accepted(accept: &str) -> Self {
        let wanted = |range: &str| {
            let mut parts = range.split(';').map(str::trim);
            let named =
                parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/openmetrics-text"));
            let refused =
                parts.any(|part| part.strip_prefix("q=").and_then(|q| q.parse().ok()) == Some(0.0_f64));
            named && !refused
        };
        if accept.split(',').any(wanted) { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// The media type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Converts `text`, which is `OpenMetrics`, to this format.
    pub(super) fn write(self, text: String) -> String {
        match self {
            Self::Prometheus => prometheus(&text),
            Self::OpenMetrics => text,
        }
    }
}

/// In Prometheus text a counter's family has the name of its samples, and there is no unit and no end marker.
fn prometheus(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let total = if kind == "counter" { "_total" } else { "" };
            let kind = if kind == "unknown" { "untyped" } else { kind };
            if let Some((_, help)) = help.take() {
                let _ = writeln!(out, "# HELP {name}{total} {}", help.replace("\\\"", "\""));
            }
            let _ = writeln!(out, "# TYPE {name}{total} {kind}");
        } else if !line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_named_as_their_samples_and_there_is_no_end() {
        let openmetrics = "# HELP jobs Jobs.\n# TYPE jobs counter\njobs_total{lane=\"a\"} 1\n\
                           # HELP size Size.\n# TYPE size gauge\n# UNIT size bytes\nsize 2\n# EOF\n";
        let prometheus = "# HELP jobs_total Jobs.\n# TYPE jobs_total counter\njobs_total{lane=\"a\"} 1\n\
                          # HELP size Size.\n# TYPE size gauge\nsize 2\n";
        assert_eq!(Exposition::Prometheus.write(openmetrics.into()), prometheus);
        assert_eq!(Exposition::OpenMetrics.write(openmetrics.into()), openmetrics);
    }

    #[test]
    fn openmetrics_only_on_request() {
        use Exposition::{OpenMetrics, Prometheus};
        let rows = [
            ("", Prometheus),
            ("*/*", Prometheus),
            ("text/plain; version=0.0.4", Prometheus),
            ("application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5", OpenMetrics),
            ("text/plain, Application/OpenMetrics-Text", OpenMetrics),
            ("application/openmetrics-text; q=0, */*", Prometheus),
        ];
        for (accept, expected) in rows {
            assert_eq!(Exposition::accepted(accept), expected, "{accept}");
        }
    }
}
