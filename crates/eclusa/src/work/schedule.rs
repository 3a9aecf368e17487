//! Schedule: enqueues the jobs of `[schedules]` at their times.
//!
//! Every process of a fleet runs this loop. The store fires each scheduled time for the first process that asks, and
//! keeps the last one, so that a process that starts later knows what was missed.

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::{Fire, Fired, Name, NewJob, Span, Store, StoreError, Time};
use tokio::task::JoinSet;

use super::{POLL, Workers};
use crate::config::{Missed, Schedule};
use crate::ids::Ids;
use crate::model::JobRequest;
use crate::policy::{Scopes, Subject, Takes};
use crate::rules::Rules;
use crate::store::AnyStore;
use crate::words::iso;

/// A scheduled time that is overdue by more than this was missed.
const LATE: Span = Span::from_secs(60);
/// The most missed times that are made up for.
const MAX_MISSED: usize = 100;
/// How long to wait before a refused job is tried again.
const REFUSED: Duration = Duration::from_secs(10);

/// What these loops need in addition to what workers need.
pub(super) struct ScheduleParts {
    pub(super) workers: Arc<Workers>,
    pub(super) store: Arc<AnyStore>,
    pub(super) scopes: Arc<Scopes>,
    pub(super) ids: Arc<Ids>,
}

/// Runs a loop for each schedule of the rules in force.
pub(super) async fn run(parts: ScheduleParts) {
    let (mut changes, life) = (parts.workers.rules.watch(), parts.workers.life.clone());
    let parts = Arc::new(parts);
    loop {
        let rules = changes.borrow_and_update().clone();
        let mut loops = JoinSet::new();
        for (name, schedule) in &rules.config.schedules {
            let (parts, rules) = (parts.clone(), rules.clone());
            let (name, schedule) = (name.clone(), schedule.clone());
            loops.spawn(Timetable { parts, rules, name, schedule, refusal_logged: false }.run_forever());
        }
        tokio::select! {
            () = life.stopping.cancelled() => return,
            _ = changes.changed() => {}
            // The store failed permanently.
            Some(_) = loops.join_next() => return,
        }
    }
}

/// The next step of a schedule.
#[derive(Debug, PartialEq, Eq)]
enum NextStep {
    /// Nothing is due before this time.
    Wait(Time),
    /// The job of this time is due.
    Job(Time),
    /// All times up to this one are skipped.
    Pass(Time),
}

/// The next step at `now` for a schedule that is done up to `last`; `None` if it has no more times.
fn next(schedule: &Schedule, last: Time, now: Time) -> Option<NextStep> {
    let first = schedule.after(last)?;
    if first > now {
        return Some(NextStep::Wait(first));
    }
    if first + LATE >= now {
        return Some(NextStep::Job(first));
    }
    Some(match schedule.missed {
        Missed::Skip => NextStep::Pass(schedule.until(now - LATE).unwrap_or(first)),
        Missed::Once => NextStep::Job(schedule.until(now).unwrap_or(first)),
        Missed::All => match too_old(schedule, now).filter(|passed| *passed >= first) {
            Some(passed) => NextStep::Pass(passed),
            None => NextStep::Job(first),
        },
    })
}

/// The newest missed time that is too old to be made up for.
fn too_old(schedule: &Schedule, now: Time) -> Option<Time> {
    let before = |time: Time| schedule.until(time - Span::from_millis(1));
    (0..MAX_MISSED).try_fold(schedule.until(now)?, |moment, _| before(moment))
}

/// The loop of one schedule.
struct Timetable {
    parts: Arc<ScheduleParts>,
    rules: Arc<Rules>,
    name: Name,
    schedule: Arc<Schedule>,
    /// Whether it was logged that a job is refused.
    refusal_logged: bool,
}

impl Timetable {
    async fn run_forever(mut self) {
        let (decider, clock) = (self.parts.workers.decider.clone(), self.parts.workers.clock.clone());
        let mut last = None;
        loop {
            let step = match last {
                None => self.begin(clock.now()).await,
                Some(time) => self.step(time, clock.now()).await,
            };
            match step {
                Ok(done) => last = Some(done),
                Err(error) if decider.wait_out_outage(&error).await => {}
                Err(_) => return,
            }
        }
    }

    /// Returns the last time that is done; a new schedule begins now.
    async fn begin(&self, now: Time) -> Result<Time, StoreError> {
        let known = self.parts.store.schedules().await?;
        let known = known.into_iter().find(|(name, _)| *name == self.name);
        let last = known.map_or(now, |(_, last)| last);
        if last == now {
            let ask = Fire { schedule: self.name.clone(), moment: now, job: None };
            self.parts.workers.decider.fire(ask).await?;
        }
        let next = self.schedule.after(last.max(now)).and_then(iso);
        tracing::info!(schedule = %self.name, lane = %self.schedule.lane, next, "Schedule begins");
        Ok(last)
    }

    /// Does the next step; returns the last time that is done.
    async fn step(&mut self, last: Time, now: Time) -> Result<Time, StoreError> {
        let (moment, job) = match next(&self.schedule, last, now) {
            None => {
                tokio::time::sleep(POLL).await;
                return Ok(last);
            }
            Some(NextStep::Wait(moment)) => {
                tokio::time::sleep(Duration::from_millis(moment.since(now).as_millis()).min(POLL)).await;
                return Ok(last);
            }
            Some(NextStep::Pass(moment)) => {
                tracing::warn!(schedule = %self.name, until = iso(moment), "Scheduled times were missed");
                (moment, None)
            }
            Some(NextStep::Job(moment)) => {
                let Some(job) = self.job(moment).await? else {
                    self.refused(moment).await;
                    return Ok(last);
                };
                (moment, Some(Box::new(job)))
            }
        };
        let id = job.as_ref().map(|job| job.id);
        let fire = Fire { schedule: self.name.clone(), moment, job };
        Ok(match self.parts.workers.decider.fire(fire).await? {
            Fired::AlreadyDone(done) => done,
            Fired::TooSoon(span) => {
                tokio::time::sleep(Duration::from_millis(span.as_millis()).min(POLL)).await;
                last
            }
            Fired::Submitted(answer) => match (answer.jobs.first(), id) {
                (Some(enqueued), _) if enqueued.is_refused() => {
                    self.refused(moment).await;
                    last
                }
                (enqueued, id) => {
                    if let (Some(_), Some(id)) = (enqueued, id) {
                        tracing::info!(schedule = %self.name, jobId = %id, moment = iso(moment), "Scheduled job enqueued");
                    }
                    self.refusal_logged = false;
                    moment
                }
            },
        })
    }

    async fn refused(&mut self, moment: Time) {
        if !std::mem::replace(&mut self.refusal_logged, true) {
            let (schedule, lane) = (&self.name, &self.schedule.lane);
            tracing::warn!(%schedule, %lane, moment = iso(moment), "Scheduled job refused; trying until it is accepted");
        }
        tokio::time::sleep(REFUSED).await;
    }

    /// The job of a scheduled time, with the same key in every process; `None` if the lane or a policy would refuse it.
    async fn job(&self, moment: Time) -> Result<Option<NewJob>, StoreError> {
        let lane = &self.schedule.lane;
        let Some(rules) = self.rules.config.lanes.get(lane) else { return Ok(None) };
        let Ok(mut submission) = JobRequest::read(&self.schedule.job) else { return Ok(None) };
        submission.key = Some(format!("schedule:{}:{}", self.name, iso(moment).unwrap_or_default()));
        let config = &self.rules.config;
        let Ok(checked) = submission.check(self.parts.ids.job(), rules, config.into()) else {
            return Ok(None);
        };
        let subject = Subject::of_job(checked.request(), &checked.shaped, checked.tenant());
        let takes = self.parts.scopes.takes(&config.upstreams, &checked.chain, subject).await?;
        let Ok(Takes { holds, correlation }) = takes else { return Ok(None) };
        Ok(Some(NewJob { holds, correlation, ..checked.into_job(lane) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn schedule(cron: &str, tz: &str, missed: &str) -> Arc<Schedule> {
        let text = format!(
            "[lanes.a]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"http://127.0.0.1:1\"\n\
             [schedules.s]\ncron = \"{cron}\"\ntz = \"{tz}\"\nlane = \"a\"\njob = {{ request = {{}} }}\nmissed = \"{missed}\"\n"
        );
        let config = Config::parse("test.toml", &text, &|_| None).unwrap_or_else(|errors| panic!("{errors}"));
        config.schedules.into_values().next().unwrap()
    }

    fn at(text: &str) -> Time {
        Time::from_millis(u64::try_from(text.parse::<jiff::Timestamp>().unwrap().as_millisecond()).unwrap())
    }

    fn moments(schedule: &Schedule, from: &str, count: usize) -> Vec<String> {
        let mut time = at(from);
        let mut next = || {
            time = schedule.after(time).unwrap();
            iso(time).unwrap().replace(".000Z", "Z")
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn times_follow_the_time_zone() {
        let night = schedule("0 3 * * *", "America/Sao_Paulo", "skip");
        let found = moments(&night, "2026-11-17T05:59:59Z", 2);
        assert_eq!(found, ["2026-11-17T06:00:00Z", "2026-11-18T06:00:00Z"]);
    }

    #[test]
    fn a_change_to_or_from_daylight_saving_time_neither_skips_nor_repeats_a_daily_time() {
        let early = schedule("30 2 * * *", "America/New_York", "skip");
        let found = moments(&early, "2026-03-07T12:00:00Z", 2);
        assert_eq!(
            found,
            ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"],
            "02:30 does not exist: fires right after the gap"
        );
        let night = schedule("30 1 * * *", "America/New_York", "skip");
        let found = moments(&night, "2026-11-01T04:00:00Z", 2);
        assert_eq!(found, ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"], "01:30 occurs twice: fires once");
        let hourly = schedule("0 * * * *", "America/New_York", "skip");
        let found = moments(&hourly, "2026-11-01T04:30:00Z", 3);
        assert_eq!(found, ["2026-11-01T05:00:00Z", "2026-11-01T06:00:00Z", "2026-11-01T07:00:00Z"]);
    }

    #[test]
    fn the_next_step_depends_on_the_rule_for_missed_times() {
        let last = at("2026-11-14T03:00:00Z");
        let day = |day: u64| at(&format!("2026-11-{day}T03:00:00Z"));
        for (now, skip, once, all) in [
            (
                "2026-11-15T02:59:59Z",
                NextStep::Wait(day(15)),
                NextStep::Wait(day(15)),
                NextStep::Wait(day(15)),
            ),
            ("2026-11-15T03:00:00Z", NextStep::Job(day(15)), NextStep::Job(day(15)), NextStep::Job(day(15))),
            ("2026-11-15T03:01:00Z", NextStep::Job(day(15)), NextStep::Job(day(15)), NextStep::Job(day(15))),
            ("2026-11-15T03:01:01Z", NextStep::Pass(day(15)), NextStep::Job(day(15)), NextStep::Job(day(15))),
            ("2026-11-17T02:00:00Z", NextStep::Pass(day(16)), NextStep::Job(day(16)), NextStep::Job(day(15))),
            // Today's is not missed yet.
            ("2026-11-17T03:00:30Z", NextStep::Pass(day(16)), NextStep::Job(day(17)), NextStep::Job(day(15))),
        ] {
            for (missed, wanted) in [("skip", skip), ("once", once), ("all", all)] {
                assert_eq!(
                    next(&schedule("0 3 * * *", "UTC", missed), last, at(now)),
                    Some(wanted),
                    "{missed} {now}"
                );
            }
        }
    }

    #[test]
    fn at_most_max_missed_times_are_made_up_for() {
        let minutes = schedule("* * * * *", "UTC", "all");
        let now = at("2026-11-17T12:00:30Z");
        let passed = Time::from_millis(at("2026-11-17T12:00:00Z").as_millis() - 100 * 60_000);
        assert_eq!(next(&minutes, at("2026-11-01T00:00:00Z"), now), Some(NextStep::Pass(passed)));
        assert_eq!(next(&minutes, passed, now), Some(NextStep::Job(passed + LATE)));
    }
}
