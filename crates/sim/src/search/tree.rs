//! Everything that was produced in any branch of the search. The same chunk in two branches is stored once, so the
//! contents do not depend on the order of the search.

use std::collections::BTreeMap;

use eclusa_fleet::{Chunk, Position, ProcessId};

use crate::archive::{Archive, Chain, Kind};

/// See the module.
pub(super) struct Tree {
    /// The states of journals.
    pub(super) archive: Archive,
    made: BTreeMap<(Chain, ProcessId, u64), Chain>,
    kinds: Vec<Kind>,
    sums: BTreeMap<(Kind, u64, ProcessId), u64>,
}

impl Tree {
    pub(super) fn new() -> Self {
        let archive = Archive::new([0].into());
        Self { archive, made: BTreeMap::new(), kinds: Vec::new(), sums: BTreeMap::new() }
    }

    /// The state after the `count`th change by a process.
    pub(super) fn grow(&mut self, before: Chain, by: ProcessId, count: u64) -> Chain {
        *self.made.entry((before, by, count)).or_insert_with(|| self.archive.grow(before))
    }

    /// A chunk of a process, identified by its checksum.
    pub(super) fn chunk(&mut self, kind: Kind, number: u64, by: ProcessId, keep_from: Position) -> Chunk {
        let kinds = &mut self.kinds;
        let checksum = *self.sums.entry((kind, number, by)).or_insert_with(|| {
            kinds.push(kind);
            kinds.len() as u64
        });
        Chunk { number, bytes: self.archive.blob.clone(), checksum, keep_from }
    }

    /// The contents of the chunk with this checksum.
    pub(super) fn kind(&self, checksum: u64) -> Kind {
        self.kinds[usize::try_from(checksum - 1).unwrap_or(usize::MAX)]
    }
}
