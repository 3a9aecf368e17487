//! A replica that lacks the last appends replaces the killed server.

use std::time::Duration;

use tokio::time::Instant;

use super::{Fleet, JOURNAL, Load, Setup, times};
use crate::program::PATIENCE;
use crate::redis_server::RedisServer;

/// The target is `store.term` (500 ms here) plus two seconds, plus a margin for a busy machine.
const AFTER_LOSS: Duration = Duration::from_secs(8);

/// A replica of `master`, once it is in sync.
async fn replica_of(master: &RedisServer) -> RedisServer {
    let address = master.address();
    let replica = RedisServer::with(&["--replicaof", &format!("{} {}", address.ip(), address.port())]);
    let synced = async {
        while !replica.command(&["INFO", "replication"]).contains("master_link_status:up") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, synced).await.unwrap();
    replica
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_missing_on_a_promoted_replica_are_appended_again() {
    let setup = Setup { wired: true, ..Setup::default() };
    let mut fleet = Fleet::with(RedisServer::start(), 3, setup).await;
    let load = Load::on(&fleet);
    for _ in 0..times(2, 20) {
        let replica = replica_of(&fleet.redis).await;
        load.resumes(Instant::now(), 20).await;
        // From here on it receives nothing, as if the last appends were in transit when the master died.
        replica.command(&["REPLICAOF", "NO", "ONE"]);
        load.resumes(Instant::now(), 50).await;
        let length = |server: &RedisServer| server.command(&["XINFO", "STREAM", JOURNAL]);
        assert_ne!(length(&replica), length(&fleet.redis), "it lacks something");
        fleet.redis.kill();
        fleet.wires.values().for_each(|wire| wire.lead_to(&replica));
        fleet.redis = replica;
        let promoted = Instant::now();
        let took = load.resumes(promoted, 3).await;
        println!("intake resumed {took:?} after the replica was promoted");
        assert!(took < AFTER_LOSS, "{took:?}");
    }
    let accepted = load.end().await;
    fleet.check(&accepted).await;
}
