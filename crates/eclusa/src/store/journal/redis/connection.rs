//! The owner's connection to the server: one blocking connection, made again when it breaks.

use std::time::Duration;

use eclusa_core::Span;
use eclusa_fleet::RunId;
use redis::{Client, Connection, ErrorKind, RedisError};
use tokio::time::Instant;

use super::server::{self, Promise};

/// See the module.
pub(in crate::store) struct Server {
    client: Client,
    /// How long a reply may take.
    timeout: Duration,
    promise: Promise,
    open: Option<Open>,
    /// Connections made so far.
    connections: u64,
}

/// A connection, and what the server reported about itself when it was made. Another run of the server needs another
/// connection.
pub(in crate::store) struct Open {
    pub(in crate::store) connection: Connection,
    pub(in crate::store) run: RunId,
    uptime: Duration,
    since: Instant,
}

impl Open {
    /// How long this run of the server has lasted.
    pub(in crate::store) fn uptime(&self) -> Span {
        (self.uptime + self.since.elapsed()).into()
    }
}

impl Server {
    pub(in crate::store) fn new(client: Client, timeout: Duration, promise: Promise) -> Self {
        Self { client, timeout, promise, open: None, connections: 0 }
    }

    /// The number of the current connection, or of the last one.
    pub(in crate::store) fn connections(&self) -> u64 {
        self.connections
    }

    /// Runs a command on the connection, which is made if there is none and dropped if it is broken.
    pub(in crate::store) fn run<T>(
        &mut self,
        command: impl FnOnce(&mut Open) -> Result<T, RedisError>,
    ) -> Result<T, RedisError> {
        let open = match &mut self.open {
            Some(open) => open,
            none => {
                self.connections += 1;
                none.insert(connect(&self.client, self.timeout, self.promise)?)
            }
        };
        let result = command(open);
        if let Err(error) = &result
            && (error.is_io_error() || error.is_unrecoverable_error() || error.code() == Some("READONLY"))
        {
            self.open = None;
        }
        result
    }
}

fn connect(client: &Client, timeout: Duration, promise: Promise) -> Result<Open, RedisError> {
    let mut connection = client.get_connection_with_timeout(timeout)?;
    connection.set_read_timeout(Some(timeout))?;
    connection.set_write_timeout(Some(timeout))?;
    let info: String = redis::cmd("INFO").query(&mut connection)?;
    server::check(&info, promise, &mut connection)?;
    let run = server::field(&info, "run_id").ok_or((ErrorKind::Client, "it does not report its run id"))?;
    let uptime = server::field(&info, "uptime_in_seconds").and_then(|seconds| seconds.parse().ok());
    Ok(Open {
        run: run.into(),
        uptime: Duration::from_secs(uptime.unwrap_or_default()),
        since: Instant::now(),
        connection,
    })
}
