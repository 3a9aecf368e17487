//! Connections of the owner break, one kind at a time, and cannot be re-established for a while.

use std::time::Duration;

use tokio::time::Instant;

use super::wire::{SCRIPTS, SUBSCRIBES};
use super::{Fleet, Load, Setup, times};
use crate::redis_server::RedisServer;

/// The target is three seconds, plus a margin for a busy machine.
const AFTER_A_CUT: Duration = Duration::from_secs(8);
/// Longer than the term (500 ms).
const CUT: Duration = Duration::from_secs(1);

/// The owner loses `connections`. The other processes continue, at the latest when it has reconnected.
async fn the_owner_lacks(connections: &'static str, until_another_decides: bool) {
    let fleet = Fleet::with(RedisServer::start(), 3, Setup { wired: true, ..Setup::default() }).await;
    let load = Load::on(&fleet);
    for _ in 0..times(2, 20) {
        load.resumes(Instant::now(), 50).await;
        let owner = fleet.owner().await;
        let cut_off = &fleet.programs[&owner];
        load.exclude(&cut_off.url());
        fleet.wires[&owner].cut(connections);
        let cut = Instant::now();
        if until_another_decides {
            while fleet.owner().await == owner {
                assert!(cut.elapsed() < AFTER_A_CUT, "{owner} still decides");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let took = cut.elapsed() + load.resumes(Instant::now(), 3).await;
            println!("decisions resumed {took:?} after {owner} lost its connections");
            assert!(took < AFTER_A_CUT, "{took:?}");
        } else {
            tokio::time::sleep(CUT).await;
        }
        fleet.wires[&owner].repair();
        let took = load.resumes(Instant::now(), 3).await;
        assert!(took < AFTER_A_CUT, "{took:?}");
        cut_off.until("/readyz", |answer| answer.status == 200).await;
        load.follow(&fleet);
    }
    let accepted = load.end().await;
    fleet.check(&accepted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_cannot_append_is_followed_by_another() {
    the_owner_lacks(SCRIPTS, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_cannot_hear_for_a_while_costs_nothing() {
    the_owner_lacks(SUBSCRIBES, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_cannot_hear_any_more_is_followed_by_another_though_it_appends() {
    the_owner_lacks(SUBSCRIBES, true).await;
}
