//! When to clean a journal: it is kept within a bound of what lives, a little with every commit.

/// How long a journal may be.
pub(super) struct Bound {
    /// In thousandths of what it would be if it held each thing once.
    pub(super) per_mille: u64,
    /// Below this it is not worth cleaning.
    pub(super) extra_bytes: u64,
    /// Bytes of old chunks looked through for each byte written.
    pub(super) looked_per_byte: i64,
}

/// What cleaning may spend. Earned by what callers write and not by what cleaning itself writes anew, so that it can never
/// feed on itself.
#[derive(Default)]
pub(super) struct Cleaning {
    credit: i64,
    /// Bytes that the group under way holds because of cleaning, at the most.
    refreshed: i64,
}

impl Cleaning {
    /// Whether old chunks should be looked through now.
    pub(super) fn is_due(&self, journal_bytes: u64, live_bytes: u64, bound: &Bound) -> bool {
        self.credit * bound.looked_per_byte > 0
            && journal_bytes > live_bytes / 1_000 * bound.per_mille + bound.extra_bytes
    }

    /// An old chunk of `bytes` was looked through.
    pub(super) fn spend(&mut self, bytes: usize, bound: &Bound) {
        self.credit -= len(bytes) / bound.looked_per_byte.max(1);
        self.refreshed += len(bytes);
    }

    /// Counts a chunk that goes to the journal. What is not spent while there is nothing to clean is not saved up.
    pub(super) fn earn(&mut self, bytes: usize) {
        let by_callers = (len(bytes) - std::mem::take(&mut self.refreshed)).max(0);
        self.credit = self.credit.min(0) + by_callers;
    }
}

fn len(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
