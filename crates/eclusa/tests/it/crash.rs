//! The embedded store is killed under load, hundreds of times, and every acknowledged job is there afterwards.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use eclusa::SystemClock;
use eclusa::store::{Ack, EmbeddedStore};
use eclusa_core::gate::GateSpecs;
use eclusa_core::{Chain, Clock, JobId, Keep, LaneSpec, Name, Span, Spec, Status, Store, Time, UpstreamSpec};
use pollster::block_on;
use tempfile::TempDir;

use crate::shared::fleet::times;

/// Kills per `ack` mode, each after a different number of lines.
const KILLS: usize = 120;
/// Kills per directory; in the long form, all kills use one directory. Everything in it is read at each start.
const KILLS_PER_DIRECTORY: usize = 20;

/// The output of the process before it was killed.
#[derive(Default)]
struct Response {
    accepted: BTreeSet<JobId>,
    settling: BTreeSet<JobId>,
    settled: BTreeSet<JobId>,
    stopped: Option<String>,
}

impl Response {
    fn hear(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap();
        match word {
            "accepted" => drop(self.accepted.insert(rest.parse().unwrap())),
            "settling" => drop(self.settling.insert(rest.parse().unwrap())),
            "settled" => drop(self.settled.insert(rest.parse().unwrap())),
            "stopped" => self.stopped = Some(rest.into()),
            _ => panic!("unexpected line {line:?}"),
        }
    }
}

fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.ancestors().nth(2).unwrap().join("examples/under_load")
}

fn start(dir: &Path, ack: &str, epoch: u64) -> Child {
    let mut command = Command::new(program());
    command.arg(dir).arg(ack).arg(epoch.to_string()).stdout(Stdio::piped()).spawn().unwrap()
}

fn rules() -> Spec {
    let upstream = Name::new("api").unwrap();
    let mut lane = LaneSpec::new(Name::new("work").unwrap(), Chain::new(vec![upstream.clone()]).unwrap());
    lane.keep = Keep { span: Span::from_secs(86_400), max: 1_000_000 };
    Spec::new(vec![lane], vec![UpstreamSpec::new(upstream, GateSpecs::default())]).unwrap()
}

fn open(dir: &Path, ack: Ack) -> EmbeddedStore {
    EmbeddedStore::open(dir, ack, &rules(), Arc::new(SystemClock)).unwrap()
}

struct StoppedClock(Time);

impl Clock for StoppedClock {
    fn now(&self) -> Time {
        self.0
    }
}

/// The state at `now` without the count of openings.
fn recovered(dir: &Path, ack: Ack, now: Time) -> Vec<Vec<u8>> {
    EmbeddedStore::open(dir, ack, &rules(), Arc::new(StoppedClock(now))).unwrap().snapshot().split_off(1)
}

fn check(store: &EmbeddedStore, reported: &Response) {
    let view = |id: &JobId| block_on(store.job(*id)).unwrap();
    for id in &reported.accepted {
        match view(id).map(|job| job.status) {
            Some(Status::Queued | Status::Processing) => {
                assert!(!reported.settled.contains(id), "{id} came back");
            }
            Some(Status::Completed) => assert!(reported.settling.contains(id), "{id} was never settled"),
            other => panic!("{id} was acknowledged and is now {other:?}"),
        }
    }
    for id in &reported.settled {
        assert_eq!(view(id).map(|job| job.status), Some(Status::Completed), "{id}");
    }
}

fn killed_under_load(ack: Ack, word: &str) {
    let mut accepted = 0;
    let each = times(KILLS_PER_DIRECTORY, KILLS);
    for first in (0..KILLS).step_by(each) {
        accepted += killed_in_a_directory(ack, word, first as u64..(first + each) as u64);
    }
    assert!(accepted > 1_000, "only {accepted} jobs were accepted");
}

/// How many jobs were accepted.
fn killed_in_a_directory(ack: Ack, word: &str, epochs: Range<u64>) -> usize {
    let dir = TempDir::new().unwrap();
    let mut reported = Response::default();
    for epoch in epochs {
        let mut child = start(dir.path(), word, epoch);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let lines_before_kill = 1 + usize::try_from(epoch * 37 % 211).unwrap();
        lines.by_ref().take(lines_before_kill).for_each(|line| reported.hear(&line.unwrap()));
        child.kill().unwrap();
        lines.for_each(|line| reported.hear(&line.unwrap()));
        child.wait().unwrap();
        if epoch % 10 == 9 {
            check(&open(dir.path(), ack), &reported);
        }
    }
    assert_eq!(reported.stopped, None);
    // At one moment, because the end of a minute adds a point to the history.
    let now = SystemClock.now();
    let once = recovered(dir.path(), ack, now);
    assert!(once == recovered(dir.path(), ack, now), "recovering twice changed something");
    reported.accepted.len()
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed_with_fsync() {
    killed_under_load(Ack::Fsync, "fsync");
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed_with_write() {
    killed_under_load(Ack::Write, "write");
}

#[test]
fn a_full_disk_stops_acceptance_with_a_clear_error_and_loses_nothing() {
    let dir = TempDir::new().unwrap();
    let limited =
        format!("trap '' XFSZ; ulimit -f 300; exec {} {} fsync 0", program().display(), dir.path().display());
    let mut child = Command::new("bash").args(["-c", &limited]).stdout(Stdio::piped()).spawn().unwrap();
    let mut reported = Response::default();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.for_each(|line| reported.hear(&line.unwrap()));
    assert!(!child.wait().unwrap().success());
    let cause = reported.stopped.as_deref().unwrap();
    assert!(cause.contains("the store has stopped") && cause.contains("too large"), "{cause}");
    assert!(reported.accepted.len() > 100);
    check(&open(dir.path(), Ack::Fsync), &reported);
}

#[test]
fn a_second_process_on_the_same_directory_is_refused() {
    let dir = TempDir::new().unwrap();
    let _first = open(dir.path(), Ack::Fsync);
    let mut second = start(dir.path(), "fsync", 0);
    let lines = BufReader::new(second.stdout.take().unwrap()).lines();
    let said: Vec<String> = lines.map(|line| line.unwrap()).collect();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("stopped") && said[0].contains("in use"), "{said:?}");
    assert!(!second.wait().unwrap().success());
}
