//! I3: what was acknowledged is not lost, except when the server lost it and nobody who had it was there to bring it back.

use std::collections::{BTreeMap, BTreeSet};

use eclusa_fleet::ProcessId;

use crate::archive::{Archive, Chain};

/// A process that was away for this long in sum cannot be expected to have brought anything back, in ms.
pub(crate) const AWAY_MS: u64 = 700;

/// The server went back to an older state.
#[derive(Debug, Clone, Hash)]
struct Regression {
    before: Chain,
    after: Chain,
    /// Processes with a state in memory, and how long each has been away since.
    holders: BTreeMap<ProcessId, (Chain, u64)>,
}

/// See the module.
#[derive(Debug, Clone, Default, Hash)]
pub(crate) struct Losses {
    /// States that were acknowledged to somebody, without those that they contain.
    acknowledged: BTreeSet<Chain>,
    /// States that nobody could save, each with the one that the fleet went on with.
    excused: BTreeSet<(Chain, Chain)>,
    regressions: Vec<Regression>,
    /// The state with which the fleet last went on.
    current: Chain,
}

impl Losses {
    /// Somebody was told something that depends on this state. Returns what is wrong with that.
    pub(crate) fn acknowledge(&mut self, chain: Chain, archive: &Archive) -> Option<String> {
        if self.acknowledged.contains(&chain) || self.is_excused(chain, archive) {
            return None;
        }
        if self.acknowledged.iter().any(|known| archive.contains(*known, chain)) {
            return None;
        }
        self.acknowledged.retain(|known| !archive.contains(chain, *known));
        self.acknowledged.insert(chain);
        if archive.contains(chain, self.current) || archive.contains(self.current, chain) {
            return None;
        }
        // It is heard of late, when the fleet has gone on without it.
        self.lose(chain, self.current, archive)
    }

    /// What has been acknowledged.
    pub(crate) fn acknowledged(&self) -> Vec<Chain> {
        self.acknowledged.iter().copied().collect()
    }

    /// Whether this state is lost, or depends on one that is.
    pub(crate) fn is_excused(&self, chain: Chain, archive: &Archive) -> bool {
        self.excused.iter().any(|(lost, went_on)| {
            archive.contains(chain, *lost)
                || archive.contains(*lost, chain) && !archive.contains(*went_on, chain)
        })
    }

    /// Whether anything was lost.
    pub(crate) fn any_excused(&self) -> bool {
        !self.excused.is_empty()
    }

    /// Whether the server has ever lost a state.
    pub(crate) fn any_regression(&self) -> bool {
        !self.regressions.is_empty()
    }

    /// The server went back. `holders` have a state, and are away for so long from now on. What loses nothing is not
    /// remembered, nor is a holder who has none of what is lost: neither can decide whose loss it is.
    pub(crate) fn regressed(
        &mut self,
        (before, after): (Chain, Chain),
        holders: impl Iterator<Item = (ProcessId, (Chain, u64))>,
        archive: &Archive,
    ) {
        if archive.contains(after, before) {
            return;
        }
        let holders = holders.filter(|(_, (has, _))| !archive.contains(after, archive.common(*has, before)));
        self.regressions.push(Regression { before, after, holders: holders.collect() });
    }

    /// A process was away: paused, cut off or without replies.
    pub(crate) fn away(&mut self, process: ProcessId, ms: u64) {
        for regression in &mut self.regressions {
            if let Some((_, away)) = regression.holders.get_mut(&process) {
                *away = (*away + ms).min(AWAY_MS);
            }
        }
    }

    /// A process is no more.
    pub(crate) fn died(&mut self, process: ProcessId) {
        for regression in &mut self.regressions {
            regression.holders.remove(&process);
        }
    }

    /// A chunk that leads to this state was appended. What was acknowledged in another branch is lost; what the owner has
    /// yet to append again is not.
    pub(crate) fn appended(&mut self, chain: Chain, archive: &Archive) -> Option<String> {
        self.current = chain;
        let other = |known: &Chain| !archive.contains(chain, *known) && !archive.contains(*known, chain);
        let lost: Vec<_> = self.acknowledged.iter().copied().filter(other).collect();
        lost.into_iter().find_map(|lost| self.lose(lost, chain, archive))
    }

    /// The fleet goes on with this state. Returns what was lost and by whom it could have been saved.
    pub(crate) fn goes_on(&mut self, chain: Chain, archive: &Archive) -> Option<String> {
        self.current = chain;
        let lost = self.acknowledged().into_iter().filter(|known| !archive.contains(chain, *known));
        lost.collect::<Vec<_>>().into_iter().find_map(|lost| self.lose(lost, chain, archive))
    }

    /// A state that was acknowledged is lost for `chain`. Returns by whom it could have been saved.
    fn lose(&mut self, lost: Chain, chain: Chain, archive: &Archive) -> Option<String> {
        let lost_by = self.regressions.iter().rev().find(|regression| {
            archive.contains(regression.before, lost) && !archive.contains(regression.after, lost)
        });
        let Some(regression) = lost_by else {
            return Some(format!("state {lost} is lost, the fleet goes on with {chain}"));
        };
        let savior = regression
            .holders
            .iter()
            .find(|(_, (has, away))| archive.contains(*has, lost) && *away < AWAY_MS);
        if let Some((process, _)) = savior {
            return Some(format!("state {lost} is lost for {chain}, though {process} has it"));
        }
        self.acknowledged.remove(&lost);
        self.excused.insert((lost, chain));
        // What was acknowledged before and is still there must not be lost later.
        self.acknowledged.insert(archive.common(lost, chain));
        None
    }
}
