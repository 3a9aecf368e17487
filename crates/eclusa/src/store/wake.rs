//! Wakes callers that wait for a job to start, to change or to end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eclusa_core::{Ended, JobId, JobView, Name};
use hashbrown::HashMap;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, SetOnce};

/// The waiting callers, by lane and by job.
#[derive(Default)]
pub(super) struct Wakes {
    lanes: Mutex<ByLane>,
    jobs: Mutex<ByJob>,
}

type ByLane = HashMap<Name, Arc<Bell>, foldhash::fast::FixedState>;

/// Wakes dispatches of one lane that found nothing to start.
#[derive(Debug, Default)]
pub(super) struct Bell(Notify);

impl Bell {
    /// Waits until something may start.
    pub(super) async fn rung(&self) {
        self.0.notified().await;
    }

    /// Wakes one dispatch: something may start.
    pub(super) fn ring(&self) {
        self.0.notify_one();
    }
}

/// The number of callers that wait for a job, and how they are notified.
type ByJob = HashMap<JobId, (usize, Arc<JobSignals>), foldhash::fast::FixedState>;

/// Notifies the callers that wait for a job.
#[derive(Default)]
struct JobSignals {
    /// Set when the job ends; holds the job if it can no longer be read.
    ended: SetOnce<Option<JobView>>,
    /// Notified when the job changes.
    changed: Notify,
}

impl Wakes {
    /// The bell of a lane.
    pub(super) fn bell(&self, lane: &Name) -> Arc<Bell> {
        lock(&self.lanes).entry(lane.clone()).or_default().clone()
    }

    /// Wakes a dispatch of each of these lanes: something may start.
    pub(super) fn wake_lanes(&self, lanes: &[Name]) {
        if lanes.is_empty() {
            return;
        }
        let bells = lock(&self.lanes);
        lanes.iter().filter_map(|lane| bells.get(lane)).for_each(|bell| bell.ring());
    }

    /// Notifies the callers that wait for these jobs to end. A job that its lane forgot is passed along; others can be
    /// read.
    pub(super) fn notify_ended(&self, ended: &[Ended]) {
        if ended.is_empty() {
            return;
        }
        let jobs = lock(&self.jobs);
        for ended in ended {
            if let Some((_, signals)) = jobs.get(&ended.job) {
                let _ = signals.ended.set(ended.forgotten.as_deref().cloned());
            }
        }
    }

    /// Notifies the callers that follow these jobs.
    pub(super) fn notify_changed(&self, changed: &[JobId]) {
        if changed.is_empty() {
            return;
        }
        let jobs = lock(&self.jobs);
        for (_, signals) in changed.iter().filter_map(|job| jobs.get(job)) {
            signals.changed.notify_waiters();
        }
    }

    /// Wakes everything: nothing will happen here any more.
    pub(super) fn stop(&self) {
        lock(&self.lanes).values().for_each(|bell| bell.0.notify_waiters());
        lock(&self.jobs).values().for_each(|(_, signals)| {
            let _ = signals.ended.set(None);
        });
    }

    /// How many callers wait for a job.
    pub(super) fn waits(&self) -> u64 {
        lock(&self.jobs).values().map(|(waiting, _)| *waiting as u64).sum()
    }

    /// Begins to wait for a job. To miss nothing, begin before looking at the job.
    pub(super) fn wait_for(&self, job: JobId) -> Waiting<'_> {
        let mut jobs = lock(&self.jobs);
        let (waiting, signals) = jobs.entry(job).or_default();
        *waiting += 1;
        Waiting { wakes: self, job, signals: signals.clone() }
    }
}

/// A caller that waits for a job to end or to change.
pub(super) struct Waiting<'a> {
    wakes: &'a Wakes,
    job: JobId,
    signals: Arc<JobSignals>,
}

impl Waiting<'_> {
    /// Waits until the job has ended; returns the job if it can no longer be read.
    pub(super) async fn ended(&self) -> Option<JobView> {
        self.signals.ended.wait().await.clone()
    }

    /// Waits until the job has changed. To miss nothing, enable it before looking at the job.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.signals.changed.notified()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut jobs = lock(&self.wakes.jobs);
        if let Some((waiting, _)) = jobs.get_mut(&self.job) {
            *waiting -= 1;
            if *waiting == 0 {
                jobs.remove(&self.job);
            }
        }
    }
}

/// Ignores poisoning: the maps are consistent even after a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
