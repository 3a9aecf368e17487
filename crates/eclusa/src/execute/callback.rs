//! Telling the end of a job to whoever asked for that.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use eclusa_core::{Clock, JobId};
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Request};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use ring::hmac;
use tokio::time::timeout;

use super::http::client::failed;
use super::http::connect::Connector;
use super::http::resolve::Resolver;
use super::http::{TlsError, tls};
use super::{CallEnd, Called};
use crate::config::{Callbacks, Host, Tls};
use crate::standard_webhooks as webhooks;

/// How long a connection and a whole call may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(15);
/// Connections that are kept open without a call, for each host and how long.
const MAX_IDLE: usize = 8;
const IDLE_FOR: Duration = Duration::from_secs(15);

/// Calls back. Nothing is called that the rules do not allow, whenever the job came in, and redirects are not followed.
pub(crate) struct CallbackClient {
    client: Client<Connector, Full<Bytes>>,
    rules: Callbacks,
    key: hmac::Key,
}

impl CallbackClient {
    /// A client by these rules.
    pub(crate) fn new(rules: &Callbacks) -> Result<Self, TlsError> {
        let address = |host: &Host| match host {
            Host::Address(address) => Some(*address),
            Host::Name(_) => None,
        };
        let listed: Vec<IpAddr> = rules.hosts.iter().filter_map(address).collect();
        let tls = tls::client_config(&Tls::default())?;
        let connector = Connector::by(Resolver::public(listed.into()), tls, CONNECT_TIMEOUT);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_FOR)
            .pool_max_idle_per_host(MAX_IDLE)
            .build(connector);
        // The config has checked that there is a key.
        let key = webhooks::key(rules.secret.reveal());
        let key = key.unwrap_or_else(|| hmac::Key::new(hmac::HMAC_SHA256, rules.secret.reveal().as_bytes()));
        Ok(Self { client, rules: rules.clone(), key })
    }

    /// Posts `body`, which is JSON, as the message `id`. Only the status of the answer counts.
    pub(crate) async fn call(&self, id: JobId, url: &str, body: Vec<u8>, clock: &dyn Clock) -> Called {
        let uri = match self.rules.check(url) {
            Ok(uri) => uri,
            Err(problem) => return CallEnd::Invalid(format!("the callback address {problem}")).into(),
        };
        let (id, now) = (id.to_string(), clock.now().as_millis() / 1000);
        let signature = webhooks::sign(&self.key, &id, now, &body);
        let request = Request::post(uri)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(USER_AGENT, HeaderValue::from_static("eclusa"))
            .header(webhooks::ID, id)
            .header(webhooks::TIMESTAMP, now)
            .header(webhooks::SIGNATURE, signature)
            .body(Full::from(body));
        let request = match request {
            Ok(request) => request,
            Err(error) => return CallEnd::Invalid(format!("the callback cannot be sent: {error}")).into(),
        };
        match timeout(TIMEOUT, self.client.request(request)).await {
            Ok(Ok(answer)) => CallEnd::Answered(answer.status().as_u16()),
            Ok(Err(error)) => failed(&error),
            Err(_) => CallEnd::TimedOut(format!("no answer within {TIMEOUT:?}")),
        }
        .into()
    }
}
