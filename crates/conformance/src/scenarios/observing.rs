//! Observing a store. A store that restarts between two questions does not know what it returned before, and answers with a gap.

use eclusa_core::{EventKind, JobTransition, Observe, ObserveCursor, Observed, Span, Status, Store};

use crate::harness::{Harness, Open};
use crate::rules::{free, job, upstream};

async fn observe<S: Store>(q: &Harness<S>, seen: Option<ObserveCursor>) -> Observed {
    q.observe(Observe { seen, wait: Span::ZERO }).await
}

fn transitions(observed: &Observed) -> Vec<(u128, &'static str, Status)> {
    let word = |change: &JobTransition| match change.kind {
        EventKind::Accepted => "accepted",
        EventKind::Started(_) | EventKind::StartedAfter(..) => "started",
        EventKind::Ended(_) => "ended",
        _ => "other",
    };
    observed.jobs.iter().map(|change| (change.job.0, word(change), change.status)).collect()
}

pub async fn an_observer_gets_all_transitions_or_a_gap<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    q.accept([job(1)]).await;
    let first = observe(&q, None).await;
    let state = first.state.expect("a new observer gets everything");
    assert_eq!((state.lanes[0].queued.iter().sum::<u64>(), state.upstreams.len()), (1, 1));
    assert!(first.jobs.is_empty() && !first.gap);

    q.accept([job(2)]).await;
    q.done(&q.next().await).await;
    let second = observe(&q, Some(first.cursor)).await;
    let all = [
        (2, "accepted", Status::Queued),
        (1, "started", Status::Processing),
        (1, "ended", Status::Completed),
    ];
    assert_eq!(transitions(&second), if second.gap { [].as_slice() } else { all.as_slice() });
    let state = second.state.expect("the lane has changed");
    assert_eq!((state.lanes[0].queued.iter().sum::<u64>(), state.lanes[0].totals.completed), (1, 1));

    let third = observe(&q, Some(second.cursor)).await;
    assert!(third.jobs.is_empty());
    assert_eq!(third.state.is_some(), third.gap, "nothing has changed");
}

pub async fn an_unknown_cursor_is_a_gap<S: Store>(open: Open<S>) {
    let q = Harness::new(open, &upstream(free()));
    let first = observe(&q, None).await;
    let ahead = ObserveCursor { number: first.cursor.number + 7, ..first.cursor };
    let late = observe(&q, Some(ahead)).await;
    assert!(late.gap && late.state.is_some() && late.jobs.is_empty());
}
