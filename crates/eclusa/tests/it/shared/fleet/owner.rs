//! The owner is killed, pauses or loses a connection.

use std::time::Duration;

use tokio::time::Instant;

use super::{Fleet, Load, Setup, times};
use crate::redis_server::RedisServer;

/// The target is one second, plus a margin for a busy machine.
const AFTER_A_KILL: Duration = Duration::from_secs(5);
/// The target is three seconds. After four, leases expire and calls of the paused process are repeated.
const AFTER_SILENCE: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_is_killed_under_load_costs_nothing() {
    let mut fleet = Fleet::start(RedisServer::start(), 3).await;
    let load = Load::on(&fleet);
    load.resumes(Instant::now(), 100).await;
    for _ in 0..times(4, 100) {
        let owner = fleet.owner().await;
        fleet.kill(&owner).await;
        let killed = Instant::now();
        load.follow(&fleet);
        let took = load.resumes(killed, 3).await;
        println!("decisions resumed {took:?} after the kill of {owner}");
        assert!(took < AFTER_A_KILL, "{took:?}\n{}", fleet.last_words());
        fleet.add().await;
        load.follow(&fleet);
        load.resumes(Instant::now(), 50).await;
    }
    let accepted = load.end().await;
    fleet.check(&accepted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_owner_is_fenced() {
    let fleet = Fleet::start(RedisServer::start(), 3).await;
    let load = Load::on(&fleet);
    for _ in 0..times(2, 10) {
        load.resumes(Instant::now(), 50).await;
        let owner = fleet.owner().await;
        let paused = &fleet.programs[&owner];
        paused.signal("STOP");
        let stopped = Instant::now();
        load.exclude(&paused.url());
        let fenced = async {
            while fleet.owner().await == owner {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(AFTER_SILENCE, fenced).await.expect("another process owns");
        load.resumes(Instant::now(), 3).await;
        fleet.calls_go_on(3).await;
        let took = stopped.elapsed();
        println!("decisions resumed {took:?} after {owner} stood still");
        assert!(took < AFTER_SILENCE, "{took:?}");
        paused.signal("CONT");
        paused.until("/readyz", |answer| answer.status == 200).await;
        load.follow(&fleet);
    }
    let accepted = load.end().await;
    fleet.check(&accepted).await;
}

/// The id of the connection on which the owner receives questions: it has one subscription more than the others'.
fn hearing(fleet: &Fleet) -> Option<String> {
    let clients = fleet.redis.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    let owner = clients.lines().find(|line| line.contains(" sub=3 "))?;
    owner.split(' ').find_map(|field| field.strip_prefix("id=")).map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_cost_nothing() {
    let fleet = Fleet::start(RedisServer::start(), 3).await;
    let load = Load::on(&fleet);
    for round in 0..times(6, 60) {
        load.resumes(Instant::now(), 50).await;
        let cut = Instant::now();
        match (round % 3, hearing(&fleet)) {
            // While the owner changes there is no such connection.
            (0, Some(id)) => drop(fleet.redis.command(&["CLIENT", "KILL", "ID", &id])),
            (1, _) => drop(fleet.redis.command(&["CLIENT", "KILL", "TYPE", "normal"])),
            _ => drop(fleet.redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"])),
        }
        let took = load.resumes(cut, 3).await;
        println!("decisions resumed {took:?} after connections were cut");
        assert!(took < AFTER_A_KILL, "{took:?}");
    }
    let accepted = load.end().await;
    fleet.check(&accepted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_processes_are_killed_and_others_go_on() {
    let mut fleet = Fleet::start(RedisServer::start(), 3).await;
    let load = Load::on(&fleet);
    for _ in 0..times(1, 20) {
        load.resumes(Instant::now(), 100).await;
        let all: Vec<_> = fleet.programs.keys().cloned().collect();
        for name in &all {
            fleet.kill(name).await;
        }
        for _ in all {
            fleet.add().await;
        }
        load.follow(&fleet);
        load.resumes(Instant::now(), 3).await;
    }
    let accepted = load.end().await;
    fleet.check(&accepted).await;
}

/// With the default settings, and nothing else on the machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_resume_one_second_after_a_kill_and_three_after_silence() {
    let setup = Setup { term: "2s", ..Setup::default() };
    let mut fleet = Fleet::with(RedisServer::start(), 3, setup).await;
    let load = Load::on(&fleet);
    for _ in 0..times(1, 10) {
        load.resumes(Instant::now(), 50).await;
        let owner = fleet.owner().await;
        fleet.kill(&owner).await;
        let killed = Instant::now();
        load.follow(&fleet);
        let took = load.resumes(killed, 3).await;
        println!("decisions resumed {took:?} after the kill of {owner}");
        assert!(took < Duration::from_secs(1), "{took:?}\n{}", fleet.last_words());
        load.resumes(Instant::now(), 50).await;
        let owner = fleet.owner().await;
        let paused = &fleet.programs[&owner];
        paused.signal("STOP");
        let stopped = Instant::now();
        load.exclude(&paused.url());
        // Answers that were under way when it stopped may arrive afterwards.
        while fleet.owner().await == owner {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        load.resumes(Instant::now(), 3).await;
        let took = stopped.elapsed();
        println!("decisions resumed {took:?} after {owner} stood still");
        assert!(took < Duration::from_secs(3), "{took:?}\n{}", fleet.last_words());
        paused.signal("CONT");
        paused.until("/readyz", |answer| answer.status == 200).await;
        fleet.add().await;
        load.follow(&fleet);
    }
    let accepted = load.end().await;
    fleet.check(&accepted).await;
}
