//! The functions stay on the server from call to call: nothing of one call may get into another, and what is gone is
//! brought back.

use std::sync::Arc;

use eclusa::store::RedisStore;
use eclusa_conformance::ManualClock;
use eclusa_core::gate::{BucketSpec, CallResult, GateSpecs, WindowSpec};
use eclusa_core::{
    Admission, Admit, Admitted, Chain, Dispatch, JobId, LaneSpec, Name, NewJob, Outcome, Settled, Settlement,
    Span, Spec, Status, Store, UpstreamSpec,
};
use futures_util::future::try_join_all;

use crate::redis_server::RedisServer;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A lane whose upstream takes two calls an hour.
fn spec() -> Spec {
    let mut gates = GateSpecs::default();
    gates.bucket = Some(BucketSpec::new(2, 2, Span::from_secs(3_600)).unwrap());
    spec_with(gates)
}

fn spec_with(gates: GateSpecs) -> Spec {
    let lane = LaneSpec::new(name("work"), Chain::new(vec![name("up")]).unwrap());
    Spec::new(vec![lane], vec![UpstreamSpec::new(name("up"), gates)]).unwrap()
}

fn store(server: &RedisServer, prefix: &str, clock: &Arc<ManualClock>) -> RedisStore {
    RedisStore::new(&server.url(), prefix, &spec()).unwrap().with_clock(clock.clone())
}

fn job(id: u128) -> NewJob {
    NewJob::new(JobId(id), name("work"), "acme", *b"{}")
}

fn dispatch(max: usize) -> Dispatch {
    Dispatch { lane: name("work"), max, lease: Span::from_secs(10), nonce: 1 }
}

fn admit() -> Admit {
    Admit { lane: None, chain: vec![name("up")], holds: Vec::new(), lease: Span::from_secs(10), nonce: 1 }
}

/// The sweep takes a job up and drops another one before it finds a key that is no sorted set.
#[tokio::test]
async fn a_call_that_fails_half_way_leaves_nothing_behind() {
    let (server, clock) = (RedisServer::start(), Arc::new(ManualClock::default()));
    let (store, other) = (store(&server, "one:", &clock), store(&server, "two:", &clock));
    let mut short = job(2);
    short.ttl = Some(Span::from_secs(5));
    store.enqueue(vec![job(1), short]).await.unwrap();
    assert_eq!(store.dispatch(dispatch(1)).await.unwrap().grants.len(), 1);
    clock.advance(Span::from_secs(20));
    server.command(&["SET", "one:{main}:key-ends:work", "no sorted set"]);
    store.sweep().await.unwrap_err();
    other.sweep().await.unwrap();
    assert_eq!(
        server.command(&["EXISTS", "two:{main}:jobs", "two:{main}:leases", "two:{main}:lease-ends"]),
        "0"
    );
    server.command(&["DEL", "one:{main}:key-ends:work"]);
    let swept = store.sweep().await.unwrap();
    assert_eq!(swept.taken_up, [JobId(1)]);
    assert_eq!(swept.ended.iter().map(|ended| ended.job).collect::<Vec<_>>(), [JobId(2)]);
    let lane = &store.lanes().await.unwrap()[0];
    assert_eq!((lane.queued, lane.processing), ([0, 1, 0], 0));
}

/// Two calls of three get through an hour, and a job comes to its end.
async fn works(store: &RedisStore, clock: &ManualClock, id: u128) {
    clock.advance(Span::from_secs(3_600));
    for admitted in [true, true, false] {
        let told = store.admit(admit()).await.unwrap().admission;
        assert_eq!(matches!(told, Admission::Granted { .. }), admitted, "{told:?}");
    }
    clock.advance(Span::from_secs(3_600));
    store.enqueue(vec![job(id)]).await.unwrap();
    let lease = store.dispatch(dispatch(1)).await.unwrap().grants[0].lease;
    let report = CallResult::Success.into();
    let done = Settlement { lease, report, outcome: Outcome::Done, answer: None };
    assert_eq!(store.settle(vec![done]).await.unwrap().leases, [Settled::Ended(Status::Completed)]);
}

/// Whether the functions are still there and know rules that stand nowhere any more, or nothing is.
#[tokio::test]
async fn a_server_that_was_emptied_goes_by_the_same_rules() {
    let (server, clock) = (RedisServer::start(), Arc::new(ManualClock::default()));
    let store = store(&server, "one:", &clock);
    works(&store, &clock, 1).await;
    for (id, troubles) in [&["FLUSHALL"][..], &["FUNCTION"], &["FLUSHALL", "FUNCTION"]].iter().enumerate() {
        for trouble in *troubles {
            server.command(if *trouble == "FUNCTION" { &["FUNCTION", "FLUSH"] } else { &["FLUSHALL"] });
        }
        works(&store, &clock, 2 + id as u128).await;
    }
}

/// What the functions remember of an upstream under the rules of one is what the other has changed since.
#[tokio::test]
async fn two_that_go_by_different_rules_see_what_the_other_does() {
    let (server, clock) = (RedisServer::start(), Arc::new(ManualClock::default()));
    let stores = [1, 2].map(|slots| {
        let gates = GateSpecs::default().with_slots("slots", slots).unwrap();
        RedisStore::new(&server.url(), "one:", &spec_with(gates)).unwrap().with_clock(clock.clone())
    });
    let [narrow, wide] = &stores;
    let granted = async |store: &RedisStore| match store.admit(admit()).await.unwrap().admission {
        Admission::Granted { lease, .. } => Some(lease),
        _ => None,
    };
    let released = async |store: &RedisStore, lease| {
        let report = CallResult::Success.into();
        let done = Settlement { lease, report, outcome: Outcome::Done, answer: None };
        assert_eq!(store.settle(vec![done]).await.unwrap().leases, [Settled::Released]);
    };
    let first = granted(narrow).await.unwrap();
    let second = granted(wide).await.unwrap();
    released(wide, first).await;
    assert_eq!(granted(narrow).await, None);
    released(wide, second).await;
    let third = granted(narrow).await.unwrap();
    released(narrow, third).await;
    for _ in 0..2 {
        granted(wide).await.unwrap();
    }
    assert_eq!((granted(wide).await, granted(narrow).await), (None, None));
}

#[tokio::test]
async fn functions_that_others_have_loaded_are_used() {
    let (server, clock) = (RedisServer::start(), Arc::new(ManualClock::default()));
    let (one, two) = (store(&server, "one:", &clock), store(&server, "two:", &clock));
    tokio::join!(works(&one, &clock, 1), async { two.sweep().await.unwrap() });
    works(&two, &clock, 1).await;
}

/// What the how-to about several processes says that a user of the server needs.
#[tokio::test]
async fn a_user_with_few_rights_is_enough() {
    let (server, clock) = (RedisServer::start(), Arc::new(ManualClock::default()));
    let how_to = include_str!("../../../../docs/how-to/more-than-one-process.md");
    let rights = how_to.lines().find_map(|line| line.strip_prefix("ACL SETUSER ")).unwrap();
    server.command(&["ACL", "SETUSER"].into_iter().chain(rights.split(' ')).collect::<Vec<_>>());
    let url = server.url().replace("redis://", "redis://eclusa:secret@");
    let store = RedisStore::new(&url, "eclusa:", &spec()).unwrap().with_clock(clock.clone());
    works(&store, &clock, 1).await;
    store.register("process", "about").await.unwrap();
    store.lanes().await.unwrap();
    store.job(JobId(1)).await.unwrap().unwrap();
}

#[tokio::test]
async fn rules_that_nobody_goes_by_any_more_are_removed() {
    let (server, clock) = (RedisServer::start(), Arc::new(ManualClock::default()));
    let before = store(&server, "eclusa:", &clock);
    before.register("first", "").await.unwrap();
    let lane = LaneSpec::new(name("play"), Chain::new(vec![name("up")]).unwrap());
    let changed = Spec::new(vec![lane], vec![UpstreamSpec::new(name("up"), GateSpecs::default())]).unwrap();
    let after = RedisStore::new(&server.url(), "eclusa:", &changed).unwrap().with_clock(clock.clone());
    after.register("second", "").await.unwrap();
    let rules = || server.command(&["HLEN", "eclusa:{main}:lanes"]);
    assert_eq!(rules(), "2", "both are there");
    clock.advance(Span::from_secs(11));
    after.register("third", "").await.unwrap();
    assert_eq!(rules(), "1");
    works(&before, &clock, 1).await;
}

/// Equal calls that nobody will tell of are counted, not decided one by one.
#[tokio::test]
async fn of_many_equal_calls_as_many_get_through_as_there_are_tokens() {
    let (server, clock) = (RedisServer::start(), Arc::new(ManualClock::default()));
    let mut gates = GateSpecs::default();
    gates.bucket = Some(BucketSpec::new(20, 20, Span::from_secs(3_600)).unwrap());
    gates.window = Some(WindowSpec::per_minute(17).unwrap());
    let spec = Spec::new(Vec::new(), vec![UpstreamSpec::new(name("up"), gates)]).unwrap();
    let store = RedisStore::new(&server.url(), "eclusa:", &spec).unwrap().with_clock(clock.clone());
    let granted = async || {
        let ask = || Admit { lease: Span::ZERO, ..admit() };
        let answers = try_join_all((0..50).map(|_| store.admit(ask()))).await.unwrap();
        let is_granted = |answer: &&Admitted| matches!(answer.admission, Admission::Granted { .. });
        answers.iter().filter(is_granted).count()
    };
    assert_eq!(granted().await, 17, "as many as the window allows");
    clock.advance(Span::from_secs(60));
    assert_eq!(granted().await, 3, "as many as the bucket still holds");
}
