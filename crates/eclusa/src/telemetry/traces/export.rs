//! Sends spans to the collector in batches. Nothing waits for the collector: while it is unreachable, spans queue up to
//! a bound and are dropped beyond it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderName, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::otlp::{encode, refused};
use super::span::Ended;
use crate::config::{Tls, TracesConfig};
use crate::execute::http::connect::Connector;
use crate::execute::http::{TlsError, tls};
use crate::telemetry::Metrics;

/// Maximum spans in one request.
const BATCH: usize = 512;
/// Maximum time a span waits for others.
const LINGER: Duration = Duration::from_secs(1);
/// Limits for connecting, and for a whole request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often a batch is tried while the collector is unavailable, and the pause between.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_secs(1);
/// How long the last spans may take when the process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum bytes read of a response.
const MAX_ANSWER: usize = 64 << 10;

/// Reasons why spans were dropped.
const REFUSED: &str = "refused";
const UNREACHABLE: &str = "unreachable";

/// Sends spans to one collector.
pub(crate) struct Exporter {
    waiting: Receiver<Ended>,
    client: Client<Connector, Full<Bytes>>,
    uri: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Identifies the process in its spans.
    instance: String,
    metrics: Arc<Metrics>,
    /// Whether the last batch could not be delivered.
    failing: bool,
}

/// The result of sending a batch once.
enum SendResult {
    /// Accepted, except this many spans.
    Taken { refused: u64 },
    /// Rejected permanently.
    Refused(String),
    /// May be accepted later.
    NotNow(String),
}

impl Exporter {
    pub(super) fn new(
        rules: &TracesConfig,
        instance: u64,
        waiting: Receiver<Ended>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, TlsError> {
        let connector = Connector::new(tls::client_config(&Tls::default())?, CONNECT_TIMEOUT);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(1)
            .build(connector);
        let (uri, headers) = (rules.endpoint.clone(), rules.headers.clone());
        let instance = format!("{instance:016x}");
        Ok(Self { waiting, client, uri, headers, instance, metrics, failing: false })
    }

    /// Sends spans until `finished`, then those that are left.
    pub(crate) async fn run(mut self, finished: CancellationToken) {
        let mut batch = Vec::new();
        loop {
            let more = tokio::select! {
                biased;
                () = finished.cancelled() => false,
                more = self.collect(&mut batch) => more,
            };
            if !more {
                break;
            }
            tokio::select! {
                biased;
                () = self.deliver(&batch) => batch.clear(),
                // Its remaining attempts are skipped.
                () = finished.cancelled() => break,
            }
        }
        let last = async {
            while let Ok(span) = self.waiting.try_recv() {
                batch.push(span);
            }
            for part in batch.chunks(BATCH) {
                self.deliver(part).await;
            }
        };
        let _ = timeout(FLUSH_TIMEOUT, last).await;
    }

    /// Fills `batch`; returns whether more spans can come.
    async fn collect(&mut self, batch: &mut Vec<Ended>) -> bool {
        if batch.is_empty() && self.waiting.recv_many(batch, BATCH).await == 0 {
            return false;
        }
        let fill = async {
            while batch.len() < BATCH && self.waiting.recv_many(batch, BATCH - batch.len()).await > 0 {}
        };
        let _ = timeout(LINGER, fill).await;
        true
    }

    /// Sends a batch, retrying while the collector is unavailable, and counts the result.
    async fn deliver(&mut self, batch: &[Ended]) {
        let all = batch.len() as u64;
        for attempt in 1..=ATTEMPTS {
            match self.send(batch).await {
                SendResult::Taken { refused } => {
                    self.metrics.count_exported_spans(all.saturating_sub(refused));
                    self.metrics.count_dropped_spans(REFUSED, refused);
                    if std::mem::replace(&mut self.failing, false) {
                        tracing::info!("The trace collector accepts spans again");
                    }
                    return;
                }
                SendResult::Refused(why) => return self.lose(all, REFUSED, &why),
                SendResult::NotNow(why) if attempt == ATTEMPTS => return self.lose(all, UNREACHABLE, &why),
                SendResult::NotNow(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// Drops a batch. Only the first in a row is logged.
    fn lose(&mut self, spans: u64, reason: &'static str, why: &str) {
        self.metrics.count_dropped_spans(reason, spans);
        if !std::mem::replace(&mut self.failing, true) {
            tracing::warn!(
                spans,
                reason,
                error = why,
                "Spans were dropped: the trace collector does not accept them"
            );
        }
    }

    async fn send(&self, batch: &[Ended]) -> SendResult {
        let body = encode(batch, &self.instance).to_string();
        let mut request = Request::new(Full::from(body));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("eclusa"));
        headers.extend(self.headers.iter().cloned());
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|error| error.to_string())?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes();
            Ok::<_, String>((status, body))
        };
        match timeout(TIMEOUT, exchange).await {
            Ok(Ok((status, body))) if status.is_success() => SendResult::Taken { refused: refused(&body) },
            Ok(Ok((status, _))) if is_retryable(status) => {
                SendResult::NotNow(format!("it answered {status}"))
            }
            Ok(Ok((status, _))) => SendResult::Refused(format!("it answered {status}")),
            Ok(Err(error)) => SendResult::NotNow(error),
            Err(_) => SendResult::NotNow(format!("no answer within {TIMEOUT:?}")),
        }
    }
}

/// The retryable statuses of OTLP/HTTP.
fn is_retryable(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}
