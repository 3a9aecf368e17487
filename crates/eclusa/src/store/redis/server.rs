//! What a server must be like, as it tells of itself.

use std::collections::BTreeMap;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError};

use crate::store::Ack;

/// The first version with what the functions need.
const OLDEST: u32 = 7;

/// Refuses a server that cannot keep what it is given, and warns of one that keeps it only until it ends.
pub(super) async fn check(server: &mut MultiplexedConnection, ack: Ack) -> Result<(), RedisError> {
    let told: String = redis::cmd("INFO").query_async(server).await?;
    let mut problem = problem(&told);
    if ack == Ack::Fsync && problem.is_none() {
        problem = unsynced(&told, server).await?;
    }
    if let Some(problem) = problem {
        return Err(RedisError::from((ErrorKind::InvalidClientConfig, "it cannot be used", problem)));
    }
    if field(&told, "aof_enabled") == Some("0") {
        tracing::warn!(
            "Redis keeps no append-only file: what it holds is lost when it ends. Set `appendonly yes` there"
        );
    }
    Ok(())
}

fn problem(told: &str) -> Option<String> {
    let version = field(told, "valkey_version").or(field(told, "redis_version")).unwrap_or_default();
    let major: u32 = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or_default();
    if major < OLDEST {
        return Some(format!("it is version {version:?}, and {OLDEST}.0 or newer is needed"));
    }
    let policy = field(told, "maxmemory_policy").unwrap_or("noeviction");
    (policy != "noeviction").then(|| {
        format!("its `maxmemory-policy` is {policy}, which throws jobs away when memory is short: set `noeviction`")
    })
}

/// Why what this server has accepted may not be on its disk. How often it syncs is not in `INFO`.
async fn unsynced(told: &str, server: &mut MultiplexedConnection) -> Result<Option<String>, RedisError> {
    let wants = "`store.ack = \"fsync\"` needs `appendonly yes` and `appendfsync always` there";
    if field(told, "aof_enabled") != Some("1") {
        return Ok(Some(format!("it keeps no append-only file, and {wants}")));
    }
    let asked = redis::cmd("CONFIG").arg("GET").arg("appendfsync").query_async(server).await;
    let settings: BTreeMap<String, String> = match asked {
        // It is there, but does not tell.
        Err(error) if error.is_io_error() || error.is_connection_dropped() => return Err(error),
        asked => asked.unwrap_or_default(),
    };
    Ok(match settings.get("appendfsync").map(String::as_str) {
        Some("always") => None,
        Some(other) => Some(format!("its `appendfsync` is {other}, and {wants}")),
        None => Some(format!("it does not tell its `appendfsync` (CONFIG GET), and {wants}")),
    })
}

fn field<'a>(told: &'a str, name: &str) -> Option<&'a str> {
    told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_and_those_that_throw_things_away_are_refused() {
        let told = |version: &str, policy: &str| {
            format!("# Server\r\nredis_version:{version}\r\n# Memory\r\nmaxmemory_policy:{policy}\r\n")
        };
        assert_eq!(problem(&told("7.0.15", "noeviction")), None);
        assert!(problem(&told("6.2.1", "noeviction")).unwrap().contains("6.2.1"));
        assert!(problem(&told("7.2.0", "allkeys-lru")).unwrap().contains("allkeys-lru"));
        let valkey = "redis_version:7.2.4\r\nvalkey_version:9.1.0\r\nmaxmemory_policy:noeviction\r\n";
        assert_eq!(problem(valkey), None);
    }
}
