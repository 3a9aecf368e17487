//! When to clean a journal: its size stays within a bound of the live data, with a little work at every commit.

/// How long a journal may be.
pub(super) struct Bound {
    /// Thousandths of the size it would have if it held each thing once.
    pub(super) per_mille: u64,
    /// Bytes below which it is not worth cleaning.
    pub(super) extra_bytes: u64,
    /// Bytes of old chunks read for each byte written.
    pub(super) looked_per_byte: i64,
}

/// How much cleaning may read. Callers' writes earn it, not the writes of cleaning itself, so that cleaning never
/// causes more cleaning.
#[derive(Default)]
pub(super) struct Cleaning {
    credit: i64,
    /// The most bytes that the current group holds because of cleaning.
    refreshed: i64,
}

impl Cleaning {
    /// Whether old chunks should be cleaned now.
    pub(super) fn is_due(&self, journal_bytes: u64, live_bytes: u64, bound: &Bound) -> bool {
        self.credit * bound.looked_per_byte > 0
            && journal_bytes > live_bytes / 1_000 * bound.per_mille + bound.extra_bytes
    }

    /// Notes that an old chunk of `bytes` bytes was read.
    pub(super) fn spend(&mut self, bytes: usize, bound: &Bound) {
        self.credit -= len(bytes) / bound.looked_per_byte.max(1);
        self.refreshed += len(bytes);
    }

    /// Counts a chunk that is written to the journal. Credit that is not spent does not accumulate.
    pub(super) fn earn(&mut self, bytes: usize) {
        let by_callers = (len(bytes) - std::mem::take(&mut self.refreshed)).max(0);
        self.credit = self.credit.min(0) + by_callers;
    }
}

fn len(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
