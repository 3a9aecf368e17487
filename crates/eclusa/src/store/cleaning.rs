//! Cleaning a journal: what is still alive in its oldest chunks is written again, so that they can be removed.
//!
//! Its size stays within a bound of the live data, with a little work at every commit, and no chunk gets too old (`aging`).

use std::collections::VecDeque;

use eclusa_core::Engine;

use super::aging::Aging;
use super::journal::{ChunkSummary, Journal};
use super::stage::Stage;

/// How many mentions are kept: 16 MiB of them. What was appended beyond that is read back.
const MAX_KEPT: usize = 1 << 19;

/// See the module.
pub(super) struct Cleaner<P> {
    bound: Bound,
    cleaning: Cleaning,
    aging: Aging<P>,
    /// The last chunk that was rewritten because of its age.
    aged: P,
    /// Chunks that this process appended, oldest first. They need not be read back.
    kept: VecDeque<ChunkSummary<P>>,
    /// How many mentions these have.
    kept_mentions: usize,
}

impl<P: Copy + Ord + Default> Cleaner<P> {
    pub(super) fn new(bound: Bound, aging: Aging<P>) -> Self {
        Self {
            bound,
            cleaning: Cleaning::default(),
            aging,
            aged: P::default(),
            kept: VecDeque::new(),
            kept_mentions: 0,
        }
    }

    /// Stages what is still alive in the oldest chunks while the journal is too long. Returns the oldest chunk that is
    /// still needed when the next one is appended; `None` if only that one is.
    pub(super) fn clean<J: Journal<Position = P>>(
        &mut self,
        stage: &Stage,
        journal: &mut J,
    ) -> Result<Option<P>, J::Error> {
        let Some(newest) = journal.newest() else { return Ok(None) };
        self.forget_removed(journal);
        let live = stage.look(Engine::footprint);
        let (mut cleaned, mut looked) = (P::default(), 0);
        loop {
            let due = self.cleaning.due(journal.bytes(), live, &self.bound);
            let bytes = due.min(self.bound.at_once.saturating_sub(looked));
            if bytes == 0 {
                break;
            }
            let Some((last, bytes)) = self.refresh(stage, journal, (cleaned, newest), bytes)? else { break };
            self.cleaning.spend(bytes, &self.bound);
            (cleaned, looked) = (last, looked + bytes);
        }
        Ok(journal.after(cleaned.max(self.aged)))
    }

    /// Stages what is still alive in old chunks; they are removed with the next one.
    pub(super) fn age<J: Journal<Position = P>>(
        &mut self,
        stage: &Stage,
        journal: &mut J,
    ) -> Result<(), J::Error> {
        let Some(newest) = journal.newest() else { return Ok(()) };
        let unread = (journal.after(self.aged), newest);
        let Some(part) = self.aging.part(stage.now(), unread, journal.bytes()) else { return Ok(()) };
        if part.begins {
            journal.seal()?;
        }
        let mut looked = 0;
        while looked < part.bytes {
            let (range, bytes) = ((self.aged, part.until), part.bytes - looked);
            let Some((last, bytes)) = self.refresh(stage, journal, range, bytes)? else { break };
            (self.aged, looked) = (last, looked + bytes);
        }
        self.aging.looked(looked);
        if journal.after(self.aged).is_none_or(|next| next > part.until) {
            stage.write_a_chunk();
        }
        Ok(())
    }

    /// Stages what is still alive in the oldest chunks after `range.0` and up to `range.1`, in about `bytes` bytes. Returns
    /// the last of them and their size, if there are any.
    fn refresh<J: Journal<Position = P>>(
        &self,
        stage: &Stage,
        journal: &mut J,
        range: (P, P),
        bytes: u64,
    ) -> Result<Option<(P, u64)>, J::Error> {
        let Some(next) = journal.after(range.0) else { return Ok(None) };
        let read;
        let chunks = if let Ok(at) = self.kept.binary_search_by_key(&next, |chunk| chunk.position) {
            self.kept.range(at..=at)
        } else {
            read = VecDeque::from(journal.read_after(range.0, bytes)?);
            read.iter()
        };
        let mut done = None;
        for chunk in chunks.take_while(|chunk| chunk.position <= range.1) {
            stage.refresh(&chunk.mentions);
            done = Some((chunk.position, chunk.bytes + done.map_or(0, |(_, bytes)| bytes)));
        }
        Ok(done)
    }

    /// Notes a chunk that is appended to the journal.
    pub(super) fn note(&mut self, mut chunk: ChunkSummary<P>) {
        self.cleaning.earn(chunk.bytes);
        if self.kept_mentions + chunk.mentions.count() <= MAX_KEPT {
            self.kept_mentions += chunk.mentions.count();
            chunk.mentions.shrink_to_fit();
            self.kept.push_back(chunk);
        }
    }

    fn forget_removed<J: Journal<Position = P>>(&mut self, journal: &J) {
        let oldest = journal.after(P::default());
        let is_removed = |chunk: &mut ChunkSummary<P>| oldest.is_none_or(|oldest| chunk.position < oldest);
        while let Some(removed) = self.kept.pop_front_if(is_removed) {
            self.kept_mentions -= removed.mentions.count();
        }
    }
}

/// How long a journal may be.
pub(super) struct Bound {
    /// Thousandths of the size it would have if it held each thing once.
    pub(super) per_mille: u64,
    /// Bytes below which it is not worth cleaning.
    pub(super) extra_bytes: u64,
    /// Bytes of old chunks read for each byte written.
    pub(super) looked_per_byte: u64,
    /// Bytes after which cleaning stops until the next commit.
    pub(super) at_once: u64,
}

/// How much cleaning may read. Callers' writes earn it, not the writes of cleaning itself, so that cleaning never
/// causes more cleaning.
#[derive(Default)]
struct Cleaning {
    credit: i64,
    /// The most bytes that the current group holds because of cleaning.
    refreshed: i64,
}

impl Cleaning {
    /// How many bytes of old chunks should be read now.
    fn due(&self, journal_bytes: u64, live_bytes: u64, bound: &Bound) -> u64 {
        if journal_bytes <= live_bytes / 1_000 * bound.per_mille + bound.extra_bytes {
            return 0;
        }
        u64::try_from(self.credit).unwrap_or(0) * bound.looked_per_byte
    }

    /// Notes that an old chunk of `bytes` bytes was read.
    fn spend(&mut self, bytes: u64, bound: &Bound) {
        self.credit -= signed(bytes / bound.looked_per_byte.max(1));
        self.refreshed += signed(bytes);
    }

    /// Counts a chunk that is written to the journal. Credit that is not spent does not accumulate.
    fn earn(&mut self, bytes: u64) {
        let by_callers = (signed(bytes) - std::mem::take(&mut self.refreshed)).max(0);
        self.credit = self.credit.min(0) + by_callers;
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use eclusa_core::gate::GateSpecs;
    use eclusa_core::{Chain, JobId, LaneSpec, Mentions, Name, NewJob, Restorer, Spec, Time, UpstreamSpec};

    use super::*;
    use crate::SystemClock;
    use crate::config::FORGET_WITHIN;
    use crate::store::doorbell::Doorbell;

    const BOUND: Bound = Bound { per_mille: 1_500, extra_bytes: 8_000, looked_per_byte: 4, at_once: 4_000 };

    #[derive(Default)]
    struct MemoryJournal {
        first: u64,
        chunks: VecDeque<Vec<u8>>,
        reads: usize,
    }

    impl MemoryJournal {
        fn append(&mut self, chunk: Vec<u8>, keep_from: Option<u64>) -> u64 {
            let number = self.first + self.chunks.len() as u64 + 1;
            self.chunks.push_back(chunk);
            while self.first + 1 < keep_from.unwrap_or(number) {
                self.chunks.pop_front();
                self.first += 1;
            }
            number
        }
    }

    impl Journal for MemoryJournal {
        type Position = u64;
        type Error = Infallible;

        fn bytes(&self) -> u64 {
            self.chunks.iter().map(|chunk| chunk.len() as u64).sum()
        }

        fn newest(&self) -> Option<u64> {
            (!self.chunks.is_empty()).then_some(self.first + self.chunks.len() as u64)
        }

        fn after(&self, position: u64) -> Option<u64> {
            let next = position.max(self.first) + 1;
            self.newest().filter(|newest| next <= *newest).map(|_| next)
        }

        fn read_after(&mut self, position: u64, _: u64) -> Result<Vec<ChunkSummary<u64>>, Infallible> {
            self.reads += 1;
            let summary = |position: u64| {
                let chunk = &self.chunks[usize::try_from(position - self.first - 1).unwrap()];
                ChunkSummary { position, bytes: chunk.len() as u64, mentions: Mentions::read(chunk).unwrap() }
            };
            Ok(self.after(position).into_iter().map(summary).collect())
        }
    }

    /// Writes a job that stays and many that end, with a new cleaner after every `restarts` of them; returns the journal.
    fn churn(restarts: u128) -> MemoryJournal {
        let (lane, up) = (Name::new("work").unwrap(), Name::new("up").unwrap());
        let mut rules = LaneSpec::new(lane.clone(), Chain::new(vec![up.clone()]).unwrap());
        rules.keep.max = 0;
        let spec = Spec::new(vec![rules], vec![UpstreamSpec::new(up, GateSpecs::default())]).unwrap();
        let stage =
            Stage::new(Engine::new(&spec), Arc::new(SystemClock), Some(Arc::new(Doorbell::default())), None);
        let new_cleaner = || Cleaner::new(BOUND, Aging::new(FORGET_WITHIN, Time::default()));
        let (mut cleaner, mut journal) = (new_cleaner(), MemoryJournal::default());
        for id in 0..200 {
            let job = NewJob::new(JobId(id), lane.clone(), "acme", vec![b'x'; 1_000]);
            drop(stage.run(|engine, now| engine.enqueue(vec![job], now)).unwrap());
            if id > 1 {
                drop(stage.run(|engine, now| engine.cancel(JobId(id - 1), now)).unwrap());
            }
            let keep_from = cleaner.clean(&stage, &mut journal).unwrap();
            let group = stage.take_group().unwrap().unwrap();
            let bytes = group.records.len() as u64;
            let position = journal.append(group.records, keep_from);
            cleaner.note(ChunkSummary { position, bytes, mentions: group.mentions });
            if id % restarts == restarts - 1 {
                cleaner = new_cleaner();
            }
        }
        journal
    }

    #[test]
    fn what_a_process_appended_is_cleaned_without_reading_it_back() {
        for (restarts, reads) in [(1_000, false), (10, true)] {
            let journal = churn(restarts);
            assert_eq!(journal.reads > 0, reads);
            assert!(journal.bytes() < 16_000, "{}", journal.bytes());
            let mut restorer = Restorer::default();
            journal.chunks.iter().for_each(|chunk| restorer.apply(chunk).unwrap());
            let engine = restorer.finish(1).unwrap();
            assert_eq!(engine.lanes(Time::default())[0].queued.iter().sum::<u64>(), 2);
        }
    }
}
