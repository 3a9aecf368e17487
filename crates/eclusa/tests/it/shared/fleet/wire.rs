//! A proxy between a process and its Redis server, which a test can cut or redirect.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::redis_server::RedisServer;

/// Sent only on the connection on which a process looks, takes over and appends.
pub(super) const SCRIPTS: &str = "EVALSHA";
/// Sent only on the connection of its subscriptions.
pub(super) const SUBSCRIBES: &str = "SUBSCRIBE";

/// See the module.
pub(super) struct Wire {
    address: SocketAddr,
    target: Arc<Mutex<SocketAddr>>,
    cut: watch::Sender<Option<&'static str>>,
    accepting: JoinHandle<()>,
}

impl Wire {
    pub(super) async fn to(server: &RedisServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let target = Arc::new(Mutex::new(server.address()));
        let (cut, cuts) = watch::channel(None);
        let to = target.clone();
        let accepting = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let target = *to.lock().unwrap();
                tokio::spawn(relay(client, target, cuts.clone()));
            }
        });
        Self { address, target, cut, accepting }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Directs new connections to this server.
    pub(super) fn lead_to(&self, server: &RedisServer) {
        *self.target.lock().unwrap() = server.address();
    }

    /// Closes each connection on which `word` was sent, and those on which it is sent until [`Wire::repair`].
    pub(super) fn cut(&self, word: &'static str) {
        self.cut.send_replace(Some(word));
    }

    pub(super) fn repair(&self) {
        self.cut.send_replace(None);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn relay(
    mut client: TcpStream,
    target: SocketAddr,
    mut cuts: watch::Receiver<Option<&'static str>>,
) -> io::Result<()> {
    let mut server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut asked, mut replied) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let mut said = BTreeSet::new();
    loop {
        tokio::select! {
            size = client.read(&mut asked) => {
                let size = size?;
                let says = |word: &str| asked[..size].windows(word.len()).any(|part| part == word.as_bytes());
                said.extend([SCRIPTS, SUBSCRIBES].into_iter().filter(|word| says(word)));
                if size == 0 || cuts.borrow().is_some_and(|word| said.contains(word)) {
                    return Ok(());
                }
                server.write_all(&asked[..size]).await?;
            }
            size = server.read(&mut replied) => {
                let size = size?;
                if size == 0 {
                    return Ok(());
                }
                client.write_all(&replied[..size]).await?;
            }
            changed = cuts.changed() => {
                // The test is over, or cut this connection.
                if changed.is_err() || cuts.borrow().is_some_and(|word| said.contains(word)) {
                    return Ok(());
                }
            }
        }
    }
}
