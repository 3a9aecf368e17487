//! Jobs by number. Most arrive with the highest number and leave with the lowest, so they are kept in a queue; a search
//! tree holds the few that do not fit into its order.

use std::collections::{BTreeMap, VecDeque};

use crate::table::JobIx;

/// The capacity that an empty queue keeps.
const KEPT: usize = 64;

/// Stands for a job that has left the middle of the queue.
const HOLE: JobIx = JobIx(u32::MAX);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Fifo {
    /// By number, as its distance from `base`. Neither end is a hole.
    queue: VecDeque<(u32, JobIx)>,
    base: u64,
    holes: usize,
    /// Jobs that arrived with a number below the last in the queue, or too far above `base`.
    others: BTreeMap<u64, JobIx>,
}

impl Fifo {
    pub(crate) fn len(&self) -> usize {
        self.queue.len() - self.holes + self.others.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.others.is_empty()
    }

    /// The job with the lowest number.
    pub(crate) fn first(&self) -> Option<(u64, JobIx)> {
        let other = self.others.first_key_value().map(|(seq, job)| (*seq, *job));
        let queued = self.queue.front().map(|entry| self.numbered(*entry));
        other.into_iter().chain(queued).min()
    }

    /// The job with the highest number.
    pub(crate) fn last(&self) -> Option<(u64, JobIx)> {
        let other = self.others.last_key_value().map(|(seq, job)| (*seq, *job));
        let queued = self.queue.back().map(|entry| self.numbered(*entry));
        other.into_iter().chain(queued).max()
    }

    fn numbered(&self, (distance, job): (u32, JobIx)) -> (u64, JobIx) {
        (self.base + u64::from(distance), job)
    }

    fn distance(&self, seq: u64) -> Option<u32> {
        u32::try_from(seq.checked_sub(self.base)?).ok()
    }

    pub(crate) fn insert(&mut self, seq: u64, job: JobIx) {
        if self.queue.is_empty() {
            self.base = seq;
        }
        let last = self.queue.back().map(|(distance, _)| *distance);
        match self.distance(seq) {
            Some(distance) if last.is_none_or(|last| last < distance) => {
                self.queue.push_back((distance, job));
            }
            _ => {
                self.others.insert(seq, job);
            }
        }
    }

    pub(crate) fn remove(&mut self, seq: u64) {
        if !self.others.is_empty() && self.others.remove(&seq).is_some() {
            return;
        }
        let Some(distance) = self.distance(seq) else { return };
        if self.queue.front().is_some_and(|(first, _)| *first == distance) {
            self.queue.pop_front();
            while self.queue.pop_front_if(|(_, job)| *job == HOLE).is_some() {
                self.holes -= 1;
            }
        } else if self.queue.back().is_some_and(|(last, _)| *last == distance) {
            self.queue.pop_back();
            while self.queue.pop_back_if(|(_, job)| *job == HOLE).is_some() {
                self.holes -= 1;
            }
        } else {
            self.remove_within(distance);
        }
        if self.queue.is_empty() && self.queue.capacity() > KEPT {
            self.queue = VecDeque::new();
        }
    }

    fn remove_within(&mut self, distance: u32) {
        let Ok(at) = self.queue.binary_search_by_key(&distance, |(distance, _)| *distance) else { return };
        if std::mem::replace(&mut self.queue[at].1, HOLE) != HOLE {
            self.holes += 1;
        }
        // So that on average a removal moves at most one other entry.
        if self.holes > self.queue.len() / 2 {
            self.queue.retain(|(_, job)| *job != HOLE);
            self.holes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(fifo: &Fifo) -> [Option<u64>; 2] {
        [fifo.first(), fifo.last()].map(|job| job.map(|(seq, _)| seq))
    }

    proptest! {
        #[test]
        fn it_holds_what_a_search_tree_holds(
            steps in prop::collection::vec((any::<bool>(), prop_oneof![0..40_u64, (1_u64 << 40)..(1 << 40) + 3]), 1..200),
        ) {
            let (mut fifo, mut tree) = (Fifo::default(), BTreeMap::new());
            for (insert, seq) in steps {
                if insert && !tree.contains_key(&seq) {
                    let job = JobIx(u32::try_from(seq % 1_000).unwrap());
                    fifo.insert(seq, job);
                    tree.insert(seq, job);
                } else {
                    fifo.remove(seq);
                    tree.remove(&seq);
                }
                let entry = |(seq, job): (&u64, &JobIx)| (*seq, *job);
                prop_assert_eq!(fifo.first(), tree.first_key_value().map(entry));
                prop_assert_eq!(fifo.last(), tree.last_key_value().map(entry));
                prop_assert_eq!(fifo.len(), tree.len());
                prop_assert_eq!(fifo.is_empty(), tree.is_empty());
            }
        }
    }

    #[test]
    fn jobs_that_leave_out_of_turn_take_no_room_for_long() {
        let mut fifo = Fifo::default();
        (0..1_000).for_each(|seq| fifo.insert(seq, JobIx(0)));
        (1..999).for_each(|seq| fifo.remove(seq));
        assert!(fifo.queue.len() <= 4, "{} entries for 2 jobs", fifo.queue.len());
        assert_eq!(numbers(&fifo), [Some(0), Some(999)]);
        (0..1_000).for_each(|seq| fifo.remove(seq));
        assert_eq!((fifo.queue.capacity(), fifo.len()), (0, 0));
    }

    #[test]
    fn a_job_that_returns_is_first_again() {
        let mut fifo = Fifo::default();
        (5..8).for_each(|seq| fifo.insert(seq, JobIx(0)));
        fifo.remove(5);
        fifo.remove(6);
        fifo.insert(5, JobIx(0));
        assert_eq!(numbers(&fifo), [Some(5), Some(7)]);
    }
}
