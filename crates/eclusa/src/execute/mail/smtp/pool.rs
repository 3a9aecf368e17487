//! Idle connections that wait for the next message.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::connection::SmtpConnection;

/// How long an idle connection is kept. Shorter than the timeout of most servers.
const IDLE_FOR: Duration = Duration::from_secs(30);
/// How long a server may take to answer QUIT.
const QUIT: Duration = Duration::from_secs(1);

/// The idle connections of one upstream, the last used last. A caller that takes one holds a permit, so there are never
/// more connections than permits.
#[derive(Default)]
pub(super) struct ConnectionPool {
    state: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    connections: Vec<(SmtpConnection, Instant)>,
    /// Whether a task closes connections that were idle for too long.
    watched: bool,
}

impl ConnectionPool {
    /// Takes the connection that was used last.
    pub(super) fn take(&self) -> Option<SmtpConnection> {
        let (connection, since) = self.lock().connections.pop()?;
        // The others are older still; the task closes them.
        (since.elapsed() < IDLE_FOR).then_some(connection)
    }

    /// Keeps a connection for the next message.
    pub(super) fn put(self: &Arc<Self>, connection: SmtpConnection) {
        let mut idle = self.lock();
        idle.connections.push((connection, Instant::now()));
        if !std::mem::replace(&mut idle.watched, true) {
            tokio::spawn(close_unused(Arc::downgrade(self)));
        }
    }

    /// Removes connections that were idle for too long; returns when to look again, if any are left.
    fn expired(&self) -> (Vec<SmtpConnection>, Option<Instant>) {
        let mut idle = self.lock();
        let old = idle.connections.iter().take_while(|(_, since)| since.elapsed() >= IDLE_FOR).count();
        let old = idle.connections.drain(..old).map(|(connection, _)| connection).collect();
        let next = idle.connections.first().map(|(_, since)| *since + IDLE_FOR);
        idle.watched = next.is_some();
        (old, next)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Idle> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs while there are idle connections, and ends with the pool.
async fn close_unused(pool: Weak<ConnectionPool>) {
    sleep(IDLE_FOR).await;
    loop {
        let Some((old, next)) = pool.upgrade().map(|pool| pool.expired()) else { return };
        for mut connection in old {
            // The server may have closed it long ago.
            let _ = timeout(QUIT, connection.command("QUIT")).await;
        }
        let Some(next) = next else { return };
        tokio::time::sleep_until(next).await;
    }
}
