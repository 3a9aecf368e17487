//! `[schedules.NAME]`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use croner::Cron;
use croner::parser::{CronParser, Year};
use eclusa_core::{Name, Time};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::json::Json;
use super::read::{At, FromText, Show, Table, Wrong};
use super::server::unknown_name;
use super::types::{LaneConfig, Missed, Mode};

const CRON: &str = "write minute, hour, day, month and weekday: \"0 3 * * *\"; with seconds first if needed";
const ZONE: &str = "write a name such as \"America/Sao_Paulo\" or \"UTC\"";
/// A schedule must match some time after this one.
const SAMPLE: Time = Time::from_millis(1_700_000_000_000);

/// A job that is enqueued on a schedule.
#[derive(Clone, PartialEq)]
pub struct Schedule {
    cron: Cron,
    zone: Zone,
    /// The lane of the job.
    pub lane: Name,
    /// The job, as it would be sent to the API.
    pub job: serde_json::Value,
    /// What to do about times that were missed.
    pub missed: Missed,
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schedule({} {} in {})", self.cron.as_str(), self.zone.show(), self.lane)
    }
}

impl Schedule {
    /// The next time after `time`. When daylight saving time skips a local time, the job runs right after the gap; when it
    /// repeats one, the job runs once.
    pub fn after(&self, time: Time) -> Option<Time> {
        let from = self.zone.at(time)?;
        self.cron.find_next_occurrence(&from, false).ok().and_then(|next| moment(next.timestamp()))
    }

    /// The last time up to and including `time`.
    pub fn until(&self, time: Time) -> Option<Time> {
        let from = self.zone.at(time)?;
        self.cron.find_previous_occurrence(&from, true).ok().and_then(|last| moment(last.timestamp()))
    }
}

fn moment(timestamp: Timestamp) -> Option<Time> {
    u64::try_from(timestamp.as_millisecond()).ok().map(Time::from_millis)
}

impl FromText for Cron {
    const WHAT: &'static str = "a cron expression";
    const HELP: &'static str = CRON;

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let parser = CronParser::builder().year(Year::Disallowed).build();
        parser.parse(text).map_err(|error| Wrong::new(format!("is not a cron expression: {error}"), CRON))
    }
}

/// A time zone.
#[derive(Clone, PartialEq)]
struct Zone(TimeZone);

impl Zone {
    fn at(&self, time: Time) -> Option<jiff::Zoned> {
        let millis = i64::try_from(time.as_millis()).ok()?;
        Timestamp::from_millisecond(millis).ok().map(|time| time.to_zoned(self.0.clone()))
    }
}

impl FromText for Zone {
    const WHAT: &'static str = "a time zone";
    const HELP: &'static str = ZONE;

    fn from_text(text: &str) -> Result<Self, Wrong> {
        TimeZone::get(text).map(Self).map_err(|_| Wrong::new("is not a known time zone", ZONE))
    }
}

impl Show for Zone {
    fn show(&self) -> String {
        format!("{:?}", self.0.iana_name().unwrap_or("UTC"))
    }
}

pub(super) fn schedule(
    t: &mut Table<'_>,
    (lanes, names): (&BTreeMap<Name, Arc<LaneConfig>>, &[String]),
    check: impl Fn(&serde_json::Value, &LaneConfig) -> Result<(), String>,
) -> Option<Arc<Schedule>> {
    let cron: Option<Cron> = t.need(
        "cron",
        "\"0 3 * * *\"",
        "When to run: minute, hour, day of the month, month, day of the week; with six fields, the first is the second.",
    );
    let zone = t.or("tz", Zone(TimeZone::UTC), "The time zone of `cron`.");
    let lane: Option<At<Name>> = t.need("lane", "\"NAME\"", "The lane of the job.");
    let job: Option<At<Json<String>>> = t.need(
        "job",
        "{ request = { path = \"/run\" } }",
        "The job, as it would be sent to `POST /v1/lanes/{lane}/jobs`, without `id`, which is made from the name and the time.",
    );
    let missed = t.or(
        "missed",
        Missed::Skip,
        "What to do about times at which no process was running: `skip` them, run `once` for all of them, or run `all` of them, the \
         last hundred at most.",
    );
    let job = job.and_then(|At { value, place }| Some(At { value: value.into_value()?, place }));
    let job =
        job.filter(|job| lane.as_ref().is_none_or(|lane| is_taken(t, lane, job, (lanes, names), check)));
    let schedule = Schedule { cron: cron?, zone, lane: lane?.value, job: job?.value, missed };
    if schedule.after(SAMPLE).is_none() {
        t.wrong("cron", "never matches", CRON);
        return None;
    }
    Some(Arc::new(schedule))
}

/// Whether the lane would accept the job; notes the reason if not.
fn is_taken(
    t: &Table<'_>,
    lane: &At<Name>,
    job: &At<serde_json::Value>,
    (lanes, names): (&BTreeMap<Name, Arc<LaneConfig>>, &[String]),
    check: impl Fn(&serde_json::Value, &LaneConfig) -> Result<(), String>,
) -> bool {
    if !names.iter().any(|known| known == lane.value.as_str()) {
        unknown_name(t, lane, names, "a lane");
        return false;
    }
    // A lane that could not be read was noted already.
    let Some(rules) = lanes.get(&lane.value) else { return false };
    if rules.mode == Mode::Direct {
        let help = "name a lane with `mode = \"queue\"`";
        t.context().wrong(&lane.place, "names a direct lane, which has no queue", help);
        return false;
    }
    match check(&job.value, rules) {
        Ok(()) => true,
        Err(problem) => {
            t.context().wrong(
                &job.place,
                &format!("would be refused: {problem}"),
                "write it as in an API request",
            );
            false
        }
    }
}
