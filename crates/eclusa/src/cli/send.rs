//! `eclusa send`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use serde_json::Value;
use serde_json::value::to_raw_value;
use tokio::time::Instant;

use super::Exit;
use super::client::{Client, escaped, path};
use super::exit::note;
use super::jobs::{STEP, completed, seconds, state, wait};
use super::output::{Format, count, readable, typed, write_text};
use super::progress::JobProgress;
use crate::SystemClock;
use crate::config::parse_duration;
use crate::ids::Ids;
use crate::model::{Accepted, Job, JobResult};
use crate::model::{HttpRequest, JobRequest};

/// More than any server accepts (`server.max_body`).
const MAX_BODY: u64 = 16 << 20;

#[derive(Debug, Args)]
pub(super) struct SendArgs {
    /// The lane
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    lane: String,
    /// The path below the upstream's URL; may end in `?query`
    #[arg(default_value = "", hide_default_value = true)]
    path: String,
    /// The method; by default GET without a body, otherwise POST
    #[arg(long, short = 'X')]
    method: Option<String>,
    /// A query parameter; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parameter)]
    query: Vec<(String, String)>,
    /// A header; may be repeated
    #[arg(long, short = 'H', value_name = "NAME:VALUE", value_parser = header)]
    header: Vec<(String, String)>,
    /// The body: text, `@FILE`, or `-` for standard input
    #[arg(long, short = 'd', value_name = "TEXT|@FILE|-", allow_hyphen_values = true)]
    body: Option<String>,
    /// A mail message as JSON, instead of a request: text, `@FILE`, or `-` for standard input
    #[arg(long, value_name = "TEXT|@FILE|-", conflicts_with_all = ["path", "method", "query", "header", "body"])]
    message: Option<String>,
    /// The tenant
    #[arg(long)]
    tenant: Option<String>,
    /// The priority
    #[arg(long, value_parser = PossibleValuesParser::new(["high", "normal", "low"]))]
    priority: Option<String>,
    /// The type of the job, which may determine its priority
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// How long it may wait: 500ms, 10s, 5m, 24h, 7d
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Option<String>,
    /// How long to delay it
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    delay: Option<String>,
    /// An id, unique per lane; sending it again returns the same job
    #[arg(long)]
    id: Option<String>,
    /// The URL to call when the job ends; the server must allow its host
    #[arg(long, value_name = "URL")]
    callback_url: Option<String>,
    /// Wait for the result and print it; the exit code is 7 unless the job completes in this time
    #[arg(long, value_name = "SECONDS", value_parser = seconds())]
    wait: Option<u64>,
}

fn parameter(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    pair.ok_or_else(|| "write it as NAME=VALUE".into())
}

fn header(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    pair.filter(|(name, _)| !name.is_empty()).ok_or_else(|| "write it as NAME:VALUE".into())
}

fn duration(text: &str) -> Result<String, String> {
    parse_duration(text).map(|_| text.to_owned())
}

/// Enqueues a job, and waits for it with `--wait`.
pub(super) fn run(args: &SendArgs, client: &Client, format: Format) -> Result<(), Exit> {
    let mut job = request(args)?;
    let lane = path(&["v1", "lanes", &args.lane, "jobs"]);
    if let Some(seconds) = args.wait {
        // With an id of our own, the job can be found before the server has responded.
        let known_as =
            job.id.get_or_insert_with(|| Ids::new(Arc::new(SystemClock)).job().to_string()).clone();
        let timeout = Duration::from_secs(seconds);
        let mut progress = JobProgress::of(client, &args.lane, &known_as);
        let value = client.run(send_and_wait(client, (&lane, &as_json(&job)?), timeout, &mut progress));
        progress.close();
        let value = value?;
        if is_cached(&value) {
            return cached(&value, format);
        }
        return waited(&value, timeout, format);
    }
    let taken = client.post(&lane, Some(&as_json(&job)?))?;
    if is_cached(&taken) {
        return cached(&taken, format);
    }
    let accepted: Accepted = typed(&taken)?;
    note(&summary(&accepted));
    format.one(&taken, || Ok(accepted.job_id))
}

fn as_json(job: &JobRequest) -> Result<Value, Exit> {
    serde_json::to_value(job).map_err(|error| Exit::Error(error.to_string()))
}

/// Whether the response came from the cache, without a job.
fn is_cached(taken: &Value) -> bool {
    taken.get("result").is_some() && taken.get("jobId").is_none()
}

fn cached(taken: &Value, format: Format) -> Result<(), Exit> {
    note("Served from the cache");
    format.one(taken, || Ok(body(&typed(&taken["result"])?)))
}

/// Enqueues `job`. Returns the cached response, or the job when it has ended or `timeout` is over. The wait starts with the
/// request, because a lane may forget a job as soon as it ends.
async fn send_and_wait(
    client: &Client,
    (lane, job): (&str, &Value),
    timeout: Duration,
    progress: &mut JobProgress<'_>,
) -> Result<Value, Exit> {
    let began = Instant::now();
    let taken = progress.until(client.post_patiently(lane, job, timeout.min(STEP))).await?;
    progress.found(&taken);
    if is_cached(&taken) || taken.get("timeline").is_some() {
        return Ok(taken);
    }
    let Accepted { job_id, .. } = typed(&taken)?;
    progress.until(wait(client, (&job_id, None), timeout.saturating_sub(began.elapsed()))).await
}

/// Prints the awaited job.
fn waited(value: &Value, timeout: Duration, format: Format) -> Result<(), Exit> {
    let job: Job = typed(value)?;
    match (format, &job.result) {
        (Format::Text, None) => {}
        (Format::Text, Some(result)) => {
            let upstream = job.upstream.as_ref().map(|upstream| format!(" from {upstream}"));
            let tries = count(usize::try_from(job.attempts).unwrap_or(usize::MAX), "attempt");
            note(&format!("{}{} after {tries}", result.status, upstream.unwrap_or_default()));
            write_text(&body(result))?;
        }
        _ => format.one(value, || Ok(String::new()))?,
    }
    completed(&job, timeout)
}

fn body(result: &JobResult) -> String {
    if result.body.is_null() { String::new() } else { readable(&result.body) }
}

/// A summary of the accepted job.
fn summary(accepted: &Accepted) -> String {
    let position = accepted.position.filter(|position| *position > 0);
    let position = position.map(|position| format!(", {position} before it"));
    let eta = accepted.eta.as_ref().map(|eta| format!(", should start at {eta}"));
    let (lane, state) = (&accepted.lane, state(&accepted.status));
    format!("Job {state} in {lane}{}{}", position.unwrap_or_default(), eta.unwrap_or_default())
}

/// The job to enqueue.
fn request(args: &SendArgs) -> Result<JobRequest, Exit> {
    let message = args.message.as_deref().map(read_body).transpose()?;
    let message = message.map(|text| serde_json::from_str(&text)).transpose();
    let message =
        message.map_err(|error| Exit::Usage(format!("--message is not a valid message: {error}")))?;
    let body = args.body.as_deref().map(read_body).transpose()?;
    let mut headers = BTreeMap::new();
    for (name, value) in &args.header {
        if headers.insert(name.to_lowercase(), value.clone()).is_some() {
            return Err(Exit::Usage(format!(
                "--header {name} is given twice; a job may have each header once"
            )));
        }
    }
    // The body is sent as text, so that its bytes stay unchanged; as JSON it would be reformatted.
    let json = body.as_ref().is_some_and(|body| serde_json::from_str::<serde::de::IgnoredAny>(body).is_ok());
    if json && !headers.contains_key("content-type") {
        headers.insert("content-type".into(), "application/json".into());
    }
    let (path, query) = target(&args.path, &args.query);
    let request = HttpRequest {
        method: args.method.as_ref().map(|method| method.to_uppercase()),
        path,
        query: query.map(Value::String),
        headers,
        body: body.and_then(|text| to_raw_value(&text).ok()),
    };
    Ok(JobRequest {
        id: args.id.clone(),
        tenant: args.tenant.clone(),
        priority: args.priority.clone(),
        kind: args.kind.clone(),
        delay: args.delay.clone().map(Value::String),
        ttl: args.ttl.clone().map(Value::String),
        request: message.is_none().then_some(request),
        message,
        params: None,
        callback_url: args.callback_url.clone(),
    })
}

/// Splits off the query of `path` and adds `parameters` to it.
fn target(path: &str, parameters: &[(String, String)]) -> (String, Option<String>) {
    let (path, query) =
        path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query.to_owned())));
    let given = parameters.iter().map(|(name, value)| format!("{}={}", escaped(name), escaped(value)));
    let parts: Vec<String> = query.into_iter().chain(given).filter(|part| !part.is_empty()).collect();
    (path.to_owned(), (!parts.is_empty()).then(|| parts.join("&")))
}

fn read_body(given: &str) -> Result<String, Exit> {
    let read = match given.strip_prefix('@') {
        Some(file) => File::open(file).and_then(read_bounded),
        None if given == "-" => read_bounded(io::stdin().lock()),
        None => return Ok(given.to_owned()),
    };
    read.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => {
            Exit::Error("the body is not UTF-8 text\nhelp: send binary data by HTTP to /proxy/LANE/…".into())
        }
        _ => Exit::Error(format!("cannot read the body from {given}: {error}")),
    })
}

fn read_bounded(from: impl Read) -> io::Result<String> {
    let mut text = Vec::new();
    from.take(MAX_BODY + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_BODY {
        return Err(io::Error::other(format!("it has more than {MAX_BODY} bytes")));
    }
    String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_and_parameters_are_joined_and_escaped() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(target("/a", &[]), ("/a".into(), None));
        assert_eq!(target("/a?", &[]), ("/a".into(), None));
        let joined = target("/a?b=1", &[pair("c d", "&"), pair("c d", "2")]);
        assert_eq!(joined, ("/a".into(), Some("b=1&c%20d=%26&c%20d=2".into())));
    }

    #[test]
    fn bodies_are_bounded_text() {
        assert_eq!(read_bounded("ção".as_bytes()).unwrap(), "ção");
        assert_eq!(read_bounded(&[0xff][..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(read_bounded(io::repeat(b'a')).is_err());
    }

    #[test]
    fn pairs_need_their_separator() {
        assert_eq!(header("X-Id: a:b").unwrap(), ("X-Id".into(), "a:b".into()));
        assert_eq!(parameter("a=b=c").unwrap(), ("a".into(), "b=c".into()));
        assert!(header("X-Id").is_err() && header(": x").is_err() && parameter("a").is_err());
    }
}
