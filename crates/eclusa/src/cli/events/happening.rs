//! What happened, in words: to a job, a lane, the gates of an upstream, or an alert.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::cli::output::count;
use crate::model::{Alert, Gate, LiveJob, Upstream};

/// Whether something is good or bad, for its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum Tone {
    Plain,
    Good,
    Warning,
    Bad,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Happening {
    pub(in crate::cli) at: Option<Timestamp>,
    pub(in crate::cli) lane: Option<String>,
    pub(in crate::cli) tenant: Option<String>,
    pub(in crate::cli) upstream: Option<String>,
    /// The full id of the job.
    pub(in crate::cli) job: Option<String>,
    pub(in crate::cli) tone: Tone,
    pub(in crate::cli) text: String,
    /// The time that ends the text, as in "open until 14:03:24".
    pub(in crate::cli) when: Option<Timestamp>,
}

impl Happening {
    /// What happened to a job.
    pub(super) fn of_job(job: LiveJob) -> Self {
        let (tone, text) = job_text(&job);
        Self {
            at: job.at.as_deref().and_then(time),
            lane: Some(job.lane),
            tenant: Some(job.tenant),
            upstream: job.upstream,
            job: Some(job.job_id),
            tone,
            text,
            when: job.retry_at.as_deref().and_then(time),
        }
    }

    /// An alert that fires or has resolved.
    pub(super) fn of_alert(alert: &Alert) -> Self {
        let (at, tone) = match &alert.resolved_at {
            Some(at) => (Some(at), Tone::Good),
            None if alert.severity == "critical" => (alert.since.as_ref(), Tone::Bad),
            None => (alert.since.as_ref(), Tone::Warning),
        };
        Self {
            at: at.and_then(|at| time(at)),
            lane: alert.lane.clone(),
            tenant: alert.tenant.clone(),
            upstream: alert.upstream.clone(),
            ..Self::plain(tone, format!("alert: {}", alert.text))
        }
    }

    /// A lane that was paused or resumed.
    pub(super) fn of_lane(lane: &str, paused: bool, at: Timestamp) -> Self {
        let (tone, text) = if paused { (Tone::Warning, "paused") } else { (Tone::Good, "resumed") };
        Self { at: Some(at), lane: Some(lane.to_owned()), ..Self::plain(tone, format!("lane {text}")) }
    }

    /// A fault of the store or the fleet, or its end.
    pub(super) fn of_fault(code: &str, text: &str, at: Option<Timestamp>) -> Self {
        let tone = if code == "store_back" { Tone::Good } else { Tone::Bad };
        Self { at, ..Self::plain(tone, text.to_owned()) }
    }

    /// What changed at the breaker of an upstream; `None` if nothing did.
    pub(super) fn of_breaker(old: &Upstream, new: &Upstream, at: Timestamp) -> Option<Self> {
        let (was, is) = (find(&old.gates, "circuit_open")?, find(&new.gates, "circuit_open")?);
        let (tone, word) = match (old.breaker.as_deref()?, new.breaker.as_deref()?) {
            ("open", "open") if was.until == is.until => return None,
            ("closed", "open") => (Tone::Bad, "open"),
            (_, "open") => (Tone::Bad, "open again"),
            (before, after) if before == after => return None,
            (_, "half_open") => (Tone::Warning, "half-open"),
            _ => (Tone::Good, "closed"),
        };
        let text = format!("breaker of {} is {word}", new.name);
        if word.starts_with("open") {
            return Some(Self { at: Some(at), ..Self::until(&new.name, tone, text, is) });
        }
        Some(Self { at: Some(at), upstream: Some(new.name.clone()), ..Self::plain(tone, text) })
    }

    /// What changed at a cooldown; `None` if nothing did. `name` is the upstream, or the upstream and its key.
    pub(super) fn of_cooldown(name: &str, old: &Gate, new: &Gate, at: Timestamp) -> Option<Self> {
        let (tone, text) = cooldown_text(name, old, new)?;
        Some(Self { at: Some(at), ..Self::until(name, tone, text, new) })
    }

    /// What changed at the gate that the upstream's own `Retry-After` closes. It is there only while it is closed.
    pub(super) fn of_retry_after(
        name: &str,
        old: Option<&Gate>,
        new: Option<&Gate>,
        at: Timestamp,
    ) -> Option<Self> {
        let happening = match (old, new) {
            (None, Some(new)) => Self::until(name, Tone::Warning, format!("{name} asked to wait"), new),
            (Some(_), None) => {
                let upstream = upstream_of(name);
                Self { upstream, ..Self::plain(Tone::Good, format!("{name} may be called again")) }
            }
            _ => return None,
        };
        Some(Self { at: Some(at), ..happening })
    }

    /// Something about an upstream that lasts until the gate opens.
    fn until(name: &str, tone: Tone, text: String, gate: &Gate) -> Self {
        let when = gate.until.as_deref().filter(|_| !gate.open).and_then(time);
        let until = if when.is_some() { " until" } else { "" };
        Self { upstream: upstream_of(name), when, ..Self::plain(tone, text + until) }
    }

    fn plain(tone: Tone, text: String) -> Self {
        Self { at: None, lane: None, tenant: None, upstream: None, job: None, tone, text, when: None }
    }

    /// The last group of the job's id: 48 random bits, so it is unique in practice.
    pub(in crate::cli) fn short_job(&self) -> Option<&str> {
        self.job.as_deref().map(|job| job.rsplit('-').next().unwrap_or(job))
    }

    /// The text with its time, as `clock` writes it.
    pub(in crate::cli) fn sentence(&self, clock: impl Fn(Timestamp) -> String) -> String {
        match self.when {
            Some(when) => format!("{} {}", self.text, clock(when)),
            None => self.text.clone(),
        }
    }
}

/// The gate that denies with this reason.
pub(super) fn find<'a>(gates: &'a [Gate], reason: &str) -> Option<&'a Gate> {
    gates.iter().find(|gate| gate.reason == reason)
}

/// Reads a time of the API.
pub(in crate::cli) fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// `14:03:24`.
pub(in crate::cli) fn clock_time(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%H:%M:%S").to_string()
}

fn job_text(job: &LiveJob) -> (Tone, String) {
    let at = job.upstream.as_deref().map(|upstream| format!(" at {upstream}")).unwrap_or_default();
    let because = |reason: &str| format!(": {}", reason.replace('_', " "));
    let reason = job.reason.as_deref();
    match job.event.as_str() {
        "accepted" => (Tone::Plain, accepted(job)),
        "started" => (Tone::Plain, format!("started{at}")),
        "failed" if job.upstream.is_some() => (Tone::Bad, format!("failed{at}{}", failure(job))),
        "failed" => (Tone::Bad, "failed permanently".into()),
        "retry_scheduled" if job.retry_at.is_some() => (Tone::Warning, "retry at".into()),
        "retry_scheduled" => (Tone::Warning, "retry scheduled".into()),
        "waits_for_rest_of_chain" => (Tone::Warning, "waits for the rest of its chain".into()),
        "taken_up" => (Tone::Warning, "taken up from a dead worker".into()),
        "released" => (Tone::Plain, "released: it waits again".into()),
        "awaiting" => (Tone::Plain, format!("submitted{}, awaiting its result", at.replace(" at ", " to "))),
        "served" => (Tone::Plain, served(reason)),
        "completed" => (Tone::Good, "completed".into()),
        "dropped" => (Tone::Bad, format!("dropped{}", reason.map(because).unwrap_or_default())),
        "cancelled" => (Tone::Warning, "cancelled".into()),
        other => (Tone::Plain, other.replace('_', " ")),
    }
}

fn accepted(job: &LiveJob) -> String {
    let key = if job.id == job.job_id { String::new() } else { format!(" as {}", job.id) };
    let level = if job.priority == "normal" { String::new() } else { format!(", {} priority", job.priority) };
    let later = if job.status == "pending" { ", starts later" } else { "" };
    format!("accepted{key}{level}{later}")
}

/// `: 429 Too Many Requests`. The server's reason begins with the upstream.
fn failure(job: &LiveJob) -> String {
    let reason = job.reason.as_deref().unwrap_or_default();
    let prefix = job.upstream.as_deref().unwrap_or_default();
    let said = reason.strip_prefix(prefix).map(|said| said.trim_start_matches(": "));
    let said = said.filter(|said| !said.is_empty()).or(job.code.as_deref());
    said.map(|said| format!(": {said}")).unwrap_or_default()
}

fn served(by: Option<&str>) -> String {
    match by {
        Some("cache") => "answered from the cache".into(),
        Some("coalesced") => "answered by the call of an equal job".into(),
        Some(cause) => format!("answered with a stale result ({})", cause.replace('_', " ")),
        None => "answered".into(),
    }
}

fn cooldown_text(name: &str, old: &Gate, new: &Gate) -> Option<(Tone, String)> {
    if new.open {
        return (!old.open).then(|| (Tone::Good, format!("{name} has cooled down")));
    }
    let errors = count(usize::try_from(new.level).unwrap_or_default(), "error");
    let changed = old.open || old.until != new.until;
    changed.then(|| (Tone::Warning, format!("{name} cools down after {errors}")))
}

/// `fal` of `fal/key`.
fn upstream_of(name: &str) -> Option<String> {
    name.split('/').next().map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::events::fixtures::upstream;

    const ID: &str = "01a1e1f7-23c4-7c6f-a077-d8d74f01c7c8";

    fn job(event: &str) -> LiveJob {
        LiveJob {
            at: Some("2026-11-16T14:03:24.120Z".into()),
            job_id: ID.into(),
            id: ID.into(),
            lane: "mail".into(),
            tenant: "acme".into(),
            priority: "normal".into(),
            event: event.into(),
            status: "queued".into(),
            upstream: None,
            reason: None,
            code: None,
            retry_at: None,
        }
    }

    fn text(job: LiveJob) -> String {
        let zone = TimeZone::fixed(jiff::tz::offset(-3));
        Happening::of_job(job).sentence(|at| clock_time(at, &zone))
    }

    #[test]
    fn every_event_of_a_job_has_words() {
        let at = |event: &str| LiveJob { upstream: Some("fal".into()), ..job(event) };
        let because = |event: &str, reason: &str| LiveJob { reason: Some(reason.into()), ..job(event) };
        let keyed = LiveJob { id: "order-7".into(), priority: "high".into(), ..job("accepted") };
        for (job, expected) in [
            (job("accepted"), "accepted"),
            (keyed, "accepted as order-7, high priority"),
            (LiveJob { status: "pending".into(), ..job("accepted") }, "accepted, starts later"),
            (at("started"), "started at fal"),
            (
                LiveJob { reason: Some("fal: 429 Too Many Requests".into()), ..at("failed") },
                "failed at fal: 429 Too Many Requests",
            ),
            (
                LiveJob { reason: Some("fal".into()), code: Some("timeout".into()), ..at("failed") },
                "failed at fal: timeout",
            ),
            (job("failed"), "failed permanently"),
            (
                LiveJob { retry_at: Some("2026-11-16T14:03:25.900Z".into()), ..job("retry_scheduled") },
                "retry at 11:03:25",
            ),
            (job("retry_scheduled"), "retry scheduled"),
            (job("waits_for_rest_of_chain"), "waits for the rest of its chain"),
            (job("taken_up"), "taken up from a dead worker"),
            (job("released"), "released: it waits again"),
            (at("awaiting"), "submitted to fal, awaiting its result"),
            (because("served", "cache"), "answered from the cache"),
            (because("served", "coalesced"), "answered by the call of an equal job"),
            (because("served", "timeout"), "answered with a stale result (timeout)"),
            (job("completed"), "completed"),
            (because("dropped", "ttl_expired"), "dropped: ttl expired"),
            (job("cancelled"), "cancelled"),
            (job("something_new"), "something new"),
        ] {
            assert_eq!(text(job), expected);
        }
    }

    #[test]
    fn a_short_id_is_the_random_part() {
        let happening = Happening::of_job(job("accepted"));
        assert_eq!(happening.short_job(), Some("d8d74f01c7c8"));
    }

    fn gate(reason: &str, open: bool, until: Option<&str>, level: i64) -> Gate {
        let until = until.map(|time| format!("2026-11-16T{time}Z"));
        Gate { reason: reason.into(), open, until, level, limit: Some(5), ..Gate::default() }
    }

    #[test]
    fn breakers_have_transitions() {
        let breaker = |state: &str, open, until| {
            let mut upstream: Upstream = serde_json::from_value(upstream("fal")).unwrap();
            upstream.breaker = Some(state.into());
            upstream.gates = vec![gate("circuit_open", open, until, 5)];
            upstream
        };
        let closed = breaker("closed", true, None);
        let open = breaker("open", false, Some("14:03:30"));
        let reopened = breaker("open", false, Some("14:03:45"));
        let half_open = breaker("half_open", true, None);
        // Closed until the lease of the probe ends.
        let probing = breaker("half_open", false, Some("14:04:30"));
        for (old, new, expected) in [
            (&closed, &open, Some("breaker of fal is open until 14:03:30")),
            (&open, &open, None),
            (&open, &reopened, Some("breaker of fal is open again until 14:03:45")),
            (&open, &half_open, Some("breaker of fal is half-open")),
            (&half_open, &probing, None),
            (&open, &probing, Some("breaker of fal is half-open")),
            (&probing, &reopened, Some("breaker of fal is open again until 14:03:45")),
            (&probing, &closed, Some("breaker of fal is closed")),
            (&closed, &closed, None),
        ] {
            let happening = Happening::of_breaker(old, new, Timestamp::UNIX_EPOCH);
            let said = happening.map(|happening| happening.sentence(|at| clock_time(at, &TimeZone::UTC)));
            assert_eq!(said.as_deref(), expected, "{old:?} {new:?}");
        }
    }

    #[test]
    fn cooldowns_have_transitions() {
        let cooldown = |open, until, level| gate("cooldown", open, until, level);
        let cool = cooldown(true, None, 0);
        let hot = cooldown(false, Some("14:03:30"), 1);
        let hotter = cooldown(false, Some("14:03:45"), 2);
        for (old, new, expected) in [
            (&cool, &hot, Some("fal cools down after 1 error until 14:03:30")),
            (&hot, &hot, None),
            (&hot, &hotter, Some("fal cools down after 2 errors until 14:03:45")),
            (&hotter, &cool, Some("fal has cooled down")),
            (&cool, &cool, None),
        ] {
            let happening = Happening::of_cooldown("fal", old, new, Timestamp::UNIX_EPOCH);
            let said = happening.map(|happening| happening.sentence(|at| clock_time(at, &TimeZone::UTC)));
            assert_eq!(said.as_deref(), expected, "{old:?} {new:?}");
        }
    }

    #[test]
    fn a_retry_after_is_there_only_while_it_closes_the_upstream() {
        let asked = |until| gate("upstream_retry_after", false, Some(until), 0);
        let (short, long) = (asked("14:03:30"), asked("14:03:45"));
        let said = |old, new| {
            let happening = Happening::of_retry_after("fal", old, new, Timestamp::UNIX_EPOCH)?;
            assert_eq!(happening.upstream.as_deref(), Some("fal"));
            Some(happening.sentence(|at| clock_time(at, &TimeZone::UTC)))
        };
        assert_eq!(said(None, Some(&short)).as_deref(), Some("fal asked to wait until 14:03:30"));
        assert_eq!(said(Some(&short), Some(&long)), None, "every further answer may move it");
        assert_eq!(said(Some(&long), None).as_deref(), Some("fal may be called again"));
        assert_eq!(said(None, None), None);
    }

    #[test]
    fn a_key_belongs_to_its_upstream() {
        let (old, new) = (gate("cooldown", true, None, 0), gate("cooldown", false, None, 1));
        let happening = Happening::of_cooldown("fal/spare", &old, &new, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(happening.upstream.as_deref(), Some("fal"));
        assert_eq!(happening.text, "fal/spare cools down after 1 error");
    }
}
