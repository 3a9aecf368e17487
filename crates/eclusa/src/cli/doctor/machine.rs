//! Checks this machine: its ports and its limits.

use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};

use super::Finding;
use crate::config::Config;

/// Open files besides connections and calls: the journal, Redis, the log.
const OTHER_FILES: u64 = 100;

/// Whether the port is free.
pub(super) fn listen(address: SocketAddr) -> Finding {
    match TcpListener::bind(address) {
        Ok(_) => Finding::ok("listen", format!("{address} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let fix = "nothing if Eclusa is already running there; otherwise choose another `server.listen`";
            Finding::warning("listen", format!("{address} is in use"), fix)
        }
        Err(error) => {
            let fix = "set `server.listen` to an address of this machine, with a port above 1023";
            Finding::error("listen", format!("cannot listen on {address}: {error}"), fix)
        }
    }
}

/// Whether enough files may be open at once, with the default limits if there is no config. `None` if the system does not
/// report the limit.
pub(super) fn files(config: Option<&Config>) -> Option<Finding> {
    let limit = open_files(&fs::read_to_string("/proc/self/limits").ok()?)?;
    let default = || Config::parse("", "", &|_| None).ok();
    let config = config.cloned().or_else(default)?;
    let needed = config.server.max_connections + 2 * config.workers.concurrency;
    Some(judge_files(limit, needed as u64 + OTHER_FILES))
}

/// The soft limit; `u64::MAX` if unlimited.
fn open_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

fn judge_files(limit: u64, needed: u64) -> Finding {
    if limit >= needed {
        return Finding::ok("file limit", format!("up to {needed} open files are needed and allowed"));
    }
    let fix = format!(
        "`ulimit -n {needed}`, `LimitNOFILE={needed}` in a systemd unit, or a lower `server.max_connections`"
    );
    let found = format!("{limit} open files are allowed, but up to {needed} may be needed");
    Finding::warning("file limit", found, fix)
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn the_soft_limit_decides() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max processes             7                    7                    processes\n\
                      Max open files            1024                 524288               files\n";
        assert_eq!(open_files(limits), Some(1_024));
        assert_eq!(
            open_files("Max open files            unlimited            unlimited  files\n"),
            Some(u64::MAX)
        );
        assert_eq!(judge_files(1_024, 1_024).level, Level::Ok);
        assert_eq!(judge_files(1_023, 1_024).level, Level::Warning);
    }
}
