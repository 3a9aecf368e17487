//! The process that would restore the lost data is killed before it does.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{CLAIMS, Fleet, Load, Setup, TERM, times};
use crate::program::PATIENCE;
use crate::redis_server::RedisServer;

/// Long enough to see the claims in it.
const SETTLING: &str = "2s";
/// The target is two terms: the settling, and the expiry of a claim that is not renewed; plus a margin for a busy machine.
const AFTER_THE_KILL: Duration = Duration::from_secs(12);

/// How much of the journal each process claims to have, and when.
fn claims(redis: &RedisServer) -> BTreeMap<String, String> {
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    redis::cmd("HGETALL").arg(CLAIMS).query(&mut connection).unwrap_or_default()
}

/// Waits until every process has claimed twice, so that each has seen the claims of the others in between.
async fn claimed(fleet: &Fleet) {
    let mut first = BTreeMap::new();
    let claimed = async {
        loop {
            let claims = claims(&fleet.redis);
            if first.len() < fleet.programs.len() {
                first = claims;
            } else if first.iter().all(|(process, claim)| claims.get(process) != Some(claim)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, claimed).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_takes_over_when_the_one_with_the_highest_claim_is_killed() {
    // What the server had not written when it was killed nobody has once the owner is dead too.
    let redis = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let mut fleet = Fleet::with(redis, 3, Setup { term: SETTLING, ..Setup::default() }).await;
    let load = Load::on(&fleet);
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
