//! What an owner has to append: the changes of its engine, batch by batch, or a whole snapshot.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use eclusa_core::Engine;
use eclusa_core::gate::GateChange;
use eclusa_fleet::{Batch, Chunk, Position};

use super::public::public_writes;
use super::shared::Shared;
use crate::store::aging::Aging;
use crate::store::cleaning::{Bound, Cleaner};
use crate::store::gate_log::{Decided, log_changes};
use crate::store::group::{Durable, Group, resolve};
use crate::store::journal::redis::{Mark, PublicWrite, RedisJournal, encode};
use crate::store::journal::{ChunkSummary, Journal};
use crate::store::stage::Stage;

/// The approximate size of a snapshot's chunks, in bytes.
const SNAPSHOT_CHUNK: usize = 1 << 20;

/// How much larger than the live data the journal may be. Cleaning is limited so that the next chunk does not become too
/// long.
const BOUND: Bound =
    Bound { per_mille: 1_500, extra_bytes: 16 << 20, looked_per_byte: 6, at_once: 512 << 10 };

/// The work of this process as the owner, or while that is in doubt.
#[derive(Default)]
pub(super) struct Work {
    pub(super) stage: Option<Arc<Stage>>,
    pub(super) epoch: u64,
    /// Set with the first changes.
    cleaner: Option<Cleaner<Position>>,
    /// Batches that were handed out: their number, the callers that wait for them, and their gate changes.
    pub(super) groups: VecDeque<(u64, Durable, Vec<GateChange>)>,
    pub(super) handed: u64,
    /// How many batches are durable.
    durable: u64,
    /// The rest of a snapshot, and the position of its first chunk.
    snapshot: VecDeque<Vec<u8>>,
    snapshot_from: Option<Position>,
    /// Public keys to write with the next append, and again if that is repeated.
    pub(super) public: Vec<PublicWrite>,
}

impl Work {
    /// The work of a new tenure. Batches are numbered across tenures.
    pub(super) fn new(epoch: u64, handed: u64) -> Self {
        Self { epoch, handed, ..Self::default() }
    }

    /// The changes since the last batch, as chunk `number`.
    pub(super) fn changes(
        &mut self,
        number: u64,
        journal: &mut RedisJournal,
        shared: &Shared,
    ) -> Option<Batch> {
        let stage = self.stage.clone()?;
        let keep_from = if stage.keep_group_open() {
            self.clean(&stage, journal, shared)
        } else {
            // What cleaning marks as changed would not be in the next chunk.
            journal.after(Position::default())
        };
        shared.journal_bytes.store(journal.bytes(), Ordering::Relaxed);
        let group = stage.take_group().ok()?;
        if group.is_none() && !shared.answering.has_messages() {
            return None;
        }
        let Group { records, mentions, durable, answers, gates } = group.unwrap_or_default();
        self.handed += 1;
        self.groups.push_back((self.handed, durable, gates));
        self.public.extend(public_writes(&stage, &shared.keys));
        let answers = shared.answering.address(answers);
        let chunk = (!records.is_empty()).then(|| self.chunk(number, Mark::None, &records, keep_from));
        if let (Some(cleaner), Some(chunk)) = (&mut self.cleaner, &chunk) {
            let position = Position { epoch: self.epoch, number };
            cleaner.note(ChunkSummary { position, bytes: chunk.bytes.len() as u64, mentions });
        }
        Some(Batch { chunk, answers })
    }

    fn chunk(&self, number: u64, mark: Mark, records: &[u8], keep_from: Option<Position>) -> Chunk {
        let own = Position { epoch: self.epoch, number };
        let (bytes, checksum) = encode(own, mark, records);
        Chunk { number, bytes: bytes.into(), checksum, keep_from: keep_from.unwrap_or(own) }
    }

    /// Stages what is still alive in old chunks. Returns the oldest chunk that is still needed when the next one is
    /// appended; `None` if only that one is.
    fn clean(&mut self, stage: &Stage, journal: &mut RedisJournal, shared: &Shared) -> Option<Position> {
        let aging = || Aging::new(shared.forget_within, stage.now());
        let cleaner = self.cleaner.get_or_insert_with(|| Cleaner::new(BOUND, aging()));
        let cleaned = cleaner.age(stage, journal).and_then(|()| cleaner.clean(stage, journal));
        cleaned.unwrap_or_else(|error| {
            tracing::debug!(%error, "Old chunks of the journal on Redis were not read");
            journal.after(Position::default())
        })
    }

    /// The next part of a snapshot.
    pub(super) fn snapshot(
        &mut self,
        number: u64,
        first: bool,
        journal: &mut RedisJournal,
        shared: &Shared,
    ) -> Option<Batch> {
        let stage = self.stage.clone()?;
        let mut answers = Vec::new();
        if first {
            journal.forget();
            // It knows chunks that the snapshot replaces, some by numbers that are used again.
            self.cleaner = None;
            // What was staged is part of the snapshot, so its callers wait for the end of the snapshot.
            while let Ok(Some(group)) = stage.take_group() {
                self.groups.push_back((self.handed + 1, group.durable, group.gates));
                answers.extend(shared.answering.address(group.answers));
            }
            self.snapshot = pages(stage.look(|engine| engine.snapshot().unwrap_or_default()));
            self.snapshot_from = Some(Position { epoch: self.epoch, number });
        }
        let from = self.snapshot_from?;
        self.handed += 1;
        let nothing = Position { epoch: 0, number: 0 };
        let chunk = if let Some(records) = self.snapshot.pop_front() {
            let mark = if first { Mark::Begin } else { Mark::Part };
            self.chunk(number, mark, &records, Some(nothing))
        } else {
            self.snapshot_from = None;
            self.chunk(number, Mark::End, &[], Some(from))
        };
        Some(Batch { chunk: Some(chunk), answers })
    }

    /// Notes that batches are durable. Their callers are answered while the server works on the next append, or before
    /// this thread does anything else.
    pub(super) fn durable(&mut self, batches: u64) {
        self.durable = self.durable.max(batches);
        if self.groups.back().is_none_or(|(last, ..)| *last <= batches)
            && let Some(stage) = &self.stage
        {
            stage.written();
        }
    }

    /// Answers the callers whose batches are durable.
    pub(super) fn answer_callers(&mut self) {
        while let Some((_, durable, gates)) = self.groups.pop_front_if(|(batch, ..)| *batch <= self.durable) {
            resolve(&durable, Ok(()));
            log_changes(&gates, Decided::Here);
        }
    }
}

/// Groups records into chunks of about [`SNAPSHOT_CHUNK`] bytes.
fn pages(records: Vec<Vec<u8>>) -> VecDeque<Vec<u8>> {
    let mut pages = VecDeque::from([Engine::begin_chunk()]);
    for record in records {
        if pages.back().is_some_and(|page| page.len() > SNAPSHOT_CHUNK) {
            pages.push_back(Engine::begin_chunk());
        }
        if let Some(page) = pages.back_mut() {
            page.extend(record);
        }
    }
    pages
}
