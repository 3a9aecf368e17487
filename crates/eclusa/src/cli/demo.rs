//! `eclusa demo`.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use super::{Exit, serve};
use crate::config::{LogConfig, LogFormat};
use crate::{SystemClock, demo, telemetry};

/// Runs the demo until it is stopped.
pub(super) fn run(listen: SocketAddr) -> Result<(), Exit> {
    let clock = Arc::new(SystemClock);
    let log = LogConfig { filter: "error".into(), format: LogFormat::Auto, access: false };
    telemetry::start(&log, clock.clone()).map_err(|error| Exit::Error(error.to_string()))?;
    serve::run_until_stopped(|stops| demo::run(listen, clock, print_guide, print_line, stops))
}

/// Prints what to open and what to try. A closed pipe is not an error here.
fn print_guide(address: SocketAddr) {
    let eclusa = own_name();
    let _ = write!(
        std::io::stdout().lock(),
        "\
Eclusa runs at http://{address} with three tenants and four fake upstreams:
  bureau  allows 60 requests a minute          (lane score: queued, paced, cached)
  moody   is down 15 seconds of two minutes    (lane render: tried first)
  flaky   fails every third call               (lane render: fallback for moody)
  ledger  rejects requests for 10 seconds      (lane invoice: dead letters)

Open  http://{address}/          the dashboard
      http://{address}/docs      the API reference
      http://{address}/metrics   Prometheus metrics

Try   curl -i -H 'Prefer: wait=5' 'http://{address}/proxy/render/image?n=mine'
      curl -i 'http://{address}/proxy/score?person=42'       # queued: 202 and where to look
      curl -s 'http://{address}/v1/lanes/score'              # what waits
      export ECLUSA_URL=http://{address}
      {eclusa} lanes ls
      {eclusa} why $({eclusa} send score \"/?person=$(date +%s)\")   # why it waits and until when

Ctrl-C stops it and leaves nothing behind. Meanwhile, in minutes and seconds:

"
    );
}

fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// The name this program was started with, so that the printed commands work even if `eclusa` is not installed.
fn own_name() -> String {
    let name = std::env::args().next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if name.is_empty() || !name.chars().all(plain) { "eclusa".to_owned() } else { name }
}
