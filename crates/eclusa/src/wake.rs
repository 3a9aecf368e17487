//! How the parts of the program wake each other. Wake-ups are hints: whoever waits also looks by itself from time to
//! time, so a lost one costs time and never a job.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use eclusa_core::{Ended, JobId, JobView, Name};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::config::Config;

/// Two bells for each lane, heard by its dispatch loop, and one for each upstream, heard by the first of those who wait to
/// call it.
#[derive(Debug)]
pub struct Bells {
    lanes: BTreeMap<Name, Bell>,
    /// The lanes whose jobs may go to an upstream.
    users: BTreeMap<Name, Vec<Name>>,
    upstreams: BTreeMap<Name, Notify>,
    sweep: Notify,
}

#[derive(Debug, Default)]
struct Bell {
    /// A job came.
    arrived: Notify,
    /// Anything else that may let a job start.
    changed: Notify,
}

impl Bells {
    /// Bells for all lanes of `config`.
    pub fn new(config: &Config) -> Self {
        let mut users: BTreeMap<Name, Vec<Name>> = BTreeMap::new();
        for (lane, rules) in &config.lanes {
            for upstream in rules.upstreams() {
                let lanes = users.entry(upstream.clone()).or_default();
                if !lanes.contains(lane) {
                    lanes.push(lane.clone());
                }
            }
        }
        let lanes = config.lanes.keys().map(|lane| (lane.clone(), Bell::default())).collect();
        let upstreams = config.upstreams.keys().map(|upstream| (upstream.clone(), Notify::new())).collect();
        Self { lanes, users, upstreams, sweep: Notify::new() }
    }

    /// Something may have become possible in `lane`.
    pub fn ring(&self, lane: &Name) {
        if let Some(bell) = self.lanes.get(lane) {
            bell.changed.notify_one();
        }
    }

    /// A job came into `lane`.
    pub fn ring_arrival(&self, lane: &Name) {
        if let Some(bell) = self.lanes.get(lane) {
            bell.arrived.notify_one();
        }
    }

    /// Something may have become possible at `upstream`.
    pub fn ring_users(&self, upstream: &Name) {
        self.users.get(upstream).into_iter().flatten().for_each(|lane| self.ring(lane));
        self.upstreams.get(upstream).into_iter().for_each(Notify::notify_one);
    }

    /// Something may have become possible anywhere.
    pub fn ring_all(&self) {
        self.lanes.values().for_each(|bell| bell.changed.notify_one());
        self.upstreams.values().for_each(Notify::notify_one);
        self.sweep.notify_one();
    }

    /// Waits until `lane` rings. A lane that is `held_back` is not woken by a job that comes: it would be held back as well.
    pub async fn heard(&self, lane: &Name, held_back: bool) {
        let Some(bell) = self.lanes.get(lane) else { return std::future::pending().await };
        tokio::select! {
            () = bell.changed.notified() => {}
            () = bell.arrived.notified(), if !held_back => {}
        }
    }

    /// Waits until `upstream` rings.
    pub async fn heard_at(&self, upstream: &Name) {
        match self.upstreams.get(upstream) {
            Some(bell) => bell.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until the sweeper is called.
    pub async fn heard_by_sweeper(&self) {
        self.sweep.notified().await;
    }
}

/// Those who wait for jobs to end, by job.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    by_job: Mutex<ByJob>,
}

/// How many wait for a job, and what they are told.
type ByJob = HashMap<JobId, (usize, Arc<Told>), foldhash::fast::FixedState>;

/// What those who wait for a job are told: that it ended, and what it was if the store has forgotten it.
#[derive(Debug, Default)]
struct Told {
    ended: CancellationToken,
    forgotten: OnceLock<JobView>,
}

impl Waiters {
    /// Somebody begins to wait for `job`. To miss nothing, begin before looking at the job.
    pub(crate) fn wait_for(&self, job: JobId) -> Waiting<'_> {
        let mut by_job = self.lock();
        let (waiting, told) = by_job.entry(job).or_default();
        *waiting += 1;
        Waiting { waiters: self, job, told: told.clone() }
    }

    /// A job ended, in this process: it is handed over where nobody can read it any more.
    pub(crate) fn wake(&self, ended: &Ended) {
        let told = self.lock().get(&ended.job).map(|(_, told)| told.clone());
        let Some(told) = told else { return };
        if let Some(job) = &ended.forgotten {
            told.forgotten.get_or_init(|| (**job).clone());
        }
        told.ended.cancel();
    }

    /// A job ended, in whatever process: those who wait for it look for themselves.
    pub(crate) fn wake_at(&self, job: JobId) {
        let told = self.lock().get(&job).map(|(_, told)| told.clone());
        if let Some(told) = told {
            told.ended.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, ByJob> {
        self.by_job.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who waits for a job.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    waiters: &'a Waiters,
    job: JobId,
    told: Arc<Told>,
}

impl Waiting<'_> {
    /// Returns when the job has ended.
    pub(crate) async fn woken(&self) {
        self.told.ended.cancelled().await;
    }

    /// The job as it ended, if the store forgot it then.
    pub(crate) fn forgotten(&self) -> Option<JobView> {
        self.told.forgotten.get().cloned()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Entry::Occupied(mut entry) = self.waiters.lock().entry(self.job) {
            entry.get_mut().0 -= 1;
            if entry.get().0 == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use eclusa_core::{End, Level, Time};

    use super::*;

    fn ended(job: u128) -> Ended {
        Ended {
            job: JobId(job),
            lane: Name::new("mail").unwrap(),
            tenant: "acme".into(),
            level: Level::Normal,
            attempts: 1,
            created_at: Time::from_millis(0),
            end: End::Completed,
            forgotten: None,
        }
    }

    #[tokio::test]
    async fn all_who_wait_for_a_job_hear_of_its_end_and_leave_nothing_behind() {
        let waiters = Waiters::default();
        let (first, second) = (waiters.wait_for(JobId(1)), waiters.wait_for(JobId(1)));
        let other = waiters.wait_for(JobId(2));
        let both = async { tokio::join!(first.woken(), second.woken()) };
        let wake = async { waiters.wake(&ended(1)) };
        tokio::join!(both, wake);
        drop((first, second, other));
        assert!(waiters.lock().is_empty());
    }

    #[tokio::test]
    async fn an_end_between_beginning_to_wait_and_waiting_is_not_missed() {
        let waiters = Waiters::default();
        let waiting = waiters.wait_for(JobId(1));
        waiters.wake(&ended(1));
        waiting.woken().await;
    }
}
