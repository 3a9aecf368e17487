//! Examines a server, for the operator who sets it up.

use std::time::Duration;

use eclusa_core::Clock;
use redis::{Client, Connection, RedisError};

use super::server::{field, too_old, unsynced};
use crate::SystemClock;
use crate::store::Ack;

/// What a server reports about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Examined {
    /// Name and version, such as `Redis 7.0.15`.
    pub(crate) version: String,
    /// Why it is too old, if it is.
    pub(crate) too_old: Option<String>,
    /// Why accepted data may not be on its disk, if `store.ack` requires that.
    pub(crate) unsynced: Option<String>,
    /// Whether it keeps no append-only file.
    pub(crate) aof_off: bool,
    /// Its `maxmemory-policy`.
    pub(crate) eviction: String,
    /// Bytes in use.
    pub(crate) used_memory: u64,
    /// Its `maxmemory`; `None` if it has no bound.
    pub(crate) max_memory: Option<u64>,
    /// Whether it is a replica, which accepts no writes.
    pub(crate) is_replica: bool,
    /// Replicas that follow it.
    pub(crate) replicas: u64,
    /// How far its clock is ahead of this machine's, in milliseconds.
    pub(crate) ahead_ms: i64,
}

/// Asks the server; fails if it cannot be reached or refuses the connection.
pub(in crate::store) fn examine(
    client: &Client,
    timeout: Duration,
    ack: Ack,
) -> Result<Examined, RedisError> {
    let mut server = client.get_connection_with_timeout(timeout)?;
    server.set_read_timeout(Some(timeout))?;
    server.set_write_timeout(Some(timeout))?;
    let info: String = redis::cmd("INFO").query(&mut server)?;
    let unsynced = if ack == Ack::Fsync { unsynced(&info, &mut server)? } else { None };
    let ahead_ms = ahead(&mut server)?;
    Ok(Examined { unsynced, ahead_ms, ..read(&info) })
}

fn read(info: &str) -> Examined {
    let number = |name| field(info, name).and_then(|value| value.parse::<u64>().ok());
    let (name, version) = match field(info, "valkey_version") {
        Some(version) => ("Valkey", version),
        None => ("Redis", field(info, "redis_version").unwrap_or("of unknown version")),
    };
    Examined {
        version: format!("{name} {version}"),
        too_old: too_old(info),
        unsynced: None,
        aof_off: field(info, "aof_enabled") == Some("0"),
        eviction: field(info, "maxmemory_policy").unwrap_or("noeviction").to_owned(),
        used_memory: number("used_memory").unwrap_or_default(),
        max_memory: number("maxmemory").filter(|most| *most > 0),
        is_replica: field(info, "role") == Some("slave"),
        replicas: number("connected_slaves").unwrap_or_default(),
        ahead_ms: 0,
    }
}

/// How far the server's clock is ahead. The reply is assumed to be half a round trip old.
fn ahead(server: &mut Connection) -> Result<i64, RedisError> {
    let before = SystemClock.now().as_millis();
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(server)?;
    let here = before.midpoint(SystemClock.now().as_millis());
    let there = seconds * 1_000 + micros / 1_000;
    Ok(i64::try_from(there).unwrap_or(i64::MAX) - i64::try_from(here).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_info_of_a_server_is_parsed() {
        let info = "redis_version:7.2.4\r\nvalkey_version:9.1.0\r\nused_memory:850\r\nmaxmemory:0\r\n\
                    maxmemory_policy:allkeys-lru\r\naof_enabled:0\r\nrole:slave\r\nconnected_slaves:2\r\n";
        let examined = read(info);
        assert_eq!((examined.version.as_str(), examined.too_old), ("Valkey 9.1.0", None));
        assert_eq!((examined.used_memory, examined.max_memory, examined.replicas), (850, None, 2));
        assert_eq!((examined.eviction.as_str(), examined.aof_off), ("allkeys-lru", true));
        assert!(examined.is_replica);
        let old = read("redis_version:6.2.1\r\nmaxmemory:1000\r\naof_enabled:1\r\nrole:master\r\n");
        assert!(old.too_old.unwrap().contains("6.2.1"));
        assert_eq!((old.max_memory, old.aof_off, old.is_replica), (Some(1_000), false, false));
    }
}
