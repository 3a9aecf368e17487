//! The engine's jobs.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use super::ages::Ages;
use super::submission::Submission;
use crate::ended::ServedBy;
use crate::ids::{JobId, LeaseId};
use crate::job::{DropReason, Failure, Level, Payload, Status};
use crate::lane::{JobHold, Waiter};
use crate::policy::Correlation;
use crate::table::{GroupIx, JobIx, Keyed, LaneIx, LineIx, Lookup, Table, TenantIx, UpstreamIx};
use crate::time::Time;
use crate::timeline::{self, Event, EventKind};
use crate::verbs::Settled;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Pending {
        due: Time,
    },
    /// A retry beyond the retry budget of its lane.
    HeldBack {
        since: Time,
    },
    Queued {
        line: LineIx,
    },
    /// Waits for the answer of an equal job.
    Coalesced,
    Processing {
        lease: LeaseId,
    },
    Finished {
        at: Time,
        number: u64,
        status: Status,
        dropped: Option<DropReason>,
        served: Option<ServedBy>,
    },
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: JobId,
    pub(crate) lane: LaneIx,
    pub(crate) tenant: TenantIx,
    pub(crate) level: Level,
    pub(crate) phase: Phase,
    /// Its number in the lane, which determines its position in its line.
    pub(crate) seq: u64,
    pub(crate) created_at: Time,
    pub(crate) expires_at: Time,
    /// All upstreams it may use.
    pub(crate) chain: GroupIx,
    /// Upstreams tried in this attempt: bit n is position n of the chain.
    pub(crate) tried: u32,
    /// Attempts started.
    pub(crate) attempts: u32,
    /// Workers that vanished while running it.
    pub(crate) lost: u8,
    pub(crate) upstream: Option<UpstreamIx>,
    pub(crate) payload: Payload,
    /// `None` until something has happened to it.
    past: Option<Box<Past>>,
    pub(crate) rare: Option<Box<Rare>>,
    /// Its position among the jobs of its lane by age.
    pub(super) age: u32,
    /// Whether it was submitted with a delay. Not stored: after a restart, only a job that is still scheduled has it.
    pub(crate) delayed: bool,
    unsaved: UnsavedPart,
    /// Whether its next change must be reported.
    followed: bool,
}

impl Keyed for Job {
    type Key = JobId;
    fn key(&self) -> &JobId {
        &self.id
    }
}

/// What has happened to a job.
#[derive(Debug, Default)]
pub(crate) struct Past {
    pub(crate) timeline: Vec<Event<UpstreamIx>>,
    pub(crate) settled: Option<LastSettled>,
}

/// Fields that most jobs do not have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rare {
    pub(crate) key: Option<Arc<str>>,
    pub(crate) cache_key: Option<Arc<str>>,
    /// What it takes from scoped buckets.
    pub(crate) holds: Option<Arc<[JobHold]>>,
    pub(crate) correlation: Option<Correlation>,
    /// The URL to call when it ends.
    pub(crate) callback: Option<Arc<str>>,
    /// Until when its caller waits for it to end.
    pub(crate) waited_until: Option<Time>,
    /// The dead letter it replays.
    pub(crate) replay_of: Option<JobId>,
    pub(crate) failure: Option<Failure>,
    pub(crate) result: Option<Payload>,
    pub(crate) submission: Option<Box<Submission>>,
}

/// The lease of the last settlement and its result, so that a repeated settlement gets the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastSettled {
    pub(crate) lease: LeaseId,
    pub(crate) how: Settled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum UnsavedPart {
    Nothing,
    State,
    All,
}

/// A change of a job that must be saved.
pub(crate) enum JobChange<'a> {
    All(&'a Job),
    State(&'a Job),
    Gone(JobId),
}

impl Job {
    #[expect(clippy::too_many_arguments, reason = "one constructor, and each argument is a different thing")]
    pub(crate) fn new(
        id: JobId,
        lane: LaneIx,
        tenant: TenantIx,
        level: Level,
        seq: u64,
        (created_at, expires_at): (Time, Time),
        chain: GroupIx,
        payload: Payload,
    ) -> Self {
        Self {
            id,
            lane,
            tenant,
            level,
            phase: Phase::Pending { due: created_at },
            seq,
            created_at,
            expires_at,
            chain,
            tried: 0,
            attempts: 0,
            lost: 0,
            upstream: None,
            payload,
            past: None,
            rare: None,
            age: 0,
            delayed: false,
            unsaved: UnsavedPart::Nothing,
            followed: false,
        }
    }

    pub(crate) fn waiter(&self, job: JobIx) -> Waiter {
        Waiter {
            job,
            tenant: self.tenant,
            level: self.level,
            seq: self.seq,
            bytes: self.payload.len() as u64,
            expires_at: self.expires_at,
            tried: self.attempts > 0,
        }
    }

    pub(crate) fn is_expired(&self, now: Time) -> bool {
        now > self.expires_at
    }

    pub(crate) fn status(&self) -> Status {
        match self.phase {
            Phase::Pending { .. } | Phase::HeldBack { .. } => Status::Pending,
            Phase::Queued { .. } | Phase::Coalesced => Status::Queued,
            Phase::Processing { .. } => Status::Processing,
            Phase::Finished { status, .. } => status,
        }
    }

    /// The number of its end; zero before it ends.
    pub(crate) fn end_number(&self) -> u64 {
        if let Phase::Finished { number, .. } = self.phase { number } else { 0 }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(
            self.phase,
            Phase::Pending { .. } | Phase::HeldBack { .. } | Phase::Queued { .. } | Phase::Coalesced
        )
    }

    pub(crate) fn cache_key(&self) -> Option<&Arc<str>> {
        self.rare.as_ref()?.cache_key.as_ref()
    }

    pub(crate) fn correlation(&self) -> Option<Correlation> {
        self.rare.as_ref()?.correlation
    }

    pub(crate) fn submission(&self) -> Option<&Submission> {
        self.rare.as_ref()?.submission.as_deref()
    }

    pub(crate) fn callback(&self) -> Option<&Arc<str>> {
        self.rare.as_ref()?.callback.as_ref()
    }

    pub(crate) fn holds(&self) -> Option<&Arc<[JobHold]>> {
        self.rare.as_ref()?.holds.as_ref()
    }

    pub(crate) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Since when it could have been in its line: after its last event, or since it was accepted.
    pub(crate) fn in_line_since(&self) -> Time {
        self.timeline().last().map_or(self.created_at, |event| match event.kind {
            EventKind::RetryAt(due) => due,
            _ => event.at,
        })
    }

    pub(crate) fn note(&mut self, at: Time, kind: EventKind<UpstreamIx>) {
        timeline::push(&mut self.past().timeline, Event { at, kind });
    }

    pub(crate) fn past(&mut self) -> &mut Past {
        self.past.get_or_insert_default()
    }

    pub(crate) fn timeline(&self) -> &[Event<UpstreamIx>] {
        self.past.as_ref().map_or(&[], |past| &past.timeline)
    }

    /// Its last settlement.
    pub(crate) fn settled(&self) -> Option<LastSettled> {
        self.past.as_ref()?.settled
    }
}

#[derive(Debug, Default)]
pub(crate) struct Jobs {
    table: Table<JobIx, Job>,
    by_id: Lookup<JobIx>,
    /// Indexed by lane number.
    by_age: Vec<Ages>,
    unsaved: Vec<JobIx>,
    gone: Vec<JobId>,
    /// Followed jobs that changed.
    changed_followed: Vec<JobId>,
    /// Bytes of all payloads and results.
    pub(crate) bytes: u64,
}

impl Jobs {
    pub(crate) fn find(&self, id: JobId) -> Option<JobIx> {
        self.by_id.find(&self.table, &id)
    }

    pub(crate) fn get_mut(&mut self, index: JobIx) -> Option<&mut Job> {
        self.table.get_mut(index)
    }

    pub(crate) fn insert(&mut self, job: Job) -> JobIx {
        let job = self.restore(job);
        self.mark(job, UnsavedPart::All);
        job
    }

    /// Adds a job that was read from the journal.
    pub(crate) fn restore(&mut self, job: Job) -> JobIx {
        self.bytes += job.payload.len() as u64;
        let (lane, created_at) = (job.lane.0 as usize, job.created_at);
        let job = self.table.insert(job);
        self.by_id.add(&self.table, job);
        if self.by_age.len() <= lane {
            self.by_age.resize_with(lane + 1, Ages::default);
        }
        self.table[job].age = self.by_age[lane].push(job, created_at);
        job
    }

    pub(crate) fn remove(&mut self, index: JobIx) -> Option<Job> {
        let job = self.table.remove(index)?;
        self.by_id.remove(&job.id, index);
        self.by_age[job.lane.0 as usize].remove(job.age, &mut self.table);
        self.bytes -= job.payload.len() as u64;
        self.gone.push(job.id);
        Some(job)
    }

    /// Replaces the payload of a running job. Not for waiting ones: lines count their bytes.
    pub(crate) fn replace_payload(&mut self, job: JobIx, payload: Payload) {
        let state = &mut self.table[job];
        self.bytes = self.bytes - state.payload.len() as u64 + payload.len() as u64;
        state.payload = payload;
        self.touch_all(job);
    }

    /// Marks the state of `job` as changed.
    pub(crate) fn touch(&mut self, job: JobIx) {
        self.mark(job, UnsavedPart::State);
    }

    /// Marks all of `job` to be saved again.
    pub(crate) fn touch_all(&mut self, job: JobIx) {
        self.mark(job, UnsavedPart::All);
    }

    /// Has the next change of `job` reported, once.
    pub(crate) fn follow(&mut self, job: JobIx) {
        self.table[job].followed = true;
    }

    /// Followed jobs that changed since this was last called.
    pub(crate) fn take_changed_jobs(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.changed_followed)
    }

    fn mark(&mut self, job: JobIx, unsaved: UnsavedPart) {
        let state = &mut self.table[job];
        if std::mem::take(&mut state.followed) {
            self.changed_followed.push(state.id);
        }
        if state.unsaved == UnsavedPart::Nothing {
            self.unsaved.push(job);
        }
        state.unsaved = state.unsaved.max(unsaved);
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.unsaved.is_empty() || !self.gone.is_empty()
    }

    /// Reports the changes since the last call.
    pub(crate) fn drain_changes(&mut self, mut changed: impl FnMut(JobChange<'_>)) {
        self.gone.drain(..).for_each(|id| changed(JobChange::Gone(id)));
        for job in self.unsaved.drain(..) {
            // A slot that was freed and reused may be listed twice; the second time it is already saved.
            let Some(job) = self.table.get_mut(job) else {
                continue;
            };
            let unsaved = std::mem::replace(&mut job.unsaved, UnsavedPart::Nothing);
            match unsaved {
                UnsavedPart::All => changed(JobChange::All(job)),
                UnsavedPart::State => changed(JobChange::State(job)),
                UnsavedPart::Nothing => {}
            }
        }
    }

    /// Sorts restored jobs by age.
    pub(super) fn sort_by_age(&mut self) {
        self.by_age.iter_mut().for_each(|ages| ages.sort(&mut self.table));
    }

    /// The number of positions by age that jobs of `lane` created at `time` or before use. The jobs must be sorted.
    pub(super) fn places_until(&self, lane: LaneIx, time: Time) -> usize {
        self.by_age.get(lane.0 as usize).map_or(0, |ages| ages.until(time, &self.table))
    }

    /// The youngest job in the first `end` positions of `lane` by age, and its position.
    pub(super) fn last_before(&self, lane: LaneIx, end: usize) -> Option<(usize, &Job)> {
        let (place, index) = self.by_age.get(lane.0 as usize)?.last_before(end)?;
        Some((place, &self.table[index]))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (JobIx, &Job)> {
        self.table.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }
}

impl Index<JobIx> for Jobs {
    type Output = Job;
    #[inline]
    fn index(&self, job: JobIx) -> &Job {
        &self.table[job]
    }
}

impl IndexMut<JobIx> for Jobs {
    #[inline]
    fn index_mut(&mut self, job: JobIx) -> &mut Job {
        &mut self.table[job]
    }
}
