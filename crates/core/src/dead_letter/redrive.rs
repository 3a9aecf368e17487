//! Which dead letters of a lane are sent again automatically, and when.

use std::collections::{BTreeMap, BTreeSet};

use super::Kept;
use crate::ids::{JobId, Name, derived_id};
use crate::spec::RedriveSpec;
use crate::time::Time;

/// The redrive state of a chain. Letters with the same chain wait for the same canary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ChainState {
    /// A redrive failed: nothing is sent before this time.
    pub(crate) held_until: Time,
    /// A canary succeeded: the others follow.
    pub(crate) proven: bool,
}

/// The letters of one chain that are due or running; derived from the letters.
#[derive(Debug, Default)]
struct Wave {
    due: BTreeSet<(Time, u64)>,
    running: u64,
}

/// A wave with the state of its chain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaveView {
    /// The letter that is due first, and when.
    pub(crate) first: Option<(Time, JobId)>,
    pub(crate) running: u64,
    pub(crate) held_until: Time,
    pub(crate) proven: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Redrives {
    /// The rule that `waves` was derived from.
    rule: Option<RedriveSpec>,
    waves: BTreeMap<Vec<Name>, Wave>,
    /// Chains that are held or proven.
    chain_states: BTreeMap<Vec<Name>, ChainState>,
    unsaved: BTreeSet<Vec<Name>>,
}

/// The id of the job for the letter's current redrive.
fn job_of(kept: &Kept) -> JobId {
    derived_id(kept.letter.moved_at, &[kept.job], u64::from(kept.letter.redrives))
}

/// Whether `job` is the running redrive of a letter.
pub(super) fn is_redriven_by(kept: &Kept, job: JobId) -> bool {
    kept.letter.redrives > 0 && kept.letter.replay == Some(job) && job == job_of(kept)
}

/// Counts the next redrive of a letter; returns its job's id.
pub(super) fn begin(kept: &mut Kept) -> JobId {
    kept.letter.redrives += 1;
    job_of(kept)
}

impl Redrives {
    /// Rebuilds the waves if the rule has changed.
    pub(super) fn follow<'a>(
        &mut self,
        rule: Option<RedriveSpec>,
        letters: impl Iterator<Item = (u64, &'a Kept)>,
    ) {
        if self.rule == rule {
            return;
        }
        (self.rule, self.waves) = (rule, BTreeMap::new());
        letters.for_each(|(number, kept)| self.add(number, kept));
    }

    pub(super) fn add(&mut self, number: u64, kept: &Kept) {
        let Some(rule) = &self.rule else { return };
        let due = rule.due(&kept.letter);
        let running = kept.letter.replay.is_some_and(|job| is_redriven_by(kept, job));
        if due.is_none() && !running {
            return;
        }
        let wave = self.waves.entry(kept.letter.chain.clone()).or_default();
        wave.due.extend(due.map(|due| (due, number)));
        wave.running += u64::from(running);
    }

    /// Reverts [`Redrives::add`]; the letter must be the same as then.
    pub(super) fn remove(&mut self, number: u64, kept: &Kept) {
        let Some(rule) = &self.rule else { return };
        let Some(wave) = self.waves.get_mut(&kept.letter.chain) else { return };
        if let Some(due) = rule.due(&kept.letter) {
            wave.due.remove(&(due, number));
        } else if kept.letter.replay.is_some_and(|job| is_redriven_by(kept, job)) {
            wave.running -= 1;
        }
        if wave.due.is_empty() && wave.running == 0 {
            self.waves.remove(&kept.letter.chain);
        }
    }

    pub(super) fn chains(&self) -> Vec<Vec<Name>> {
        let all: BTreeSet<&Vec<Name>> = self.waves.keys().chain(self.chain_states.keys()).collect();
        all.into_iter().cloned().collect()
    }

    pub(super) fn chain_state(&self, chain: &[Name]) -> ChainState {
        self.chain_states.get(chain).copied().unwrap_or_default()
    }

    pub(super) fn wave(&self, chain: &[Name], job: impl FnOnce(u64) -> Option<JobId>) -> WaveView {
        let (wave, ChainState { held_until, proven }) = (self.waves.get(chain), self.chain_state(chain));
        let first = wave.and_then(|wave| wave.due.first().copied());
        let first = first.and_then(|(due, number)| Some((due, job(number)?)));
        WaveView { first, running: wave.map_or(0, |wave| wave.running), held_until, proven }
    }

    /// Changes the state of a chain; a state equal to the initial one is dropped.
    pub(super) fn update_chain_state(
        &mut self,
        chain: &[Name],
        change: impl FnOnce(&mut ChainState),
        now: Time,
    ) {
        let before = self.chain_states.get(chain).copied();
        let mut state = before.unwrap_or_default();
        change(&mut state);
        let after = (state.proven || state.held_until > now).then_some(state);
        if before != after {
            self.restore(chain.to_vec(), after);
            self.unsaved.insert(chain.to_vec());
        }
    }

    pub(super) fn restore(&mut self, chain: Vec<Name>, state: Option<ChainState>) {
        match state {
            Some(state) => drop(self.chain_states.insert(chain, state)),
            None => drop(self.chain_states.remove(&chain)),
        }
    }

    pub(super) fn touch(&mut self, chain: &[Name]) {
        if self.chain_states.contains_key(chain) {
            self.unsaved.insert(chain.to_vec());
        }
    }

    pub(super) fn has_changes(&self) -> bool {
        !self.unsaved.is_empty()
    }

    pub(super) fn drain_changes(&mut self, mut changed: impl FnMut(Vec<Name>, Option<ChainState>)) {
        for chain in std::mem::take(&mut self.unsaved) {
            let state = self.chain_states.get(&chain).copied();
            changed(chain, state);
        }
    }

    pub(super) fn chain_states(&self) -> impl Iterator<Item = (&Vec<Name>, &ChainState)> {
        self.chain_states.iter()
    }
}
