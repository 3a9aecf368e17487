//! Tenants take turns.

use eclusa_core::{NewJob, Spec, Store, TenantPage, TenantQuery};

use crate::harness::{Harness, Open};
use crate::rules::{
    LANE, UP, bucket, chain, free, high, hold, holding, lane, name, of, plain, secs, slots, via, weights,
};

/// `count` jobs of `tenant`, numbered from `first` on.
fn jobs(tenant: &str, first: u128, count: u128) -> impl Iterator<Item = NewJob> {
    (first..first + count).map(move |n| of(tenant, n))
}

fn one_fifo() -> Spec {
    lane(|lane| lane.fairness = None)
}

pub async fn tenants_get_three_jobs_in_a_row_while_others_wait<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept(jobs("a", 100, 7).chain(jobs("b", 200, 7))).await;
    let served = q.starts(14).await;
    assert_eq!(served, [100, 101, 102, 200, 201, 202, 103, 104, 105, 203, 204, 205, 106, 206]);
}

pub async fn a_flood_does_not_delay_a_small_tenant_beyond_one_batch<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept(jobs("flood", 1_000, 500)).await;
    q.serve(10).await;
    q.accept([of("small", 1)]).await;
    assert!(q.serve(4).await.contains(&1));
}

pub async fn a_single_tenant_is_not_limited_to_its_batch<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept(jobs("a", 100, 10)).await;
    assert_eq!(q.starts(10).await.len(), 10);
    q.accept(jobs("a", 110, 5).chain(jobs("b", 200, 1))).await;
    assert_eq!(q.starts(2).await, [200, 110], "its batch is long over");
}

pub async fn the_least_recently_served_tenant_is_next<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.fairness = Some(weights(1, &[]))));
    q.accept(jobs("a", 100, 3).chain(jobs("b", 200, 3)).chain(jobs("c", 300, 3))).await;
    assert_eq!(q.starts(5).await, [100, 200, 300, 101, 201]);
    q.accept([of("a", 103)]).await;
    assert_eq!(q.starts(5).await, [301, 102, 202, 302, 103]);
}

pub async fn a_weight_multiplies_the_batch_of_tenants_that_fit_its_pattern<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.fairness = Some(weights(2, &[("gold-*", 3)]))));
    q.accept(jobs("gold-acme", 100, 12).chain(jobs("small", 200, 4))).await;
    let expected = [100, 101, 102, 103, 104, 105, 200, 201, 106, 107, 108, 109, 110, 111, 202, 203];
    assert_eq!(q.starts(16).await, expected);
}

pub async fn without_fairness_a_level_is_one_fifo<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &one_fifo());
    q.accept(jobs("a", 1, 8).chain(jobs("b", 9, 2))).await;
    q.accept([NewJob { tenant: "c".into(), ..high(99) }]).await;
    assert_eq!(q.starts(20).await, [99, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
}

pub async fn without_fairness_tenants_are_still_counted_separately<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &one_fifo());
    q.accept([of("a", 1), of("b", 2), of("a", 3)]).await;
    let tenants: Vec<_> = q.take(10).await.iter().map(|grant| grant.tenant.to_string()).collect();
    assert_eq!(tenants, ["a", "b", "a"]);
    let shown: Vec<_> =
        q.tenants().await.iter().map(|view| (view.tenant.to_string(), view.total_processed)).collect();
    assert_eq!(shown, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
}

pub async fn the_busiest_tenants_come_with_the_one_that_is_served_next_first<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    for (tenant, first, count) in [("next", 1, 1), ("few", 10, 2), ("most", 20, 5), ("many", 30, 4)] {
        q.accept((first..first + count).map(|n| of(tenant, n))).await;
    }
    let names =
        |page: TenantPage| page.tenants.iter().map(|view| view.tenant.to_string()).collect::<Vec<_>>();
    let all = TenantQuery { busiest: true, ..TenantQuery::new(name(LANE), 3) };
    assert_eq!(names(q.tenant_page(all.clone()).await), ["next", "most", "many"]);
    let some = TenantQuery { names: Some(vec!["m*".into(), "few".into()]), ..all };
    assert_eq!(names(q.tenant_page(some).await), ["most", "many", "few"]);
}

pub async fn tenants_come_in_pages<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept((1..=5).map(|n| of(&format!("tenant-{n}"), n))).await;
    let (mut found, mut after) = (Vec::new(), Some(0));
    while let Some(place) = after {
        let page = q.tenant_page(TenantQuery { after: place, ..TenantQuery::new(name(LANE), 2) }).await;
        assert!(page.tenants.len() <= 2, "more than asked for");
        found.extend(page.tenants.into_iter().map(|view| view.tenant.to_string()));
        after = page.next;
    }
    found.sort();
    assert_eq!(found, (1..=5).map(|n| format!("tenant-{n}")).collect::<Vec<_>>());
}

pub async fn new_tenants_do_not_starve_an_old_one<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([of("old", 1)]).await;
    q.serve(1).await;
    q.accept([of("old", 2)]).await;
    q.accept(jobs("between", 3, 3)).await;
    let mut before = 0;
    'waiting: for n in 100..200 {
        q.accept([of(&format!("new-{n}"), n)]).await;
        for served in q.serve(1).await {
            if served == 2 {
                break 'waiting;
            }
            before += 1;
        }
    }
    assert!(before <= 12, "{before} jobs of others went first");
}

pub async fn a_tenant_whose_lines_are_blocked_keeps_its_place<S: Store>(open: Open<S>) {
    let rules = chain(&[("full", slots(1)), ("free", free())], |lane| lane.fairness = Some(weights(1, &[])));
    let q = Harness::new(open, &rules);
    q.accept([via(&["full"], of("z", 1))]).await;
    let running = q.next().await;
    q.accept([via(&["full"], of("blocked", 2))]).await;
    for n in 0..8 {
        q.accept([via(&["free"], of("x", 100 + n)), via(&["free"], of("y", 200 + n))]).await;
        assert_eq!(q.serve(2).await.len(), 2);
    }
    q.done(&running).await;
    q.accept([via(&["full"], of("x", 300)), via(&["full"], of("y", 301))]).await;
    assert_eq!(q.starts(1).await, [2]);
}

pub async fn a_line_parked_at_its_bucket_keeps_its_tenants_place<S: Store>(open: Open<S>) {
    let scoped = |n| hold(UP, "cpf:1", bucket(1, 1, secs(60)), n);
    let q = Harness::new(open, &lane(|lane| lane.fairness = Some(weights(1, &[]))));
    q.accept([holding(scoped(1), of("a", 1)), holding(scoped(1), of("a", 2))]).await;
    assert_eq!(q.serve(10).await, [1]);
    q.accept(jobs("b", 100, 3).chain(jobs("c", 200, 3))).await;
    assert_eq!(q.serve(4).await.len(), 4);
    q.pass(secs(60));
    assert_eq!(q.starts(1).await, [2]);
}

pub async fn after_three_rounds_without_service_the_priority_is_two<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &lane(|lane| lane.fairness = Some(weights(1, &[]))));
    q.accept([of("a", 1)]).await;
    q.serve(1).await;
    let served = q.tenant("a").await;
    assert_eq!((served.rounds_without_processing, served.current_priority), (0, 5));
    q.accept([of("b", 2), of("c", 3), of("d", 4)]).await;
    q.serve(3).await;
    let waited = q.tenant("a").await;
    assert_eq!((waited.rounds_without_processing, waited.current_priority), (3, 2));
    assert_eq!(q.tenant("d").await.current_priority, 5);
}

pub async fn a_tenant_that_was_never_served_counts_four_rounds<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept([of("a", 1)]).await;
    let view = q.tenant("a").await;
    assert_eq!((view.rounds_without_processing, view.current_priority), (4, 1));
    assert_eq!((view.total_processed, view.last_processed, view.consecutive_batch), (0, None, 0));
}

pub async fn the_view_counts_jobs_in_a_row_and_in_total<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &plain());
    q.accept(jobs("a", 1, 2).chain(jobs("b", 10, 2))).await;
    q.serve(2).await;
    q.pass(secs(1));
    q.serve(1).await;
    let (a, b) = (q.tenant("a").await, q.tenant("b").await);
    assert_eq!((a.total_processed, a.consecutive_batch, a.rounds_without_processing), (2, 0, 1));
    assert_eq!((b.total_processed, b.consecutive_batch, b.rounds_without_processing), (1, 1, 0));
    assert_eq!(b.last_processed, Some(q.now()));
}
