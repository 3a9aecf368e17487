//! Lines: the FIFO unit.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use super::fifo::Fifo;
use super::holds::Holds;
use crate::job::Level;
use crate::table::{BucketIx, GroupIx, JobIx, Keyed, LaneIx, LineIx, Lookup, Table, TenantIx, UpstreamIx};
use crate::time::Time;
use crate::tokens::Tokens;

/// What a job takes from a scoped bucket at one upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct JobHold {
    pub(crate) upstream: UpstreamIx,
    pub(crate) bucket: BucketIx,
    pub(crate) tokens: Tokens,
}

/// What jobs of one line have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LineKey {
    pub(crate) level: Level,
    pub(crate) group: GroupIx,
    /// The tenant whose turn they take.
    pub(crate) tenant: TenantIx,
    /// The tenant whose limits apply to them.
    pub(crate) limited: Option<TenantIx>,
    pub(crate) holds: Option<Arc<[JobHold]>>,
}

/// A parked line. The most urgent line is woken first, then the one that has waited for the bucket longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Parked {
    pub(crate) rank: Rank,
    pub(crate) lane: LaneIx,
    pub(crate) line: LineIx,
    pub(crate) hold: Tokens,
    /// When it looks at the other upstreams of its chain again, if it has some.
    pub(crate) recheck_at: Option<Time>,
}

/// The order of lines at a bucket: by level, then by ticket. A line gets a ticket when it is first parked and keeps it
/// until it is served.
pub(crate) type Rank = (Level, u64);

/// Jobs in the order of their numbers: a job that returns has an old number and so goes to the front.
#[derive(Debug)]
pub(crate) struct Line {
    key: LineKey,
    jobs: Fifo,
    /// Its position among the lines that wait for the same bucket.
    pub(crate) ticket: Option<u64>,
    /// The scoped bucket it waits for; boxed because few lines do.
    pub(crate) parked: Option<Box<(BucketIx, Parked)>>,
    /// What held it alone: scoped buckets and limits of its tenant. `None` until it is first parked; not stored.
    pub(crate) holds: Option<Box<Holds>>,
}

impl Keyed for Line {
    type Key = LineKey;
    fn key(&self) -> &LineKey {
        &self.key
    }
}

impl Line {
    pub(crate) fn key(&self) -> &LineKey {
        &self.key
    }

    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Its rank at a bucket; a line without a ticket comes last.
    pub(crate) fn rank(&self) -> Rank {
        (self.key.level, self.ticket.unwrap_or(u64::MAX))
    }

    pub(crate) fn head(&self) -> Option<u64> {
        self.jobs.first().map(|(seq, _)| seq)
    }

    pub(crate) fn head_job(&self) -> Option<JobIx> {
        self.jobs.first().map(|(_, job)| job)
    }

    pub(super) fn open_head(&self) -> Option<u64> {
        if self.parked.is_some() { None } else { self.head() }
    }

    pub(super) fn push(&mut self, seq: u64, job: JobIx) {
        self.jobs.insert(seq, job);
    }

    pub(super) fn pull(&mut self, seq: u64) {
        self.jobs.remove(seq);
    }

    /// About how many jobs of the line are ahead of number `seq`: exact at both ends and interpolated between them, so
    /// that no walk along the line is needed.
    pub(crate) fn ahead_of(&self, seq: u64) -> u64 {
        let (Some((first, _)), Some((last, _))) = (self.jobs.first(), self.jobs.last()) else {
            return 0;
        };
        let (span, len) = (u128::from(last - first), self.jobs.len() as u128);
        if span == 0 {
            return 0;
        }
        let ahead = u128::from(seq.saturating_sub(first)) * (len - 1) / span;
        u64::try_from(ahead).unwrap_or(u64::MAX)
    }
}

/// The lines of a lane that have jobs.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    table: Table<LineIx, Line>,
    by_key: Lookup<LineIx>,
}

impl Lines {
    pub(super) fn find_or_create(&mut self, key: LineKey) -> LineIx {
        if let Some(line) = self.by_key.find(&self.table, &key) {
            return line;
        }
        let line =
            self.table.insert(Line { key, jobs: Fifo::default(), ticket: None, parked: None, holds: None });
        self.by_key.add(&self.table, line);
        line
    }

    pub(super) fn remove(&mut self, index: LineIx) {
        if let Some(line) = self.table.remove(index) {
            self.by_key.remove(&line.key, index);
        }
    }
}

impl Index<LineIx> for Lines {
    type Output = Line;
    #[inline]
    fn index(&self, line: LineIx) -> &Line {
        &self.table[line]
    }
}

impl IndexMut<LineIx> for Lines {
    #[inline]
    fn index_mut(&mut self, line: LineIx) -> &mut Line {
        &mut self.table[line]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_in_a_line_is_exact_at_its_ends_and_never_beyond() {
        let (level, group, tenant) = (Level::Normal, GroupIx(0), TenantIx(0));
        let key = LineKey { level, group, tenant, limited: None, holds: None };
        let mut line = Line { key, jobs: Fifo::default(), ticket: None, parked: None, holds: None };
        assert_eq!(line.ahead_of(5), 0);
        for seq in [10, 11, 12, 500, 1_000] {
            line.push(seq, JobIx(0));
        }
        assert_eq!([10, 1_000].map(|seq| line.ahead_of(seq)), [0, 4]);
        assert!((0..=4).contains(&line.ahead_of(12)));
    }
}
