//! The way to the server: connected when needed, with a deadline on every call.

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::StoreError;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::functions::{self, Function};
use super::server;
use crate::store::Ack;

/// How long a call may take, the connection included.
pub(super) const DEADLINE: Duration = Duration::from_secs(2);
/// The same for those who must hear at once that nothing was taken in.
pub(super) const SOON: Duration = Duration::from_millis(200);

/// How long a replica may take.
const REPLICATION: Duration = Duration::from_millis(100);

/// Connects anew by itself: whoever finds the connection broken lets it go, whoever needs one next makes it.
pub(super) struct Connection {
    client: Client,
    current: Mutex<Option<MultiplexedConnection>>,
    /// Makes the rules known. Told to every server before anything else, but for the functions.
    rules: Pipeline,
    /// What a server must promise.
    ack: Ack,
    /// Whether a function has only run when a replica knows of it. Nobody else should use such a connection: it stands still
    /// while it waits.
    replicated: bool,
}

/// A function with what it is asked.
pub(super) struct Call<'a> {
    pub(super) function: &'a Function,
    pub(super) key: &'a str,
    pub(super) args: [&'a [u8]; 5],
}

impl Call<'_> {
    fn command(&self) -> Cmd {
        let mut command = redis::cmd("FCALL");
        command.arg(&*self.function.name).arg(1).arg(self.key);
        self.args.iter().for_each(|arg| {
            command.arg(*arg);
        });
        command
    }
}

impl Connection {
    pub(super) fn new(client: Client, rules: Pipeline, ack: Ack) -> Self {
        Self { client, current: Mutex::new(None), rules, ack, replicated: false }
    }

    /// Another one to the same server, for what must reach a replica.
    pub(super) fn replicated(&self) -> Self {
        Self { replicated: true, ..Self::new(self.client.clone(), self.rules.clone(), self.ack) }
    }

    /// For connections of another kind.
    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// Runs a function. A server that has forgotten functions or rules is told again.
    pub(super) async fn run(&self, call: &Call<'_>, within: Duration) -> Result<Vec<u8>, StoreError> {
        let by = Instant::now() + within;
        let command = call.command();
        let told = self.ask(by, async |server| self.send(&command, server).await).await;
        match told {
            Err(error) if is_forgotten(&error) => {
                let again = async |mut server: MultiplexedConnection| {
                    self.greet(&mut server).await?;
                    self.send(&command, server).await
                };
                self.ask(by, again).await
            }
            told => told,
        }
        .map_err(|error| unavailable(&error))
    }

    /// Sends commands that no function is needed for.
    pub(super) async fn query<T: FromRedisValue>(
        &self,
        commands: &Pipeline,
        within: Duration,
    ) -> Result<T, StoreError> {
        let by = Instant::now() + within;
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
        // Another connection to the same server has done that for one that is in a hurry.
        if !self.replicated {
            server::check(&mut server, self.ack).await?;
            self.greet(&mut server).await?;
        }
        *current = Some(server.clone());
        Ok(server)
    }

    async fn send(&self, command: &Cmd, mut server: MultiplexedConnection) -> Result<Vec<u8>, RedisError> {
        let told = command.query_async(&mut server).await?;
        if self.replicated {
            let wait = redis::cmd("WAIT").arg(1).arg(REPLICATION.as_millis()).to_owned();
            // On the same connection: what is waited for is what was written there.
            let replicas: u32 = wait.query_async(&mut server).await?;
            if replicas == 0 {
                return Err(RedisError::from((ErrorKind::Client, "no replica has it (store.ack)")));
            }
        }
        Ok(told)
    }

    /// Makes functions and rules known to a server. One without memory takes nothing, but may have them already.
    async fn greet(&self, server: &mut MultiplexedConnection) -> Result<(), RedisError> {
        let loaded = redis::cmd("FUNCTION").arg("LOAD").arg(&functions::ALL.source).exec_async(server).await;
        match loaded {
            Err(error) if is_out_of_memory(&error) => Ok(()),
            Err(error) if !is_loaded(&error) => Err(error),
            _ => self.rules.query_async(server).await,
        }
    }
}

/// Whether a server did not know the function, or not the rules under which it was to run.
fn is_forgotten(error: &RedisError) -> bool {
    error.code() == Some("NORULES") || error.detail() == Some("Function not found")
}

fn is_out_of_memory(error: &RedisError) -> bool {
    error.code() == Some("OOM")
}

/// Whether a server has the library already.
fn is_loaded(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.ends_with("already exists"))
}

pub(super) fn unavailable(error: &RedisError) -> StoreError {
    let cause = Arc::from(error.to_string());
    match error.kind() {
        ErrorKind::InvalidClientConfig => StoreError::Stopped { cause },
        _ => StoreError::Unavailable { cause },
    }
}
