//! Version and resource usage of this process, with the names that all Prometheus clients use. Read from `/proc`;
//! without it, these metrics are absent.

use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::logs::dropped_lines;
use super::refusals::refused;
use super::snapshot::{counters, gauges};

/// Ticks per second in `/proc`: fixed for user programs on Linux, independent of the kernel's timer.
const TICKS_PER_SECOND: f64 = 100.0;

/// Read at each scrape.
#[derive(Debug)]
pub(super) struct ProcessMetrics;

/// What `/proc` reports about this process.
#[derive(Debug, PartialEq)]
struct Usage {
    cpu_seconds: f64,
    resident_bytes: u64,
    open_fds: u64,
    /// Seconds since the Unix epoch.
    started: f64,
}

impl Usage {
    fn read() -> Option<Self> {
        let open_fds = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
        let [stat, status, system] =
            ["/proc/self/stat", "/proc/self/status", "/proc/stat"].map(|file| fs::read_to_string(file).ok());
        Self::parse(&stat?, &status?, &system?, open_fds)
    }

    fn parse(stat: &str, status: &str, system: &str, open_fds: u64) -> Option<Self> {
        // The program's name is in parentheses and may contain anything.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        // Fields are numbered from 3, the state.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let value = |text: &str, name: &str| -> Option<u64> {
            text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
        };
        #[expect(clippy::cast_precision_loss, reason = "seconds since the epoch")]
        let booted = value(system, "btime")? as f64;
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / TICKS_PER_SECOND,
            resident_bytes: value(status, "VmRSS:")? * 1_024,
            open_fds,
            started: booted + field(22)? / TICKS_PER_SECOND,
        })
    }
}

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        gauges(
            &mut encoder,
            "eclusa_build_info",
            "Always 1, with the program's version",
            vec![(version, 1_u64)],
        )?;
        let refused = refused().map(|(reason, count)| (vec![("reason", reason)], count)).to_vec();
        let help = "Requests refused for their key: not valid, or not permitted";
        counters(&mut encoder, "eclusa_refused_requests", help, refused)?;
        let dropped = vec![(Vec::new(), dropped_lines())];
        let help = "Log lines that were dropped because standard error was not read fast enough";
        counters(&mut encoder, "eclusa_log_lines_dropped", help, dropped)?;
        let Some(usage) = Usage::read() else { return Ok(()) };
        let cpu = vec![(Vec::new(), usage.cpu_seconds)];
        counters(&mut encoder, "process_cpu_seconds", "CPU time used by this process", cpu)?;
        let resident = vec![(Vec::new(), usage.resident_bytes)];
        gauges(&mut encoder, "process_resident_memory_bytes", "Resident memory of this process", resident)?;
        let open = vec![(Vec::new(), usage.open_fds)];
        gauges(&mut encoder, "process_open_fds", "Open file descriptors of this process", open)?;
        let help = "When this process started, in seconds since the Unix epoch";
        gauges(&mut encoder, "process_start_time_seconds", help, vec![(Vec::new(), usage.started)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_parsed_for_any_program_name() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 9 0 12345 99 88 77";
        let status = "Name:\tx\nVmRSS:\t    2048 kB\n";
        let usage = Usage::parse(stat, status, "cpu 1\nbtime 1700000000\n", 12);
        let expected =
            Usage { cpu_seconds: 3.0, resident_bytes: 2 << 20, open_fds: 12, started: 1_700_000_123.45 };
        assert_eq!(usage, Some(expected));
    }

    #[test]
    fn this_process_is_read() {
        let usage = Usage::read().unwrap();
        assert!(usage.resident_bytes > 1 << 20 && usage.open_fds > 2 && usage.started > 1.7e9, "{usage:?}");
    }
}
