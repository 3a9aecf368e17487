//! Makes the calls of jobs, and defines what their results mean.
//!
//! Every kind of upstream returns its calls as [`Called`]. Redirects are not followed, bodies are not decompressed, and
//! nothing is sent twice here: the rules of the lane decide what to do after a failure.

mod callback;
pub mod http;
mod judge;
pub mod mail;
pub mod ses;
mod settle;

pub(crate) use callback::{AlertClient, CallbackClient};
pub(crate) use judge::is_reusable;
pub use judge::{CallEnd, Judgement};
pub use settle::{Attempt, Called, Judged};

use std::sync::atomic::{AtomicBool, Ordering};

use ::http::{HeaderName, HeaderValue};
use bytes::Bytes;
use eclusa_core::Clock;
use http_body::Body;

use self::http::{BoxError, HttpUpstream, RequestHead, Streamed, TlsError};
use self::mail::SmtpUpstream;
use self::ses::SesUpstream;
use crate::config::{UpstreamConfig, UpstreamKind};
use crate::request::Content;

/// What is known about a call in addition to its content.
#[derive(Clone, Copy)]
pub struct CallContext<'a> {
    /// Sent as `Idempotency-Key`, so that the upstream can recognise a repeated call: the caller's key, else the job's
    /// id.
    pub idempotency_key: &'a str,
    /// Sent in place of the caller's `traceparent`, if there is one.
    pub traceparent: Option<&'a str>,
    /// Headers that the config makes for this call. They replace all others of the same name.
    pub headers: &'a [(HeaderName, HeaderValue)],
    /// For answers that name a point in time, such as `Retry-After` with a date.
    pub clock: &'a dyn Clock,
}

/// Whether a call was sent, or may have been, for the code that cancels it.
#[derive(Debug, Default)]
pub struct Sent(AtomicBool);

impl Sent {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn perhaps(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Resets it for the next call of the same job.
    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Calls one upstream of any kind. Clones share their connections.
#[derive(Debug, Clone)]
pub enum UpstreamClient {
    /// Over HTTP.
    Http(HttpUpstream),
    /// Mail over SMTP.
    Smtp(SmtpUpstream),
    /// Mail over the API of SES.
    Ses(SesUpstream),
}

impl UpstreamClient {
    /// A client with the upstream's rules. It connects when it is first used.
    pub fn new(upstream: &UpstreamConfig) -> Result<Self, TlsError> {
        match &upstream.kind {
            UpstreamKind::Http(rules) => HttpUpstream::new(upstream, rules).map(Self::Http),
            UpstreamKind::Smtp(rules) => SmtpUpstream::new(upstream, rules).map(Self::Smtp),
            UpstreamKind::Ses(rules) => SesUpstream::new(upstream, rules).map(Self::Ses),
        }
    }

    /// Makes one call and reads the whole answer. `sent` is set before the call can have an effect.
    pub async fn call(&self, content: &Content, context: &CallContext<'_>, sent: &Sent) -> Called {
        match (self, content) {
            (Self::Http(client), Content::Http(request)) => {
                sent.set();
                client.call(request, context).await
            }
            (Self::Smtp(client), Content::Mail(mail)) => client.send(mail, context.clock.now(), sent).await,
            (Self::Ses(client), Content::Mail(mail)) => client.send(mail, context, sent).await,
            (Self::Http(_), Content::Templates) => CallEnd::Invalid(
                "the job has no request, and the upstream has no template to make one".into(),
            )
            .into(),
            (Self::Http(_), Content::Mail(_)) => {
                CallEnd::Invalid("the job is a message, and the upstream speaks HTTP".into()).into()
            }
            (Self::Smtp(_) | Self::Ses(_), Content::Http(_) | Content::Templates) => {
                CallEnd::Invalid("the job is not a message, and the upstream accepts only messages".into())
                    .into()
            }
        }
    }

    /// Makes one call and streams the bodies in both directions.
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
        match self {
            Self::Http(client) => client.stream(head, body, context).await,
            Self::Smtp(_) | Self::Ses(_) => {
                Err(CallEnd::Invalid("the upstream accepts messages, not requests".into()))
            }
        }
    }
}
