//! What a server must be like, as it tells of itself.

use std::collections::BTreeMap;

use redis::{Connection, ErrorKind, RedisError};

use crate::store::Ack;

/// The first version with what the scripts need.
const OLDEST: u32 = 7;

/// What a server must promise.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Promise {
    pub(in crate::store) ack: Ack,
    /// Whether jobs are kept there: a server that throws things away is refused then, else only warned of.
    pub(in crate::store) keeps_jobs: bool,
}

/// Refuses a server that cannot keep what it is given, and warns of one that keeps it only until it ends.
pub(super) fn check(told: &str, promise: Promise, server: &mut Connection) -> Result<(), RedisError> {
    let refuse =
        |problem| Err(RedisError::from((ErrorKind::InvalidClientConfig, "it cannot be used", problem)));
    if let Some(problem) = too_old(told) {
        return refuse(problem);
    }
    match evicts(told) {
        Some(problem) if promise.keeps_jobs => return refuse(problem),
        Some(problem) => tracing::warn!("Limits may be forgotten: {problem}"),
        None => {}
    }
    if promise.ack == Ack::Fsync
        && let Some(problem) = unsynced(told, server)?
    {
        return refuse(problem);
    }
    if field(told, "aof_enabled") == Some("0") {
        tracing::warn!(
            "Redis keeps no append-only file: what it holds is lost when it ends. Set `appendonly yes` there"
        );
    }
    Ok(())
}

pub(super) fn too_old(told: &str) -> Option<String> {
    let version = field(told, "valkey_version").or(field(told, "redis_version")).unwrap_or_default();
    let major: u32 = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or_default();
    (major < OLDEST).then(|| format!("it is version {version:?}, and {OLDEST}.0 or newer is needed"))
}

fn evicts(told: &str) -> Option<String> {
    let policy = field(told, "maxmemory_policy").unwrap_or("noeviction");
    (policy != "noeviction").then(|| {
        format!("its `maxmemory-policy` is {policy}, which throws jobs away when memory is short: set `noeviction`")
    })
}

/// Why what this server has accepted may not be on its disk. How often it syncs is not in `INFO`.
pub(super) fn unsynced(told: &str, server: &mut Connection) -> Result<Option<String>, RedisError> {
    let wants = "`store.ack = \"fsync\"` needs `appendonly yes` and `appendfsync always` there";
    if field(told, "aof_enabled") != Some("1") {
        return Ok(Some(format!("it keeps no append-only file, and {wants}")));
    }
    let asked = redis::cmd("CONFIG").arg("GET").arg("appendfsync").query(server);
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

/// A field of what a server tells.
pub(super) fn field<'a>(told: &'a str, name: &str) -> Option<&'a str> {
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
        assert_eq!(
            (too_old(&told("7.0.15", "noeviction")), evicts(&told("7.0.15", "noeviction"))),
            (None, None)
        );
        assert!(too_old(&told("6.2.1", "noeviction")).unwrap().contains("6.2.1"));
        assert!(evicts(&told("7.2.0", "allkeys-lru")).unwrap().contains("allkeys-lru"));
        let valkey = "redis_version:7.2.4\r\nvalkey_version:9.1.0\r\nmaxmemory_policy:noeviction\r\n";
        assert_eq!(too_old(valkey), None);
    }
}
