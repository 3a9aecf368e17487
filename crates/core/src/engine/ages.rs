//! The jobs of a lane by age, so that a search can go from newest to oldest.
//!
//! It holds every job that is kept, so an entry is only four bytes, plus four in the job for its position. Removed jobs
//! leave holes; when there are more holes than jobs, the list is compacted.

use std::collections::VecDeque;

use super::jobs::Job;
use crate::table::{JobIx, Table};
use crate::time::Time;

/// The position of a removed job.
const HOLE: JobIx = JobIx(u32::MAX);
/// Up to this many holes are not compacted.
const FEW: usize = 64;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Ages {
    /// Oldest first, unless jobs were restored in another order.
    places: VecDeque<JobIx>,
    /// The number of the first position; numbers wrap around.
    first: u32,
    holes: usize,
    /// When the newest job was created.
    newest: Time,
    /// Whether jobs were added out of order.
    mixed: bool,
}

impl Ages {
    /// Adds a job. Returns the number of its position.
    pub(super) fn push(&mut self, index: JobIx, created_at: Time) -> u32 {
        self.mixed |= created_at < self.newest;
        self.newest = self.newest.max(created_at);
        self.places.push_back(index);
        self.number(self.places.len() - 1)
    }

    /// Removes the job at the position with this number.
    pub(super) fn remove(&mut self, number: u32, jobs: &mut Table<JobIx, Job>) {
        if let Some(place) = self.places.get_mut(number.wrapping_sub(self.first) as usize) {
            *place = HOLE;
            self.holes += 1;
        }
        while self.places.front() == Some(&HOLE) {
            self.places.pop_front();
            self.first = self.first.wrapping_add(1);
            self.holes -= 1;
        }
        if self.holes > self.places.len() / 2 + FEW {
            self.close_up(jobs);
        }
    }

    /// Sorts restored jobs.
    pub(super) fn sort(&mut self, jobs: &mut Table<JobIx, Job>) {
        if self.mixed {
            self.close_up(jobs);
        }
    }

    fn close_up(&mut self, jobs: &mut Table<JobIx, Job>) {
        self.places.retain(|index| *index != HOLE);
        if std::mem::take(&mut self.mixed) {
            self.places.make_contiguous().sort_by_key(|index| jobs[*index].created_at);
        }
        self.places.shrink_to(self.places.len() * 2);
        self.holes = 0;
        for (place, index) in self.places.iter().enumerate() {
            jobs[*index].age = self.number(place);
        }
    }

    fn number(&self, place: usize) -> u32 {
        self.first.wrapping_add(u32::try_from(place).unwrap_or(u32::MAX))
    }

    /// The number of positions before the first job created after `time`. The jobs must be sorted.
    pub(super) fn until(&self, time: Time, jobs: &Table<JobIx, Job>) -> usize {
        let (mut low, mut high) = (0, self.places.len());
        while low < high {
            let middle = low.midpoint(high);
            // A hole counts as part of the job before it.
            match self.at_or_before(middle, low) {
                Some((at, index)) if jobs[index].created_at > time => high = at,
                _ => low = middle + 1,
            }
        }
        low
    }

    /// The last job between positions `from` and `place`, and its position.
    fn at_or_before(&self, place: usize, from: usize) -> Option<(usize, JobIx)> {
        let places = self.places.range(from..=place).enumerate();
        let (at, index) = places.rev().find(|(_, index)| **index != HOLE)?;
        Some((from + at, *index))
    }

    /// The youngest job in the first `end` positions, and its position.
    pub(super) fn last_before(&self, end: usize) -> Option<(usize, JobIx)> {
        self.at_or_before(end.checked_sub(1)?, 0)
    }
}
