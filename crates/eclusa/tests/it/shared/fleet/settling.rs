//! The process that would repair what the server lost dies before it does.

use std::time::Duration;

use tokio::time::Instant;

use super::{CLAIMS, Fleet, Load, Setup, TERM, times};
use crate::program::PATIENCE;
use crate::redis_server::RedisServer;

/// Long enough to see the claims in it.
const SETTLING: &str = "2s";
/// The aim is two terms: the settling, and as long until a claim that is not renewed ends. A busy machine gets more.
const AFTER_THE_KILL: Duration = Duration::from_secs(12);

/// Waits until the last owner says how much of the journal it has.
async fn claimed(fleet: &Fleet) {
    let owner = fleet.redis.command(&["HGET", TERM, "owner"]);
    let claimed = async {
        while fleet.redis.command(&["HGET", CLAIMS, &owner]).is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, claimed).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_takes_over_when_the_one_with_the_highest_claim_is_killed() {
    let redis = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let mut fleet = Fleet::with(redis, 3, Setup { term: SETTLING, ..Setup::default() }).await;
    let mut load = Load::on(&fleet);
    for _ in 0..times(1, 20) {
        load.resumes(Instant::now(), 50).await;
        let owner = fleet.owner().await;
        fleet.redis.kill();
        fleet.redis.start_again();
        claimed(&fleet).await;
        let epoch = fleet.redis.command(&["HGET", TERM, "epoch"]);
        fleet.kill(&owner).await;
        let killed = Instant::now();
        assert_eq!(fleet.redis.command(&["HGET", TERM, "epoch"]), epoch, "it had not taken over again");
        load.follow(&fleet);
        let took = load.resumes(killed, 3).await;
        println!("intake resumed {took:?} after the kill of {owner}, which claimed most");
        assert!(took < AFTER_THE_KILL, "{took:?}");
        fleet.add().await;
        load.follow(&fleet);
    }
    let accepted = load.end().await;
    fleet.check(&accepted).await;
}
