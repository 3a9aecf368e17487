//! Checks the store that the config names.

use std::fs;
use std::path::Path;

use eclusa_core::Clock;
use redis::{ErrorKind, RedisError};

use super::Finding;
use crate::SystemClock;
use crate::config::{Ack, Config, StoreConfig, StoreUrl};
use crate::store::{self, Examined};

/// A larger clock difference makes times in the log and the API misleading, and schedules late.
const CLOCK_MS: u64 = 1_000;
/// Free disk space below the first is a warning; below the second, the journal soon cannot grow.
const LOW_DISK: u64 = 1 << 30;
const NO_DISK: u64 = 100 << 20;

/// Checks the store without changing it.
pub(in crate::cli) fn examine(config: &Config) -> Vec<Finding> {
    match &config.store.url {
        StoreUrl::Memory => {
            let fix = "for anything but a trial, set `store.url` to \"embedded:./data\" or `redis://…`";
            vec![Finding::warning("store", "memory: everything is lost when the process ends", fix)]
        }
        StoreUrl::Embedded(dir) => directory(dir),
        StoreUrl::Redis(url) => match store::examine(url.reveal(), &config.store) {
            Ok(examined) => server(&examined, &config.store, !config.spec.lanes().is_empty()),
            Err(error) => vec![unreached(&config.store, &error)],
        },
    }
}

fn directory(dir: &Path) -> Vec<Finding> {
    // A missing directory is created at startup, so check its nearest existing parent.
    let Some(there) = dir.ancestors().find(|part| part.exists() || part.as_os_str().is_empty()) else {
        return Vec::new();
    };
    let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
    let trial = there.join(format!(".eclusa-doctor-{}", std::process::id()));
    let written = fs::write(&trial, b"").and_then(|()| fs::remove_file(&trial));
    let at = format!("embedded:{}", dir.display());
    let found = match written {
        Ok(()) if dir.exists() => Finding::ok("store", format!("{at} is writable")),
        Ok(()) => Finding::ok("store", format!("{at} will be created")),
        Err(error) => {
            let fix = format!("give the user that runs Eclusa write access to {}", there.display());
            Finding::error("store", format!("{at} is not writable: {error}"), fix)
        }
    };
    [Some(found), disk(there)].into_iter().flatten().collect()
}

/// The free disk space; `None` if the system does not report it.
fn disk(dir: &Path) -> Option<Finding> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(judge_disk(stat.f_bavail.saturating_mul(stat.f_frsize)))
}

fn judge_disk(free: u64) -> Finding {
    let found = format!("{} free", size(free));
    let fix = "free disk space, or move `store.url` to a larger disk";
    if free < NO_DISK {
        Finding::error("disk", found, fix)
    } else if free < LOW_DISK {
        Finding::warning("disk", found, fix)
    } else {
        Finding::ok("disk", found)
    }
}

fn size(bytes: u64) -> String {
    let mib = bytes >> 20;
    if mib >= 10 << 10 { format!("{} GiB", mib >> 10) } else { format!("{mib} MiB") }
}

fn unreached(store: &StoreConfig, error: &RedisError) -> Finding {
    let (found, fix) = match error.code() {
        Some("NOAUTH") => ("requires a password", "add it to `store.url`: redis://:PASSWORD@HOST:PORT"),
        Some("NOPERM") => (
            "denies this user a permission that is needed",
            "see docs/how-to/more-than-one-process.md for the ACL",
        ),
        _ if error.kind() == ErrorKind::AuthenticationFailed => {
            ("does not accept the user and password", "correct them in `store.url`")
        }
        _ => ("cannot be used", "start the server there, or correct `store.url`"),
    };
    Finding::error("store", format!("{} {found}: {error}", store.url), fix)
}

fn server(server: &Examined, store: &StoreConfig, holds_lanes: bool) -> Vec<Finding> {
    let mut found = vec![match &server.too_old {
        None => Finding::ok("store", format!("{} responds: {}", store.url, server.version)),
        Some(problem) => Finding::error("store", problem.clone(), "upgrade it"),
    }];
    if server.is_replica {
        let fix = "set `store.url` to the primary";
        found.push(Finding::error("store", "it is a replica, which accepts no writes", fix));
    }
    if store.ack == Ack::Replicate && server.replicas == 0 {
        let fix = "start a replica, or change `store.ack`";
        let problem = "it has no replica, but `store.ack = \"replicate\"` waits for one";
        found.push(Finding::error("store", problem, fix));
    }
    found.extend([
        password(store),
        persistence(server),
        eviction(server, holds_lanes),
        memory(server),
        clock(server),
    ]);
    found
}

fn password(store: &StoreConfig) -> Finding {
    let StoreUrl::Redis(url) = &store.url else { return Finding::ok("password", "not needed") };
    let host = store.url.to_string();
    let local = ["://localhost", "://127.", "://[::1]"].iter().any(|local| host.contains(local));
    if url.reveal().contains('@') {
        Finding::ok("password", "accepted")
    } else if local {
        Finding::ok("password", "none, on this machine")
    } else {
        let fix = "set `requirepass` or an ACL user on the server, and add it to `store.url`";
        Finding::warning(
            "password",
            "none: anyone who can reach the server can read and change everything",
            fix,
        )
    }
}

fn persistence(server: &Examined) -> Finding {
    if let Some(problem) = &server.unsynced {
        return Finding::error(
            "aof",
            problem.clone(),
            "set it on the server, or set `store.ack = \"write\"`",
        );
    }
    if server.aof_off {
        let problem = "off: all data is lost when the server stops";
        return Finding::warning(
            "aof",
            problem,
            "set `appendonly yes` on the server, as in deploy/redis/redis.conf",
        );
    }
    Finding::ok("aof", "on")
}

fn eviction(server: &Examined, holds_lanes: bool) -> Finding {
    let (policy, fix) = (&server.eviction, "set `maxmemory-policy noeviction` on the server");
    match policy.as_str() {
        "noeviction" => Finding::ok("eviction", "noeviction"),
        _ if holds_lanes => {
            Finding::error("eviction", format!("{policy} discards jobs when memory is short"), fix)
        }
        _ => Finding::warning("eviction", format!("{policy} discards limits when memory is short"), fix),
    }
}

fn memory(server: &Examined) -> Finding {
    let used = server.used_memory;
    let Some(most) = server.max_memory else {
        let fix = "set `maxmemory` on the server, below the machine's memory: intake stops at 90 % of it";
        return Finding::warning("memory", format!("{} used, without a limit", size(used)), fix);
    };
    let found = format!("{} of {} used", size(used), size(most));
    let fix = "raise `maxmemory`, or lower the capacity of lanes";
    match used.saturating_mul(10) / most {
        9.. => Finding::error("memory", format!("{found}: nothing is accepted above 90 %"), fix),
        8 => Finding::warning("memory", found, fix),
        _ => Finding::ok("memory", found),
    }
}

fn clock(server: &Examined) -> Finding {
    let off = server.ahead_ms.unsigned_abs();
    if off <= CLOCK_MS {
        return Finding::ok("clock", format!("within {off} ms of the server's"));
    }
    let way = if server.ahead_ms > 0 { "behind" } else { "ahead of" };
    let now = crate::words::iso(SystemClock.now()).unwrap_or_default();
    let found = format!("{now} here is {} s {way} the server's", off / 1_000);
    Finding::warning("clock", found, "synchronise both machines with NTP")
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn fine() -> Examined {
        Examined {
            version: "Redis 7.0.15".into(),
            too_old: None,
            unsynced: None,
            aof_off: false,
            eviction: "noeviction".into(),
            used_memory: 100 << 20,
            max_memory: Some(1 << 30),
            is_replica: false,
            replicas: 0,
            ahead_ms: 0,
        }
    }

    fn config(store: &str) -> StoreConfig {
        Config::parse("test.toml", &format!("[store]\n{store}\n"), &|_| None).unwrap().store
    }

    /// The findings that are not ok.
    fn wrong(examined: &Examined, store: &str, holds_lanes: bool) -> Vec<(String, Level)> {
        let found = server(examined, &config(store), holds_lanes);
        found.into_iter().filter(|one| one.level != Level::Ok).map(|one| (one.check, one.level)).collect()
    }

    #[test]
    fn each_problem_of_a_server_is_found() {
        const LOCAL: &str = "url = \"redis://127.0.0.1:6379\"";
        assert_eq!(wrong(&fine(), LOCAL, true), []);
        let one = |change: &dyn Fn(&mut Examined)| {
            let mut examined = fine();
            change(&mut examined);
            wrong(&examined, LOCAL, true)
        };
        let is = |check: &str, level| vec![(check.to_owned(), level)];
        assert_eq!(one(&|server| server.too_old = Some("old".into())), is("store", Level::Error));
        assert_eq!(one(&|server| server.is_replica = true), is("store", Level::Error));
        assert_eq!(one(&|server| server.aof_off = true), is("aof", Level::Warning));
        assert_eq!(one(&|server| server.unsynced = Some("not".into())), is("aof", Level::Error));
        assert_eq!(one(&|server| server.eviction = "allkeys-lru".into()), is("eviction", Level::Error));
        assert_eq!(one(&|server| server.max_memory = None), is("memory", Level::Warning));
        assert_eq!(one(&|server| server.used_memory = 850 << 20), is("memory", Level::Warning));
        assert_eq!(one(&|server| server.used_memory = 950 << 20), is("memory", Level::Error));
        assert_eq!(one(&|server| server.ahead_ms = -5_000), is("clock", Level::Warning));
        let evicting = Examined { eviction: "allkeys-lru".into(), ..fine() };
        assert_eq!(wrong(&evicting, LOCAL, false), is("eviction", Level::Warning), "there are no jobs");
        let remote = "url = \"redis://db.example:6379\"";
        assert_eq!(wrong(&fine(), remote, true), is("password", Level::Warning));
        assert_eq!(wrong(&fine(), "url = \"redis://:secret@db.example:6379\"", true), []);
        assert_eq!(wrong(&fine(), &format!("{LOCAL}\nack = \"replicate\""), true), is("store", Level::Error));
    }

    #[test]
    fn a_disk_is_judged_by_its_free_space() {
        let levels = [50 << 20, 500 << 20, 50 << 30].map(|free| judge_disk(free).level);
        assert_eq!(levels, [Level::Error, Level::Warning, Level::Ok]);
    }
}
