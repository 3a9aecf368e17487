//! Dead letters: jobs that failed permanently, kept with their reason.

mod redrive;
mod tally;

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::ids::{JobId, Name};
use crate::job::{Failure, Hold, Level, Payload};
use crate::policy::Correlation;
use crate::spec::RedriveSpec;
use crate::time::{Span, Time};

use self::redrive::Redrives;
pub(crate) use self::redrive::{ChainState, WaveView};
pub(crate) use self::tally::Tally;

/// A dead letter as shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterView {
    /// The job that failed.
    pub job: JobId,
    /// Its lane.
    pub lane: Name,
    /// The letter itself.
    pub letter: DeadLetter,
    /// The earliest time of its next automatic redrive; `None` if there is none.
    pub next_redrive: Option<Time>,
}

/// What is kept of a job that failed permanently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The job's outboxId or idempotency key.
    pub key: Option<Arc<str>>,
    /// The tenant it belongs to.
    pub tenant: Arc<str>,
    /// Its priority.
    pub level: Level,
    /// The job's payload.
    pub payload: Payload,
    /// The upstreams it may use.
    pub chain: Vec<Name>,
    /// What it takes from scoped buckets, also when replayed.
    pub holds: Vec<Hold>,
    /// Number of attempts made.
    pub failed_attempts: u32,
    /// The last failure; its reason cannot be empty, by type.
    pub last_failure: Failure,
    /// When the job was first enqueued.
    pub enqueued_at: Time,
    /// When it became a dead letter.
    pub moved_at: Time,
    /// How long it is kept.
    pub ttl: Span,
    /// The job that is replaying it, if any.
    pub replay: Option<JobId>,
    /// The callback URL of the job; a replay reports there too.
    pub callback: Option<Arc<str>>,
    /// How often it was redriven.
    pub redrives: u32,
}

/// A histogram of the ages of removed dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LetterAges {
    /// Letters per bucket: bucket `i` ends at `BOUNDS[i]` (inclusive), the last has no bound.
    pub counts: [u64; 9],
    /// The sum of their ages.
    pub total: Span,
}

impl LetterAges {
    /// The upper bounds of the counts.
    pub const BOUNDS: [Span; 8] = [
        Span::from_secs(60),
        Span::from_secs(600),
        Span::from_secs(3_600),
        Span::from_secs(6 * 3_600),
        Span::from_secs(24 * 3_600),
        Span::from_secs(2 * 24 * 3_600),
        Span::from_secs(3 * 24 * 3_600),
        Span::from_secs(7 * 24 * 3_600),
    ];

    fn observe(&mut self, age: Span) {
        let place = Self::BOUNDS.iter().position(|bound| age <= *bound).unwrap_or(Self::BOUNDS.len());
        self.counts[place] += 1;
        self.total = Span::from_millis(self.total.as_millis().saturating_add(age.as_millis()));
    }
}

/// A letter with the data that only its replay needs.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) job: JobId,
    pub(crate) letter: DeadLetter,
    /// Identifies its call to later events that earn tokens back.
    pub(crate) correlation: Option<Correlation>,
}

/// The dead letters of one lane, oldest first.
#[derive(Debug, Default)]
pub(crate) struct DeadLetters {
    letters: BTreeMap<u64, Kept>,
    by_job: HashMap<JobId, u64, foldhash::fast::FixedState>,
    dirty: Vec<u64>,
    /// Total payload size.
    bytes: u64,
    pub(crate) by_tenant: Tally,
    /// By the code of the last failure, if it has one.
    pub(crate) by_code: Tally,
    redrives: Redrives,
    pub(crate) ages: LetterAges,
}

impl DeadLetters {
    /// Adds a letter. It replaces an older letter of the same job, whose id was used again after the job was forgotten.
    pub(crate) fn add(&mut self, number: u64, kept: Kept) {
        self.remove(kept.job);
        self.restore(number, Some(kept));
        self.dirty.push(number);
    }

    /// Applies the journal's entry for `number`; `None` removes it.
    pub(crate) fn restore(&mut self, number: u64, kept: Option<Kept>) {
        if let Some(old) = self.take(number) {
            // A newer letter of the same job may be there already.
            if self.by_job.get(&old.job) == Some(&number) {
                self.by_job.remove(&old.job);
            }
        }
        if let Some(kept) = kept {
            self.by_job.insert(kept.job, number);
            self.put(number, kept);
        }
    }

    fn take(&mut self, number: u64) -> Option<Kept> {
        let kept = self.letters.remove(&number)?;
        self.uncount(&kept.letter);
        self.redrives.remove(number, &kept);
        Some(kept)
    }

    fn put(&mut self, number: u64, kept: Kept) {
        self.bytes += kept.letter.payload.len() as u64;
        self.by_tenant.add(&kept.letter.tenant);
        kept.letter.last_failure.code.iter().for_each(|code| self.by_code.add(code));
        self.redrives.add(number, &kept);
        self.letters.insert(number, kept);
    }

    pub(crate) fn get(&self, job: JobId) -> Option<&DeadLetter> {
        self.kept(job).map(|kept| &kept.letter)
    }

    pub(crate) fn kept(&self, job: JobId) -> Option<&Kept> {
        self.letters.get(self.by_job.get(&job)?)
    }

    pub(crate) fn change(&mut self, job: JobId, change: impl FnOnce(&mut DeadLetter)) {
        self.change_kept(job, |kept| change(&mut kept.letter));
    }

    /// Changes a letter and its replay data.
    pub(crate) fn change_kept<T>(&mut self, job: JobId, change: impl FnOnce(&mut Kept) -> T) -> Option<T> {
        let number = *self.by_job.get(&job)?;
        let mut kept = self.take(number)?;
        let answer = change(&mut kept);
        self.put(number, kept);
        self.dirty.push(number);
        Some(answer)
    }

    /// Removes a letter and counts its age.
    pub(crate) fn retire(&mut self, job: JobId, now: Time) -> Option<DeadLetter> {
        let letter = self.remove(job)?;
        self.ages.observe(now.since(letter.moved_at));
        Some(letter)
    }

    pub(crate) fn remove(&mut self, job: JobId) -> Option<DeadLetter> {
        let number = self.by_job.remove(&job)?;
        self.dirty.push(number);
        self.take(number).map(|kept| kept.letter)
    }

    /// Applies a redrive rule.
    pub(crate) fn follow_redrive(&mut self, rule: Option<RedriveSpec>) {
        let letters = self.letters.iter().map(|(number, kept)| (*number, kept));
        self.redrives.follow(rule, letters);
    }

    /// The chains that have letters to redrive, or a state.
    pub(crate) fn redrive_chains(&self) -> Vec<Vec<Name>> {
        self.redrives.chains()
    }

    pub(crate) fn wave(&self, chain: &[Name]) -> WaveView {
        self.redrives.wave(chain, |number| self.letters.get(&number).map(|kept| kept.job))
    }

    pub(crate) fn chain_state(&self, chain: &[Name]) -> ChainState {
        self.redrives.chain_state(chain)
    }

    pub(crate) fn update_chain_state(
        &mut self,
        chain: &[Name],
        change: impl FnOnce(&mut ChainState),
        now: Time,
    ) {
        self.redrives.update_chain_state(chain, change, now);
    }

    pub(crate) fn restore_chain_state(&mut self, chain: Vec<Name>, state: Option<ChainState>) {
        self.redrives.restore(chain, state);
    }

    pub(crate) fn touch_chain_state(&mut self, chain: &[Name]) {
        self.redrives.touch(chain);
    }

    pub(crate) fn chain_states(&self) -> impl Iterator<Item = (&Vec<Name>, &ChainState)> {
        self.redrives.chain_states()
    }

    /// Counts another redrive of a letter; returns the job's id.
    pub(crate) fn begin_redrive(&mut self, letter: JobId) -> Option<JobId> {
        self.change_kept(letter, redrive::begin)
    }

    /// The chain of a letter whose redrive is `job`.
    pub(crate) fn redriven_by(&self, letter: JobId, job: JobId) -> Option<Vec<Name>> {
        let kept = self.kept(letter).filter(|kept| redrive::is_redriven_by(kept, job))?;
        Some(kept.letter.chain.clone())
    }

    fn uncount(&mut self, letter: &DeadLetter) {
        self.bytes -= letter.payload.len() as u64;
        self.by_tenant.remove(&letter.tenant);
        letter.last_failure.code.iter().for_each(|code| self.by_code.remove(code));
    }

    /// The number of letters of each tenant that has any.
    pub(crate) fn by_tenant(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        self.by_tenant.iter()
    }

    /// The oldest letter, if it has expired or the lane has more than `max`.
    pub(crate) fn next_to_trim(&self, max: u64, now: Time) -> Option<(JobId, TrimReason)> {
        let Kept { job, letter, .. } = self.letters.first_key_value()?.1;
        if letter.moved_at + letter.ttl <= now {
            return Some((*job, TrimReason::Expired));
        }
        (self.letters.len() as u64 > max).then_some((*job, TrimReason::OverCap))
    }

    /// When the oldest letter expires.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.letters.first_key_value().map(|(_, kept)| kept.letter.moved_at + kept.letter.ttl)
    }

    pub(crate) fn len(&self) -> usize {
        self.letters.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Letters after `number`, oldest first.
    pub(crate) fn after(&self, number: u64) -> impl Iterator<Item = (u64, JobId, &DeadLetter)> {
        self.kept_after(number).map(|(number, kept)| (number, kept.job, &kept.letter))
    }

    pub(crate) fn kept_after(&self, number: u64) -> impl Iterator<Item = (u64, &Kept)> {
        self.letters.range(number + 1..).map(|(number, kept)| (*number, kept))
    }

    /// Marks a letter as changed and returns it, if it still exists.
    pub(crate) fn touch(&mut self, number: u64) -> Option<&DeadLetter> {
        let kept = self.letters.get(&number)?;
        self.dirty.push(number);
        Some(&kept.letter)
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.dirty.is_empty() || self.redrives.has_changes()
    }

    /// Passes each letter changed since the last call to `changed`; removed letters are passed as `None`.
    pub(crate) fn drain_changes(&mut self, mut changed: impl FnMut(u64, Option<&Kept>)) {
        // A record holds the whole letter, so one per letter is enough.
        self.dirty.sort_unstable();
        self.dirty.dedup();
        for number in self.dirty.drain(..) {
            changed(number, self.letters.get(&number));
        }
    }

    /// Passes each chain whose state changed since the last call to `changed`; `None` means the initial state.
    pub(crate) fn drain_chain_states(&mut self, changed: impl FnMut(Vec<Name>, Option<ChainState>)) {
        self.redrives.drain_changes(changed);
    }
}

/// Why a dead letter is removed without a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimReason {
    /// Its time to live is over.
    Expired,
    /// The lane has more letters than it keeps.
    OverCap,
}
