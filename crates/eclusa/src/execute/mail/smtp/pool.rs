//! Connections that wait for their next message.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::connection::Connection;

/// How long a connection is kept without a message. Shorter than most servers do.
const IDLE_FOR: Duration = Duration::from_secs(30);
/// How long a server may take to say good-bye.
const QUIT: Duration = Duration::from_secs(1);

/// Connections of one upstream without a message, the last used last. Who takes one holds a permit, so there are never more
/// than permits.
#[derive(Default)]
pub(super) struct Pool {
    state: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    connections: Vec<(Connection, Instant)>,
    /// A task looks for those that have waited too long.
    watched: bool,
}

impl Pool {
    /// The connection that was used last.
    pub(super) fn take(&self) -> Option<Connection> {
        let (connection, since) = self.lock().connections.pop()?;
        // Older ones are no better; the task closes them.
        (since.elapsed() < IDLE_FOR).then_some(connection)
    }

    /// Keeps a connection for the next message.
    pub(super) fn put(self: &Arc<Self>, connection: Connection) {
        let mut idle = self.lock();
        idle.connections.push((connection, Instant::now()));
        if !std::mem::replace(&mut idle.watched, true) {
            tokio::spawn(close_unused(Arc::downgrade(self)));
        }
    }

    /// Takes out those that have waited too long; says when to look again, if any is left.
    fn expired(&self) -> (Vec<Connection>, Option<Instant>) {
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

/// Runs while connections wait, and ends with their pool.
async fn close_unused(pool: Weak<Pool>) {
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
