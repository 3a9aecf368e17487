//! wrk, which loads a server with requests.

use std::path::Path;
use std::process::Command;

use crate::Failed;

/// What wrk saw.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) per_second: f64,
    pub(super) p50_ms: f64,
}

/// Loads `url` over `connections` for `seconds`. Any answer but a 2xx is an error.
pub(super) fn load(
    url: &str,
    connections: usize,
    seconds: usize,
    script: Option<&Path>,
) -> Result<Seen, Failed> {
    let mut wrk = Command::new("wrk");
    wrk.args(["-t1", "--latency", &format!("-c{connections}"), &format!("-d{seconds}s")]);
    if let Some(script) = script {
        wrk.arg("-s").arg(script);
    }
    let output = wrk
        .arg(url)
        .output()
        .map_err(|error| format!("wrk: {error}; `scripts/setup.sh bench` installs it"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("Non-2xx") || text.contains("Socket errors") {
        return Err(format!("not all were answered:\n{text}").into());
    }
    let find = |label: &str| text.lines().find_map(|line| line.trim().strip_prefix(label)).map(str::trim);
    let seen = find("Requests/sec:").zip(find("50%")).ok_or_else(|| format!("wrk said:\n{text}"))?;
    Ok(Seen { per_second: seen.0.parse()?, p50_ms: milliseconds(seen.1)? })
}

/// `87.00us`, `1.20ms` or `2.00s`.
fn milliseconds(text: &str) -> Result<f64, Failed> {
    let number = |unit: &str| text.strip_suffix(unit).and_then(|number| number.parse::<f64>().ok());
    let milliseconds =
        number("us").map(|us| us / 1_000.0).or(number("ms")).or(number("s").map(|s| s * 1_000.0));
    milliseconds.ok_or_else(|| format!("wrk said {text}").into())
}
