//! Why a job waits, its position, and when it will start.

use eclusa_core::gate::{CallResult, GateView, Reason};
use eclusa_core::{
    BucketId, Enqueued, GateOwner, HashKey, Outcome, Report, RetryAfter, Spec, Status, Store, Time,
};

use crate::harness::{Harness, LEASE, Open};
use crate::rules::{
    UP, breaker, bucket, chain, cooldown, delayed, free, high, hold, holding, job, lane, lasting, name, of,
    pace, plain, rate, rpm, secs, slots, upstream,
};

/// Ends job 1 with `ending` at an upstream with these rules, then asks why job 2 waits.
async fn second_waits<S: Store>(open: Open<S>, rules: &Spec, ending: Option<CallResult>) -> (Reason, u64) {
    let q = Harness::new(open, rules);
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.accept([job(2)]).await;
    if let Some(result) = ending {
        q.settle(grant.lease, result, Outcome::Done).await;
    }
    let why = q.why(2).await;
    assert_eq!((why.status, why.upstream, why.position), (Status::Queued, Some(name(UP)), 0));
    let eta = why.eta.expect("a gate that knows its time");
    (why.reason.expect("it waits"), eta.since(q.now()).as_millis())
}

pub async fn why_says_paused<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1), delayed(secs(60), job(2))]).await;
    q.pause("mail", true).await;
    for number in [1, 2] {
        let why = q.why(number).await;
        assert_eq!((why.reason, why.eta, why.will_expire), (Some(Reason::Paused), None, false));
    }
}

pub async fn why_says_scheduled<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([delayed(secs(60), job(1))]).await;
    let why = q.why(1).await;
    assert_eq!((why.status, why.reason), (Status::Pending, Some(Reason::Scheduled)));
    assert_eq!(why.eta, Some(q.now() + secs(60)));
}

pub async fn why_says_retry_backoff<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.retry(&grant, CallResult::Failed, secs(4)).await;
    let why = q.why(1).await;
    assert_eq!((why.status, why.reason), (Status::Pending, Some(Reason::RetryBackoff)));
    assert_eq!(why.eta, Some(q.now() + secs(4)));
}

pub async fn each_job_of_a_batch_gets_its_own_position<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    let answers = q.put_all([job(1), job(2), delayed(secs(60), job(3))]).await;
    let short = answers.iter().map(|answer| match answer {
        Enqueued::Accepted(place) => (place.status, place.position),
        other => panic!("{other:?}"),
    });
    let expected = [(Status::Queued, 0), (Status::Queued, 1), (Status::Pending, 0)];
    assert_eq!(short.collect::<Vec<_>>(), expected);
}

pub async fn why_says_behind_with_the_position<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1), job(2), job(3)]).await;
    let mut places = Vec::new();
    for number in [1, 2, 3] {
        let why = q.why(number).await;
        places.push((why.reason.expect("it waits"), why.position));
    }
    assert_eq!(places, [(Reason::NoWorker, 0), (Reason::Behind, 1), (Reason::Behind, 2)]);
    q.accept([high(4)]).await;
    assert_eq!(q.why(1).await.position, 1, "a higher level goes first");
    assert_eq!(q.why(4).await.position, 0);
}

pub async fn the_position_considers_that_tenants_take_turns<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept((1..=50).map(|n| of("flood", n))).await;
    q.accept([of("small", 99)]).await;
    assert!(q.why(99).await.position <= 3, "{}", q.why(99).await.position);
}

pub async fn why_says_no_worker_when_nothing_else_blocks<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let why = q.why(1).await;
    assert_eq!((why.status, why.reason, why.position), (Status::Queued, Some(Reason::NoWorker), 0));
    assert_eq!(why.eta, Some(q.now()));
}

pub async fn why_says_pace<S: Store>(open: Open<S>) {
    let rules = upstream(pace(secs(2)));
    assert_eq!(second_waits(open, &rules, None).await, (Reason::Pace, 2_000));
}

pub async fn why_says_rate_limit<S: Store>(open: Open<S>) {
    assert_eq!(second_waits(open, &upstream(rate(1, 1)), None).await, (Reason::RateLimit, 1_000));
}

pub async fn why_says_window<S: Store>(open: Open<S>) {
    let freed = LEASE.as_millis() + 60_000;
    assert_eq!(second_waits(open, &upstream(rpm(1)), None).await, (Reason::Window, freed));
}

pub async fn why_says_concurrency<S: Store>(open: Open<S>) {
    assert_eq!(second_waits(open, &upstream(slots(1)), None).await, (Reason::Concurrency, LEASE.as_millis()));
}

pub async fn why_says_cooldown<S: Store>(open: Open<S>) {
    let failed = Some(CallResult::Failed);
    assert_eq!(second_waits(open, &upstream(cooldown()), failed).await, (Reason::Cooldown, 10_000));
}

pub async fn why_says_circuit_open<S: Store>(open: Open<S>) {
    let failed = Some(CallResult::Failed);
    let rules = upstream(breaker(1, secs(30)));
    assert_eq!(second_waits(open, &rules, failed).await, (Reason::CircuitOpen, 30_000));
}

pub async fn why_says_upstream_retry_after<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    let call = q.call(UP).await;
    let until = q.now() + secs(30);
    let report = Report {
        retry_after: Some(RetryAfter { wait: secs(30), bucket: None }),
        ..CallResult::Throttled.into()
    };
    q.settle(call, report, Outcome::Release).await;
    q.accept([job(1)]).await;
    let why = q.why(1).await;
    assert_eq!((why.reason, why.eta), (Some(Reason::UpstreamRetryAfter), Some(until)));
}

pub async fn why_says_awaiting_webhook<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([job(1)]).await;
    let grant = q.next().await;
    assert_eq!(q.reason(1).await, None, "a worker has it");
    q.settle(grant.lease, CallResult::Success, Outcome::awaiting(secs(600))).await;
    let why = q.why(1).await;
    assert_eq!((why.status, why.reason), (Status::Processing, Some(Reason::AwaitingWebhook)));
    assert_eq!((why.upstream, why.will_expire), (Some(name(UP)), false));
}

pub async fn why_names_the_lanes_own_gate<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.gates = rpm(1)));
    q.accept([job(1), job(2)]).await;
    let grant = q.next().await;
    let why = q.why(2).await;
    let opens = Some(q.now() + LEASE + secs(60));
    assert_eq!((why.reason, why.eta, why.until), (Some(Reason::Window), opens, opens));
    assert_eq!((why.of_tenant, why.of_bucket), (None, None));
    assert_eq!(shut(&why.gates), [(GateOwner::Lane, Reason::Window, opens)]);
    q.retry(&grant, CallResult::Failed, secs(1)).await;
    q.pass(secs(1));
    assert_eq!(q.starts(9).await, []);
    let why = q.why(1).await;
    assert_eq!((why.reason, why.upstream), (Some(Reason::Window), None), "whatever it was sent to before");
}

/// Closed gates: whose each is, why and until when.
pub(crate) fn shut(gates: &[(GateOwner, GateView)]) -> Vec<(GateOwner, Reason, Option<Time>)> {
    let shut = gates.iter().filter(|(_, gate)| gate.denies_until.is_some());
    shut.map(|(owner, gate)| (owner.clone(), gate.reason, gate.denies_until)).collect()
}

pub async fn why_names_the_scoped_bucket<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    let scope = Some(HashKey::new(1).scope("12345678901"));
    let id = BucketId { upstream: name(UP), policy: name("PER_PAYER"), class: None, scope };
    let scoped = || hold(UP, &id.key(), bucket(1, 1, secs(60)), 1);
    q.accept((1..=2).map(|n| holding(scoped(), job(n)))).await;
    assert_eq!(q.serve(10).await, [1]);
    let why = q.why(2).await;
    assert_eq!((why.reason, why.upstream), (Some(Reason::RateLimit), Some(name(UP))));
    let opens = Some(q.now() + secs(60));
    assert_eq!((why.eta, why.until, why.of_bucket.as_ref()), (opens, opens, Some(&id)));
    assert_eq!(shut(&why.gates), [(GateOwner::Bucket(id), Reason::RateLimit, opens)]);
}

pub async fn why_shows_a_scoped_bucket_that_is_open<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(rpm(1)));
    q.accept([job(1), holding(hold(UP, "up/P//", bucket(9, 1, secs(60)), 1), job(2))]).await;
    q.next().await;
    let why = q.why(2).await;
    assert_eq!((why.reason, why.of_bucket), (Some(Reason::Window), None));
    let owners: Vec<_> = why.gates.into_iter().map(|(owner, gate)| (owner, gate.level)).collect();
    let open = GateOwner::Bucket(BucketId::parse("up/P//").expect("a key"));
    assert_eq!(owners, [(GateOwner::Upstream(name(UP)), 1), (open, 9_000_000)]);
}

pub async fn why_names_the_gate_of_the_chain_that_opens_first<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", rpm(1)), ("b", rate(1, 1))], |_| {}));
    q.accept((1..=3).map(job)).await;
    q.take(10).await;
    let why = q.why(3).await;
    assert_eq!((why.reason, why.upstream), (Some(Reason::RateLimit), Some(name("b"))));
    let owners: Vec<_> = shut(&why.gates).into_iter().map(|(owner, ..)| owner).collect();
    assert_eq!(owners, ["a", "b"].map(|upstream| GateOwner::Upstream(name(upstream))));
}

pub async fn why_says_that_a_job_will_expire<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(rpm(1)));
    q.accept([job(1), lasting(secs(30), job(2)), lasting(secs(90), job(3))]).await;
    q.next().await;
    assert!(q.why(2).await.will_expire);
    q.cancel(2).await;
    assert!(!q.why(3).await.will_expire);
}

pub async fn the_eta_grows_with_the_position<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(rate(1, 1)));
    q.accept((1..=5).map(job)).await;
    q.next().await;
    let mut last = q.now();
    for number in 2..=5 {
        let eta = q.why(number).await.eta.expect("a bucket knows its time");
        assert!(eta > last, "job {number}");
        last = eta;
    }
    assert_eq!(last, q.now() + secs(4));
}

pub async fn a_finished_job_waits_for_nothing<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    q.accept([job(1)]).await;
    q.serve(1).await;
    let why = q.why(1).await;
    assert_eq!((why.status, why.reason, why.eta, why.will_expire), (Status::Completed, None, None, false));
    assert!(q.why_unknown(99).await);
}
