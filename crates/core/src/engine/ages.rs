//! The jobs of a lane in the order in which they came in, so that a search can go from the newest to the oldest.
//!
//! Every job is in it for as long as it is known, so a place takes four bytes, and another four in the job say where it is.
//! Jobs that go leave holes; when there are more holes than jobs, those that are left close up.

use std::collections::VecDeque;

use super::jobs::Job;
use crate::table::{JobIx, Table};
use crate::time::Time;

/// A place whose job has gone.
const HOLE: JobIx = JobIx(u32::MAX);
/// Holes that are not worth closing.
const FEW: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ages {
    /// The oldest job first, unless jobs were restored in another order.
    places: VecDeque<JobIx>,
    /// The number of the first place; numbers go round.
    first: u32,
    holes: usize,
    /// When the last job came in.
    newest: Time,
    /// Jobs were added that are older than others before them.
    mixed: bool,
}

impl Ages {
    /// Adds a job; the answer is the number of its place.
    pub(super) fn push(&mut self, index: JobIx, created_at: Time) -> u32 {
        self.mixed |= created_at < self.newest;
        self.newest = self.newest.max(created_at);
        self.places.push_back(index);
        self.number(self.places.len() - 1)
    }

    /// Takes the job out that is at the place with this number.
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

    /// Brings restored jobs into order.
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

    /// How many places are before the first job that came in after `time`. The jobs must be in order.
    pub(super) fn until(&self, time: Time, jobs: &Table<JobIx, Job>) -> usize {
        let (mut low, mut high) = (0, self.places.len());
        while low < high {
            let middle = low.midpoint(high);
            // Holes belong to the job before them.
            match self.at_or_before(middle, low) {
                Some((at, index)) if jobs[index].created_at > time => high = at,
                _ => low = middle + 1,
            }
        }
        low
    }

    /// The last job from place `from` on that is not after place `place`, and where it is.
    fn at_or_before(&self, place: usize, from: usize) -> Option<(usize, JobIx)> {
        let places = self.places.range(from..=place).enumerate();
        let (at, index) = places.rev().find(|(_, index)| **index != HOLE)?;
        Some((from + at, *index))
    }

    /// The youngest job in the first `end` places, and where it is.
    pub(super) fn last_before(&self, end: usize) -> Option<(usize, JobIx)> {
        self.at_or_before(end.checked_sub(1)?, 0)
    }
}
