//! What an owner has to append: the changes of its engine, batch by batch, or a whole snapshot.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use eclusa_core::gate::GateChange;
use eclusa_core::{Engine, Mentions, Time};
use eclusa_fleet::{Batch, Chunk, Position};

use super::loader::LoadError;
use super::public::public_writes;
use super::shared::Shared;
use crate::store::aging::Aging;
use crate::store::cleaning::{Bound, Cleaning};
use crate::store::gate_log::{Decided, log_changes};
use crate::store::journal::redis::{Mark, PublicWrite, RedisJournal, encode};
use crate::store::stage::{Durable, Group, Stage, resolve};

/// The approximate size of a snapshot's chunks, in bytes.
const SNAPSHOT_CHUNK: usize = 1 << 20;

/// Cleaning stops for now after this many bytes of old chunks, so that the next chunk does not become too long.
const CLEANED_AT_ONCE: usize = 512 << 10;

/// How much larger than the live data the journal may be.
const BOUND: Bound = Bound { per_mille: 1_500, extra_bytes: 16 << 20, looked_per_byte: 4 };

/// The work of this process as the owner, or while that is in doubt.
#[derive(Default)]
pub(super) struct Work {
    pub(super) stage: Option<Arc<Stage>>,
    pub(super) epoch: u64,
    cleaning: Cleaning,
    /// Set with the first changes.
    aging: Option<Aging<Position>>,
    /// The last chunk that was rewritten because of its age.
    aged: Position,
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
        now: Time,
        number: u64,
        journal: &mut RedisJournal,
        shared: &Shared,
    ) -> Option<Batch> {
        let stage = self.stage.clone()?;
        let own = Position { epoch: self.epoch, number };
        let keep_from = if stage.keep_group_open() {
            self.age((now, own), &stage, journal, shared);
            let aged = journal.after(self.aged).unwrap_or(own);
            self.clean(&stage, journal).max(Some(aged))
        } else {
            // What cleaning marks as changed would not be in the next chunk.
            journal.first()
        };
        shared.journal_bytes.store(journal.bytes(), Ordering::Relaxed);
        let group = stage.take_group().ok()?;
        if group.is_none() && !shared.answering.has_messages() {
            return None;
        }
        let Group { records, durable, answers, gates } = group.unwrap_or_default();
        self.handed += 1;
        self.groups.push_back((self.handed, durable, gates));
        self.public.extend(public_writes(&stage, &shared.keys));
        let answers = shared.answering.address(answers);
        self.cleaning.earn(records.len());
        let chunk = (!records.is_empty()).then(|| self.chunk(number, Mark::None, &records, keep_from));
        Some(Batch { chunk, answers })
    }

    fn chunk(&self, number: u64, mark: Mark, records: &[u8], keep_from: Option<Position>) -> Chunk {
        let own = Position { epoch: self.epoch, number };
        let (bytes, checksum) = encode(own, mark, records);
        Chunk { number, bytes: bytes.into(), checksum, keep_from: keep_from.unwrap_or(own) }
    }

    /// Marks what is still alive in the oldest chunks as changed, so that they can be removed with the next one.
    fn clean(&mut self, stage: &Stage, journal: &mut RedisJournal) -> Option<Position> {
        let first = journal.first();
        if !self.cleaning.is_due(journal.bytes(), stage.look(Engine::footprint), &BOUND) {
            return first;
        }
        let page = journal.oldest().ok()?;
        let (mut looked, mut last) = (0, None);
        for (position, bytes) in page {
            let Ok(mentions) = read_mentions(position, &bytes) else { break };
            stage.refresh(&mentions);
            self.cleaning.spend(bytes.len(), &BOUND);
            (looked, last) = (looked + bytes.len(), Some(position));
            if looked >= CLEANED_AT_ONCE {
                break;
            }
        }
        last.and_then(|last| journal.after(last)).or(first)
    }

    /// Marks what is still alive in old chunks as changed, so that they can be removed with the next one, which is `own`.
    fn age(
        &mut self,
        (now, own): (Time, Position),
        stage: &Stage,
        journal: &mut RedisJournal,
        shared: &Shared,
    ) -> Option<()> {
        let (next, last) = (journal.after(self.aged).unwrap_or(own), journal.last()?);
        let aging = self.aging.get_or_insert_with(|| Aging::new(shared.forget_within, now));
        let part = aging.part(now, (next, last), journal.bytes())?;
        let mut looked = 0;
        while looked < part.bytes && self.aged < part.until {
            let page = journal.page(self.aged).ok()?;
            for (position, bytes) in page.iter().filter(|(position, _)| *position <= part.until) {
                stage.refresh(&read_mentions(*position, bytes).ok()?);
                (looked, self.aged) = (looked + bytes.len() as u64, *position);
            }
            if page.last().is_none_or(|(position, _)| *position > part.until) {
                break;
            }
        }
        aging.looked(looked);
        if self.aged >= part.until {
            stage.write_a_chunk();
        }
        Some(())
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

fn read_mentions(position: Position, bytes: &[u8]) -> Result<Mentions, LoadError> {
    let number = position.number;
    let chunk = crate::store::journal::redis::decode(number, bytes)
        .map_err(|source| LoadError::Chunk { number, source })?;
    Ok(Mentions::read(&chunk.records)?)
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
