//! The finished minutes of one series.

use std::collections::VecDeque;

/// A finished minute.
pub(crate) trait Minute {
    /// Minutes since the Unix epoch.
    fn minute(&self) -> u32;
}

/// Points in the order of their minutes, at most one for each.
#[derive(Debug)]
pub(super) struct Ring<P>(VecDeque<P>);

impl<P> Default for Ring<P> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<P: Minute> Ring<P> {
    /// Adds a point, or replaces the one of the same minute.
    pub(super) fn put(&mut self, point: P) {
        if self.0.back().is_none_or(|last| last.minute() < point.minute()) {
            return self.0.push_back(point);
        }
        match self.place(point.minute()) {
            Ok(place) => self.0[place] = point,
            Err(place) => self.0.insert(place, point),
        }
    }

    /// Drops the points before `first`.
    pub(super) fn drop_before(&mut self, first: u32) {
        let old = self.0.partition_point(|point| point.minute() < first);
        self.0.drain(..old);
    }

    pub(super) fn get(&self, minute: u32) -> Option<&P> {
        self.place(minute).ok().map(|place| &self.0[place])
    }

    pub(super) fn last(&self) -> Option<&P> {
        self.0.back()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &P> {
        self.0.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn place(&self, minute: u32) -> Result<usize, usize> {
        self.0.binary_search_by_key(&minute, Minute::minute)
    }
}
