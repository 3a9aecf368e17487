//! How the parts of the program wake each other. Wake-ups are hints: whoever waits also looks by itself from time to
//! time, so a lost one costs time and never a job.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use eclusa_core::{JobId, Name};
use hashbrown::HashMap;
use tokio::sync::Notify;

use crate::config::Config;

/// Two bells for each lane, heard by its dispatch loop.
#[derive(Debug)]
pub struct Bells {
    lanes: BTreeMap<Name, Bell>,
    /// The lanes whose jobs may go to an upstream.
    users: BTreeMap<Name, Vec<Name>>,
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
            let others = rules.chains.iter().flat_map(|chains| chains.chains.values().flatten());
            for upstream in rules.chain.iter().chain(others) {
                let lanes = users.entry(upstream.clone()).or_default();
                if !lanes.contains(lane) {
                    lanes.push(lane.clone());
                }
            }
        }
        let lanes = config.lanes.keys().map(|lane| (lane.clone(), Bell::default())).collect();
        Self { lanes, users, sweep: Notify::new() }
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
    }

    /// Something may have become possible anywhere.
    pub fn ring_all(&self) {
        self.lanes.values().for_each(|bell| bell.changed.notify_one());
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

    /// Waits until the sweeper is called.
    pub async fn heard_by_sweeper(&self) {
        self.sweep.notified().await;
    }
}

/// Those who wait for jobs to end, by job.
#[derive(Debug, Default)]
pub struct Waiters {
    by_job: Mutex<HashMap<JobId, Arc<Notify>, foldhash::fast::FixedState>>,
}

impl Waiters {
    /// Somebody begins to wait for `job`. To miss nothing, begin before looking at the job.
    pub fn wait_for(&self, job: JobId) -> Waiting<'_> {
        let ended = self.lock().entry(job).or_default().clone();
        Waiting { waiters: self, job, ended }
    }

    /// `job` ended.
    pub fn wake(&self, job: JobId) {
        if let Some(ended) = self.lock().get(&job) {
            ended.notify_waiters();
            ended.notify_one();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<JobId, Arc<Notify>, foldhash::fast::FixedState>> {
        self.by_job.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who waits for a job.
#[derive(Debug)]
pub struct Waiting<'a> {
    waiters: &'a Waiters,
    job: JobId,
    ended: Arc<Notify>,
}

impl Waiting<'_> {
    /// Returns when the job may have ended.
    pub async fn woken(&self) {
        self.ended.notified().await;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut by_job = self.waiters.lock();
        // Two hold it when nobody else waits: this one and the map.
        if Arc::strong_count(&self.ended) == 2 {
            by_job.remove(&self.job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_who_wait_for_a_job_hear_of_its_end_and_leave_nothing_behind() {
        let waiters = Waiters::default();
        let (first, second) = (waiters.wait_for(JobId(1)), waiters.wait_for(JobId(1)));
        let other = waiters.wait_for(JobId(2));
        let both = async { tokio::join!(first.woken(), second.woken()) };
        let wake = async { waiters.wake(JobId(1)) };
        tokio::join!(both, wake);
        drop((first, second, other));
        assert!(waiters.lock().is_empty());
    }

    #[tokio::test]
    async fn an_end_between_beginning_to_wait_and_waiting_is_not_missed() {
        let waiters = Waiters::default();
        let waiting = waiters.wait_for(JobId(1));
        waiters.wake(JobId(1));
        waiting.woken().await;
    }
}
