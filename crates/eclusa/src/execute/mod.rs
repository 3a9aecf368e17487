//! Making the calls that jobs ask for, and what their ends mean.
//!
//! Every kind of upstream ends its calls as [`Called`]. Nothing is followed, unpacked or sent twice here: what to do after
//! a failure is decided by the rules of the lane.

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

use self::http::{BoxError, Head, HttpUpstream, Streamed, TlsError};
use self::mail::SmtpUpstream;
use self::ses::SesUpstream;
use crate::config::{Upstream, UpstreamKind};
use crate::request::Content;

/// What is known about a call besides what is sent.
#[derive(Clone, Copy)]
pub struct CallContext<'a> {
    /// Sent as `Idempotency-Key`, so that the upstream can tell a repeated call: the caller's key, else the job's id.
    pub idempotency_key: &'a str,
    /// Sent in place of the caller's `traceparent`, if there is one.
    pub traceparent: Option<&'a str>,
    /// Sent in place of all others of the same name: what the config makes for this one call.
    pub headers: &'a [(HeaderName, HeaderValue)],
    /// For answers that name a moment, such as `Retry-After` with a date.
    pub clock: &'a dyn Clock,
}

/// Whether a call was sent, or perhaps sent, for whoever cuts it off.
#[derive(Debug, Default)]
pub struct Sent(AtomicBool);

impl Sent {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn perhaps(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// For the next call of the same job.
    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Calls one upstream, of whichever kind it is. Clones share their connections.
#[derive(Debug, Clone)]
pub enum UpstreamClient {
    /// It speaks HTTP.
    Http(HttpUpstream),
    /// It takes mail by SMTP.
    Smtp(SmtpUpstream),
    /// It takes mail by the API of SES.
    Ses(SesUpstream),
}

impl UpstreamClient {
    /// A client by the upstream's rules. It connects when it is first used.
    pub fn new(upstream: &Upstream) -> Result<Self, TlsError> {
        match &upstream.kind {
            UpstreamKind::Http(rules) => HttpUpstream::new(upstream, rules).map(Self::Http),
            UpstreamKind::Smtp(rules) => SmtpUpstream::new(upstream, rules).map(Self::Smtp),
            UpstreamKind::Ses(rules) => SesUpstream::new(upstream, rules).map(Self::Ses),
        }
    }

    /// Makes one call and reads the whole answer. `sent` is set before anything can have come of it.
    pub async fn call(&self, content: &Content, context: &CallContext<'_>, sent: &Sent) -> Called {
        match (self, content) {
            (Self::Http(client), Content::Http(request)) => {
                sent.set();
                client.call(request, context).await
            }
            (Self::Smtp(client), Content::Mail(mail)) => client.send(mail, context.clock.now(), sent).await,
            (Self::Ses(client), Content::Mail(mail)) => client.send(mail, context, sent).await,
            (Self::Http(_), Content::Templates) => {
                CallEnd::Invalid("the job has no request, and the upstream no template that makes one".into())
                    .into()
            }
            (Self::Http(_), Content::Mail(_)) => {
                CallEnd::Invalid("the job is a message, and the upstream speaks HTTP".into()).into()
            }
            (Self::Smtp(_) | Self::Ses(_), Content::Http(_) | Content::Templates) => {
                CallEnd::Invalid("the job is not a message, and the upstream takes nothing else".into())
                    .into()
            }
        }
    }

    /// Makes one call whose bodies pass in both directions as they come.
    pub async fn stream<B>(&self, head: Head, body: B, context: &CallContext<'_>) -> Result<Streamed, CallEnd>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        match self {
            Self::Http(client) => client.stream(head, body, context).await,
            Self::Smtp(_) | Self::Ses(_) => {
                Err(CallEnd::Invalid("the upstream takes messages, not requests".into()))
            }
        }
    }
}
