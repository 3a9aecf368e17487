//! Wakes those who wait for something to start, to change or to end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eclusa_core::{Ended, JobId, JobView, Name};
use hashbrown::HashMap;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, SetOnce};

/// Those who wait.
#[derive(Default)]
pub(super) struct Wakes {
    lanes: Mutex<ByLane>,
    jobs: Mutex<ByJob>,
}

type ByLane = HashMap<Name, Arc<Bell>, foldhash::fast::FixedState>;

/// Heard by dispatches of one lane that found nothing to start.
#[derive(Debug, Default)]
pub(super) struct Bell(Notify);

impl Bell {
    /// Waits until something may start.
    pub(super) async fn rung(&self) {
        self.0.notified().await;
    }

    /// Something may start.
    pub(super) fn ring(&self) {
        self.0.notify_one();
    }
}

/// How many wait for a job, and what they are told.
type ByJob = HashMap<JobId, (usize, Arc<Told>), foldhash::fast::FixedState>;

/// What those who wait for a job are told.
#[derive(Default)]
struct Told {
    /// Its end, with the job if it can no longer be read.
    ended: SetOnce<Option<JobView>>,
    /// That it changed.
    changed: Notify,
}

impl Wakes {
    /// The bell of a lane.
    pub(super) fn bell(&self, lane: &Name) -> Arc<Bell> {
        lock(&self.lanes).entry(lane.clone()).or_default().clone()
    }

    /// Something may start in these lanes.
    pub(super) fn stir(&self, lanes: &[Name]) {
        if lanes.is_empty() {
            return;
        }
        let bells = lock(&self.lanes);
        lanes.iter().filter_map(|lane| bells.get(lane)).for_each(|bell| bell.ring());
    }

    /// These jobs ended. A job that its lane forgot is handed over; others can be read.
    pub(super) fn tell(&self, ended: &[Ended]) {
        if ended.is_empty() {
            return;
        }
        let jobs = lock(&self.jobs);
        for ended in ended {
            if let Some((_, told)) = jobs.get(&ended.job) {
                let _ = told.ended.set(ended.forgotten.as_deref().cloned());
            }
        }
    }

    /// These jobs changed.
    pub(super) fn tell_news(&self, changed: &[JobId]) {
        if changed.is_empty() {
            return;
        }
        let jobs = lock(&self.jobs);
        for (_, told) in changed.iter().filter_map(|job| jobs.get(job)) {
            told.changed.notify_waiters();
        }
    }

    /// Nothing will happen here any more: everybody looks for themselves.
    pub(super) fn stop(&self) {
        lock(&self.lanes).values().for_each(|bell| bell.0.notify_waiters());
        lock(&self.jobs).values().for_each(|(_, told)| {
            let _ = told.ended.set(None);
        });
    }

    /// How many wait for a job.
    pub(super) fn waits(&self) -> u64 {
        lock(&self.jobs).values().map(|(waiting, _)| *waiting as u64).sum()
    }

    /// Begins to wait for a job. To miss nothing, begin before looking at the job.
    pub(super) fn wait_for(&self, job: JobId) -> Waiting<'_> {
        let mut jobs = lock(&self.jobs);
        let (waiting, told) = jobs.entry(job).or_default();
        *waiting += 1;
        Waiting { wakes: self, job, told: told.clone() }
    }
}

/// One who waits for a job to end or to change.
pub(super) struct Waiting<'a> {
    wakes: &'a Wakes,
    job: JobId,
    told: Arc<Told>,
}

impl Waiting<'_> {
    /// Returns when the job has ended, with the job if it can no longer be read.
    pub(super) async fn ended(&self) -> Option<JobView> {
        self.told.ended.wait().await.clone()
    }

    /// Returns when a followed job has changed. To miss nothing, enable it before looking at the job.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.told.changed.notified()
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

/// What is held is whole also where somebody panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
