//! Sending messages by SMTP (RFC 5321), with a result for each recipient.

mod connection;
mod pool;
mod reply;

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::Time;
use eclusa_core::retry::{ExtraCodes, Verdict};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::connection::{Connection, Server, lost};
use self::pool::Pool;
use self::reply::Reply;
use super::delivery::{Delivery, Fate, counted};
use super::to_mime;
use crate::config::{SmtpRules, Upstream};
use crate::execute::http::{TlsError, explain, tls};
use crate::execute::{CallEnd, Called, Sent};
use crate::request::Mail;

/// Replies that are about a mailbox, not about the server (RFC 5321, 4.2.3).
const MAILBOX_CODES: [&str; 5] = ["450", "550", "551", "552", "553"];

/// A client of one SMTP server. Clones share their connections.
#[derive(Clone)]
pub struct SmtpUpstream {
    inner: Arc<Inner>,
}

struct Inner {
    server: Server,
    timeout: Duration,
    codes: ExtraCodes,
    pool: Arc<Pool>,
    permits: Semaphore,
}

/// How far a call has come, for when it is cut off.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Up to the last byte of the message: the server has not taken it on.
    Sending,
    /// The end of the message was sent, or perhaps sent, and not replied to.
    Sent,
}

/// One message on its way.
struct Exchange<'a> {
    mail: &'a Mail,
    /// As it is sent, with its end but for the last line.
    body: Vec<u8>,
    stage: Stage,
    sent: &'a Sent,
    delivery: Delivery,
    /// The reply that refused recipients for now.
    deferred: Option<Reply>,
}

/// Why an exchange did not come to its end.
enum Stop {
    /// Before the server said anything to it.
    Stale(CallEnd),
    /// So.
    End(CallEnd),
}

impl SmtpUpstream {
    /// A client by the upstream's rules. It connects when it is first used.
    pub fn new(upstream: &Upstream, rules: &SmtpRules) -> Result<Self, TlsError> {
        let tls = Arc::new(tls::client_config(&upstream.tls)?);
        let server = Server { rules: rules.clone(), tls, connect_timeout: upstream.connect_timeout };
        let inner = Inner {
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
        let (stage, delivery) = (Stage::Sending, Delivery::default());
        let mut exchange = Exchange { mail, body, stage, sent, delivery, deferred: None };
        let limit = self.inner.timeout;
        // The server is not to blame if all connections are taken, and the time for it does not run meanwhile.
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

impl Inner {
    /// One exchange, on a connection that waits or on a new one. The server may have closed the first long ago; as long as
    /// it has said nothing to the message, that goes out on a new one.
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
        let connection = Connection::open(&self.server).await?;
        let ended = self.exchange(connection, exchange).await;
        ended.map_err(|(Stop::Stale(end) | Stop::End(end))| end)
    }

    /// Sends the message over `connection`, which is kept if it can be used again.
    async fn exchange(&self, mut connection: Connection, exchange: &mut Exchange<'_>) -> Result<(), Stop> {
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

    /// Names the recipients that are left; gives those that the server takes the message for.
    async fn name_recipients(
        &self,
        connection: &mut Connection,
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

    /// Sends the message itself; the reply stands for all recipients that were taken.
    async fn send_body(
        &self,
        connection: &mut Connection,
        exchange: &mut Exchange<'_>,
    ) -> Result<Reply, CallEnd> {
        let reply = connection.command("DATA").await.map_err(|error| lost("DATA", &error))?;
        match reply.code {
            354 => {}
            400.. => return Ok(reply),
            // Sent now, the message would count as commands.
            _ => return Err(CallEnd::CutShort { timed_out: false, why: reply.text() }),
        }
        // Without its end, no server may take the message on.
        connection.write(&exchange.body).await.map_err(|error| lost("the message", &error))?;
        exchange.stage = Stage::Sent;
        exchange.sent.set();
        let broken = |error: std::io::Error| CallEnd::Broken(explain("no reply to the message", &error));
        connection.write(b".\r\n").await.map_err(broken)?;
        let reply = connection.read().await.map_err(broken)?;
        exchange.stage = Stage::Sending;
        connection.unfinished = false;
        Ok(reply)
    }
}

impl Exchange<'_> {
    /// What the server said of one recipient.
    fn note(&mut self, address: String, reply: &Reply, codes: &ExtraCodes) {
        let fate = match reply.verdict(codes) {
            None => Fate::Accepted,
            Some(verdict) => {
                if verdict == Verdict::Retryable && self.deferred.is_none() {
                    let lines = reply.lines.clone();
                    self.deferred = Some(Reply { code: reply.code, lines });
                }
                Fate::Refused { code: reply.code.to_string(), reason: reply.text(), verdict }
            }
        };
        self.delivery.fates.push((address, fate));
    }

    fn timed_out(&self, limit: Duration) -> CallEnd {
        match self.stage {
            Stage::Sending => CallEnd::CutShort {
                timed_out: true,
                why: format!("no reply within {limit:?}, before the message was sent"),
            },
            Stage::Sent => CallEnd::TimedOut(format!("no reply to the message within {limit:?}")),
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

    /// The end of a call that recipients are left after. If the server says of all of them that it is their mailbox, the
    /// server itself is well.
    fn deferral(&self, reply: &Reply) -> CallEnd {
        let deferred = self.delivery.fates.iter().filter_map(|(_, fate)| match fate {
            Fate::Refused { code, verdict: Verdict::Retryable, .. } => Some(code.as_str()),
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

/// The message with a dot before each line that begins with one, and a line break at its end.
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
