//! Counts by name, and which name has the most.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// See the module documentation. Changing it costs a walk down two trees.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counts: BTreeMap<Arc<str>, u64>,
    /// The same by size; of equal counts the first name is the largest.
    by_size: BTreeSet<(u64, Reverse<Arc<str>>)>,
}

impl Tally {
    pub(super) fn add(&mut self, name: &Arc<str>) {
        let count = self.counts.entry(name.clone()).or_default();
        self.by_size.remove(&(*count, Reverse(name.clone())));
        *count += 1;
        self.by_size.insert((*count, Reverse(name.clone())));
    }

    pub(super) fn remove(&mut self, name: &Arc<str>) {
        let Some(count) = self.counts.get_mut(name) else { return };
        self.by_size.remove(&(*count, Reverse(name.clone())));
        *count -= 1;
        if *count == 0 {
            self.counts.remove(name);
        } else {
            self.by_size.insert((*count, Reverse(name.clone())));
        }
    }

    /// The name with the highest count.
    pub(crate) fn top(&self) -> Option<(Arc<str>, u64)> {
        self.by_size.last().map(|(count, Reverse(name))| (name.clone(), *count))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        self.counts.iter().map(|(name, count)| (name, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_is_the_name_with_the_highest_count() {
        let mut tally = Tally::default();
        let [a, b]: [Arc<str>; 2] = ["a".into(), "b".into()];
        assert_eq!(tally.top(), None);
        tally.add(&b);
        tally.add(&a);
        assert_eq!(tally.top(), Some((a.clone(), 1)), "the first of equals");
        tally.add(&b);
        assert_eq!(tally.top(), Some((b.clone(), 2)));
        tally.remove(&b);
        tally.remove(&b);
        assert_eq!((tally.top(), tally.iter().count()), (Some((a.clone(), 1)), 1));
        tally.remove(&a);
        assert_eq!((tally.top(), tally.by_size.len()), (None, 0));
    }
}
