//! A rolling deployment.

use serde_json::json;
use tokio::time::Instant;

use super::{Fleet, Load, Setup, times};
use crate::redis_server::RedisServer;

const OLD: Setup = Setup {
    term: "500ms",
    wired: false,
    lanes: "[lanes.changed]\nchain = [\"up\"]\ncapacity = 1\n[lanes.removed]\nchain = [\"up\"]\n",
    failures: 50,
};
const NEW: Setup = Setup {
    lanes: "[lanes.changed]\nchain = [\"up\"]\ncapacity = 2\n[lanes.added]\nchain = [\"up\"]\n",
    failures: 51,
    ..OLD
};

/// Replaces a process by one with the present rules; returns its name.
async fn replace(fleet: &mut Fleet, load: &Load, name: &str) -> String {
    load.exclude(&fleet.programs[name].url());
    fleet.stop(name).await;
    let new = fleet.add().await;
    load.follow(fleet);
    load.resumes(Instant::now(), 20).await;
    new
}

/// Lanes are added, changed and removed, and every upstream is changed: waiting jobs are not lost and run by the new rules,
/// and what was used of a limit stays used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_under_load_adds_changes_and_removes_lanes() {
    let mut fleet = Fleet::with(RedisServer::start(), times(3, 5), OLD).await;
    let load = Load::on(&fleet);
    for round in 0..times(1, 10) {
        load.resumes(Instant::now(), 50).await;
        let old: Vec<_> = fleet.programs.keys().cloned().collect();
        let job = |name: &str| json!({ "request": { "path": format!("/{name}/{round}") } });
        let program = &fleet.programs[&old[0]];
        for name in ["changed", "removed"] {
            program.pause(name).await;
        }
        let waiting = program.enqueue("changed", &job("waiting")).await;
        let orphan = program.enqueue("removed", &job("orphan")).await;
        fleet.setup = NEW;
        let first = replace(&mut fleet, &load, &old[0]).await;
        // In force as soon as the first process is up; the lane it does not name still belongs to the others.
        let program = &fleet.programs[&first];
        let more = program.enqueue("changed", &job("more")).await;
        let added = program.enqueue("added", &job("added")).await;
        assert_eq!(program.ended(&added).await["status"], "completed");
        for name in &old[1..] {
            replace(&mut fleet, &load, name).await;
        }
        let program = &fleet.programs[&first];
        program.resume("changed").await;
        for job in [&waiting, &more] {
            assert_eq!(program.ended(job).await["status"], "completed");
        }
        assert_eq!(program.why(&orphan).await, "rules_gone");
        fleet.setup = OLD;
        for name in fleet.programs.keys().cloned().collect::<Vec<_>>() {
            replace(&mut fleet, &load, &name).await;
        }
        let program = fleet.programs.values().next().unwrap();
        program.resume("removed").await;
        assert_eq!(program.ended(&orphan).await["status"], "completed");
    }
    let accepted = load.end().await;
    fleet.check(&accepted).await;
}
