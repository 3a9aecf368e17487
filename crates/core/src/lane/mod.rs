//! The state of one lane: its waiting jobs, their lines, and whose turn it is.
//!
//! A *line* is the FIFO unit: jobs of one level and tenant that need the same upstreams and the same scoped buckets.
//! Lines that need the same upstreams form a *group*. The upstreams' gates admit or deny all lines of a group alike, so
//! a blocked upstream costs one check per group, not one per tenant or job.

mod budget;
mod cache;
mod equals;
mod fairness;
mod fifo;
mod finished;
mod held;
mod holds;
mod line;
mod restore;
mod tenant;
mod tournament;

pub(crate) use budget::Budget;
pub(crate) use cache::{Cache, Entry};
pub(crate) use equals::{Equals, WaitingIn};
pub(crate) use fairness::{Choice, SATURATED, TurnPlace, Turns, priority};
pub(crate) use finished::{Finished, KeyEntry, Keys, MAX_KEYS};
pub(crate) use held::HeldBack;
pub(crate) use holds::{HoldCause, Holds, PastHold};
pub(crate) use line::{JobHold, LineKey, Lines, Parked, Rank};
pub(crate) use tenant::{EVERYONE, Tenant, TenantLevel, Tenants};

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;

use self::tournament::Tournament;

use crate::dead_letter::{DeadLetters, TrimReason};
use crate::ended::{End, ServedBy};
use crate::gate::Gates;
use crate::ids::{JobId, Name};
use crate::job::{DropReason, Level};
use crate::spec::{CacheSpec, LaneSpec};
use crate::table::{BucketIx, GroupIx, JobIx, LineIx, TenantIx, UpstreamIx};
use crate::time::Time;

/// What a lane must know about a job to queue it.
#[derive(Debug, Clone)]
pub(crate) struct Waiter {
    pub(crate) job: JobIx,
    pub(crate) tenant: TenantIx,
    pub(crate) level: Level,
    pub(crate) seq: u64,
    pub(crate) bytes: u64,
    pub(crate) expires_at: Time,
    /// It was sent to an upstream before: never evicted.
    pub(crate) tried: bool,
}

/// Counters of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Jobs accepted, without those refused because the lane was full.
    pub accepted: u64,
    /// Attempts started.
    pub started: u64,
    /// Jobs whose own call succeeded.
    pub completed: u64,
    /// Requests answered with a fresh cache entry, at intake or as jobs.
    pub cache_hits: u64,
    /// Jobs answered by the call of an equal job.
    pub coalesced: u64,
    /// Requests answered with a stale cache entry because there was nothing newer, at intake or as jobs.
    pub fallbacks: u64,
    /// How many of the hits and fallbacks were at intake, without a job.
    pub answered_at_intake: u64,
    /// Jobs that failed permanently.
    pub failed: u64,
    /// Jobs cancelled.
    pub cancelled: u64,
    /// Jobs that expired.
    pub expired: u64,
    /// Jobs evicted by more urgent ones.
    pub preempted: u64,
    /// Jobs refused because the lane was full.
    pub refused: u64,
    /// Dead letters written.
    pub dead: u64,
    /// Dead letters removed because the lane had too many.
    pub dead_trimmed: u64,
}

impl Totals {
    /// Jobs completed, by their own call or from an existing answer.
    pub const fn completed_jobs(&self) -> u64 {
        let answered = self.cache_hits + self.coalesced + self.fallbacks;
        self.completed + answered.saturating_sub(self.answered_at_intake)
    }

    /// Jobs that expired, were evicted or were refused.
    pub const fn dropped_jobs(&self) -> u64 {
        self.expired + self.preempted + self.refused
    }

    pub(crate) fn count_end(&mut self, end: &End) {
        match end {
            End::Completed => self.completed += 1,
            End::Served(ServedBy::Cache) => self.cache_hits += 1,
            End::Served(ServedBy::Coalesced) => self.coalesced += 1,
            End::Served(ServedBy::Stale(_)) => self.fallbacks += 1,
            End::Failed { .. } => self.failed += 1,
            End::Cancelled => self.cancelled += 1,
            End::Dropped(DropReason::Preempted) => self.preempted += 1,
            End::Dropped(DropReason::TtlExpired) => self.expired += 1,
            End::Dropped(DropReason::QueueFull | DropReason::NotInTime) => self.refused += 1,
        }
    }
}

/// How fast jobs start while jobs wait and only slots and workers limit them, for estimates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tempo {
    pub(crate) last_grant: Time,
    pub(crate) interval_us: u64,
}

impl Tempo {
    pub(crate) fn granted(&mut self, now: Time) {
        if self.last_grant > Time::default() {
            let sample = now.since(self.last_grant).as_millis().min(60_000) * 1_000;
            self.interval_us =
                if self.interval_us == 0 { sample } else { (self.interval_us * 15 + sample) / 16 };
        }
        self.last_grant = now;
    }

    /// Ignores the time until the next grant, which does not depend on slots and workers: nothing waits, or a gate
    /// decides. Returns whether that changed anything.
    pub(crate) fn rest(&mut self) -> bool {
        std::mem::take(&mut self.last_grant) > Time::default()
    }

    pub(crate) const fn interval_us(&self) -> u64 {
        self.interval_us
    }
}

/// One priority level of a lane.
#[derive(Debug, Default)]
pub(crate) struct LevelState {
    pub(crate) turns: Turns,
    /// Jobs in lines.
    pub(crate) queued: u64,
    /// Jobs that wait for the answer of an equal job.
    pub(crate) aside: u64,
    /// Jobs that could be evicted.
    pub(crate) evictable: u64,
    pub(crate) evictable_bytes: u64,
    /// Tenants by the number of their evictable jobs, then by arrival.
    backlogs: Tournament<TenantIx, (usize, u64)>,
}

/// What was blocked at the last dispatch and has not changed since.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    /// The lane itself, and so everything in it.
    pub(crate) lane: bool,
    /// Groups that their upstreams deny.
    pub(crate) groups: BTreeSet<GroupIx>,
}

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) name: Name,
    /// Its last known rules; `None` until a registration names it.
    pub(crate) spec: Option<LaneSpec>,
    /// Whether no registration names it: its jobs are kept but not dispatched.
    pub(crate) gone: bool,
    pub(crate) paused: bool,
    pub(crate) closed: Closed,
    pub(crate) holds: Holds,
    pub(crate) holds_dirty: bool,
    pub(crate) gates: Gates,
    pub(crate) next_seq: u64,
    pub(crate) levels: [LevelState; 3],
    pub(crate) tenants: Tenants,
    pub(crate) lines: Lines,
    /// Lines by the number of their first job: the lower, the higher they rank.
    heads: Tournament<LineIx, u64>,
    groups: Vec<Box<[UpstreamIx]>>,
    /// The group of jobs that do not name their own chain.
    pub(crate) default_chain: GroupIx,
    group_by_chain: HashMap<Box<[UpstreamIx]>, GroupIx, foldhash::fast::FixedState>,
    /// Waiting jobs by expiry.
    pub(crate) expiry: BTreeMap<(Time, u64), JobIx>,
    /// Pending jobs by due time.
    pub(crate) due: BTreeMap<(Time, u64), JobIx>,
    /// What is used of the retry budget; `None` means nothing.
    pub(crate) budget: Option<Box<Budget>>,
    /// Retries that wait for the budget.
    pub(crate) held_back: HeldBack,
    pub(crate) waiting: u64,
    pub(crate) waiting_bytes: u64,
    pub(crate) processing: u64,
    pub(crate) finished: Finished,
    pub(crate) keys: Keys,
    pub(crate) cache: Cache,
    pub(crate) equals: Equals,
    pub(crate) dead: DeadLetters,
    pub(crate) totals: Totals,
    pub(crate) tempo: Tempo,
    /// When a worker last asked for jobs; not stored.
    pub(crate) asked: Time,
    pub(crate) dirty: bool,
}

impl Lane {
    pub(crate) fn new(name: Name) -> Self {
        Self {
            name,
            spec: None,
            gone: true,
            paused: false,
            closed: Closed::default(),
            holds: Holds::default(),
            holds_dirty: false,
            gates: Gates::default(),
            next_seq: 1,
            levels: Default::default(),
            tenants: Tenants::default(),
            lines: Lines::default(),
            heads: Tournament::default(),
            groups: Vec::new(),
            default_chain: GroupIx(0),
            group_by_chain: HashMap::with_hasher(foldhash::fast::FixedState::default()),
            expiry: BTreeMap::new(),
            due: BTreeMap::new(),
            budget: None,
            held_back: HeldBack::default(),
            waiting: 0,
            waiting_bytes: 0,
            processing: 0,
            finished: Finished::default(),
            keys: Keys::default(),
            cache: Cache::default(),
            equals: Equals::default(),
            dead: DeadLetters::default(),
            totals: Totals::default(),
            tempo: Tempo::default(),
            asked: Time::default(),
            dirty: true,
        }
    }

    pub(crate) fn take_seq(&mut self) -> u64 {
        self.dirty = true;
        self.next_seq += 1;
        self.next_seq - 1
    }

    /// Whether anything except its jobs changed and is not saved.
    pub(crate) fn has_changes(&self) -> bool {
        self.dirty
            || self.holds_dirty
            || self.tenants.has_changes()
            || self.dead.has_changes()
            || self.keys.has_changes()
            || self.cache.has_changes()
    }

    pub(crate) fn cache_spec(&self) -> Option<&CacheSpec> {
        self.spec.as_ref()?.cache.as_ref()
    }

    pub(crate) fn group(&mut self, chain: &[UpstreamIx]) -> GroupIx {
        if let Some(group) = self.group_by_chain.get(chain) {
            return *group;
        }
        let group = GroupIx(u32::try_from(self.groups.len()).unwrap_or(u32::MAX));
        self.groups.push(chain.into());
        self.group_by_chain.insert(chain.into(), group);
        group
    }

    pub(crate) fn chain(&self, group: GroupIx) -> &[UpstreamIx] {
        &self.groups[group.0 as usize]
    }

    /// Whether jobs of this lane may use `upstream`.
    pub(crate) fn uses(&self, upstream: UpstreamIx) -> bool {
        self.groups.iter().any(|chain| chain.contains(&upstream))
    }

    /// The upstreams that jobs in line may go to; some perhaps more than once. Lines that wait at buckets are left out.
    pub(crate) fn upstreams_in_line(&self) -> impl Iterator<Item = UpstreamIx> {
        let in_line = |group: GroupIx| self.levels.iter().any(|level| level.turns.ready_in(group) > 0);
        let groups = (0..).map(GroupIx).zip(&self.groups);
        groups.filter(move |(group, _)| in_line(*group)).flat_map(|(_, chain)| chain).copied()
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The tenant whose turn a job of `tenant` takes: its own, or the shared one if fairness is off.
    pub(crate) fn turn_of(&mut self, tenant: TenantIx) -> TenantIx {
        let fair = self.spec.as_ref().is_none_or(|spec| spec.fairness.is_some());
        if fair { tenant } else { self.tenants.everyone() }
    }

    /// The tenant whose limits apply to a job of `tenant`, if the lane has limits per tenant. Jobs of other tenants
    /// pass it.
    pub(crate) fn limited(&self, tenant: TenantIx) -> Option<TenantIx> {
        self.spec.as_ref().filter(|spec| !spec.tenant_limits.is_empty()).map(|_| tenant)
    }

    /// Counts a job as waiting.
    pub(crate) fn enter(&mut self, waiter: &Waiter) {
        self.waiting += 1;
        self.waiting_bytes += waiter.bytes;
        self.tenants[waiter.tenant].waiting += 1;
        if waiter.expires_at < Time::NEVER {
            self.expiry.insert((waiter.expires_at, waiter.seq), waiter.job);
        }
        if !waiter.tried {
            let turn = self.turn_of(waiter.tenant);
            let level = &mut self.levels[waiter.level as usize];
            level.evictable += 1;
            level.evictable_bytes += waiter.bytes;
            let tenant = &mut self.tenants[turn];
            let arrival = tenant.arrival;
            let jobs = &mut tenant.level_mut(waiter.level).evictable;
            jobs.insert(waiter.seq, waiter.job);
            level.backlogs.set(turn, (jobs.len(), arrival));
        }
    }

    /// Reverts [`Lane::enter`].
    pub(crate) fn exit(&mut self, waiter: &Waiter) {
        self.waiting -= 1;
        self.waiting_bytes -= waiter.bytes;
        self.tenants[waiter.tenant].waiting -= 1;
        if waiter.expires_at < Time::NEVER {
            self.expiry.remove(&(waiter.expires_at, waiter.seq));
        }
        if !waiter.tried {
            let turn = self.turn_of(waiter.tenant);
            let level = &mut self.levels[waiter.level as usize];
            level.evictable -= 1;
            level.evictable_bytes -= waiter.bytes;
            let tenant = &mut self.tenants[turn];
            let arrival = tenant.arrival;
            let jobs = &mut tenant.level_mut(waiter.level).evictable;
            jobs.remove(waiter.seq);
            let backlog = if jobs.is_empty() { Default::default() } else { (jobs.len(), arrival) };
            level.backlogs.set(turn, backlog);
        }
    }

    /// The job to evict from `level`: the newest one of the tenant with the longest backlog.
    pub(crate) fn victim(&self, level: Level) -> Option<JobIx> {
        let tenant = self.levels[level as usize].backlogs.winner()?;
        self.tenants[tenant].level(level)?.evictable.last().map(|(_, job)| job)
    }

    /// The oldest dead letter, if it must be removed.
    pub(crate) fn letter_to_trim(&self, now: Time) -> Option<(JobId, TrimReason)> {
        let spec = self.spec.as_ref().and_then(|spec| spec.dead_letters.as_ref());
        self.dead.next_to_trim(spec.map_or(u64::MAX, |spec| spec.max), now)
    }

    /// Whether any job is in a line, blocked or not.
    pub(crate) fn has_jobs_in_line(&self) -> bool {
        self.levels.iter().any(|level| level.queued + level.aside > 0)
    }

    /// Whether a line was blocked at the last dispatch.
    pub(crate) fn is_closed(&self, line: LineIx) -> bool {
        let line = &self.lines[line];
        self.closed.lane || line.parked.is_some() || self.closed.groups.contains(&line.key().group)
    }

    /// Puts a job into its line.
    pub(crate) fn push(&mut self, key: LineKey, seq: u64, job: JobIx) -> LineIx {
        self.levels[key.level as usize].queued += 1;
        let (tenant, level) = (key.tenant, key.level);
        let line = self.lines.find_or_create(key);
        let head = self.lines[line].head();
        if head.is_none() {
            self.begin_line(tenant, level, seq);
        }
        self.lines[line].push(seq, job);
        if head.is_none_or(|head| seq < head) {
            self.move_head(line, head);
        }
        line
    }

    /// Removes a job from its line. The line is removed with its last job; if it was parked, returns where. With its
    /// last line in a level, a tenant loses its place there.
    #[must_use]
    pub(crate) fn pull(&mut self, line: LineIx, seq: u64) -> Option<(BucketIx, Parked)> {
        let LineKey { tenant, level, .. } = *self.lines[line].key();
        let parked = self.pull_in_place(line, seq);
        let state = self.tenants[tenant].level_mut(level);
        if state.lines == 0 {
            state.place = None;
            self.tenants.touch(tenant);
        }
        parked
    }

    /// Removes a job from its line but keeps the tenant's place, which is restored from records.
    #[must_use]
    pub(crate) fn pull_in_place(&mut self, line: LineIx, seq: u64) -> Option<(BucketIx, Parked)> {
        let head = self.lines[line].head();
        self.levels[self.lines[line].key().level as usize].queued -= 1;
        self.lines[line].pull(seq);
        self.held_back.left_line(seq);
        if head == Some(seq) {
            self.move_head(line, head);
        }
        if self.lines[line].head().is_some() {
            return None;
        }
        let parked = self.lines[line].parked.take();
        let LineKey { tenant, level, .. } = *self.lines[line].key();
        self.lines.remove(line);
        self.tenants[tenant].level_mut(level).lines -= 1;
        parked.map(|parked| *parked)
    }

    /// The lowest job number in any line.
    pub(crate) fn oldest_in_line(&self) -> Option<u64> {
        self.heads.highest().map(|rank| u64::MAX - rank)
    }

    /// The job that lined up first.
    pub(crate) fn oldest_job(&self) -> Option<JobIx> {
        self.lines[self.heads.winner()?].head_job()
    }

    /// Gives a tenant its place in a level with its first line there.
    fn begin_line(&mut self, tenant: TenantIx, level: Level, seq: u64) {
        let state = self.tenants[tenant].level_mut(level);
        state.lines += 1;
        if state.place.is_none() {
            state.place = Some(self.levels[level as usize].turns.new_place(state.last_turn, seq));
            self.tenants.touch(tenant);
        }
    }

    /// Takes a line out of the running until [`Lane::unpark`]; its tenant keeps its place.
    pub(crate) fn park(&mut self, line: LineIx, bucket: BucketIx, place: Parked) {
        let head = self.lines[line].head();
        self.lines[line].parked = Some(Box::new((bucket, place)));
        self.move_head(line, head);
    }

    /// Makes a parked line available again.
    pub(crate) fn unpark(&mut self, line: LineIx) {
        self.lines[line].parked = None;
        self.move_head(line, None);
    }

    /// Updates the order of lines and tenants after the head of `line` changed from `old`.
    fn move_head(&mut self, line: LineIx, old: Option<u64>) {
        self.heads.set(line, self.lines[line].head().map_or(0, |seq| u64::MAX - seq));
        let new = self.lines[line].open_head();
        let LineKey { level, group, tenant, .. } = *self.lines[line].key();
        let state = self.tenants[tenant].level_mut(level);
        let place = state.place.unwrap_or_default();
        let open = state.open(group);
        let was_open = !open.is_empty();
        // In this order, so that a tree of one keeps its node.
        if let Some(new) = new {
            open.insert(new, line);
        }
        if let Some(old) = old.filter(|old| new != Some(*old)) {
            open.remove(&old);
        }
        let is_open = !open.is_empty();
        if was_open != is_open {
            self.levels[level as usize].turns.set_ready(tenant, place, group, is_open);
        }
    }
}
