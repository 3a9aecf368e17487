//! Nobody spoke to the server for a while.

use std::time::Duration;

use eclusa::store::RedisStore;
use eclusa_core::gate::{CallResult, GateSpecs};
use eclusa_core::{
    Chain, Dispatch, JobId, LaneSpec, Name, NewJob, Outcome, Settled, Settlement, Span, Spec, Status, Store,
    UpstreamSpec,
};

use crate::redis_server::RedisServer;

#[tokio::test]
async fn leases_that_ran_out_meanwhile_are_left_alone_until_their_workers_are_back() {
    let redis = RedisServer::start();
    let (lane, up) = (Name::new("work").unwrap(), Name::new("up").unwrap());
    let rules = LaneSpec::new(lane.clone(), Chain::new(vec![up.clone()]).unwrap());
    let spec = Spec::new(vec![rules], vec![UpstreamSpec::new(up, GateSpecs::default())]).unwrap();
    let store = RedisStore::new(&redis.url(), "eclusa:", &spec).unwrap();
    // Enough to be connected: the first call of a process takes longer than intake may.
    store.sweep().await.unwrap();
    store.enqueue(vec![NewJob::new(JobId(1), lane.clone(), "acme", *b"{}")]).await.unwrap();
    let ask = Dispatch { lane, max: 1, lease: Span::from_secs(1), nonce: 1 };
    let lease = store.dispatch(ask).await.unwrap().grants[0].lease;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(store.sweep().await.unwrap().taken_up, []);
    let report = CallResult::Success.into();
    let settlement = Settlement { lease, report, outcome: Outcome::Done, answer: None };
    let settled = store.settle(vec![settlement]).await.unwrap();
    assert_eq!(settled.leases, [Settled::Ended(Status::Completed)]);
}
