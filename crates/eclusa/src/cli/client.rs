//! The HTTP client of the commands.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Frame, Incoming};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::Exit;
use crate::config::{BaseUrl, Tls};
use crate::execute::http::connect::Connector;
use crate::execute::http::tls::client_config;

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a response may take, besides the time the server is asked to wait.
const ANSWER: Duration = Duration::from_secs(30);
/// The header that asks the server to wait for a result.
const PREFER: HeaderName = HeaderName::from_static("prefer");
/// The header that says which event a client received last.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The largest response; a page of jobs is far smaller.
const MAX_ANSWER: usize = 256 << 20;
/// Escapes everything but these, which keeps job ids readable.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// Where the server is, and the key to send.
#[derive(Debug, Clone)]
pub(super) struct ServerAddress {
    /// `--url`.
    pub(super) url: BaseUrl,
    /// `ECLUSA_KEY`.
    pub(super) key: Option<String>,
    /// `--ca-file`: trusted in addition to the public CAs.
    pub(super) ca_file: Option<PathBuf>,
}

/// A connection to the server.
pub(super) struct Client {
    http: legacy::Client<Connector, Full<Bytes>>,
    url: BaseUrl,
    key: Option<HeaderValue>,
    runtime: &'static Runtime,
}

/// A response that is read piece by piece.
pub(super) struct LongAnswer<'a> {
    client: &'a Client,
    head: http::response::Parts,
    body: Incoming,
}

impl LongAnswer<'_> {
    /// The next piece; `None` at the end. A server that sends nothing for a while counts as unreachable. Safe to drop while it
    /// waits.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Exit> {
        loop {
            let frame = timeout(ANSWER, self.body.frame()).await.map_err(|_| self.client.late())?;
            let broken =
                |error| self.client.unreachable(&format!("the answer broke off: {}", root_cause(&error)));
            match frame.transpose().map_err(broken)?.map(Frame::into_data) {
                None => return Ok(None),
                Some(Ok(piece)) => return Ok(Some(piece)),
                // Trailers.
                Some(Err(_)) => {}
            }
        }
    }
}

/// The runtime of a command. It is never dropped: that could block on an abandoned name lookup.
pub(super) fn runtime() -> Result<&'static Runtime, Exit> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Exit::Error(format!("cannot start the async runtime: {error}")))?;
    Ok(Box::leak(Box::new(runtime)))
}

/// Reads `--url`.
pub(super) fn parse_url(text: &str) -> Result<BaseUrl, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{error}; write it like http://127.0.0.1:8080"))?;
    let parts = uri.into_parts();
    let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
        return Err("it must begin with http:// or https://, as in http://127.0.0.1:8080".into());
    };
    if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
        return Err("it must begin with http:// or https://".into());
    }
    if has_user(&authority) {
        return Err("it must not contain a user or password; put the key in ECLUSA_KEY".into());
    }
    let target = parts.path_and_query;
    if target.as_ref().is_some_and(|target| target.query().is_some()) {
        return Err("it must not contain a query".into());
    }
    let prefix = target.map(|target| target.path().trim_end_matches('/').to_owned()).unwrap_or_default();
    Ok(BaseUrl { scheme, authority, prefix })
}

fn has_user(authority: &Authority) -> bool {
    authority.as_str().contains('@')
}

/// A path of these segments, each escaped.
pub(super) fn path(segments: &[&str]) -> String {
    let segments: Vec<String> = segments.iter().map(|segment| escaped(segment)).collect();
    format!("/{}", segments.join("/"))
}

/// Adds the `parameters` that have a value to `path`.
pub(super) fn with_query(path: &str, parameters: &[(&str, Option<&str>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| Some(format!("{name}={}", escaped((*value)?))));
    let query = given.collect::<Vec<_>>().join("&");
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// Escapes `text` for a path or query.
pub(super) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

impl Client {
    /// A client for `server`; it connects when it is first used.
    pub(super) fn new(server: &ServerAddress) -> Result<Self, Exit> {
        let tls = Tls { ca: server.ca_file.as_deref().map(read_ca).transpose()?, client: None };
        let tls = client_config(&tls).map_err(|error| Exit::Error(format!("no TLS: {error}")))?;
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(1)
            .build(Connector::new(tls, CONNECT));
        let key = server.key.as_deref().map(bearer).transpose()?;
        Ok(Self { http, url: server.url.clone(), key, runtime: runtime()? })
    }

    /// `GET`.
    pub(super) fn get(&self, path: &str) -> Result<Value, Exit> {
        self.args(&Method::GET, path, None, ANSWER)
    }

    /// `POST`, with a body if there is one.
    pub(super) fn post(&self, path: &str, body: Option<&Value>) -> Result<Value, Exit> {
        self.args(&Method::POST, path, body, ANSWER)
    }

    /// `POST`, asking the server to wait up to `wait` for the result.
    pub(super) async fn post_patiently(
        &self,
        path: &str,
        body: &Value,
        wait: Duration,
    ) -> Result<Value, Exit> {
        let mut request = self.request(&Method::POST, path, Some(body))?;
        let prefer = HeaderValue::try_from(format!("wait={}", wait.as_secs()));
        request.headers_mut().extend(prefer.ok().map(|prefer| (PREFER, prefer)));
        self.exchange(request, ANSWER + wait).await
    }

    /// `GET` of something the server may take up to `wait` for, while other futures run.
    pub(super) async fn look(&self, path: &str, wait: Duration) -> Result<Value, Exit> {
        self.exchange(self.request(&Method::GET, path, None)?, ANSWER + wait).await
    }

    /// Runs `work` to completion.
    pub(super) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// `POST` without a body, while other futures run.
    pub(super) async fn order(&self, path: &str) -> Result<Value, Exit> {
        self.exchange(self.request(&Method::POST, path, None)?, ANSWER).await
    }

    /// `DELETE`.
    pub(super) fn delete(&self, path: &str) -> Result<Value, Exit> {
        self.args(&Method::DELETE, path, None, ANSWER)
    }

    /// `GET` of a long response: each piece is passed to `take` as it arrives.
    pub(super) fn stream(
        &self,
        path: &str,
        mut take: impl FnMut(&[u8]) -> Result<(), Exit>,
    ) -> Result<(), Exit> {
        self.runtime.block_on(async {
            let mut answer = self.open(self.request(&Method::GET, path, None)?).await?;
            while let Some(piece) = answer.next().await? {
                take(&piece)?;
            }
            Ok(())
        })
    }

    /// `GET` of server-sent events, from where `cursor` says.
    pub(super) async fn events(&self, path: &str, cursor: Option<&str>) -> Result<LongAnswer<'_>, Exit> {
        let mut request = self.request(&Method::GET, path, None)?;
        let cursor = cursor.and_then(|cursor| HeaderValue::try_from(cursor).ok());
        let headers = cursor.map(|cursor| (LAST_EVENT_ID, cursor));
        request.headers_mut().extend(headers);
        let answer = self.open(request).await?;
        let is_events = |kind: &HeaderValue| kind.as_bytes().starts_with(b"text/event-stream");
        if !answer.head.headers.get(CONTENT_TYPE).is_some_and(is_events) {
            return Err(self.not_eclusa(answer.head.status));
        }
        Ok(answer)
    }

    /// Sends a request for a long response and reads its head.
    async fn open(&self, request: Request<Full<Bytes>>) -> Result<LongAnswer<'_>, Exit> {
        let answer = timeout(ANSWER, self.http.request(request)).await.map_err(|_| self.late())?;
        let (head, body) = answer.map_err(|error| self.unreachable(&root_cause(&error)))?.into_parts();
        if !head.status.is_success() {
            let body = timeout(ANSWER, Limited::new(body, MAX_ANSWER).collect()).await;
            let body = body.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes);
            return Err(self.refused(head.status, &head.headers, &body.unwrap_or_default()));
        }
        Ok(LongAnswer { client: self, head, body })
    }

    fn late(&self) -> Exit {
        self.unreachable(&format!("no data for {ANSWER:?}"))
    }

    /// Sleeps.
    pub(super) fn pause(&self, time: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    fn args(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        limit: Duration,
    ) -> Result<Value, Exit> {
        self.runtime.block_on(self.exchange(self.request(method, path, body)?, limit))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>, limit: Duration) -> Result<Value, Exit> {
        let exchange = async {
            let answer =
                self.http.request(request).await.map_err(|error| self.unreachable(&root_cause(&error)))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await;
            let body = body.map_err(|error| self.unreachable(&format!("the answer broke off: {error}")))?;
            Ok((head.status, head.headers, body.to_bytes()))
        };
        let answered = timeout(limit, exchange).await;
        let (status, headers, body) =
            answered.unwrap_or_else(|_| Err(self.unreachable(&format!("no answer within {limit:?}"))))?;
        if !status.is_success() {
            return Err(self.refused(status, &headers, &body));
        }
        serde_json::from_slice(&body).map_err(|_| self.not_eclusa(status))
    }

    fn request(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Request<Full<Bytes>>, Exit> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base()));
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key);
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        request.body(Full::new(body)).map_err(|error| Exit::Error(format!("cannot ask for {path}: {error}")))
    }

    /// The server's URL.
    pub(super) fn base(&self) -> String {
        let BaseUrl { scheme, authority, prefix } = &self.url;
        format!("{scheme}://{authority}{prefix}")
    }

    fn unreachable(&self, cause: &str) -> Exit {
        let base = self.base();
        let help = if cause.contains("CaUsedAsEndEntity") {
            "its certificate is itself a CA certificate, which cannot identify a server; issue a server certificate from it, e.g. \
             with `openssl req -x509 -CA ca.pem -CAkey ca.key -newkey rsa:2048 -nodes -subj /CN=HOST -addext subjectAltName=DNS:HOST \
             -addext basicConstraints=critical,CA:FALSE -keyout server.key -out server.pem`, and set `server.tls` to that; --ca-file \
             is right"
        } else if cause.contains("invalid peer certificate") {
            "its certificate is not trusted; set --ca-file or ECLUSA_CA_FILE to its CA certificate"
        } else {
            "is `eclusa serve` running? Set --url or ECLUSA_URL"
        };
        Exit::Unreachable(format!("cannot reach {base}: {help}\ncause: {cause}"))
    }

    fn not_eclusa(&self, status: StatusCode) -> Exit {
        let base = self.base();
        Exit::Error(format!(
            "{base} responded with {status}, but it is not Eclusa: is --url or ECLUSA_URL right?"
        ))
    }

    /// The problem that the server reports, with help.
    fn refused(&self, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Exit {
        let problem: Value = serde_json::from_slice(body).unwrap_or_default();
        let member = |name: &str| problem.get(name).and_then(Value::as_str);
        let Some(title) = member("title") else { return self.not_eclusa(status) };
        let detail = member("detail").map(|detail| format!(": {detail}")).unwrap_or_default();
        let wait = headers.get(RETRY_AFTER).and_then(|wait| wait.to_str().ok());
        let help = match (status, wait) {
            (StatusCode::UNAUTHORIZED, _) if self.key.is_none() => "\nhelp: set ECLUSA_KEY to a key".into(),
            (StatusCode::UNAUTHORIZED, _) => "\nhelp: the server does not know the key in ECLUSA_KEY".into(),
            (_, Some(wait)) => format!("\nhelp: try again in {wait} s"),
            _ => String::new(),
        };
        let text = format!("{title}{detail}{help}");
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Exit::Auth(text),
            StatusCode::NOT_FOUND => Exit::NotFound(text),
            _ => Exit::Error(text),
        }
    }
}

fn read_ca(file: &Path) -> Result<Vec<u8>, Exit> {
    std::fs::read(file)
        .map_err(|error| Exit::Error(format!("--ca-file {} cannot be read: {error}", file.display())))
}

fn bearer(key: &str) -> Result<HeaderValue, Exit> {
    let mut value = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| {
        Exit::Auth("ECLUSA_KEY contains characters that no key can have, such as a line break".into())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// The innermost error.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let url = parse_url("https://gate.example:8443/eclusa/").unwrap();
        assert_eq!((url.scheme.as_str(), url.authority.as_str()), ("https", "gate.example:8443"));
        assert_eq!(url.prefix, "/eclusa");
        assert_eq!(parse_url("http://127.0.0.1:8080").unwrap().prefix, "");
    }

    #[test]
    fn invalid_urls_are_refused() {
        for bad in
            ["", "127.0.0.1:8080", "ftp://host", "http://user:word@host", "http://host/?a=1", "http://"]
        {
            assert!(parse_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn segments_and_parameters_are_escaped() {
        assert_eq!(path(&["v1", "jobs", "../lanes?x=1"]), "/v1/jobs/..%2Flanes%3Fx%3D1");
        assert_eq!(with_query("/v1/jobs", &[("lane", Some("a&b")), ("tenant", None)]), "/v1/jobs?lane=a%26b");
        assert_eq!(with_query("/v1/jobs", &[("lane", None)]), "/v1/jobs");
    }
}
