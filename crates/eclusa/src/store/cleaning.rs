//! Cleaning a journal: what is still alive in its oldest chunks is written again, so that they can be removed.
//!
//! Its size stays within a bound of the live data, with a little work at every commit, and no chunk gets too old (`aging`).

use eclusa_core::Engine;

use super::aging::Aging;
use super::journal::Journal;
use super::stage::Stage;

/// See the module.
pub(super) struct Cleaner<P> {
    bound: Bound,
    cleaning: Cleaning,
    aging: Aging<P>,
    /// The last chunk that was rewritten because of its age.
    aged: P,
}

impl<P: Copy + Ord + Default> Cleaner<P> {
    pub(super) fn new(bound: Bound, aging: Aging<P>) -> Self {
        Self { bound, cleaning: Cleaning::default(), aging, aged: P::default() }
    }

    /// Stages what is still alive in the oldest chunks while the journal is too long. Returns the oldest chunk that is
    /// still needed when the next one is appended; `None` if only that one is.
    pub(super) fn clean<J: Journal<Position = P>>(
        &mut self,
        stage: &Stage,
        journal: &mut J,
    ) -> Result<Option<P>, J::Error> {
        let live = stage.look(Engine::footprint);
        let (mut cleaned, mut looked) = (P::default(), 0);
        loop {
            let due = self.cleaning.due(journal.bytes(), live, &self.bound);
            let chunks = match due.min(self.bound.at_once.saturating_sub(looked)) {
                0 => break,
                bytes => journal.read_after(cleaned, bytes)?,
            };
            if chunks.is_empty() {
                break;
            }
            for chunk in chunks {
                stage.refresh(&chunk.mentions);
                self.cleaning.spend(chunk.bytes, &self.bound);
                (cleaned, looked) = (chunk.position, looked + chunk.bytes);
            }
        }
        Ok(journal.after(cleaned.max(self.aged)))
    }

    /// Stages what is still alive in old chunks; they are removed with the next one.
    pub(super) fn age<J: Journal<Position = P>>(
        &mut self,
        stage: &Stage,
        journal: &mut J,
    ) -> Result<(), J::Error> {
        let Some(last) = journal.newest() else { return Ok(()) };
        let unread = (journal.after(self.aged), last);
        let Some(part) = self.aging.part(stage.now(), unread, journal.bytes()) else { return Ok(()) };
        if part.begins {
            journal.seal()?;
        }
        let is_over = |journal: &J, aged| journal.after(aged).is_none_or(|next| next > part.until);
        let mut looked = 0;
        while looked < part.bytes && !is_over(journal, self.aged) {
            let chunks = journal.read_after(self.aged, part.bytes - looked)?;
            if chunks.is_empty() {
                break;
            }
            for chunk in chunks.into_iter().filter(|chunk| chunk.position <= part.until) {
                stage.refresh(&chunk.mentions);
                (looked, self.aged) = (looked + chunk.bytes, chunk.position);
            }
        }
        self.aging.looked(looked);
        if is_over(journal, self.aged) {
            stage.write_a_chunk();
        }
        Ok(())
    }

    /// Counts a chunk that is written to the journal.
    pub(super) fn earn(&mut self, bytes: usize) {
        self.cleaning.earn(bytes);
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
    fn earn(&mut self, bytes: usize) {
        let by_callers = (signed(bytes as u64) - std::mem::take(&mut self.refreshed)).max(0);
        self.credit = self.credit.min(0) + by_callers;
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
