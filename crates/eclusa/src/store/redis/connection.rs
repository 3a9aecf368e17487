//! The way to the server: connected when needed, with a deadline on every call.

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::scripts::Script;
use super::server;

/// How long a call may take, the connection included.
pub(super) const DEADLINE: Duration = Duration::from_secs(2);
/// The same for those who must hear at once that nothing was taken in.
pub(super) const SOON: Duration = Duration::from_millis(200);

/// Connects anew by itself: whoever finds the connection broken lets it go, whoever needs one next makes it.
pub(super) struct Connection {
    client: Client,
    current: Mutex<Option<MultiplexedConnection>>,
    /// Told to every server before anything else.
    greeting: Pipeline,
}

/// A script with what it is asked.
pub(super) struct Call<'a> {
    pub(super) script: &'a Script,
    pub(super) key: &'a str,
    pub(super) args: [&'a [u8]; 4],
}

impl Call<'_> {
    fn command(&self, how: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(how);
        command.arg(script).arg(1).arg(self.key);
        self.args.iter().for_each(|arg| {
            command.arg(*arg);
        });
        command
    }
}

impl Connection {
    pub(super) fn new(client: Client, greeting: Pipeline) -> Self {
        Self { client, current: Mutex::new(None), greeting }
    }

    /// For connections of another kind.
    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// Runs a script. A server that has forgotten scripts or rules is told again.
    pub(super) async fn run(&self, call: &Call<'_>, within: Duration) -> Result<Vec<u8>, StoreError> {
        let by = Instant::now() + within;
        let known = call.command("EVALSHA", &call.script.sha);
        let told = self.ask(by, async |mut server| known.query_async(&mut server).await).await;
        match told {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                let whole = call.command("EVAL", &call.script.source);
                self.ask(by, async |mut server| whole.query_async(&mut server).await).await
            }
            Err(error) if error.code() == Some("NORULES") => {
                let again = async |mut server: MultiplexedConnection| {
                    let () = self.greeting.query_async(&mut server).await?;
                    known.query_async(&mut server).await
                };
                self.ask(by, again).await
            }
            told => told,
        }
        .map_err(|error| unavailable(&error))
    }

    /// Sends commands that no script is needed for.
    pub(super) async fn query<T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, StoreError> {
        let by = Instant::now() + DEADLINE;
        let answer = self.ask(by, async |mut server| commands.query_async(&mut server).await).await;
        answer.map_err(|error| unavailable(&error))
    }

    async fn ask<T>(
        &self,
        by: Instant,
        question: impl AsyncFnOnce(MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, RedisError> {
        let late = |_| RedisError::from((ErrorKind::Io, "it did not answer in time"));
        let server = timeout_at(by, self.connected()).await.map_err(late)??;
        let answer = timeout_at(by, question(server)).await.map_err(late).flatten();
        if let Err(error) = &answer
            && (error.is_io_error() || error.is_connection_dropped() || error.is_unrecoverable_error())
        {
            *self.current.lock().await = None;
        }
        answer
    }

    async fn connected(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut current = self.current.lock().await;
        if let Some(server) = &*current {
            return Ok(server.clone());
        }
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let mut server = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        server::check(&mut server).await?;
        let () = self.greeting.query_async(&mut server).await?;
        *current = Some(server.clone());
        Ok(server)
    }
}

pub(super) fn unavailable(error: &RedisError) -> StoreError {
    let cause = Arc::from(error.to_string());
    match error.kind() {
        ErrorKind::InvalidClientConfig => StoreError::Stopped { cause },
        _ => StoreError::Unavailable { cause },
    }
}
