//! Every job is in exactly one state, ends in exactly one status, and counts add up.

use eclusa_core::{Level, Status};

use super::{Checker, Step};
use crate::ledger::{Ledger, State, Verdict, ensure};
use crate::rules::lane_name;

pub(crate) struct Conservation;

impl Checker for Conservation {
    fn after(&mut self, step: &Step<'_>) -> Verdict {
        for lane in 0..2 {
            counts_add_up(step, lane)?;
        }
        for (id, job) in &step.ledger.jobs {
            let shown = step.engine.job(*id).map(|view| view.status);
            let right = match job.state {
                State::Pending(_) => shown == Some(Status::Pending),
                State::Queued => shown == Some(Status::Queued),
                State::Processing(_) => shown == Some(Status::Processing),
                State::Ended(status) => shown.is_none_or(|shown| shown == status),
            };
            ensure!(right, "{id:?} is shown as {shown:?}, but is {job:?}");
        }
        Ok(())
    }
}

fn counts_add_up(step: &Step<'_>, lane: usize) -> Verdict {
    let view = step.engine.lane_view(&lane_name(lane), step.now).unwrap();
    let totals = view.totals;
    let waiting = view.queued.iter().sum::<u64>() + view.pending;
    let served = totals.cache_hits + totals.coalesced + totals.fallbacks - totals.answered_at_intake;
    let ended = totals.completed + totals.failed + totals.expired + totals.preempted + totals.cancelled;
    ensure!(totals.accepted == waiting + view.processing + ended + served, "counts do not add up: {view:?}");
    let Ledger { jobs, accepted, ended, at_intake, .. } = step.ledger;
    let own = || jobs.values().filter(|job| job.lane == lane);
    let queued = Level::ALL
        .map(|level| own().filter(|job| job.state == State::Queued && job.level == level).count() as u64);
    let pending = own().filter(|job| matches!(job.state, State::Pending(_))).count() as u64;
    let processing = own().filter(|job| matches!(job.state, State::Processing(_))).count() as u64;
    let bytes: u64 = own().filter(|job| job.waits()).map(|job| job.bytes).sum();
    ensure!(
        (queued, pending, processing, bytes)
            == (view.queued, view.pending, view.processing, view.waiting_bytes),
        "{queued:?} queued, {pending} pending, {processing} processing, {bytes} bytes, but shown {view:?}"
    );
    let counted = |word| ended[lane].get(word).copied().unwrap_or_default();
    let reported = ["completed", "failed", "expired", "preempted", "cancelled", "coalesced"].map(counted);
    let shown = [
        totals.completed,
        totals.failed,
        totals.expired,
        totals.preempted,
        totals.cancelled,
        totals.coalesced,
    ];
    ensure!(
        reported == shown && accepted[lane] == totals.accepted,
        "reported {reported:?}, but shown {totals:?}"
    );
    let [fresh, old] = at_intake[lane];
    let fallbacks =
        ["breaker_aberto", "timeout", "erro_5xx", "erro_conexao"].map(counted).into_iter().sum::<u64>();
    let reported = [counted("cache") + fresh, fallbacks + old, fresh + old];
    let shown = [totals.cache_hits, totals.fallbacks, totals.answered_at_intake];
    ensure!(reported == shown, "answered {reported:?}, but shown {totals:?}");
    Ok(())
}
