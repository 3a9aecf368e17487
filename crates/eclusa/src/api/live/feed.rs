//! The latest state of everything, with the number of the update in which each part last changed.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eclusa_core::{AlertsView, JobTransition, Name, ObservedState, Time};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::MAX_STREAMS;
use crate::api::problem::{Kind, Problem};

/// Job transitions kept for streams that lag behind.
const KEPT_JOBS: usize = 4_096;
/// The size of the journal is reported in steps of this many bytes.
const JOURNAL_STEP: u64 = 1 << 20;

/// What streams and the watcher share.
pub(crate) struct Live {
    seats: Arc<Semaphore>,
    feed: Mutex<Feed>,
    /// The number of the last update; 0 before the first.
    pub(super) updates: watch::Sender<u64>,
    listeners: AtomicUsize,
}

/// One of the open streams; frees its place when dropped.
pub(super) struct Seat {
    live: Arc<Live>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.live.listeners.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Live {
    fn default() -> Self {
        Self {
            seats: Arc::new(Semaphore::new(MAX_STREAMS)),
            feed: Mutex::default(),
            updates: watch::Sender::new(0),
            listeners: AtomicUsize::new(0),
        }
    }
}

impl Live {
    pub(super) fn open(self: &Arc<Self>) -> Result<Seat, Problem> {
        let permit = self.seats.clone().try_acquire_owned().map_err(|_| {
            let detail =
                format!("{MAX_STREAMS} event streams are open here; try again later, or use another process");
            Problem::new(Kind::TooManyStreams, detail).retry_after(5)
        })?;
        self.listeners.fetch_add(1, Ordering::Relaxed);
        Ok(Seat { live: self.clone(), _permit: permit })
    }

    pub(super) fn has_listeners(&self) -> bool {
        self.listeners.load(Ordering::Relaxed) > 0
    }

    pub(super) fn feed(&self) -> MutexGuard<'_, Feed> {
        self.feed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The position of a stream: an update of one run of the watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    run: u64,
    update: u64,
}

impl Cursor {
    /// Belongs to no run.
    pub(super) const UNKNOWN: Cursor = Cursor { run: 0, update: 0 };
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.run, self.update)
    }
}

impl FromStr for Cursor {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (run, update) = text.trim().split_once('-').ok_or(())?;
        let run = u64::from_str_radix(run, 16).map_err(|_| ())?;
        Ok(Self { run, update: update.parse().map_err(|_| ())? })
    }
}

/// A lane or upstream as JSON (`None` if it is gone), and the update in which it last changed.
#[derive(Debug)]
struct Entry {
    update: u64,
    shown: Option<Arc<Value>>,
}

/// The latest state.
#[derive(Default)]
pub(super) struct Feed {
    /// Identifies the run of the watcher; 0 while it is not running.
    pub(super) run: u64,
    update: u64,
    now: Time,
    lanes: BTreeMap<Name, Entry>,
    upstreams: BTreeMap<Name, Entry>,
    alerts: (u64, Arc<AlertsView>),
    fleet: (u64, Arc<Value>),
    /// What the store answered last.
    state: Option<Arc<ObservedState>>,
    jobs: VecDeque<(u64, Arc<JobTransition>)>,
    /// A stream that has seen no later update than this has missed job transitions.
    missed: u64,
}

/// What the watcher read.
pub(super) struct Found {
    pub(super) now: Option<Time>,
    pub(super) gap: bool,
    pub(super) jobs: Vec<JobTransition>,
    pub(super) lanes: Vec<(Name, Value)>,
    pub(super) upstreams: Vec<(Name, Value)>,
    pub(super) alerts: Arc<AlertsView>,
    pub(super) fleet: Value,
    pub(super) state: Arc<ObservedState>,
}

/// Lanes or upstreams that changed, by name; `None` for one that is gone.
pub(super) type Named = Vec<(Name, Option<Arc<Value>>)>;

/// What a stream has to send.
pub(super) struct News {
    pub(super) cursor: Cursor,
    pub(super) now: Time,
    /// Whether job transitions were missed.
    pub(super) gap: bool,
    /// Whether this is everything, not only what changed.
    pub(super) whole: bool,
    pub(super) lanes: Named,
    pub(super) upstreams: Named,
    pub(super) alerts: Option<Arc<AlertsView>>,
    pub(super) fleet: Option<Arc<Value>>,
    pub(super) jobs: Vec<Arc<JobTransition>>,
}

impl Feed {
    /// Starts a run without any state.
    pub(super) fn begin(&mut self, run: u64) {
        *self = Self { run, ..Self::default() };
    }

    /// Applies what was read. Returns the number of the update if anything changed.
    pub(super) fn take(&mut self, found: Found) -> Option<u64> {
        let next = self.update + 1;
        let first = self.update == 0;
        let mut changed = first || found.gap || !found.jobs.is_empty();
        changed |= merge(&mut self.lanes, found.lanes, next, same_lane);
        changed |= merge(&mut self.upstreams, found.upstreams, next, Value::eq);
        if first || *self.alerts.1 != *found.alerts {
            (self.alerts, changed) = ((next, found.alerts), true);
        }
        if first || !same_fleet(&self.fleet.1, &found.fleet) {
            (self.fleet, changed) = ((next, Arc::new(found.fleet)), true);
        }
        if found.gap {
            self.jobs.clear();
            self.missed = next;
        }
        for change in found.jobs {
            if self.jobs.len() == KEPT_JOBS
                && let Some((update, _)) = self.jobs.pop_front()
            {
                // An update is sent as a whole or not at all.
                self.missed = update;
            }
            self.jobs.push_back((next, Arc::new(change)));
        }
        self.now = found.now.unwrap_or(self.now);
        self.state = Some(found.state);
        changed.then(|| {
            self.update = next;
            next
        })
    }

    /// What the store answered last; `None` if it has not answered yet.
    pub(super) fn state(&self) -> Option<Arc<ObservedState>> {
        self.state.clone()
    }

    /// What came after `seen`, or everything if that is no longer covered; `None` if there is nothing yet, or nothing new.
    pub(super) fn since(&self, seen: Option<Cursor>) -> Option<News> {
        if self.update == 0 {
            return None;
        }
        let covered = |seen: &Cursor| {
            seen.run == self.run && seen.update >= self.missed.max(1) && seen.update <= self.update
        };
        let from = seen.filter(covered).map(|seen| seen.update);
        if from == Some(self.update) {
            return None;
        }
        let is_new = |update: u64| from.is_none_or(|from| update > from);
        let pick = |entries: &BTreeMap<Name, Entry>| {
            let new = entries.iter().filter(|(_, entry)| is_new(entry.update));
            let new = new.filter(|(_, entry)| from.is_some() || entry.shown.is_some());
            new.map(|(name, entry)| (name.clone(), entry.shown.clone())).collect()
        };
        // A stream that gets the whole state needs no transitions.
        let jobs = self.jobs.iter().filter(|(update, _)| from.is_some_and(|from| *update > from));
        Some(News {
            cursor: Cursor { run: self.run, update: self.update },
            now: self.now,
            gap: seen.is_some() && from.is_none(),
            whole: from.is_none(),
            lanes: pick(&self.lanes),
            upstreams: pick(&self.upstreams),
            alerts: is_new(self.alerts.0).then(|| self.alerts.1.clone()),
            fleet: is_new(self.fleet.0).then(|| self.fleet.1.clone()),
            jobs: jobs.map(|(_, change)| change.clone()).collect(),
        })
    }
}

/// Replaces the entries by `found`. Returns whether anything changed.
fn merge(
    entries: &mut BTreeMap<Name, Entry>,
    found: Vec<(Name, Value)>,
    update: u64,
    same: impl Fn(&Value, &Value) -> bool,
) -> bool {
    let mut changed = false;
    let found: BTreeMap<_, _> = found.into_iter().collect();
    for (name, entry) in entries.iter_mut() {
        if entry.shown.is_some() && !found.contains_key(name) {
            (*entry, changed) = (Entry { update, shown: None }, true);
        }
    }
    for (name, value) in found {
        let known = entries.get(&name).and_then(|entry| entry.shown.as_ref());
        if !known.is_some_and(|known| same(known, &value)) {
            entries.insert(name, Entry { update, shown: Some(Arc::new(value)) });
            changed = true;
        }
    }
    changed
}

/// A longer period of the average alone is not a change.
fn same_lane(known: &Value, found: &Value) -> bool {
    same_without(known, found, "/rates/seconds", |_, _| true)
}

fn same_fleet(known: &Value, found: &Value) -> bool {
    same_without(known, found, "/store/journalBytes", |known, found| {
        let step = |bytes: &Value| bytes.as_u64().map(|bytes| bytes / JOURNAL_STEP);
        step(known) == step(found)
    })
}

/// Whether two values are equal, except at `place`, where `close` decides.
fn same_without(known: &Value, found: &Value, place: &str, close: impl Fn(&Value, &Value) -> bool) -> bool {
    let (Some(old), Some(new)) = (known.pointer(place), found.pointer(place)) else { return known == found };
    if !close(old, new) {
        return false;
    }
    let mut found = found.clone();
    if let Some(value) = found.pointer_mut(place) {
        *value = old.clone();
    }
    *known == found
}

#[cfg(test)]
mod tests {
    use eclusa_core::{EventKind, JobId, Level, Status};
    use serde_json::json;

    use super::*;

    fn change(number: usize) -> JobTransition {
        JobTransition {
            at: Time::from_millis(1),
            job: JobId(number as u128),
            key: None,
            lane: Name::new("work").unwrap(),
            tenant: "acme".into(),
            level: Level::Normal,
            kind: EventKind::Accepted,
            status: Status::Queued,
            dropped: None,
        }
    }

    fn found(lanes: &[(&str, u64)], jobs: std::ops::Range<usize>) -> Found {
        let lane = |(name, waiting): &(&str, u64)| {
            (
                Name::new(name).unwrap(),
                json!({ "name": name, "waiting": waiting, "rates": { "seconds": waiting } }),
            )
        };
        Found {
            now: Some(Time::from_millis(1)),
            gap: false,
            jobs: jobs.map(change).collect(),
            lanes: lanes.iter().map(lane).collect(),
            upstreams: Vec::new(),
            alerts: Arc::default(),
            fleet: json!({ "store": { "journalBytes": 7 } }),
            state: Arc::new(ObservedState {
                lanes: Vec::new(),
                upstreams: Vec::new(),
                alerts: AlertsView::default(),
            }),
        }
    }

    fn names(named: &Named) -> Vec<(&str, bool)> {
        named.iter().map(|(name, shown)| (name.as_str(), shown.is_some())).collect()
    }

    #[test]
    fn a_new_stream_gets_everything_and_then_only_what_changed() {
        let mut feed = Feed::default();
        feed.begin(7);
        assert!(feed.since(None).is_none(), "nothing is known yet");
        feed.take(found(&[("a", 1), ("b", 1)], 0..1));
        let all = feed.since(None).unwrap();
        assert!(all.whole && !all.gap && all.fleet.is_some() && all.alerts.is_some());
        assert_eq!((names(&all.lanes), all.jobs.len()), (vec![("a", true), ("b", true)], 0));
        assert!(feed.since(Some(all.cursor)).is_none());

        assert_eq!(feed.take(found(&[("a", 1), ("b", 1)], 0..0)), None, "nothing changed");
        feed.take(found(&[("a", 2)], 1..3));
        let news = feed.since(Some(all.cursor)).unwrap();
        assert!(!news.whole && !news.gap && news.fleet.is_none() && news.alerts.is_none());
        assert_eq!((names(&news.lanes), news.jobs.len()), (vec![("a", true), ("b", false)], 2));
        let late = feed.since(None).unwrap();
        assert_eq!(
            names(&late.lanes),
            [("a", true)],
            "a removed lane is not sent to a stream that never saw it"
        );
    }

    #[test]
    fn transitions_that_are_no_longer_kept_are_a_gap() {
        let mut feed = Feed::default();
        feed.begin(7);
        feed.take(found(&[], 0..0));
        let first = feed.since(None).unwrap().cursor;
        feed.take(found(&[], 0..1));
        let second = feed.since(Some(first)).unwrap().cursor;
        feed.take(found(&[], 1..KEPT_JOBS));
        assert_eq!(feed.since(Some(first)).unwrap().jobs.len(), KEPT_JOBS);
        feed.take(found(&[], 0..1));
        let news = feed.since(Some(first)).unwrap();
        assert!(news.gap && news.whole && news.jobs.is_empty());
        assert_eq!(feed.since(Some(second)).unwrap().jobs.len(), KEPT_JOBS);

        feed.take(Found { gap: true, ..found(&[], 0..0) });
        assert!(feed.since(Some(second)).unwrap().gap, "the store had a gap");
        let elsewhere = Cursor { run: 8, ..second };
        assert!(feed.since(Some(elsewhere)).unwrap().gap);
        assert!(feed.since(Some(Cursor::UNKNOWN)).unwrap().gap);
    }

    #[test]
    fn a_cursor_can_be_written_and_read() {
        let cursor = Cursor { run: 0xfe, update: 12 };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        assert_eq!("12".parse::<Cursor>(), Err(()));
        assert_eq!("x-1".parse::<Cursor>(), Err(()));
    }

    #[test]
    fn a_value_that_only_ages_is_not_a_change() {
        let mut feed = Feed::default();
        feed.begin(7);
        feed.take(found(&[("a", 1)], 0..0));
        let mut older = found(&[("a", 1)], 0..0);
        older.lanes[0].1["rates"]["seconds"] = json!(9);
        older.fleet["store"]["journalBytes"] = json!(8);
        assert_eq!(feed.take(older), None);
        let mut longer = found(&[("a", 1)], 0..0);
        longer.fleet["store"]["journalBytes"] = json!(2 << 20);
        assert!(feed.take(longer).is_some());
    }
}
