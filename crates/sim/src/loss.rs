//! I3: acknowledged data is not lost, unless the server lost it and no process that had it could restore it.

use std::collections::{BTreeMap, BTreeSet};

use eclusa_fleet::ProcessId;

use crate::archive::{Archive, Chain};

/// A process that was away for this long in total is not expected to have restored anything, in ms.
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
    /// Acknowledged states, without those that they contain.
    acknowledged: BTreeSet<Chain>,
    /// States that no process could save, each with the state that the fleet continued with.
    excused: BTreeSet<(Chain, Chain)>,
    regressions: Vec<Regression>,
    /// The last release of each process, by the number of regressions before it.
    releases: BTreeMap<ProcessId, usize>,
    /// The state that the fleet last continued with.
    current: Chain,
}

impl Losses {
    /// An answer that depends on this state was received. Returns the violation, if any.
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
        // It is received late, after the fleet has continued without it.
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

    /// The server went back. `holders` are the processes with a state, and how long each is away from now on. A
    /// regression that loses nothing is not recorded, nor is a holder that has nothing of what is lost: neither
    /// matters.
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

    /// The server has run a release of this process.
    pub(crate) fn released(&mut self, process: ProcessId) {
        self.releases.insert(process, self.regressions.len());
    }

    /// A process learns that it has released its term, and drops its state. Nobody owns between a release and the
    /// takeover: the fleet does not promise to restore what the server loses then.
    pub(crate) fn left(&mut self, process: ProcessId) {
        let Some(before) = self.releases.remove(&process) else { return };
        for regression in self.regressions.iter_mut().skip(before) {
            regression.holders.remove(&process);
        }
    }

    /// A process has ended.
    pub(crate) fn died(&mut self, process: ProcessId) {
        for regression in &mut self.regressions {
            regression.holders.remove(&process);
        }
    }

    /// A chunk that leads to this state was appended. What was acknowledged in another branch is lost; what the owner
    /// still has to append again is not.
    pub(crate) fn appended(&mut self, chain: Chain, archive: &Archive) -> Option<String> {
        self.current = chain;
        let other = |known: &Chain| !archive.contains(chain, *known) && !archive.contains(*known, chain);
        let lost: Vec<_> = self.acknowledged.iter().copied().filter(other).collect();
        lost.into_iter().find_map(|lost| self.lose(lost, chain, archive))
    }

    /// The fleet continues with this state. Returns what was lost and which process could have saved it.
    pub(crate) fn goes_on(&mut self, chain: Chain, archive: &Archive) -> Option<String> {
        self.current = chain;
        let lost = self.acknowledged().into_iter().filter(|known| !archive.contains(chain, *known));
        lost.collect::<Vec<_>>().into_iter().find_map(|lost| self.lose(lost, chain, archive))
    }

    /// An acknowledged state is lost for `chain`. Returns which process could have saved it.
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
        // What was acknowledged before and still exists must not be lost later.
        self.acknowledged.insert(archive.common(lost, chain));
        None
    }
}
