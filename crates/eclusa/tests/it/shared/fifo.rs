//! First in, first out over all tenants, whichever process accepts a job and whichever runs it.

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::json;

use super::{lane, start, start_as};
use crate::redis_server::RedisServer;

/// With one call at a time the upstream sees the order of the grants.
#[tokio::test]
async fn without_fairness_jobs_of_all_tenants_start_in_the_order_in_which_they_came() {
    const JOBS: usize = 60;
    let redis = RedisServer::start();
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let rules = lane(&upstream.url(), "fairness = false", "max_concurrent = 1");
    let (first, second) = tokio::join!(start(&redis, &rules), start(&redis, &rules));
    let _workers = tokio::join!(start_as(&redis, "worker", &rules), start_as(&redis, "worker", &rules));
    first.pause("work").await;
    for number in 0..JOBS {
        let tenant = ["flood", "flood", "flood", "small", "other"][number % 5];
        let job = json!({ "tenant": tenant, "request": { "path": format!("/{number}") } });
        [&first, &second][number % 2].enqueue("work", &job).await;
    }
    first.resume("work").await;
    upstream.wait_for(JOBS as u64).await;
    let order: Vec<String> = upstream.requests().into_iter().map(|seen| seen.path).collect();
    assert_eq!(order, (0..JOBS).map(|number| format!("/{number}")).collect::<Vec<_>>());
}
