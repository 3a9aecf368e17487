//! The HTTP client of one upstream.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use eclusa_core::Span;
use http::header::ACCEPT_ENCODING;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::{CaptureConnection, capture_connection};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::{Instant, timeout};

use super::body::{AnswerBody, BoxError, Noted, SentBody, UploadProgress, collect};
use super::connect::Connector;
use super::{Hints, TlsError, explain, headers, target, tls};
use crate::config::{BaseUrl, HttpRules, UpstreamConfig};
use crate::execute::{CallContext, CallEnd, Called};
use crate::request::{Request, Response};
use crate::shard;

/// Idle connections that a shard keeps open.
const MAX_IDLE: usize = 64;
/// How long they are kept. Shorter than the timeout of most servers, so that a call seldom meets a closing connection.
const IDLE_FOR: Duration = Duration::from_secs(30);
/// The most bytes of an answer's headers, and of a body read ahead.
const READ_BUFFER: usize = 64 * 1024;
/// How often a silent HTTP/2 connection is pinged, and how long the reply may take.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Calls one upstream. Clones share their connections.
#[derive(Clone)]
pub struct HttpUpstream {
    inner: Arc<UpstreamClient>,
}

struct UpstreamClient {
    /// One for each shard, so that a connection is used only by the thread that drives it.
    clients: Vec<Client<Connector, SentBody>>,
    base: BaseUrl,
    headers: Vec<(HeaderName, HeaderValue)>,
    timeout: Duration,
    max_response: usize,
}

/// The head of a request, ready to be sent.
#[derive(Debug, Clone)]
pub struct RequestHead {
    /// As [`target::method`] returns it.
    pub method: Method,
    /// As [`target::normalise`] returns it.
    pub path: String,
    /// As [`target::query`] returns it.
    pub query: Option<String>,
    /// As [`headers::keep_sendable`] leaves them.
    pub headers: HeaderMap,
}

impl RequestHead {
    /// The head of a job's request. It is checked again: the job may be older than a rule, and this is the last place
    /// to refuse it.
    fn of_job(request: &Request) -> Result<Self, CallEnd> {
        Ok(Self {
            method: target::method(&request.method).map_err(|bad| invalid("method", &bad))?,
            path: target::normalise(&request.path).map_err(|bad| invalid("path", &bad))?,
            query: request
                .query
                .as_deref()
                .map(target::query)
                .transpose()
                .map_err(|bad| invalid("query", &bad))?,
            headers: headers::of_job(&request.headers).map_err(|bad| invalid("request", &bad))?,
        })
    }
}

/// An answer whose body is still arriving.
#[derive(Debug)]
pub struct Streamed {
    /// The status.
    pub status: StatusCode,
    /// End-to-end headers only.
    pub headers: HeaderMap,
    /// How long the upstream asks for no further calls.
    pub close: Option<Span>,
    /// The body as it arrives.
    pub body: AnswerBody,
}

/// The head of an answer.
struct ResponseHead {
    status: StatusCode,
    headers: HeaderMap,
    close: Option<Span>,
}

impl HttpUpstream {
    /// A client with the upstream's rules. It connects when it is first used.
    pub fn new(upstream: &UpstreamConfig, rules: &HttpRules) -> Result<Self, TlsError> {
        let connector = Connector::new(tls::client_config(&upstream.tls)?, upstream.connect_timeout);
        // A request whose pooled connection closed before a byte was sent is sent again automatically on another
        // connection: it had no effect.
        let client = || {
            Client::builder(TokioExecutor::new())
                .retry_canceled_requests(true)
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE_FOR)
                .pool_max_idle_per_host(MAX_IDLE)
                .http1_max_buf_size(READ_BUFFER)
                .http2_max_header_list_size(u32::try_from(READ_BUFFER).unwrap_or(u32::MAX))
                .http2_keep_alive_interval(PING_EVERY)
                .http2_keep_alive_timeout(PING_TIMEOUT)
                .build(connector.clone())
        };
        // The usage cannot be read from a compressed answer. The upstream's own `headers` come later and win.
        let reads_answers = !upstream.usage_sources().is_empty();
        let plain = reads_answers.then_some((ACCEPT_ENCODING, HeaderValue::from_static("identity")));
        let inner = UpstreamClient {
            clients: std::iter::repeat_with(client).take(shard::count()).collect(),
            base: rules.url.clone(),
            headers: plain.into_iter().chain(rules.headers.iter().cloned()).collect(),
            timeout: upstream.timeout,
            max_response: rules.max_response,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Makes one call and reads the whole answer, all within the upstream's timeout.
    pub async fn call(&self, request: &Request, context: &CallContext<'_>) -> Called {
        let body = Full::new(Bytes::copy_from_slice(&request.body));
        let prepared = RequestHead::of_job(request).and_then(|head| self.prepare(head, body, context));
        let (sent, connection) = match prepared {
            Ok(prepared) => prepared,
            Err(end) => return end.into(),
        };
        let mut head = None;
        let whole = async {
            let (answer, body) = self.exchange(sent, context).await?;
            let status = answer.status.as_u16();
            head = Some((status, answer.close, Instant::now()));
            let max = self.inner.max_response;
            let Some(body) = collect(body, max).await? else { return Err(CallEnd::TooLarge { status, max }) };
            Ok(Response { status, headers: headers::pairs(&answer.headers), body })
        };
        let (end, answer) = match timeout(self.inner.timeout, whole).await {
            Ok(Ok(answer)) => (CallEnd::Answered(answer.status), Some(answer)),
            Ok(Err(end)) => (end, None),
            Err(_) => (self.out_of_time(&connection), None),
        };
        match head {
            Some((status, close, began)) => {
                Called { close, answer, answered_at: Some(began), ..end.after_head(status).into() }
            }
            None => end.into(),
        }
    }

    /// Makes one call and streams the bodies in both directions. The upstream's timeout bounds its silence: while the
    /// request is sent, until the answer begins, and between its parts. How long `body` takes to arrive must be bounded
    /// by the caller.
    pub async fn stream<B>(
        &self,
        head: RequestHead,
        body: B,
        context: &CallContext<'_>,
    ) -> Result<Streamed, CallEnd>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let idle = self.inner.timeout;
        let progress = Arc::new(UploadProgress::default());
        let body = Noted { body, progress: Arc::clone(&progress) };
        let (sent, connection) = self.prepare(head, body, context)?;
        let mut exchange = std::pin::pin!(self.exchange(sent, context));
        let (answer, body) = loop {
            tokio::select! {
                biased;
                answer = &mut exchange => break answer?,
                () = progress.changed.notified() => {}
                () = tokio::time::sleep(idle), if !progress.waits_for_caller() => return Err(self.out_of_time(&connection)),
            }
        };
        let ResponseHead { status, headers, close } = answer;
        Ok(Streamed { status, headers, close, body: AnswerBody::new(body, idle) })
    }

    /// The request to send, and a handle that shows its connection.
    fn prepare<B>(
        &self,
        head: RequestHead,
        body: B,
        context: &CallContext<'_>,
    ) -> Result<(http::Request<SentBody>, CaptureConnection), CallEnd>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let RequestHead { method, path, query, headers } = head;
        let uri = self.uri(&path, query.as_deref())?;
        let mut headers = headers::outgoing(headers, &self.inner.headers, context);
        if body.size_hint().exact() == Some(0) {
            headers::announce_empty_body(&method, &mut headers);
        }
        let mut request = http::Request::new(body.map_err(Into::into).boxed_unsync());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        let connection = capture_connection(&mut request);
        Ok((request, connection))
    }

    fn uri(&self, path: &str, query: Option<&str>) -> Result<Uri, CallEnd> {
        let base = &self.inner.base;
        let mut target =
            String::with_capacity(base.prefix.len() + path.len() + query.map_or(1, |query| query.len() + 1));
        target.push_str(&base.prefix);
        target.push_str(path);
        if target.is_empty() {
            target.push('/');
        }
        if let Some(query) = query {
            target.push('?');
            target.push_str(query);
        }
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(base.scheme.clone());
        parts.authority = Some(base.authority.clone());
        parts.path_and_query = Some(PathAndQuery::try_from(target).map_err(|bad| invalid("path", &bad))?);
        Uri::from_parts(parts).map_err(|bad| invalid("path", &bad))
    }

    /// Sends the request and waits for the head of the answer.
    async fn exchange(
        &self,
        request: http::Request<SentBody>,
        context: &CallContext<'_>,
    ) -> Result<(ResponseHead, Incoming), CallEnd> {
        let answer =
            self.inner.clients[shard::current()].request(request).await.map_err(|error| failed(&error))?;
        let (mut head, body) = answer.into_parts();
        let hints = Hints::read(&head.headers, context.clock.now());
        headers::strip_answer(&mut head.headers);
        let close = hints.close_for(head.status.as_u16());
        Ok((ResponseHead { status: head.status, headers: head.headers, close }, body))
    }

    fn out_of_time(&self, connection: &CaptureConnection) -> CallEnd {
        let limit = self.inner.timeout;
        if connection.connection_metadata().is_none() {
            return CallEnd::NotSent(format!("no connection within {limit:?}"));
        }
        CallEnd::TimedOut(format!("no whole answer within {limit:?}"))
    }
}

impl std::fmt::Debug for HttpUpstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The headers hold secrets.
        f.debug_struct("HttpUpstream").field("base", &self.inner.base).finish_non_exhaustive()
    }
}

fn invalid(what: &str, bad: &dyn std::error::Error) -> CallEnd {
    CallEnd::Invalid(format!("the {what} {bad}"))
}

/// The end of a failed call. No byte was sent if there was no connection, or if the connection returned the request.
pub(in crate::execute) fn failed(error: &Error) -> CallEnd {
    let cause = std::error::Error::source(error);
    let given_back =
        cause.and_then(|cause| cause.downcast_ref::<hyper::Error>()).is_some_and(hyper::Error::is_canceled);
    let (what, end): (_, fn(String) -> CallEnd) = if error.is_connect() || error.connect_info().is_none() {
        ("could not connect", CallEnd::NotSent)
    } else if given_back {
        ("the connection was closed before the request was sent", CallEnd::NotSent)
    } else {
        ("no answer", CallEnd::Broken)
    };
    end(cause.map_or_else(|| what.to_owned(), |cause| explain(what, cause)))
}
