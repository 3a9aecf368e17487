//! The checkers of the search and their findings.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use eclusa_fleet::{Append, ProcessId, Take, TermId};

use super::server::Branch;
use super::tree::Tree;
use crate::archive::{Chain, ROOT};
use crate::check::Violation;
use crate::loss::Losses;

/// See the module.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct SearchAudit {
    /// Every term that was ever taken, with its epoch.
    pub(super) terms: BTreeMap<TermId, u64>,
    /// Every state that was ever in a journal.
    pub(super) journaled: BTreeSet<Chain>,
    /// What was acknowledged, and what happened to it.
    pub(super) losses: Losses,
    /// The violation that was found, if any.
    pub(super) violation: Option<Violation>,
}

impl SearchAudit {
    /// Reports a violation.
    pub(super) fn fail(&mut self, invariant: &'static str, what: fmt::Arguments<'_>) {
        if self.violation.is_none() {
            self.violation = Some(Violation { invariant, what: what.to_string() });
        }
    }

    /// I2, I9, I10: a term is taken once, its epoch is unique, and the previous owner had vanished.
    pub(super) fn taken(&mut self, take: &Take, process: ProcessId, epoch: u64, gone: bool) {
        if self.terms.values().any(|known| *known == epoch) {
            self.fail("I9", format_args!("{process} takes epoch {epoch}, which was taken before"));
        }
        if self.terms.insert(take.term, epoch).is_some() {
            self.fail("I2", format_args!("{} was taken twice", take.term));
        }
        if !gone {
            self.fail(
                "I10",
                format_args!("{process} took a term from an owner that lives: {:?}", take.reason),
            );
        }
    }

    /// I2: an append counts under the term of its sender, and its answers reflect what is in the journal.
    pub(super) fn appended(&mut self, append: &Append, process: ProcessId, branch: &Branch, tree: &Tree) {
        let holds = branch.keys.term.as_ref().is_some_and(|view| {
            view.term == append.term && view.owner == process && view.epoch == append.epoch
        });
        if !holds {
            self.fail("I2", format_args!("{process} appends under a term that is another's"));
        }
        for answer in &*append.answers {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&answer.message);
            let chain = usize::from_le_bytes(bytes);
            if !tree.archive.contains(branch.chain, chain) {
                let journal = branch.chain;
                self.fail("I2", format_args!("state {chain} is acknowledged, the journal is at {journal}"));
            }
            self.acknowledge(chain, tree);
        }
    }

    /// I2, I3: a process reports that its batches are durable.
    pub(super) fn durable(&mut self, chain: Chain, tree: &Tree) {
        if chain != ROOT && !self.journaled.contains(&chain) {
            self.fail("I2", format_args!("state {chain} is acknowledged, and was in no journal"));
        }
        self.acknowledge(chain, tree);
    }

    fn acknowledge(&mut self, chain: Chain, tree: &Tree) {
        if let Some(lost) = self.losses.acknowledge(chain, &tree.archive) {
            self.fail("I3", format_args!("{lost}"));
        }
    }

    /// I3: the fleet continues with this state.
    pub(super) fn goes_on(&mut self, chain: Chain, tree: &Tree) {
        if let Some(lost) = self.losses.goes_on(chain, &tree.archive) {
            self.fail("I3", format_args!("{lost}"));
        }
    }

    /// I3: a superseded process knows whether anything that it reported as durable is missing.
    pub(super) fn superseded(&mut self, durable: Chain, journal: Chain, missing: bool, tree: &Tree) {
        if !missing && !tree.archive.contains(journal, durable) {
            self.fail("I3", format_args!("state {durable} is missing in {journal}, and nothing reports it"));
        }
    }
}
