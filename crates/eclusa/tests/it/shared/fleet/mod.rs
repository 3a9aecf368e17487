//! Three processes on one Redis under load, with an upstream that counts calls: whatever is killed, nothing acknowledged is
//! lost, no limit is exceeded, and only the jobs of a killed process run twice.
//!
//! The short forms run with all other tests; `ECLUSA_LONG=1` (`make test-all`) runs the full counts.

mod connections;
mod load;
mod owner;
mod replica;
mod returning;
mod room;
mod rules;
mod server;
mod settling;
mod upstream;
mod waiting;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use self::load::{Accepted, Load};
use self::upstream::{Counter, LIMITED, check_limits, check_repeats, is_of};
use self::wire::Wire;
use crate::program::{Answer as Response, PATIENCE, Program};
use crate::redis_server::RedisServer;

const TERM: &str = "eclusa:{main}:term";
const JOURNAL: &str = "eclusa:{main}:journal";
const CLAIMS: &str = "eclusa:{main}:claims";
/// The log message when a process becomes the owner.
const DECIDES: &str = "This process is the owner now";

/// How often something is done in the short and in the full form.
pub(crate) fn times(short: usize, full: usize) -> usize {
    if std::env::var_os("ECLUSA_LONG").is_some() { full } else { short }
}

/// How processes are started.
#[derive(Clone, Copy)]
struct Setup {
    term: &'static str,
    /// Whether each reaches the server through a [`Wire`].
    wired: bool,
    /// Further lanes.
    lanes: &'static str,
    /// After how many failures the breaker of every upstream opens; there are none.
    failures: u32,
}

impl Default for Setup {
    fn default() -> Self {
        Self { term: "500ms", wired: false, lanes: "", failures: 50 }
    }
}

/// Processes on one Redis, each with a name that the upstream sees.
struct Fleet {
    redis: RedisServer,
    upstream: Counter,
    setup: Setup,
    programs: BTreeMap<String, Program>,
    wires: BTreeMap<String, Wire>,
    /// Processes that were killed.
    killed: BTreeSet<String>,
    started: usize,
}

impl Fleet {
    async fn start(redis: RedisServer, size: usize) -> Self {
        Self::with(redis, size, Setup::default()).await
    }

    async fn with(redis: RedisServer, size: usize, setup: Setup) -> Self {
        let mut fleet = Self {
            redis,
            upstream: Counter::start().await,
            setup,
            programs: BTreeMap::new(),
            wires: BTreeMap::new(),
            killed: BTreeSet::new(),
            started: 0,
        };
        for _ in 0..size {
            fleet.add().await;
        }
        fleet
    }

    /// Starts one more process and waits until it is ready.
    async fn add(&mut self) -> String {
        self.started += 1;
        let name = format!("p{}", self.started);
        let url = if self.setup.wired {
            let wire = Wire::to(&self.redis).await;
            self.wires.entry(name.clone()).or_insert(wire).url()
        } else {
            self.redis.url()
        };
        let Setup { term, lanes, failures, .. } = self.setup;
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{url}\"\nterm = \"{term}\"\n[workers]\nlease = \"3s\"\n\
             {}{lanes}",
            self.upstream.rules(&name, failures),
        );
        let program = Program::start(&config, &[]).await;
        program.until("/readyz", |answer| answer.status == 200).await;
        self.programs.insert(name.clone(), program);
        name
    }

    /// The owner.
    async fn owner(&self) -> String {
        let find = async {
            loop {
                let epoch = self.redis.command(&["HGET", TERM, "epoch"]);
                let owns = |program: &Program| {
                    program.log().iter().any(|line| {
                        line["message"] == DECIDES && line["epoch"].as_u64() == epoch.parse().ok()
                    })
                };
                if let Some((name, _)) = self.programs.iter().find(|(_, program)| owns(program)) {
                    return name.clone();
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, find).await.unwrap()
    }

    /// How often the live processes became owners.
    fn takeovers(&self) -> usize {
        let lines = self.programs.values().flat_map(Program::log);
        lines.filter(|line| line["message"] == DECIDES).count()
    }

    /// The last log lines of the live processes, to debug a failing test.
    fn last_words(&self) -> String {
        let mut words = String::new();
        for (name, program) in &self.programs {
            let log = program.log();
            let said: Vec<_> = log.iter().filter(|line| line["message"] != "Job completed").collect();
            for line in &said[said.len().saturating_sub(40)..] {
                writeln!(words, "{name} {line}").unwrap();
            }
        }
        words
    }

    /// Asks a process to stop and waits for its end.
    async fn stop(&mut self, name: &str) {
        self.programs.remove(name).unwrap().stop().await;
    }

    async fn kill(&mut self, name: &str) {
        self.killed.insert(name.to_owned());
        self.programs.remove(name).unwrap().kill().await;
    }

    /// Waits until `count` more calls are made.
    async fn calls_go_on(&self, more: usize) {
        let wanted = self.upstream.count() + more;
        let go_on = async {
            while self.upstream.count() < wanted {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, go_on).await.unwrap();
    }

    /// Checks that every acknowledged job was called or waits for its limit, that only jobs of a killed process were called
    /// twice, and that no limit was exceeded.
    async fn check(&self, accepted: &Accepted) {
        let program = self.programs.values().next().unwrap();
        // Otherwise their jobs would start while they are counted.
        for lane in LIMITED {
            program.pause(lane).await;
        }
        self.idle().await;
        let calls = self.upstream.calls();
        check_repeats(&calls, &self.killed);
        check_limits(&calls);
        let mut lost = Vec::new();
        for (path, id) in accepted.iter().filter(|(path, _)| !calls.contains_key(*path)) {
            let waits = LIMITED.iter().any(|lane| is_of(lane, path))
                && program.get(&format!("/v1/jobs/{id}")).await.json()["status"] == "queued";
            lost.extend((!waits).then_some(path));
        }
        assert!(!accepted.is_empty() && lost.is_empty(), "{} accepted, lost: {lost:?}", accepted.len());
    }

    /// Waits until nothing waits or runs, except jobs that wait for a limit.
    async fn idle(&self) {
        let idle = |answer: &Response, waiting: bool| {
            let lane = answer.json();
            answer.status == 200
                && lane["processing"] == 0
                && lane["pending"] == 0
                && (waiting || lane["queued"]["normal"] == 0)
        };
        let program = self.programs.values().next().unwrap();
        let work = async {
            while !idle(&program.get("/v1/lanes/work").await, false) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let patience = PATIENCE * u32::try_from(times(1, 10)).unwrap();
        let ended = tokio::time::timeout(patience, work).await;
        assert!(ended.is_ok(), "jobs are left\n{}", self.last_words());
        for lane in LIMITED {
            program.until(&format!("/v1/lanes/{lane}"), |answer| idle(answer, true)).await;
        }
    }
}
