//! Signed messages to other systems: callbacks and alerts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use eclusa_core::{Clock, JobId, Recipient};
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Request, Uri};
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
use crate::config::{AlertWebhook, Alerts, Callbacks, Host, Secret, Tls};
use crate::standard_webhooks as webhooks;

/// The timeouts for a connection and for a whole call.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(15);
/// Idle connections that are kept per host, and for how long.
const MAX_IDLE: usize = 8;
const IDLE_FOR: Duration = Duration::from_secs(15);

/// Sends callbacks. The current rules decide which addresses are allowed, whenever the job was enqueued.
pub(crate) struct CallbackClient {
    poster: Poster,
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
        let poster = Poster::by(Resolver::public(listed.into()))?;
        Ok(Self { poster, rules: rules.clone(), key: signing_key(&rules.secret) })
    }

    /// Posts `body`, which is JSON, as the message `id`. Only the status of the answer counts.
    pub(crate) async fn call(&self, id: JobId, url: &str, body: Vec<u8>, clock: &dyn Clock) -> Called {
        match self.rules.check(url) {
            Ok(uri) => self.poster.post((id, uri), &self.key, body, clock).await,
            Err(problem) => CallEnd::Invalid(format!("the callback address {problem}")).into(),
        }
    }
}

/// Sends notifications to the webhooks of `[alerts]`. The config is trusted, so their addresses may be private.
pub(crate) struct AlertClient {
    poster: Poster,
    operators: Option<(Uri, hmac::Key)>,
    tenants: BTreeMap<Arc<str>, (Uri, hmac::Key)>,
}

impl AlertClient {
    /// A client by these rules.
    pub(crate) fn new(rules: &Alerts) -> Result<Self, TlsError> {
        let target = |webhook: &AlertWebhook| (webhook.url.0.clone(), signing_key(&webhook.secret));
        let tenants = rules.tenants.iter().map(|(tenant, webhook)| (tenant.clone(), target(webhook)));
        Ok(Self {
            poster: Poster::by(Resolver::default())?,
            operators: rules.webhook.as_ref().map(target),
            tenants: tenants.collect(),
        })
    }

    /// Posts `body`, which is JSON, as the message `id`. Only the status of the answer counts.
    pub(crate) async fn call(&self, id: JobId, to: &Recipient, body: Vec<u8>, clock: &dyn Clock) -> Called {
        let target = match to {
            Recipient::Operators => self.operators.as_ref(),
            Recipient::Tenant(tenant) => self.tenants.get(tenant),
        };
        match target {
            Some((uri, key)) => self.poster.post((id, uri.clone()), key, body, clock).await,
            None => CallEnd::NotSent("`[alerts]` no longer names this webhook".into()).into(),
        }
    }
}

/// Posts signed messages. Redirects are not followed.
struct Poster {
    client: Client<Connector, Full<Bytes>>,
}

impl Poster {
    fn by(resolver: Resolver) -> Result<Self, TlsError> {
        let tls = tls::client_config(&Tls::default())?;
        let connector = Connector::by(resolver, tls, CONNECT_TIMEOUT);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_FOR)
            .pool_max_idle_per_host(MAX_IDLE)
            .build(connector);
        Ok(Self { client })
    }

    async fn post(
        &self,
        (id, uri): (JobId, Uri),
        key: &hmac::Key,
        body: Vec<u8>,
        clock: &dyn Clock,
    ) -> Called {
        let (id, now) = (id.to_string(), clock.now().as_millis() / 1000);
        let signature = webhooks::sign(key, &id, now, &body);
        let request = Request::post(uri)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(USER_AGENT, HeaderValue::from_static("eclusa"))
            .header(webhooks::ID, id)
            .header(webhooks::TIMESTAMP, now)
            .header(webhooks::SIGNATURE, signature)
            .body(Full::from(body));
        let request = match request {
            Ok(request) => request,
            Err(error) => return CallEnd::Invalid(format!("the message cannot be sent: {error}")).into(),
        };
        match timeout(TIMEOUT, self.client.request(request)).await {
            Ok(Ok(answer)) => CallEnd::Answered(answer.status().as_u16()),
            Ok(Err(error)) => failed(&error),
            Err(_) => CallEnd::TimedOut(format!("no answer within {TIMEOUT:?}")),
        }
        .into()
    }
}

/// The key of a secret. The config has checked that it is valid.
fn signing_key(secret: &Secret) -> hmac::Key {
    let key = webhooks::key(secret.reveal());
    key.unwrap_or_else(|| hmac::Key::new(hmac::HMAC_SHA256, secret.reveal().as_bytes()))
}
