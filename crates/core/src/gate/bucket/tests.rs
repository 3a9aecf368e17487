use super::*;

fn at(ms: u64) -> Time {
    Time::from_millis(1_000_000 + ms)
}

fn grants(spec: &BucketSpec, bucket: &mut Bucket, calls: usize, now: Time) -> usize {
    (0..calls)
        .filter(|_| {
            let admitted = bucket.admits(spec, Tokens::ONE, now).is_ok();
            if admitted {
                bucket.spend(spec, Tokens::ONE, now);
            }
            admitted
        })
        .count()
}

#[test]
fn fifteen_calls_against_ten_per_second_burst_ten_give_exactly_ten() {
    let spec = BucketSpec::new(10, 10, Span::from_secs(1)).unwrap();
    let mut bucket = Bucket::full(&spec, at(0));
    assert_eq!(grants(&spec, &mut bucket, 15, at(0)), 10);
    assert_eq!(grants(&spec, &mut bucket, 15, at(100)), 1);
    assert_eq!(bucket.admits(&spec, Tokens::ONE, at(100)), Err(NotUntil::new(Reason::RateLimit, at(200))));
}

#[test]
fn forty_a_day_keeps_every_fraction_however_often_it_is_read() {
    let spec = BucketSpec::new(200, 40, Span::from_secs(86_400)).unwrap();
    let mut bucket = Bucket::full(&spec, at(0));
    bucket.spend(&spec, Tokens::whole(200), at(0));
    for ms in (0..86_400_000).step_by(7_919) {
        bucket.settle(&spec, Tokens::ZERO, Tokens::ZERO, at(ms));
    }
    assert_eq!(bucket.balance(&spec, at(86_400_000)), Tokens::whole(40));
}

#[test]
fn a_clock_that_steps_back_adds_no_tokens() {
    let spec = BucketSpec::new(10, 10, Span::from_secs(1)).unwrap();
    let mut bucket = Bucket::full(&spec, at(5_000));
    assert_eq!(grants(&spec, &mut bucket, 20, at(5_000)), 10);
    assert_eq!(grants(&spec, &mut bucket, 20, at(0)), 0);
    assert_eq!(grants(&spec, &mut bucket, 20, at(5_000)), 0);
}

#[test]
fn a_cost_above_the_hold_is_debt_that_must_be_paid_first() {
    let spec = BucketSpec::new(100, 2, Span::from_secs(60)).unwrap();
    let mut bucket = Bucket::full(&spec, at(0));
    for _ in 0..10 {
        bucket.hold(&spec, Tokens::ONE, at(0));
        bucket.settle(&spec, Tokens::ONE, Tokens::whole(20), at(0));
    }
    assert_eq!(bucket.balance(&spec, at(0)), Tokens::whole(100) - Tokens::whole(200));
    let opens = at(101 * 30_000);
    assert_eq!(bucket.admits(&spec, Tokens::ONE, at(0)), Err(NotUntil::new(Reason::RateLimit, opens)));
    assert_eq!(bucket.admits(&spec, Tokens::ONE, opens), Ok(()));
}

#[test]
fn a_returned_hold_never_lifts_the_balance_above_capacity() {
    let spec = BucketSpec::new(10, 10, Span::from_secs(1)).unwrap();
    let mut bucket = Bucket::full(&spec, at(0));
    bucket.hold(&spec, Tokens::whole(5), at(0));
    bucket.settle(&spec, Tokens::whole(5), Tokens::ZERO, at(60_000));
    assert_eq!(bucket.balance(&spec, at(60_000)), Tokens::whole(10));
}

#[test]
fn rates_of_zero_and_holds_above_capacity_name_their_field() {
    assert_eq!(BucketSpec::new(0, 1, Span::from_secs(1)).unwrap_err().field, "capacity");
    assert_eq!(BucketSpec::new(1, 0, Span::from_secs(1)).unwrap_err().field, "refill");
    assert_eq!(BucketSpec::new(1, 1, Span::ZERO).unwrap_err().field, "refill");
    let spec = BucketSpec::new(5, 1, Span::from_secs(1)).unwrap();
    assert_eq!(spec.check_hold(Tokens::whole(6)).unwrap_err().field, "hold");
    assert_eq!(spec.check_hold(Tokens::ZERO).unwrap_err().field, "hold");
    assert_eq!(spec.check_hold(Tokens::whole(5)), Ok(Tokens::whole(5)));
}

#[test]
fn while_tokens_are_held_a_bucket_refills_only_the_rest() {
    let spec = BucketSpec::new(100, 2, Span::from_secs(60)).unwrap();
    let mut bucket = Bucket::full(&spec, at(0));
    bucket.hold(&spec, Tokens::whole(20), at(0));
    let month = at(30 * 86_400_000);
    assert_eq!(bucket.balance(&spec, month), Tokens::whole(80));
    bucket.settle(&spec, Tokens::whole(20), Tokens::whole(20), month);
    assert_eq!(bucket.balance(&spec, month), Tokens::whole(80), "the answer says that it was spent");
    assert_eq!(bucket.balance(&spec, month + Span::from_secs(30)), Tokens::whole(81));
}

#[test]
fn a_hold_blocked_by_other_holds_is_retried_soon() {
    let spec = BucketSpec::new(100, 2, Span::from_secs(60)).unwrap();
    let mut bucket = Bucket::full(&spec, at(0));
    bucket.hold(&spec, Tokens::whole(90), at(0));
    let denied = bucket.admits(&spec, Tokens::whole(20), at(7));
    assert_eq!(denied, Err(NotUntil::new(Reason::RateLimit, at(1_007))));
    bucket.settle(&spec, Tokens::whole(90), Tokens::whole(90), at(10));
    let denied = bucket.admits(&spec, Tokens::whole(20), at(10));
    assert_eq!(denied, Err(NotUntil::new(Reason::RateLimit, at(10 + 10 * 30_000))));
}

#[test]
fn a_smaller_capacity_counts_held_tokens() {
    let (old, new) =
        (BucketSpec::new(100, 2, Span::from_secs(60)), BucketSpec::new(10, 2, Span::from_secs(60)));
    let (old, new) = (old.unwrap(), new.unwrap());
    let mut bucket = Bucket::full(&old, at(0));
    bucket.hold(&old, Tokens::whole(20), at(0));
    bucket.fit(&new);
    assert_eq!(bucket.balance(&new, at(0)), Tokens::from_micro(-10_000_000));
    bucket.settle(&new, Tokens::whole(20), Tokens::ONE, at(0));
    assert_eq!(bucket.balance(&new, at(0)), Tokens::whole(9));
}
