//! The state of the server, for alerts. The connection is kept, so that a server that refuses new ones can still be
//! asked.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, RedisError};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::server::field;

/// What a server reports about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerFacts {
    /// Millionths of `maxmemory` in use; `None` if it has no bound.
    pub(crate) memory_share_micros: Option<u64>,
    /// Connections refused since it started.
    pub(crate) rejected_connections: Option<u64>,
    /// Whether it keeps no append-only file.
    pub(crate) aof_off: bool,
    /// Whether it removes keys when its memory is full.
    pub(crate) evicts: bool,
}

impl ServerFacts {
    fn read(info: &str) -> Self {
        let number = |name| field(info, name).and_then(|value| value.parse::<u64>().ok());
        let most = number("maxmemory").filter(|most| *most > 0);
        let share = |most: u64| {
            let used = u128::from(number("used_memory")?) * 1_000_000 / u128::from(most);
            u64::try_from(used).ok()
        };
        Self {
            memory_share_micros: most.and_then(share),
            rejected_connections: number("rejected_connections"),
            aof_off: field(info, "aof_enabled") == Some("0"),
            evicts: field(info, "maxmemory_policy").is_some_and(|policy| policy != "noeviction"),
        }
    }
}

/// See the module.
pub(in crate::store) struct Inspector {
    client: Client,
    timeout: Duration,
    open: Mutex<Option<MultiplexedConnection>>,
}

impl Inspector {
    pub(in crate::store) fn new(client: Client, timeout: Duration) -> Self {
        Self { client, timeout, open: Mutex::default() }
    }

    /// Asks the server; `None` if it does not reply.
    pub(in crate::store) async fn look(&self) -> Option<ServerFacts> {
        let mut open = self.open.lock().await;
        let asked = timeout(self.timeout, self.ask(&mut open)).await;
        if let Ok(Ok(info)) = asked {
            return Some(ServerFacts::read(&info));
        }
        *open = None;
        None
    }

    async fn ask(&self, open: &mut Option<MultiplexedConnection>) -> Result<String, RedisError> {
        let connection = match open {
            Some(connection) => connection,
            none => none.insert(self.client.get_multiplexed_async_connection().await?),
        };
        redis::cmd("INFO").query_async(connection).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_info_of_a_server_is_parsed() {
        let info = "# Memory\r\nused_memory:850\r\nmaxmemory:1000\r\nmaxmemory_policy:allkeys-lru\r\n# Persistence\r\n\
                    aof_enabled:0\r\n# Stats\r\nrejected_connections:7\r\n";
        let facts = ServerFacts {
            memory_share_micros: Some(850_000),
            rejected_connections: Some(7),
            aof_off: true,
            evicts: true,
        };
        assert_eq!(ServerFacts::read(info), facts);
        let facts = ServerFacts::read(
            "used_memory:850\r\nmaxmemory:0\r\naof_enabled:1\r\nmaxmemory_policy:noeviction\r\n",
        );
        assert_eq!((facts.memory_share_micros, facts.aof_off, facts.evicts), (None, false, false));
    }
}
