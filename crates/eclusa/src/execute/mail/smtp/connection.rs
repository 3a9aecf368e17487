//! One connection to an SMTP server: greeting, encryption, authentication, commands.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::reply::Reply;
use crate::config::{SmtpAuth, SmtpRules, StartTls};
use crate::execute::CallEnd;
use crate::execute::http::explain;

/// What is needed to connect to a server.
pub(super) struct SmtpServer {
    pub(super) rules: SmtpRules,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) connect_timeout: Duration,
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection over which messages can be sent.
pub(super) struct SmtpConnection {
    io: BufReader<Box<dyn Io>>,
    /// The extensions that the server offers after EHLO.
    offers: Vec<String>,
    /// The name for EHLO: the address, since this machine may have no public name.
    own_name: String,
    encrypted: bool,
    loopback: bool,
    /// Whether a message was begun and not finished: the server must discard it before the next one.
    pub(super) unfinished: bool,
}

impl SmtpConnection {
    /// Connects, encrypts and authenticates by the rules. If that fails, nothing of a message was sent.
    pub(super) async fn open(server: &SmtpServer) -> Result<Self, CallEnd> {
        let limit = server.connect_timeout;
        let mut connection = match timeout(limit, Self::reach(server)).await {
            Ok(connected) => connected?,
            Err(_) => return Err(CallEnd::NotSent(format!("no connection within {limit:?}"))),
        };
        let greeting = connection.read().await.map_err(|error| lost("greeting", &error))?;
        expect(&greeting)?;
        connection.hello().await?;
        let offered = connection.offers("STARTTLS");
        match server.rules.starttls {
            _ if connection.encrypted => {}
            StartTls::Auto | StartTls::Required if offered => {
                connection = connection.start_tls(server).await?;
            }
            StartTls::Required => {
                return Err(CallEnd::NotSent("the server offers no STARTTLS, which is required".into()));
            }
            StartTls::Auto | StartTls::Off => {}
        }
        if let Some(auth) = &server.rules.auth {
            connection.authenticate(auth).await?;
        }
        Ok(connection)
    }

    async fn reach(server: &SmtpServer) -> Result<Self, CallEnd> {
        let url = &server.rules.url;
        let connected = TcpStream::connect((url.host.as_str(), url.port)).await;
        let tcp = connected.map_err(|error| CallEnd::NotSent(explain("could not connect", &error)))?;
        let _ = tcp.set_nodelay(true);
        let loopback = tcp.peer_addr().is_ok_and(|peer| peer.ip().is_loopback());
        let own_name = match tcp.local_addr().map(|own| own.ip()) {
            Ok(std::net::IpAddr::V6(ip)) => format!("[IPv6:{ip}]"),
            Ok(ip) => format!("[{ip}]"),
            Err(_) => "[127.0.0.1]".into(),
        };
        let plain: Box<dyn Io> = Box::new(tcp);
        let encrypted = url.implicit_tls;
        let io = if encrypted { encrypt(server, plain).await? } else { plain };
        Ok(Self {
            io: BufReader::new(io),
            offers: Vec::new(),
            own_name,
            encrypted,
            loopback,
            unfinished: false,
        })
    }

    async fn hello(&mut self) -> Result<(), CallEnd> {
        let hello = format!("EHLO {}", self.own_name);
        let reply = self.command(&hello).await.map_err(|error| lost("EHLO", &error))?;
        expect(&reply)?;
        self.offers = reply.lines.into_iter().skip(1).map(|line| line.to_ascii_uppercase()).collect();
        Ok(())
    }

    async fn start_tls(mut self, server: &SmtpServer) -> Result<Self, CallEnd> {
        let reply = self.command("STARTTLS").await.map_err(|error| lost("STARTTLS", &error))?;
        expect(&reply)?;
        if !self.io.buffer().is_empty() {
            // An attacker may have injected it, to be read as if it came encrypted from the server.
            return Err(CallEnd::NotSent("the server sent more in the clear after STARTTLS".into()));
        }
        let io = encrypt(server, self.io.into_inner()).await?;
        let mut encrypted = Self { io: BufReader::new(io), encrypted: true, ..self };
        // Extensions offered in the clear do not count.
        encrypted.hello().await?;
        Ok(encrypted)
    }

    /// Authenticates. The password is sent only over TLS or to this machine.
    async fn authenticate(&mut self, auth: &SmtpAuth) -> Result<(), CallEnd> {
        if !self.encrypted && !self.loopback {
            let why = "the server offers no encryption, and the password is sent over TLS only";
            return Err(CallEnd::NotSent(why.into()));
        }
        let (user, password) = (auth.user.as_str(), auth.password.reveal());
        let plain = STANDARD.encode(format!("\0{user}\0{password}"));
        let steps = if self.offers_auth("PLAIN") {
            vec![format!("AUTH PLAIN {plain}"), plain]
        } else if self.offers_auth("LOGIN") {
            vec!["AUTH LOGIN".into(), STANDARD.encode(user), STANDARD.encode(password)]
        } else {
            return Err(CallEnd::NotSent("the server offers neither AUTH PLAIN nor AUTH LOGIN".into()));
        };
        for step in steps {
            let reply = self.command(&step).await.map_err(|error| lost("AUTH", &error))?;
            expect(&reply)?;
            // 334 asks for the next step.
            if reply.code != 334 {
                return Ok(());
            }
        }
        Err(CallEnd::NotSent("the server asks for more than a user and a password".into()))
    }

    /// Whether the server offers an extension.
    pub(super) fn offers(&self, name: &str) -> bool {
        self.offers.iter().any(|line| line.split([' ', '=']).next() == Some(name))
    }

    fn offers_auth(&self, mechanism: &str) -> bool {
        let named = |line: &String| {
            let mut words = line.split([' ', '=']);
            words.next() == Some("AUTH") && words.any(|word| word == mechanism)
        };
        self.offers.iter().any(named)
    }

    /// Sends one line and reads its reply.
    pub(super) async fn command(&mut self, line: &str) -> io::Result<Reply> {
        self.write(format!("{line}\r\n").as_bytes()).await?;
        self.read().await
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.io.write_all(bytes).await?;
        self.io.flush().await
    }

    pub(super) async fn read(&mut self) -> io::Result<Reply> {
        Reply::read(&mut self.io).await
    }
}

async fn encrypt(server: &SmtpServer, plain: Box<dyn Io>) -> Result<Box<dyn Io>, CallEnd> {
    let unusable = |_| CallEnd::NotSent("the server's name cannot be in a certificate".into());
    let name = ServerName::try_from(server.rules.url.host.clone()).map_err(unusable)?;
    let handshake = TlsConnector::from(server.tls.clone()).connect(name, plain).await;
    let tls = handshake.map_err(|error| CallEnd::NotSent(explain("no TLS with the server", &error)))?;
    Ok(Box::new(tls))
}

/// Returns an error if the reply means that the connection cannot be used.
fn expect(reply: &Reply) -> Result<(), CallEnd> {
    if reply.is_positive() {
        return Ok(());
    }
    let enhanced = reply.enhanced().map(ToOwned::to_owned);
    Err(CallEnd::SessionRefused { code: reply.code, enhanced, text: reply.text() })
}

/// The end of a call whose connection was lost at this step, before the message was sent.
pub(super) fn lost(step: &str, error: &io::Error) -> CallEnd {
    CallEnd::CutShort { timed_out: false, why: explain(&format!("lost at {step}"), error) }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::config::Secret;

    #[tokio::test]
    async fn a_password_is_never_sent_in_the_clear_to_another_machine() {
        let (own, mut other) = tokio::io::duplex(1_024);
        let io: Box<dyn Io> = Box::new(own);
        let offers = vec!["AUTH PLAIN LOGIN".to_owned()];
        let own_name = "[192.0.2.1]".to_owned();
        let mut connection = SmtpConnection {
            io: BufReader::new(io),
            offers,
            own_name,
            encrypted: false,
            loopback: false,
            unfinished: false,
        };
        let auth = SmtpAuth { user: "u".into(), password: Secret::new("p") };
        let refused = connection.authenticate(&auth).await;
        assert!(matches!(&refused, Err(CallEnd::NotSent(why)) if why.contains("TLS only")), "{refused:?}");
        drop(connection);
        let mut sent = Vec::new();
        other.read_to_end(&mut sent).await.unwrap();
        assert!(sent.is_empty());
    }
}
