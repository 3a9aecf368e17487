//! What blocks the next job of a lane, when its last job should start, and how many jobs will expire before they start.
//!
//! These are estimates of bounded cost: one job is examined, the gates forecast when they admit a number of calls, and at most
//! [`MAX_EXAMINED`] jobs are compared with their expiry.

use super::Engine;
use super::why::Obstacle;
use crate::gate::{NotUntil, Reason};
use crate::job::Level;
use crate::lane::Lane;
use crate::table::{JobIx, LaneIx, UpstreamIx};
use crate::time::{Span, Time};
use crate::views::LaneHold;

/// Jobs compared with their expiry. The share of these that will expire is applied to all jobs.
const MAX_EXAMINED: usize = 256;

/// Workers with free slots ask again within a second. If none has asked for this long, none is free.
const NO_WORKER_AFTER: Span = Span::from_secs(3);

/// The estimates for one lane.
#[derive(Debug, Default)]
pub(super) struct Outlook {
    pub(super) held: Option<LaneHold>,
    pub(super) last_start: Option<Time>,
    pub(super) will_expire: u64,
}

impl Engine {
    pub(super) fn outlook(&self, index: LaneIx, now: Time) -> Outlook {
        let Some(head) = self.head_of(index) else { return Outlook::default() };
        let lane = self.lane(index);
        let obstacle = self.hindrance(head, 0, now);
        let in_line: u64 = lane.levels.iter().map(|level| level.queued).sum();
        let denial = obstacle.as_ref().map_or(NotUntil::new(Reason::Behind, now), |obstacle| {
            NotUntil::new(obstacle.reason, obstacle.until)
        });
        let held = obstacle.and_then(|obstacle| self.hold(index, &obstacle, now));
        if in_line == 0 || denial.at == Time::NEVER {
            return Outlook { held, ..Outlook::default() };
        }
        let upstreams = self.upstreams_in_line(lane, head);
        let start = |ahead| self.estimate(index, upstreams.iter().copied(), denial, ahead, now);
        let last_start = start(in_line - 1);
        Outlook { held, last_start: Some(last_start), will_expire: will_expire(lane, last_start, start) }
    }

    /// The job that would start next; if none is in line, the one that will join its line next.
    fn head_of(&self, index: LaneIx) -> Option<JobIx> {
        let lane = self.lane(index);
        let none_blocked = vec![false; lane.groups()];
        let next = Level::ALL.iter().find_map(|level| self.choose(index, *level, &none_blocked));
        let next = next.and_then(|choice| lane.lines[choice.line].head_job());
        // Lines that are parked at buckets are not offered.
        next.or_else(|| lane.oldest_job()).or_else(|| lane.due.first_key_value().map(|(_, job)| *job))
    }

    fn hold(&self, index: LaneIx, obstacle: &Obstacle, now: Time) -> Option<LaneHold> {
        let lane = self.lane(index);
        let until = match obstacle.reason {
            Reason::Behind | Reason::Coalesced => return None,
            Reason::NoWorker if now.since(lane.asked) < NO_WORKER_AFTER => return None,
            Reason::NoWorker => None,
            // Slots become free as calls end; the time of the denial is only when a lease expires.
            Reason::Concurrency => {
                let interval_us = lane.tempo.interval_us();
                (interval_us > 0).then(|| now + Span::from_millis(interval_us / 1_000))
            }
            _ => Some(obstacle.until).filter(|until| *until < Time::NEVER),
        };
        let upstream = obstacle.upstream.map(|upstream| self.upstream(upstream).name.clone());
        Some(LaneHold { reason: obstacle.reason, upstream, until })
    }

    /// The upstreams that jobs in line may use. A job with its own chain may use only some of them.
    fn upstreams_in_line(&self, lane: &Lane, head: JobIx) -> Vec<UpstreamIx> {
        let mut all: Vec<_> = self.untried(&self.jobs[head]).collect();
        for upstream in lane.upstreams_in_line() {
            if !all.contains(&upstream) {
                all.push(upstream);
            }
        }
        all
    }
}

/// About how many jobs will expire before their turn, if jobs start in the order of their expiry.
fn will_expire(lane: &Lane, last_start: Time, start: impl Fn(u64) -> Time) -> u64 {
    let first = lane.expiry.first_key_value().map(|((expires, _), _)| *expires);
    if first.is_none_or(|first| last_start <= first) {
        return 0;
    }
    let (mut served, mut expired, mut next) = (0_u64, 0_u64, start(0));
    for (expires, _) in lane.expiry.keys().take(MAX_EXAMINED) {
        if next <= *expires {
            served += 1;
            next = start(served);
        } else {
            expired += 1;
        }
    }
    expired * lane.expiry.len() as u64 / (served + expired)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{CallResult, GateSpecs, WindowSpec};
    use crate::ids::{JobId, Name};
    use crate::job::NewJob;
    use crate::spec::{Chain, LaneSpec, Spec, UpstreamSpec};
    use crate::verbs::{Dispatch, Outcome, Report, Settlement};
    use crate::views::LaneView;

    const TTL: Span = Span::from_secs(90);

    fn at(secs: u64) -> Time {
        Time::from_millis(1_000_000) + Span::from_secs(secs)
    }

    fn name(name: &str) -> Name {
        Name::new(name).unwrap()
    }

    /// A lane whose jobs expire after 90 s, and an upstream that takes ten calls a minute.
    fn engine() -> Engine {
        let mut lane = LaneSpec::new(name("work"), Chain::new(vec![name("up")]).unwrap());
        lane.ttl = Some(TTL);
        let mut gates = GateSpecs::default();
        gates.window = Some(WindowSpec::per_minute(10).unwrap());
        let spec = Spec::new(vec![lane], vec![UpstreamSpec::new(name("up"), gates)]).unwrap();
        Engine::new(&spec)
    }

    fn enqueue(engine: &mut Engine, ids: std::ops::Range<u128>, now: Time) {
        let jobs = ids.map(|id| NewJob::new(JobId(id), name("work"), "acme", *b"x")).collect();
        engine.enqueue(jobs, now);
    }

    fn ask(nonce: u64) -> Dispatch {
        let (lease, wait) = (Span::from_secs(10), Span::ZERO);
        Dispatch { lane: name("work"), max: 100, lease, nonce, wait, denied: None }
    }

    /// Starts all jobs that may start, and completes them.
    fn run(engine: &mut Engine, now: Time) -> usize {
        let grants = engine.dispatch(&ask(now.as_millis()), now).grants;
        let done = |lease| Settlement {
            lease,
            report: Report::from(CallResult::Success),
            outcome: Outcome::Done,
            answer: None,
            unsent: None,
        };
        engine.settle(grants.iter().map(|grant| done(grant.lease)).collect(), now);
        grants.len()
    }

    fn lane(engine: &Engine, now: Time) -> LaneView {
        engine.lane_view(&name("work"), now).unwrap()
    }

    #[test]
    fn a_full_window_holds_the_lane_until_it_opens_and_the_start_of_the_last_job_is_known() {
        let mut engine = engine();
        enqueue(&mut engine, 0..25, at(0));
        assert_eq!(run(&mut engine, at(0)), 10);
        let view = lane(&engine, at(1));
        let hold = LaneHold { reason: Reason::Window, upstream: Some(name("up")), until: Some(at(60)) };
        assert_eq!(view.held, Some(hold));
        let last = engine.why(JobId(24), at(1)).unwrap();
        assert_eq!(view.last_start, last.eta, "the same as the job's own estimate");
        assert_eq!(view.last_start, Some(at(120)));
        assert_eq!(view.will_expire, 5, "those that do not fit into the second window");
        assert_eq!((view.oldest_waiting, view.ttl), (Some(at(0)), Some(TTL)));

        assert_eq!(run(&mut engine, at(60)), 10);
        run(&mut engine, at(91));
        let view = lane(&engine, at(91));
        assert_eq!((view.totals.expired, view.held, view.last_start), (5, None, None));
    }

    #[test]
    fn the_share_of_expiring_jobs_is_applied_to_all() {
        let mut engine = engine();
        enqueue(&mut engine, 0..1_000, at(0));
        run(&mut engine, at(0));
        let view = lane(&engine, at(1));
        assert!((940..=980).contains(&view.will_expire), "10 of 990 start in time, not {view:?}");
    }

    #[test]
    fn a_paused_lane_is_held_without_an_end() {
        let mut engine = engine();
        engine.pause(&name("work"), true, at(0));
        assert_eq!(lane(&engine, at(0)).held, None, "nothing waits");
        enqueue(&mut engine, 0..2, at(0));
        let view = lane(&engine, at(0));
        let hold = LaneHold { reason: Reason::Paused, upstream: None, until: None };
        assert_eq!((view.held, view.last_start, view.will_expire), (Some(hold), None, 0));
    }

    #[test]
    fn a_lane_without_a_free_worker_is_held() {
        let mut engine = engine();
        engine.dispatch(&ask(1), at(0));
        enqueue(&mut engine, 0..2, at(1));
        assert_eq!(lane(&engine, at(1)).held, None, "a worker asked a second ago");
        let view = lane(&engine, at(4));
        let hold = LaneHold { reason: Reason::NoWorker, upstream: None, until: None };
        assert_eq!((view.held, view.last_start), (Some(hold), Some(at(4))));
    }

    #[test]
    fn jobs_that_are_not_in_line_yet_hold_the_lane_until_they_are_due() {
        let mut engine = engine();
        let job = NewJob { delay: Span::from_secs(30), ..NewJob::new(JobId(1), name("work"), "acme", *b"x") };
        engine.enqueue(vec![job], at(0));
        let view = lane(&engine, at(1));
        let hold = LaneHold { reason: Reason::Scheduled, upstream: None, until: Some(at(30)) };
        assert_eq!((view.held, view.last_start), (Some(hold), None));
    }
}
