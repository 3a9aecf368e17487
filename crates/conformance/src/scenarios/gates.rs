//! Everything that says "not now": windows, buckets, slots, pace, and Retry-After.

use eclusa_core::gate::{CallResult, Reason};
use eclusa_core::{Denied, Outcome, Report, Settled, Store};

use crate::harness::{Harness, LEASE, Open};
use crate::rules::{
    UP, adaptive, bucket, chain, closing, free, gates, hold, holding, job, lane, millis, name, one_per, pace,
    rate, rpm, secs, slots, upstream, via,
};

pub async fn no_sixty_seconds_see_more_starts_than_the_window_allows<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(rpm(10)));
    q.accept((1..=200).map(job)).await;
    let mut starts = Vec::new();
    for _ in 0..400 {
        for _ in 0..q.take(3).await.len() {
            starts.push(q.now().as_millis());
        }
        q.pass(millis(777));
    }
    assert!(starts.len() >= 50, "{}", starts.len());
    for from in &starts {
        let within = starts.iter().filter(|at| (*from..from + 60_000).contains(at)).count();
        assert!(within <= 10, "{within} starts in the 60 s from {from}");
    }
}

pub async fn a_dispatch_says_which_gate_blocks_the_lane<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(rpm(2)));
    assert_eq!(q.dispatch(10).await.denied, None, "nobody waits");
    q.accept((1..=3).map(job)).await;
    assert_eq!(q.serve(2).await, [1, 2]);
    let denied = Denied { upstream: Some(name(UP)), reason: Reason::Window };
    assert_eq!(q.dispatch(10).await.denied, Some(denied));
    q.pass(secs(60));
    assert_eq!(q.dispatch(10).await.denied, None, "the last one starts");
}

pub async fn a_dispatch_blocked_by_the_lanes_own_gate_names_no_upstream<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.gates = rpm(1)));
    q.accept([job(1), job(2)]).await;
    assert_eq!(q.serve(1).await, [1]);
    assert_eq!(q.dispatch(10).await.denied, Some(Denied { upstream: None, reason: Reason::Window }));
}

pub async fn a_place_in_the_window_comes_free_sixty_seconds_after_the_answer<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(rpm(2)));
    q.accept((1..=4).map(job)).await;
    let slow = q.next().await;
    q.pass(secs(5));
    assert_eq!(q.serve(1).await, [2]);
    q.pass(secs(3));
    q.done(&slow).await;
    assert_eq!(q.denial(UP).await.at, q.now() + secs(57), "the second was answered first");
    q.pass(millis(56_999));
    assert_eq!(q.starts(10).await, []);
    q.pass(millis(1));
    assert_eq!(q.serve(10).await, [3]);
    q.pass(millis(2_999));
    assert_eq!(q.starts(10).await, [], "the first began a minute ago, but was answered later");
    q.pass(millis(1));
    assert_eq!(q.starts(10).await, [4]);
}

pub async fn a_place_in_the_window_is_counted_from_when_the_answer_began<S: Store>(open: Open<S>) {
    for rules in [upstream(rpm(1)), lane(|lane| lane.gates = rpm(1))] {
        let q = Harness::new(open, &rules);
        q.accept([job(1), job(2), job(3)]).await;
        let long = q.next().await;
        q.pass(secs(9));
        let report = Report { answered_ago: Some(secs(7)), ..CallResult::Success.into() };
        q.settle(long.lease, report, Outcome::Done).await;
        q.pass(millis(52_999));
        assert_eq!(q.starts(10).await, [], "the answer began 60 s ago in a millisecond");
        q.pass(millis(1));
        let unsent = q.next().await;
        let report = Report { answered_ago: Some(secs(1)), ..CallResult::NotSent.into() };
        q.settle(unsent.lease, report, Outcome::Release).await;
        assert_eq!(q.serve(10).await, [2], "what was not sent uses nothing");
    }
}

pub async fn a_call_that_was_not_sent_gives_its_place_in_the_window_back<S: Store>(open: Open<S>) {
    for rules in [upstream(rpm(1)), lane(|lane| lane.gates = rpm(1))] {
        let q = Harness::new(open, &rules);
        q.accept([job(1), job(2)]).await;
        let grant = q.next().await;
        assert_eq!(q.take(10).await, []);
        q.release(&grant).await;
        assert_eq!(q.serve(10).await, [1], "and then the window is full");
    }
}

pub async fn the_place_of_a_vanished_worker_comes_free_sixty_seconds_after_its_lease<S: Store>(
    open: Open<S>,
) {
    for rules in [upstream(rpm(1)), lane(|lane| lane.gates = rpm(1))] {
        let q = Harness::new(open, &rules);
        q.accept([job(1)]).await;
        let _lost = q.next().await;
        q.pass(LEASE);
        q.pass(millis(59_999));
        assert_eq!(q.starts(10).await, [], "nobody looked when the lease ended");
        q.pass(millis(1));
        assert_eq!(q.starts(10).await, [1]);
    }
}

pub async fn a_failed_call_holds_its_place_and_advancing_takes_none_of_the_lane<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &chain(&[("a", rpm(1)), ("b", free())], |lane| lane.gates = rpm(2)));
    q.accept((1..=3).map(job)).await;
    let grant = q.next().await;
    q.pass(secs(2));
    q.advance(&grant, CallResult::Failed).await;
    assert_eq!(q.denial("a").await.at, q.now() + secs(60));
    q.pass(secs(2));
    q.done(&grant).await;
    assert_eq!(q.serve(10).await, [2], "the lane has a place left, and only one");
    q.pass(millis(59_999));
    assert_eq!(q.starts(10).await, [], "the lane's first place was held until the job ended");
    q.pass(millis(1));
    assert_eq!(q.starts(10).await, [3]);
}

pub async fn fifteen_calls_at_ten_per_second_and_burst_ten_let_ten_pass<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(rate(10, 10)));
    q.accept((1..=15).map(job)).await;
    let answer = q.dispatch(15).await;
    assert_eq!(answer.grants.len(), 10);
    assert_eq!(answer.next, q.now() + millis(100));
    q.pass(millis(100));
    assert_eq!(q.starts(15).await, [11]);
    q.pass(millis(400));
    assert_eq!(q.starts(15).await, [12, 13, 14, 15]);
}

pub async fn a_bucket_keeps_fractions_however_often_it_is_read<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(gates(free(), |gates| gates.bucket = Some(bucket(2, 3, secs(10))))));
    q.accept((1..=20).map(job)).await;
    let mut started = q.starts(10).await.len();
    for _ in 0..300 {
        q.pass(millis(100));
        started += q.starts(10).await.len();
    }
    assert_eq!(started, 2 + 9, "thirty seconds bring nine tokens");
}

pub async fn a_clock_that_steps_back_adds_no_tokens<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(rate(1, 2)));
    q.accept((1..=9).map(job)).await;
    assert_eq!(q.starts(10).await, [1, 2]);
    q.step_back(secs(3_600));
    assert_eq!(q.starts(10).await, []);
    q.pass(millis(999));
    assert_eq!(q.starts(10).await, []);
    q.pass(millis(1));
    assert_eq!(q.starts(10).await, [3], "time goes on from where it was");
    q.pass(secs(1));
    assert_eq!(q.starts(10).await, [4]);
}

pub async fn a_call_that_was_not_sent_gives_its_token_back<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(one_per(secs(3_600))));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.release(&grant).await;
    assert_eq!(q.starts(10).await, [1]);
}

pub async fn a_call_whose_worker_vanished_stays_spent<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(one_per(secs(3_600))));
    q.accept([job(1)]).await;
    let _lost = q.next().await;
    q.pass(LEASE);
    assert_eq!(q.starts(10).await, []);
    q.pass(secs(3_600));
    assert_eq!(q.starts(10).await, [1]);
}

pub async fn slots_bound_the_running_calls<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(slots(2)));
    q.accept((1..=5).map(job)).await;
    let grants = q.take(10).await;
    assert_eq!(grants.len(), 2);
    assert_eq!(q.take(10).await, []);
    q.retry(&grants[0], CallResult::Failed, secs(60)).await;
    assert_eq!(q.starts(10).await, [3]);
    q.dead(&grants[1]).await;
    assert_eq!(q.starts(10).await, [4]);
    assert_eq!(q.upstream(UP).await.in_flight, 2);
}

pub async fn pace_lets_one_start_per_interval<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(pace(millis(1_000))));
    q.accept((1..=5).map(job)).await;
    let answer = q.dispatch(10).await;
    assert_eq!((answer.grants.len(), answer.next), (1, q.now() + millis(1_000)));
    q.pass(millis(999));
    assert_eq!(q.starts(10).await, []);
    q.pass(millis(1));
    assert_eq!(q.starts(10).await, [2]);
}

pub async fn pace_adapts_to_how_calls_end<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(pace(millis(1_000))));
    let mut intervals = Vec::new();
    let endings = [CallResult::Success, CallResult::Failed, CallResult::TimedOut, CallResult::Throttled];
    for ending in endings.into_iter().chain([CallResult::Rejected]) {
        q.call_ends(UP, ending).await;
        q.pass(secs(60));
        let at = q.now();
        q.call_ends(UP, CallResult::NotSent).await;
        intervals.push(q.denial(UP).await.at.since(at).as_millis());
        q.pass(secs(60));
    }
    assert_eq!(intervals, [900, 1_350, 2_025, 4_050, 4_050]);
}

pub async fn pace_stays_within_its_bounds<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(pace(millis(60))));
    for _ in 0..5 {
        q.call_ends(UP, CallResult::Success).await;
        q.pass(secs(60));
    }
    let at = q.now();
    q.call_ends(UP, CallResult::Success).await;
    assert_eq!(q.denial(UP).await.at, at + millis(50));
    for _ in 0..20 {
        q.pass(secs(60));
        q.call_ends(UP, CallResult::Throttled).await;
    }
    q.pass(secs(60));
    let at = q.now();
    q.call_ends(UP, CallResult::NotSent).await;
    assert_eq!(q.denial(UP).await.at, at + secs(60));
}

/// A call that took 100 ms and ended with this result; the next may start at once.
async fn paced<S: Store>(q: &Harness<S>, result: CallResult) {
    let lease = q.call(UP).await;
    let took = Some(millis(100));
    q.settle(lease, Report { took, ..result.into() }, Outcome::Release).await;
    q.pass(q.denial(UP).await.at.since(q.now()));
}

async fn rate_of<S: Store>(q: &Harness<S>) -> u64 {
    q.upstream(UP).await.pace.expect("it has a pace").rate_micro
}

pub async fn an_adaptive_pace_grows_while_it_is_used_and_keeps_what_it_learned<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(adaptive(millis(1_000))));
    for _ in 0..20 {
        paced(&q, CallResult::Success).await;
    }
    let learned = q.upstream(UP).await.pace.expect("it has a pace");
    assert!((4_000_000..20_000_000).contains(&learned.rate_micro), "{learned:?}");
    assert_eq!((learned.adaptive, learned.floor_latency), (true, Some(millis(100))));
    q.pass(secs(60));
    paced(&q, CallResult::Success).await;
    assert_eq!(rate_of(&q).await, learned.rate_micro, "unused, it does not grow");
}

pub async fn an_adaptive_pace_treats_a_burst_of_refusals_as_one_signal<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(adaptive(millis(50))));
    let mut leases = Vec::new();
    for _ in 0..5 {
        leases.push(q.call(UP).await);
        q.pass(millis(50));
    }
    for lease in leases {
        let report = Report { took: Some(millis(250)), ..CallResult::Throttled.into() };
        q.settle(lease, report, Outcome::Release).await;
    }
    assert_eq!(rate_of(&q).await, 17_000_000);
    q.pass(secs(2));
    paced(&q, CallResult::Throttled).await;
    assert_eq!(rate_of(&q).await, 11_900_000, "it was still too much");
}

pub async fn a_retry_after_closes_the_upstream_for_all_callers<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    q.accept([job(1), job(2)]).await;
    let grant = q.next().await;
    let until = q.now() + secs(30);
    let outcome = Outcome::Retry { after: secs(30), failure: crate::rules::failure("slow down") };
    q.settle(grant.lease, closing(secs(30), None), outcome).await;
    let answer = q.dispatch(10).await;
    assert_eq!((answer.grants.len(), answer.next), (0, until));
    let denial = q.denial(UP).await;
    assert_eq!((denial.reason, denial.at), (Reason::UpstreamRetryAfter, until));
    q.pass(secs(30));
    assert_eq!(q.starts(10).await, [1, 2]);
}

pub async fn an_earlier_retry_after_does_not_shorten_a_later_one<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let (first, second) = (q.call(UP).await, q.call(UP).await);
    let until = q.now() + secs(60);
    q.settle(first, closing(secs(60), None), Outcome::Release).await;
    q.settle(second, closing(secs(5), None), Outcome::Release).await;
    assert_eq!(q.denial(UP).await.at, until);
}

pub async fn a_denied_job_takes_from_no_gate<S: Store>(open: Open<S>) {
    let gates = gates(slots(1), |gates| gates.window = rpm(3).window);
    let q = Harness::new(open, &chain(&[(UP, gates)], |lane| lane.gates = rate(1, 3)));
    let scoped = || hold(UP, "cpf:1", bucket(3, 1, secs(3_600)), 1);
    q.accept((1..=4).map(|n| holding(scoped(), job(n)))).await;
    for n in 1..=3 {
        let grant = q.next().await;
        assert_eq!(grant.job.0, n);
        for _ in 0..5 {
            assert_eq!(q.take(10).await, [], "the slot is taken");
        }
        q.done(&grant).await;
    }
}

pub async fn a_denied_call_takes_from_no_bucket<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let wide = || hold(UP, "wide", bucket(2, 1, secs(3_600)), 1);
    let narrow = || hold(UP, "narrow", bucket(1, 1, secs(3_600)), 1);
    assert!(matches!(q.admit(UP, vec![wide(), narrow()]).await, eclusa_core::Admission::Granted { .. }));
    for _ in 0..5 {
        assert!(matches!(q.admit(UP, vec![wide(), narrow()]).await, eclusa_core::Admission::Denied { .. }));
    }
    assert!(matches!(q.admit(UP, vec![wide()]).await, eclusa_core::Admission::Granted { .. }));
}

pub async fn a_denial_names_the_gate_that_opens_last<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(gates(slots(1), |gates| gates.window = rpm(1).window)));
    q.call(UP).await;
    let denial = q.denial(UP).await;
    let freed = q.now() + LEASE + secs(60);
    assert_eq!(
        (denial.reason, denial.at),
        (Reason::Window, freed),
        "the slot is free at the end of the lease"
    );
}

pub async fn a_lane_has_its_own_window<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.gates = rpm(2)));
    q.accept((1..=3).map(job)).await;
    let answer = q.dispatch(10).await;
    assert_eq!((answer.grants.len(), answer.next), (2, q.now() + LEASE), "the leases end before the window");
    q.pass(LEASE);
    let answer = q.dispatch(10).await;
    assert_eq!((answer.grants.len(), answer.next), (0, q.now() + secs(60)));
    q.pass(secs(60));
    assert_eq!(q.starts(10).await, [1, 2], "their leases ended meanwhile");
}

pub async fn a_lane_has_its_own_rate<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.gates = rate(1, 2)));
    q.accept((1..=4).map(job)).await;
    assert_eq!(q.starts(10).await, [1, 2]);
    q.pass(secs(1));
    assert_eq!(q.starts(10).await, [3]);
}

pub async fn a_job_that_was_not_sent_gives_the_lanes_token_back<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.gates = one_per(secs(3_600))));
    q.accept([job(1)]).await;
    let grant = q.next().await;
    q.release(&grant).await;
    assert_eq!(q.starts(10).await, [1]);
}

pub async fn a_lane_has_its_own_concurrency<S: Store>(open: Open<S>) {
    let two = free().with_slots("concurrency", 2).expect("more than zero");
    let q = Harness::new(open, &chain(&[("a", free()), ("b", free())], |lane| lane.gates = two));
    q.accept([via(&["a"], job(1)), via(&["b"], job(2)), via(&["a"], job(3)), via(&["b"], job(4))]).await;
    let grants = q.take(10).await;
    assert_eq!(grants.len(), 2);
    assert_eq!(q.take(10).await, []);
    q.done(&grants[0]).await;
    assert_eq!(q.starts(10).await, [3]);
    q.pass(LEASE);
    assert_eq!(q.starts(10).await, [2, 3], "lost workers leak no slot of the lane");
}

pub async fn advancing_along_the_chain_keeps_one_slot_of_the_lane<S: Store>(open: Open<S>) {
    let one = free().with_slots("concurrency", 1).expect("more than zero");
    let q = Harness::new(open, &chain(&[("a", free()), ("b", slots(1))], |lane| lane.gates = one));
    q.accept([job(1), job(2)]).await;
    let grant = q.next().await;
    q.advance(&grant, CallResult::Failed).await;
    assert_eq!(q.take(10).await, []);
    q.done(&grant).await;
    assert_eq!(q.starts(10).await, [2]);
}

pub async fn a_job_that_waits_for_the_rest_frees_its_slot_of_the_lane<S: Store>(open: Open<S>) {
    let one = free().with_slots("concurrency", 1).expect("more than zero");
    let q = Harness::new(open, &chain(&[("a", free()), ("b", slots(1))], |lane| lane.gates = one));
    q.call("b").await;
    q.accept([job(1), job(2)]).await;
    let grant = q.next().await;
    assert!(matches!(q.advance(&grant, CallResult::Failed).await, eclusa_core::Advanced::Waits(_)));
    let next = q.next().await;
    assert_eq!((next.job.0, next.upstream), (2, name("a")));
}

pub async fn an_upstream_shows_its_gates<S: Store>(open: Open<S>) {
    let rules = gates(slots(2), |gates| {
        gates.window = rpm(5).window;
        gates.bucket = rate(1, 4).bucket;
    });
    let q = Harness::new(open, &upstream(rules));
    let lease = q.call(UP).await;
    q.call(UP).await;
    let view = q.upstream(UP).await;
    let shown: Vec<_> = view.gates.iter().map(|gate| (gate.reason, gate.level, gate.limit)).collect();
    let expected = [
        (Reason::Concurrency, 2, Some(2)),
        (Reason::Window, 2, Some(5)),
        (Reason::RateLimit, 2_000_000, Some(4_000_000)),
    ];
    assert_eq!(shown, expected);
    assert_eq!(view.gates[0].denies_until, Some(q.now() + LEASE));
    assert_eq!(view.gates[1].denies_until, None);
    assert_eq!(q.settle(lease, CallResult::Success, Outcome::Release).await, Settled::Released);
    assert_eq!(q.upstream(UP).await.in_flight, 1);
}
