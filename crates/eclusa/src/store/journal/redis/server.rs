//! Requirements on a server, checked against what it reports about itself.

use std::collections::BTreeMap;

use redis::{Connection, ErrorKind, RedisError};

use crate::store::Ack;

/// The first major version that has what the scripts need.
const OLDEST: u32 = 7;

/// What a server must guarantee.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) struct Promise {
    pub(in crate::store) ack: Ack,
    /// Whether jobs are kept there: an evicting server is then refused, otherwise only logged.
    pub(in crate::store) keeps_jobs: bool,
}

/// Refuses a server that may lose data while it runs, and warns about one that loses it when it stops.
pub(super) fn check(info: &str, promise: Promise, server: &mut Connection) -> Result<(), RedisError> {
    let refuse =
        |problem| Err(RedisError::from((ErrorKind::InvalidClientConfig, "it cannot be used", problem)));
    if let Some(problem) = too_old(info) {
        return refuse(problem);
    }
    match evicts(info) {
        Some(problem) if promise.keeps_jobs => return refuse(problem),
        Some(problem) => tracing::warn!("Redis may evict limits: {problem}"),
        None => {}
    }
    if promise.ack == Ack::Fsync
        && let Some(problem) = unsynced(info, server)?
    {
        return refuse(problem);
    }
    if field(info, "aof_enabled") == Some("0") {
        tracing::warn!(
            "Redis keeps no append-only file: its data is lost when it stops. Set `appendonly yes` there"
        );
    }
    Ok(())
}

pub(super) fn too_old(info: &str) -> Option<String> {
    let version = field(info, "valkey_version").or(field(info, "redis_version")).unwrap_or_default();
    let major: u32 = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or_default();
    (major < OLDEST).then(|| format!("it is version {version:?}, and {OLDEST}.0 or newer is needed"))
}

fn evicts(info: &str) -> Option<String> {
    let policy = field(info, "maxmemory_policy").unwrap_or("noeviction");
    (policy != "noeviction").then(|| {
        format!(
            "its `maxmemory-policy` is {policy}, which evicts data when memory is short: set `noeviction`"
        )
    })
}

/// Why accepted data may not be on the server's disk. How often it syncs is not in `INFO`.
pub(super) fn unsynced(info: &str, server: &mut Connection) -> Result<Option<String>, RedisError> {
    let wants = "`store.ack = \"fsync\"` needs `appendonly yes` and `appendfsync always` there";
    if field(info, "aof_enabled") != Some("1") {
        return Ok(Some(format!("it keeps no append-only file, and {wants}")));
    }
    let asked = redis::cmd("CONFIG").arg("GET").arg("appendfsync").query(server);
    let settings: BTreeMap<String, String> = match asked {
        // Other errors mean that the server does not say.
        Err(error) if error.is_io_error() || error.is_connection_dropped() => return Err(error),
        asked => asked.unwrap_or_default(),
    };
    Ok(match settings.get("appendfsync").map(String::as_str) {
        Some("always") => None,
        Some(other) => Some(format!("its `appendfsync` is {other}, and {wants}")),
        None => Some(format!("it does not report its `appendfsync` (CONFIG GET), and {wants}")),
    })
}

/// A field of `INFO`.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_evicting_servers_are_refused() {
        let info = |version: &str, policy: &str| {
            format!("# Server\r\nredis_version:{version}\r\n# Memory\r\nmaxmemory_policy:{policy}\r\n")
        };
        assert_eq!(
            (too_old(&info("7.0.15", "noeviction")), evicts(&info("7.0.15", "noeviction"))),
            (None, None)
        );
        assert!(too_old(&info("6.2.1", "noeviction")).unwrap().contains("6.2.1"));
        assert!(evicts(&info("7.2.0", "allkeys-lru")).unwrap().contains("allkeys-lru"));
        let valkey = "redis_version:7.2.4\r\nvalkey_version:9.1.0\r\nmaxmemory_policy:noeviction\r\n";
        assert_eq!(too_old(valkey), None);
    }
}
