//! Cleaning a journal: what is still alive in its oldest chunks is written again, so that they can be removed.
//!
//! Its size stays within a bound of the live data, with a little work at every commit, and no chunk gets too old (`aging`).

use std::collections::VecDeque;

use eclusa_core::Engine;

use super::aging::Aging;
use super::journal::{ChunkSummary, Journal};
use super::stage::Stage;

/// How much memory the mentions of chunks that need not be read back may take.
const MAX_KEPT: usize = 16 << 20;

/// See the module.
pub(super) struct Cleaner<P> {
    bound: Bound,
    /// How many bytes of old chunks may be read. Less than 0 after a chunk that was longer.
    credit: i64,
    aging: Aging<P>,
    /// The last chunk that was rewritten because of its age.
    aged: P,
    /// Chunks that this process appended, oldest first. They need not be read back.
    kept: VecDeque<ChunkSummary<P>>,
    /// How much memory these take.
    kept_bytes: usize,
}

/// How long a journal may be.
pub(super) struct Bound {
    /// Thousandths of the size it would have if it held each thing once.
    pub(super) per_mille: u64,
    /// Bytes below which it is not worth cleaning.
    pub(super) extra_bytes: u64,
    /// Bytes of old chunks read for each byte that callers write. While all that is read is alive nothing is removed, so
    /// the journal may exceed its bound by the size of the live data divided by this.
    pub(super) looked_per_byte: u64,
    /// About how many bytes cleaning adds to a chunk.
    pub(super) at_once: u64,
}

impl Bound {
    /// By how much a journal is too long.
    fn excess(&self, journal_bytes: u64, live_bytes: u64) -> u64 {
        journal_bytes.saturating_sub(live_bytes / 1_000 * self.per_mille + self.extra_bytes)
    }
}

/// Old chunks whose content is staged again.
struct Looked<P> {
    last: P,
    /// Their share of the journal.
    bytes: u64,
    /// About how many bytes are staged.
    staged: u64,
}

impl<P: Copy + Ord + Default> Cleaner<P> {
    pub(super) fn new(bound: Bound, aging: Aging<P>) -> Self {
        Self { bound, credit: 0, aging, aged: P::default(), kept: VecDeque::new(), kept_bytes: 0 }
    }

    /// Stages what is still alive in the oldest chunks while the journal is too long. Returns the oldest chunk that is
    /// still needed when the next one is appended; `None` if only that one is.
    ///
    /// What it reads is paid for by what callers write, not by what cleaning writes, so that cleaning never causes more
    /// cleaning.
    pub(super) fn clean<J: Journal<Position = P>>(
        &mut self,
        stage: &Stage,
        journal: &mut J,
    ) -> Result<Option<P>, J::Error> {
        let Some(newest) = journal.newest() else { return Ok(None) };
        self.forget_removed(journal);
        let mut excess = self.bound.excess(journal.bytes(), stage.look(Engine::footprint));
        if excess > 0 {
            // A stage that has stopped takes no group either.
            let by_callers = stage.save().unwrap_or(0);
            // Credit that is not spent does not accumulate.
            self.credit = self.credit.min(0) + signed(by_callers * self.bound.looked_per_byte);
        }
        let (mut cleaned, mut staged) = (self.aged, 0);
        while excess > 0 && self.credit > 0 && staged < self.bound.at_once {
            let bytes = excess.min(self.credit.unsigned_abs());
            let Some(looked) = self.refresh(stage, journal, (cleaned, newest), (bytes, staged))? else {
                break;
            };
            cleaned = looked.last;
            self.credit -= signed(looked.bytes);
            excess = excess.saturating_sub(looked.bytes);
            staged += looked.staged;
        }
        Ok(journal.after(cleaned))
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
        let (mut bytes, mut staged) = (0, 0);
        while bytes < part.bytes && staged < self.bound.at_once {
            let (range, left) = ((self.aged, part.until), part.bytes - bytes);
            let Some(looked) = self.refresh(stage, journal, range, (left, staged))? else { break };
            self.aged = looked.last;
            bytes += looked.bytes;
            staged += looked.staged;
        }
        self.aging.looked(bytes);
        if journal.after(self.aged).is_none_or(|next| next > part.until) {
            stage.write_a_chunk();
        }
        Ok(())
    }

    /// Stages what is still alive in the oldest chunks after the first position and up to the second: in about `bytes`
    /// bytes of the journal, and not much beyond the bound if `staged` are staged already.
    fn refresh<J: Journal<Position = P>>(
        &self,
        stage: &Stage,
        journal: &mut J,
        (after, until): (P, P),
        (bytes, staged): (u64, u64),
    ) -> Result<Option<Looked<P>>, J::Error> {
        let Some(next) = journal.after(after).filter(|next| *next <= until) else { return Ok(None) };
        if let Ok(at) = self.kept.binary_search_by_key(&next, |chunk| chunk.position) {
            let chunk = &self.kept[at];
            let staged = stage.refresh(&chunk.mentions);
            return Ok(Some(Looked { last: next, bytes: chunk.bytes, staged }));
        }
        let mut looked = Looked { last: after, bytes: 0, staged: 0 };
        let chunks = journal.read_after(after, bytes.min(self.bound.at_once))?;
        for chunk in chunks.iter().take_while(|chunk| chunk.position <= until) {
            looked.last = chunk.position;
            looked.bytes += chunk.bytes;
            looked.staged += stage.refresh(&chunk.mentions);
            if staged + looked.staged >= self.bound.at_once {
                break;
            }
        }
        Ok(Some(looked))
    }

    /// Notes a chunk that is appended to the journal.
    pub(super) fn note(&mut self, mut chunk: ChunkSummary<P>) {
        chunk.mentions.shrink_to_fit();
        if self.kept_bytes + memory(&chunk) <= MAX_KEPT {
            self.kept_bytes += memory(&chunk);
            self.kept.push_back(chunk);
        }
    }

    fn forget_removed<J: Journal<Position = P>>(&mut self, journal: &J) {
        let oldest = journal.after(P::default());
        let is_removed = |chunk: &mut ChunkSummary<P>| oldest.is_none_or(|oldest| chunk.position < oldest);
        while let Some(removed) = self.kept.pop_front_if(is_removed) {
            self.kept_bytes -= memory(&removed);
        }
    }
}

fn memory<P>(chunk: &ChunkSummary<P>) -> usize {
    size_of_val(chunk) + chunk.mentions.bytes()
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

    const BOUND: Bound = Bound { per_mille: 1_500, extra_bytes: 8_000, looked_per_byte: 6, at_once: 8_000 };

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

    /// A journal with its cleaner, and the stage whose changes it gets.
    struct Cleaned {
        stage: Stage,
        journal: MemoryJournal,
        cleaner: Cleaner<u64>,
        lane: Name,
    }

    impl Cleaned {
        fn new() -> Self {
            let (lane, up) = (Name::new("work").unwrap(), Name::new("up").unwrap());
            let mut rules = LaneSpec::new(lane.clone(), Chain::new(vec![up.clone()]).unwrap());
            rules.keep.max = 0;
            let spec = Spec::new(vec![rules], vec![UpstreamSpec::new(up, GateSpecs::default())]).unwrap();
            let (clock, doorbell) = (Arc::new(SystemClock), Arc::new(Doorbell::default()));
            let stage = Stage::new(Engine::new(&spec), clock, Some(doorbell), None);
            Self { stage, journal: MemoryJournal::default(), cleaner: new_cleaner(), lane }
        }

        fn add(&self, jobs: impl Iterator<Item = u128>) {
            let job = |id| NewJob::new(JobId(id), self.lane.clone(), "acme", vec![b'x'; 1_000]);
            let jobs = jobs.map(job).collect();
            drop(self.stage.run(|engine, now| engine.enqueue(jobs, now)).unwrap());
        }

        fn cancel(&self, id: u128) {
            drop(self.stage.run(|engine, now| engine.cancel(JobId(id), now)).unwrap());
        }

        /// Appends a chunk; returns how many of its bytes are there because of cleaning.
        fn commit(&mut self) -> u64 {
            let by_callers = self.stage.save().unwrap();
            let keep_from = self.cleaner.clean(&self.stage, &mut self.journal).unwrap();
            let group = self.stage.take_group().unwrap().unwrap();
            let bytes = group.records.len() as u64;
            let position = self.journal.append(group.records, keep_from);
            self.cleaner.note(ChunkSummary { position, bytes, mentions: group.mentions });
            bytes - by_callers
        }

        fn restored_jobs(&self) -> u64 {
            let mut restorer = Restorer::default();
            self.journal.chunks.iter().for_each(|chunk| restorer.apply(chunk).unwrap());
            restorer.finish(1).unwrap().lanes(Time::default())[0].queued.iter().sum()
        }
    }

    fn new_cleaner() -> Cleaner<u64> {
        Cleaner::new(BOUND, Aging::new(FORGET_WITHIN, Time::default()))
    }

    #[test]
    fn what_a_process_appended_is_cleaned_without_reading_it_back() {
        for (restarts, reads) in [(1_000, false), (10, true)] {
            let mut cleaned = Cleaned::new();
            for id in 0..200 {
                cleaned.add(id..=id);
                if id > 1 {
                    cleaned.cancel(id - 1);
                }
                cleaned.commit();
                if id % restarts == restarts - 1 {
                    cleaned.cleaner = new_cleaner();
                }
            }
            assert_eq!(cleaned.journal.reads > 0, reads);
            assert!(cleaned.journal.bytes() < 16_000, "{}", cleaned.journal.bytes());
            assert_eq!(cleaned.restored_jobs(), 2);
        }
    }

    #[test]
    fn the_journal_stays_within_its_bound_although_most_of_what_is_in_it_stays() {
        let mut cleaned = Cleaned::new();
        for first in (0..400).step_by(2) {
            cleaned.add(first..first + 2);
            cleaned.commit();
        }
        let mut sizes = Vec::new();
        for id in 400..4_000 {
            cleaned.add(id..=id);
            if id > 400 {
                cleaned.cancel(id - 1);
            }
            cleaned.commit();
            sizes.push(cleaned.journal.bytes());
        }
        let live = cleaned.stage.look(Engine::footprint);
        let bound = live * 3 / 2 + BOUND.extra_bytes;
        // What stays lies together, and while it is read nothing is removed.
        let most = bound + live / BOUND.looked_per_byte;
        assert!(
            sizes.iter().all(|size| *size < most),
            "{:?} bytes, and {most} are allowed",
            sizes.iter().max()
        );
        assert_eq!(cleaned.restored_jobs(), 401);
    }

    #[test]
    fn cleaning_adds_little_to_a_chunk_even_if_all_that_it_reads_stays() {
        for restarted in [false, true] {
            let mut cleaned = Cleaned::new();
            for first in (0..400).step_by(2) {
                cleaned.add(first..first + 2);
                cleaned.commit();
            }
            cleaned.add(400..800);
            cleaned.commit();
            if restarted {
                cleaned.cleaner = new_cleaner();
            }
            (400..800).for_each(|id| cleaned.cancel(id));
            let by_cleaning = cleaned.commit();
            assert!((4_000..12_000).contains(&by_cleaning), "{by_cleaning} bytes");
            assert_eq!(cleaned.restored_jobs(), 400);
        }
    }
}
