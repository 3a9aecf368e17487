//! Sends messages over SMTP (RFC 5321), with a result for each recipient.

mod connection;
mod pool;
mod reply;

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::Time;
use eclusa_core::retry::{ExtraCodes, Verdict};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::connection::{SmtpConnection, SmtpServer, lost};
use self::pool::ConnectionPool;
use self::reply::Reply;
use super::delivery::{Delivery, RecipientResult, counted};
use super::to_mime;
use crate::config::{SmtpRules, UpstreamConfig};
use crate::execute::http::{TlsError, explain, tls};
use crate::execute::{CallEnd, Called, Sent};
use crate::request::Mail;

/// Replies that are about a mailbox, not about the server (RFC 5321, 4.2.3).
const MAILBOX_CODES: [&str; 5] = ["450", "550", "551", "552", "553"];

/// A client of one SMTP server. Clones share their connections.
#[derive(Clone)]
pub struct SmtpUpstream {
    inner: Arc<SmtpInner>,
}

struct SmtpInner {
    server: SmtpServer,
    timeout: Duration,
    codes: ExtraCodes,
    pool: Arc<ConnectionPool>,
    permits: Semaphore,
}

/// How far a call has come, in case it is cancelled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SendStage {
    /// Before the end of the message: the server has not accepted it.
    Sending,
    /// The end of the message was sent, or perhaps sent, without a reply yet.
    Sent,
}

/// One message that is being sent.
struct Exchange<'a> {
    mail: &'a Mail,
    /// The encoded message, without the final `.` line.
    body: Vec<u8>,
    stage: SendStage,
    sent: &'a Sent,
    delivery: Delivery,
    /// The first reply that refused a recipient temporarily.
    deferred: Option<Reply>,
}

/// Why an exchange stopped early.
enum Stop {
    /// The server had not replied to the message: it may be sent on another connection.
    Stale(CallEnd),
    /// The call ended like this.
    End(CallEnd),
}

impl SmtpUpstream {
    /// A client with the upstream's rules. It connects when it is first used.
    pub fn new(upstream: &UpstreamConfig, rules: &SmtpRules) -> Result<Self, TlsError> {
        let tls = Arc::new(tls::client_config(&upstream.tls)?);
        let server = SmtpServer { rules: rules.clone(), tls, connect_timeout: upstream.connect_timeout };
        let inner = SmtpInner {
            server,
            timeout: upstream.timeout,
            codes: upstream.codes.clone(),
            pool: Arc::default(),
            permits: Semaphore::new(rules.max_connections),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Sends a message to the recipients that are left, all within the upstream's timeout.
    pub async fn send(&self, mail: &Mail, now: Time, sent: &Sent) -> Called {
        let body = match to_mime(mail, now) {
            Ok(bytes) => dotted(&bytes),
            Err(why) => return CallEnd::Invalid(why).into(),
        };
        let (stage, delivery) = (SendStage::Sending, Delivery::default());
        let mut exchange = Exchange { mail, body, stage, sent, delivery, deferred: None };
        let limit = self.inner.timeout;
        // Waiting for a free connection does not count as the server's time.
        let Ok(Ok(_permit)) = timeout(limit, self.inner.permits.acquire()).await else {
            return CallEnd::NotMade.into();
        };
        let ended = match timeout(limit, self.inner.deliver(&mut exchange)).await {
            Ok(ended) => ended,
            Err(_) => Err(exchange.timed_out(limit)),
        };
        exchange.into_called(ended)
    }
}

impl std::fmt::Debug for SmtpUpstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The rules hold a password.
        write!(f, "SmtpUpstream({})", self.inner.server.rules.url)
    }
}

impl SmtpInner {
    /// Delivers on an idle connection or on a new one. The server may have closed an idle connection long ago; as long
    /// as it has not replied to the message, the message is sent on a new one.
    async fn deliver(&self, exchange: &mut Exchange<'_>) -> Result<(), CallEnd> {
        if exchange.mail.left().is_empty() {
            return Ok(());
        }
        if let Some(connection) = self.pool.take() {
            match self.exchange(connection, exchange).await {
                Err(Stop::Stale(_)) => {}
                Err(Stop::End(end)) => return Err(end),
                Ok(()) => return Ok(()),
            }
        }
        let connection = SmtpConnection::open(&self.server).await?;
        let ended = self.exchange(connection, exchange).await;
        ended.map_err(|(Stop::Stale(end) | Stop::End(end))| end)
    }

    /// Sends the message over `connection`, which returns to the pool if it can be used again.
    async fn exchange(
        &self,
        mut connection: SmtpConnection,
        exchange: &mut Exchange<'_>,
    ) -> Result<(), Stop> {
        if connection.unfinished {
            let reply = connection.command("RSET").await;
            let reply = reply.map_err(|error| Stop::Stale(lost("RSET", &error)))?;
            if !reply.is_positive() {
                return Err(Stop::Stale(reply.end()));
            }
        }
        connection.unfinished = true;
        let from = &exchange.mail.from.address;
        let size = connection.offers("SIZE").then(|| format!(" SIZE={}", exchange.body.len()));
        let size = size.unwrap_or_default();
        let reply = connection.command(&format!("MAIL FROM:<{from}>{size}")).await;
        let reply = reply.map_err(|error| Stop::Stale(lost("MAIL", &error)))?;
        if reply.is_closing() {
            return Err(Stop::Stale(reply.end()));
        }
        if !reply.is_positive() {
            self.pool.put(connection);
            return Err(Stop::End(reply.end()));
        }
        let taken = self.name_recipients(&mut connection, exchange).await.map_err(Stop::End)?;
        if taken.is_empty() {
            self.pool.put(connection);
            return Ok(());
        }
        let reply = self.send_body(&mut connection, exchange).await.map_err(Stop::End)?;
        for address in taken {
            exchange.note(address, &reply, &self.codes);
        }
        if !reply.is_closing() {
            self.pool.put(connection);
        }
        Ok(())
    }

    /// Sends the recipients that are left; returns those that the server accepts.
    async fn name_recipients(
        &self,
        connection: &mut SmtpConnection,
        exchange: &mut Exchange<'_>,
    ) -> Result<Vec<String>, CallEnd> {
        let mut taken = Vec::new();
        for address in exchange.mail.left() {
            let reply = connection.command(&format!("RCPT TO:<{address}>")).await;
            let reply = reply.map_err(|error| lost("RCPT", &error))?;
            if reply.is_positive() {
                taken.push(address);
            } else if reply.is_closing() {
                return Err(reply.end());
            } else {
                exchange.note(address, &reply, &self.codes);
            }
        }
        Ok(taken)
    }

    /// Sends the message itself; the reply applies to all accepted recipients.
    async fn send_body(
        &self,
        connection: &mut SmtpConnection,
        exchange: &mut Exchange<'_>,
    ) -> Result<Reply, CallEnd> {
        let reply = connection.command("DATA").await.map_err(|error| lost("DATA", &error))?;
        match reply.code {
            354 => {}
            400.. => return Ok(reply),
            // If it were sent now, the server would read the message as commands.
            _ => return Err(CallEnd::CutShort { timed_out: false, why: reply.text() }),
        }
        // Without the end of the message, no server may accept it.
        connection.write(&exchange.body).await.map_err(|error| lost("the message", &error))?;
        exchange.stage = SendStage::Sent;
        exchange.sent.set();
        let broken = |error: std::io::Error| CallEnd::Broken(explain("no reply to the message", &error));
        connection.write(b".\r\n").await.map_err(broken)?;
        let reply = connection.read().await.map_err(broken)?;
        exchange.stage = SendStage::Sending;
        connection.unfinished = false;
        Ok(reply)
    }
}

impl Exchange<'_> {
    /// Notes the result for one recipient.
    fn note(&mut self, address: String, reply: &Reply, codes: &ExtraCodes) {
        let result = match reply.verdict(codes) {
            None => RecipientResult::Accepted,
            Some(verdict) => {
                if verdict == Verdict::Retryable && self.deferred.is_none() {
                    let lines = reply.lines.clone();
                    self.deferred = Some(Reply { code: reply.code, lines });
                }
                RecipientResult::Refused { code: reply.code.to_string(), reason: reply.text(), verdict }
            }
        };
        self.delivery.results.push((address, result));
    }

    fn timed_out(&self, limit: Duration) -> CallEnd {
        match self.stage {
            SendStage::Sending => CallEnd::CutShort {
                timed_out: true,
                why: format!("no reply within {limit:?}, before the message was sent"),
            },
            SendStage::Sent => CallEnd::TimedOut(format!("no reply to the message within {limit:?}")),
        }
    }

    fn into_called(self, ended: Result<(), CallEnd>) -> Called {
        let (end, went_well) = match (ended, &self.deferred) {
            (Err(end), _) => (end, false),
            (Ok(()), None) => (Reply { code: 250, lines: vec!["accepted".into()] }.end(), true),
            (Ok(()), Some(reply)) => (self.deferral(reply), false),
        };
        self.delivery.into_called(self.mail, end, went_well)
    }

    /// The end of a call after which recipients are left. If the server blames the mailbox of each of them, the server
    /// itself works.
    fn deferral(&self, reply: &Reply) -> CallEnd {
        let deferred = self.delivery.results.iter().filter_map(|(_, result)| match result {
            RecipientResult::Refused { code, verdict: Verdict::Retryable, .. } => Some(code.as_str()),
            _ => None,
        });
        let of_mailbox = deferred.clone().all(|code| MAILBOX_CODES.contains(&code));
        let reason = counted(&reply.text(), deferred.count(), self.mail.recipients().len());
        let (code, verdict) = (reply.code, Verdict::Retryable);
        if of_mailbox {
            return CallEnd::RecipientRefused { code: code.to_string(), reason, verdict };
        }
        CallEnd::Replied { code, enhanced: reply.enhanced().map(ToOwned::to_owned), text: reason }
    }
}

/// Dot-stuffs the message: adds a dot to each line that begins with one, and a line break at the end.
fn dotted(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 64);
    for line in message.split_inclusive(|byte| *byte == b'\n') {
        if line.first() == Some(&b'.') {
            out.push(b'.');
        }
        out.extend_from_slice(line);
    }
    if !out.ends_with(b"\r\n") {
        out.extend_from_slice(b"\r\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_a_dot_does_not_end_the_message() {
        assert_eq!(dotted(b".\r\na.\r\n..b"), b"..\r\na.\r\n...b\r\n");
        assert_eq!(dotted(b"a\r\n"), b"a\r\n");
    }
}
