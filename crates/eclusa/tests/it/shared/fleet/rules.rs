//! A rolling deployment.

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::json;

use crate::redis_server::RedisServer;
use crate::shared::start;

/// Lanes are added, changed and removed: waiting jobs are not lost, and run by the new rules.
#[tokio::test]
async fn a_rolling_restart_adds_changes_and_removes_lanes() {
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let up = format!("[upstreams.up]\nurl = \"{}\"\n", upstream.url());
    let lane = |name: &str, rules: &str| format!("[lanes.{name}]\nchain = [\"up\"]\n{rules}\n");
    let old = format!("{}{}{up}", lane("changed", "capacity = 1"), lane("removed", ""));
    let new = format!("{}{}{up}", lane("changed", "capacity = 2"), lane("added", ""));
    let (a, b) = (start(&redis, &old).await, start(&redis, &old).await);
    for name in ["changed", "removed"] {
        a.pause(name).await;
    }
    let waiting = a.enqueue("changed", &json!({ "request": { "path": "/changed" } })).await;
    let orphan = a.enqueue("removed", &json!({ "request": { "path": "/removed" } })).await;
    a.stop().await;
    let a = start(&redis, &new).await;
    // In force as soon as the first process is up; the lane it does not name still belongs to the other.
    let more = a.enqueue("changed", &json!({ "request": { "path": "/more" } })).await;
    let added = a.enqueue("added", &json!({ "request": { "path": "/added" } })).await;
    assert_eq!(a.ended(&added).await["status"], "completed");
    b.stop().await;
    let b = start(&redis, &new).await;
    b.resume("changed").await;
    for job in [&waiting, &more] {
        assert_eq!(b.ended(job).await["status"], "completed");
    }
    assert_eq!(b.why(&orphan).await, "rules_gone");
    drop((a, b));
    let again = start(&redis, &old).await;
    again.resume("removed").await;
    assert_eq!(again.ended(&orphan).await["status"], "completed");
}
