//! Calls `SendEmail`, version 2.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use eclusa_core::Time;
use http::header::CONTENT_TYPE;
use serde::Serialize;

use super::answer::{DAILY_QUOTA_WAIT, SesError};
use super::credentials::Provider;
use super::sign::{Scope, Unsigned, sign};
use crate::config::{AwsCredentials, HttpRules, SesRules, UpstreamConfig};
use crate::execute::http::{HttpUpstream, TlsError};
use crate::execute::mail::{Delivery, RecipientResult, to_mime};
use crate::execute::{CallContext, CallEnd, Called, Sent};
use crate::request::{Mail, Request, Response};

const PATH: &str = "/v2/email/outbound-emails";
const SERVICE: &str = "ses";
const JSON: &str = "application/json";
/// The largest answer in bytes: it holds a message id, or an error.
const MAX_ANSWER: usize = 64 * 1024;
/// AWS accepts signatures that are up to five minutes off. A clock that is off by less than this is not corrected.
const MAX_SKEW_MS: i64 = 60_000;

/// Sends mail over the API of Amazon SES. Clones share their connections and credentials.
#[derive(Clone)]
pub struct SesUpstream {
    inner: Arc<SesInner>,
}

struct SesInner {
    http: HttpUpstream,
    rules: SesRules,
    /// The host as it is sent.
    host: String,
    credentials: Provider,
    /// How far the clock of AWS is ahead of ours, in milliseconds, if it is off by much.
    skew_ms: AtomicI64,
}

/// What is sent to SES.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SendEmail<'a> {
    from_email_address: &'a str,
    destination: Destination<'a>,
    content: MailContent,
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration_set_name: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Destination<'a> {
    to_addresses: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct MailContent {
    raw: Raw,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Raw {
    data: String,
}

impl SesUpstream {
    /// A client with the upstream's rules. It connects when it is first used.
    pub(crate) fn new(upstream: &UpstreamConfig, rules: &SesRules) -> Result<Self, TlsError> {
        let (host, mut url) = (rules.url.host_header(), rules.url.clone());
        // The signed host must equal the sent one, in HTTP/2 too.
        if let Ok(authority) = host.parse() {
            url.authority = authority;
        }
        let http = HttpUpstream::new(upstream, &HttpRules::plain(url, MAX_ANSWER))?;
        let credentials = Provider::new(&rules.credentials)?;
        let (rules, skew_ms) = (rules.clone(), AtomicI64::new(0));
        Ok(Self { inner: Arc::new(SesInner { http, rules, host, credentials, skew_ms }) })
    }

    /// Sends a message to the recipients that are left: to all of them, or to none.
    pub async fn send(&self, mail: &Mail, context: &CallContext<'_>, sent: &Sent) -> Called {
        let to = mail.left();
        if to.is_empty() {
            return Delivery::default().into_called(mail, CallEnd::Answered(200), true);
        }
        let body = match self.body(mail, &to, context) {
            Ok(body) => body,
            Err(why) => return CallEnd::Invalid(why).into(),
        };
        let called = self.call(&body, context, sent).await;
        let (close, answered) = (called.close, called.answer.as_ref());
        let (delivery, end, went_well) = match (called.end, answered.and_then(message_id)) {
            (CallEnd::Answered(status @ 200..=299), Some(id)) => {
                let results = to.into_iter().map(|address| (address, RecipientResult::Accepted)).collect();
                (Delivery { results, upstream_id: Some(id) }, CallEnd::Answered(status), true)
            }
            // This is not SES, so the message was not accepted.
            (CallEnd::Answered(status @ 200..=399), _) => {
                let why = format!("answered {status} without a message id: is `url` the endpoint of SES?");
                (Delivery::default(), CallEnd::Broken(why), false)
            }
            (end, _) => (Delivery::default(), named(end, answered), false),
        };
        let daily_quota = matches!(end, CallEnd::Ses { daily_quota: true, .. }).then_some(DAILY_QUOTA_WAIT);
        Called { close: close.or(daily_quota), ..delivery.into_called(mail, end, went_well) }
    }

    fn body(&self, mail: &Mail, to: &[String], context: &CallContext<'_>) -> Result<Vec<u8>, String> {
        let mime = to_mime(mail, context.clock.now())?;
        let message = SendEmail {
            from_email_address: &mail.from.address,
            destination: Destination { to_addresses: to },
            content: MailContent { raw: Raw { data: BASE64_STANDARD.encode(mime) } },
            configuration_set_name: self.inner.rules.configuration_set.as_deref(),
        };
        serde_json::to_vec(&message).map_err(|error| error.to_string())
    }

    async fn call(&self, body: &[u8], context: &CallContext<'_>, sent: &Sent) -> Called {
        let credentials = match self.inner.credentials.get(context).await {
            Ok(credentials) => credentials,
            Err(problem) => return CallEnd::NotSent(problem).into(),
        };
        let skew_ms = self.inner.skew_ms.load(Ordering::Relaxed);
        sent.set();
        let called = self.signed_call(body, &credentials, skew_ms, context).await;
        match self.after_refusal(&called, (credentials, skew_ms), context).await {
            Some(credentials) => {
                let skew_ms = self.inner.skew_ms.load(Ordering::Relaxed);
                self.signed_call(body, &credentials, skew_ms, context).await
            }
            None => called,
        }
    }

    /// The credentials for another signature, if the signature was refused and another one is likely to be accepted. No
    /// message was accepted by then, so this is not a second attempt.
    async fn after_refusal(
        &self,
        called: &Called,
        (used, skew_ms): (Arc<AwsCredentials>, i64),
        context: &CallContext<'_>,
    ) -> Option<Arc<AwsCredentials>> {
        let answer = called.answer.as_ref().filter(|answer| (400..500).contains(&answer.status))?;
        if !SesError::read(answer).is_about_signature() {
            return None;
        }
        if self.learn_skew(answer, skew_ms, context) {
            return Some(used);
        }
        self.inner.credentials.refused(&used).await;
        self.inner.credentials.get(context).await.ok().filter(|newer| *newer != used)
    }

    async fn signed_call(
        &self,
        body: &[u8],
        credentials: &AwsCredentials,
        skew_ms: i64,
        context: &CallContext<'_>,
    ) -> Called {
        let SesInner { http, rules, host, .. } = &*self.inner;
        let path = format!("{}{PATH}", rules.url.prefix);
        let unsigned = Unsigned { method: "POST", host, path: &path, headers: &[(CONTENT_TYPE, JSON)], body };
        let now = context.clock.now().as_millis();
        let now = Time::from_millis(now.saturating_add_signed(skew_ms));
        let scope = Scope { region: &rules.region, service: SERVICE };
        let Some(headers) = sign(&unsigned, scope, credentials, now) else {
            return CallEnd::NotSent("the credentials cannot be sent in a header".into()).into();
        };
        let request = Request {
            method: "POST".into(),
            path: PATH.into(),
            query: None,
            headers: vec![(CONTENT_TYPE.as_str().into(), JSON.into())],
            body: body.to_vec(),
        };
        http.call(&request, &CallContext { headers: &headers, ..*context }).await
    }

    /// Whether the answer to a request signed with the skew `used_ms` shows that this skew is wrong. The right skew is
    /// then known, perhaps from a concurrent request.
    fn learn_skew(&self, answer: &Response, used_ms: i64, context: &CallContext<'_>) -> bool {
        let date = answer.headers.iter().find(|(name, _)| name == "date");
        let date = date.and_then(|(_, value)| std::str::from_utf8(value).ok());
        let theirs = date.and_then(|text| httpdate::parse_http_date(text).ok());
        let theirs = theirs.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let Some(theirs) = theirs.and_then(|at| i64::try_from(at.as_millis()).ok()) else { return false };
        let ours = i64::try_from(context.clock.now().as_millis()).unwrap_or(i64::MAX);
        let skew = theirs.saturating_sub(ours);
        let differs = |from: i64| skew.saturating_sub(from).abs() >= MAX_SKEW_MS;
        if !differs(used_ms) {
            return false;
        }
        if !differs(self.inner.skew_ms.swap(skew, Ordering::Relaxed)) {
            return true;
        }
        tracing::warn!(
            skewMs = skew,
            "The clock differs from that of AWS; requests are signed with the time of AWS"
        );
        true
    }
}

/// The id that SES gave the message.
fn message_id(answer: &Response) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
    Some(body["MessageId"].as_str()?.to_owned())
}

/// How the call ended, with the name of the error if it is from SES. Texts of SES may name people, so nothing else of
/// the answer is kept.
fn named(end: CallEnd, answer: Option<&Response>) -> CallEnd {
    match (&end, answer.map(SesError::read)) {
        (CallEnd::Answered(status), Some(SesError { name: Some(name), daily_quota })) => {
            CallEnd::Ses { status: *status, name, daily_quota }
        }
        _ => end,
    }
}

impl std::fmt::Debug for SesUpstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The rules hold credentials.
        f.debug_struct("SesUpstream").field("region", &self.inner.rules.region).finish_non_exhaustive()
    }
}
