//! The same outboxId, repeated and concurrent, is one message.

use futures_util::future::join_all;
use serde_json::Value;

use super::{SmtpServer, lane, message};
use crate::redis_server::RedisServer;
use crate::shared::start;

#[tokio::test]
async fn the_same_outbox_id_submitted_a_hundred_times_from_several_processes_sends_one_message() {
    let (server, redis) = (SmtpServer::start().await, RedisServer::start());
    let rules = lane(&server.url(), "", "");
    let (first, second, third) =
        tokio::join!(start(&redis, &rules), start(&redis, &rules), start(&redis, &rules));
    let mut job = message(&["a@example.com"]);
    job["id"] = "outbox-1".into();
    let programs = [&first, &second, &third];
    let answers = join_all((0..100).map(|at| programs[at % 3].post("/v1/lanes/mail/jobs", &job))).await;
    let ids: Vec<Value> = answers
        .iter()
        .map(|answer| {
            assert!(matches!(answer.status, 200 | 202), "{}", answer.text());
            answer.json()["jobId"].clone()
        })
        .collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(first.ended(ids[0].as_str().unwrap()).await["status"], "completed");
    // Another message with the same id is refused.
    let mut other = message(&["b@example.com"]);
    other["id"] = "outbox-1".into();
    assert_eq!(second.post("/v1/lanes/mail/jobs", &other).await.status, 422);
    // A later message has arrived, so nothing else is pending.
    let last = third.enqueue("mail", &message(&["z@example.com"])).await;
    first.ended(&last).await;
    assert_eq!(server.accepted(), [["a@example.com"], ["z@example.com"]]);
}
