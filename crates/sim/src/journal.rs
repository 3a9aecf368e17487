//! The owner's side of the journal: reading it into the engine, writing changes and snapshots, cleaning.

use std::collections::{BTreeMap, VecDeque};

use eclusa_fleet::{Chunk, Position};

use crate::archive::{Archive, Body, Chain, Effect, Kind};
use crate::bugs::Bug;
use crate::engine::{Engine, Key, Record, State, apply};

/// Cleaning begins when the oldest chunk that is needed is this many chunks old.
const CLEAN_AFTER: u64 = 8;
/// How many of the oldest chunks are cleaned at a time.
const CLEAN: u64 = 4;
/// Records in one part of a snapshot.
const PART: usize = 6;

/// A snapshot that is being read.
#[derive(Debug, Clone)]
struct Open {
    state: State,
    home: BTreeMap<Key, u64>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Journal {
    /// The engine.
    pub(crate) engine: Engine,
    /// The state that its chunks led to.
    pub(crate) chain: Chain,
    /// Questions that ran since the last chunk.
    pub(crate) effects: Vec<Effect>,
    /// The chunk with the newest record of each thing.
    home: BTreeMap<Key, u64>,
    epochs: BTreeMap<u64, u64>,
    open: Option<Open>,
    parts: VecDeque<Vec<Record>>,
    first_part: u64,
    /// How far engine time is ahead of the server's clock.
    pub(crate) ahead: i64,
    /// Checksums of its own chunks.
    pub(crate) sums: BTreeMap<u64, u64>,
}

impl Journal {
    /// Reads a chunk.
    pub(crate) fn load(&mut self, body: &Body, at: Position, bug: Option<Bug>) {
        self.epochs.insert(at.number, at.epoch);
        if bug != Some(Bug::TimeRunsBack) {
            self.engine.time = self.engine.time.max(body.time);
        }
        self.ahead = body.ahead;
        let (chain, first, last) = match body.kind {
            Kind::Changes { after, .. } => {
                self.open = None;
                self.chain = after;
                return self.apply(&body.records, at.number);
            }
            Kind::Snapshot { chain, first, last } => (chain, first, last),
        };
        if bug == Some(Bug::UnfinishedSnapshotRead) {
            if first {
                self.engine.state.clear();
            }
            self.chain = chain;
            return self.apply(&body.records, at.number);
        }
        if first {
            self.open = Some(Open { state: State::new(), home: BTreeMap::new() });
        }
        let Some(open) = &mut self.open else {
            // The beginning was trimmed after the end was written: what is left is live.
            self.chain = chain;
            return self.apply(&body.records, at.number);
        };
        for record in &body.records {
            apply(&mut open.state, *record);
            open.home.insert(record.0, at.number);
        }
        if last && let Some(open) = self.open.take() {
            (self.engine.state, self.home, self.chain) = (open.state, open.home, chain);
        }
    }

    fn apply(&mut self, records: &[Record], number: u64) {
        for record in records {
            apply(&mut self.engine.state, *record);
            self.settle_home(*record, number);
        }
    }

    fn settle_home(&mut self, (key, value): Record, number: u64) {
        match value {
            Some(_) => self.home.insert(key, number),
            None => self.home.remove(&key),
        };
    }

    /// What changed, as a chunk.
    pub(crate) fn changes(
        &mut self,
        archive: &mut Archive,
        number: u64,
        epoch: u64,
        bug: Option<Bug>,
    ) -> Option<Chunk> {
        if self.engine.staged.is_empty() {
            return None;
        }
        let mut records: Vec<Record> = std::mem::take(&mut self.engine.staged).into_iter().collect();
        for record in &records {
            self.settle_home(*record, number);
        }
        let oldest = self.home.values().min().copied().unwrap_or(number);
        let mut keep_from = oldest;
        if number > oldest + CLEAN_AFTER {
            if bug == Some(Bug::TrimTooFar) {
                keep_from = oldest + CLEAN;
            } else {
                self.clean(oldest + CLEAN, number, &mut records);
                keep_from = self.home.values().min().copied().unwrap_or(number);
            }
        }
        self.epochs.insert(number, epoch);
        let before = self.chain;
        self.chain = archive.grow(before);
        let kind = Kind::Changes { before, after: self.chain };
        let keep_from =
            Position { epoch: self.epochs.get(&keep_from).copied().unwrap_or(0), number: keep_from };
        Some(self.chunk(archive, number, kind, records, keep_from, bug))
    }

    /// Appends the live records of chunks before `until` again.
    fn clean(&mut self, until: u64, number: u64, records: &mut Vec<Record>) {
        for (key, home) in &mut self.home {
            if *home < until {
                *home = number;
                records.push((*key, self.engine.state.get(key).copied()));
            }
        }
    }

    /// The next part of a snapshot, and whether it is the last.
    pub(crate) fn snapshot(
        &mut self,
        archive: &mut Archive,
        number: u64,
        epoch: u64,
        first: bool,
        bug: Option<Bug>,
    ) -> Option<(Chunk, bool)> {
        if first {
            self.begin_snapshot(archive, number);
        }
        let records = self.parts.pop_front()?;
        for record in &records {
            self.home.insert(record.0, number);
        }
        self.epochs.insert(number, epoch);
        let last = self.parts.is_empty();
        let kind = Kind::Snapshot { chain: self.chain, first, last };
        let keep_from = if last { Position { epoch, number: self.first_part } } else { Position::default() };
        Some((self.chunk(archive, number, kind, records, keep_from, bug), last))
    }

    fn begin_snapshot(&mut self, archive: &mut Archive, number: u64) {
        if !self.engine.staged.is_empty() {
            self.engine.staged.clear();
            self.chain = archive.grow(self.chain);
        }
        let records: Vec<Record> =
            self.engine.state.iter().map(|(key, value)| (*key, Some(*value))).collect();
        self.parts = records.chunks(PART).map(<[Record]>::to_vec).collect();
        if self.parts.is_empty() {
            self.parts.push_back(Vec::new());
        }
        self.home.clear();
        self.epochs.clear();
        self.first_part = number;
    }

    fn chunk(
        &mut self,
        archive: &mut Archive,
        number: u64,
        kind: Kind,
        records: Vec<Record>,
        keep_from: Position,
        bug: Option<Bug>,
    ) -> Chunk {
        let body = Body {
            kind,
            records,
            time: self.engine.time,
            ahead: self.ahead,
            rule: self.engine.rule(bug),
            expired: std::mem::take(&mut self.engine.expired),
            effects: std::mem::take(&mut self.effects),
        };
        let checksum = archive.keep_body(body);
        self.sums.insert(number, checksum);
        Chunk { number, bytes: archive.blob.clone(), checksum, keep_from }
    }

    /// A planted bug: the chunk with what was staged since.
    pub(crate) fn change(&mut self, archive: &mut Archive, chunk: &Chunk, bug: Option<Bug>) -> Option<Chunk> {
        let old = archive.body(chunk.checksum);
        let Kind::Changes { before, .. } = old.kind else { return None };
        if self.engine.staged.is_empty() {
            return None;
        }
        let mut records = old.records.clone();
        records.extend(std::mem::take(&mut self.engine.staged));
        self.chain = archive.grow(before);
        self.effects.extend(old.effects.iter().copied());
        let kind = Kind::Changes { before, after: self.chain };
        Some(self.chunk(archive, chunk.number, kind, records, chunk.keep_from, bug))
    }
}
