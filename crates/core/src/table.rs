//! A vector with holes, addressed by typed indexes.

use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use hashbrown::HashTable;

use crate::seeded::Seeded;

/// Defines an index type for a table.
macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(pub(crate) u32);

        impl crate::table::TableIndex for $name {
            fn from_slot(slot: u32) -> Self {
                $name(slot)
            }
            fn slot(self) -> usize {
                self.0 as usize
            }
        }
    };
}

pub(crate) trait TableIndex: Copy + Eq {
    fn from_slot(slot: u32) -> Self;
    fn slot(self) -> usize;
}

index!(
    /// A lane of the engine.
    LaneIx
);
index!(
    /// An upstream of the engine.
    UpstreamIx
);
index!(
    /// A job of the engine.
    JobIx
);
index!(
    /// A scoped bucket of the engine.
    BucketIx
);
index!(
    /// A tenant of one lane.
    TenantIx
);
index!(
    /// A line of one lane.
    LineIx
);
index!(
    /// A group of lines in one lane: jobs that may still use the same upstreams, in order.
    GroupIx
);

/// Values keep their slot until removed; free slots are reused.
#[derive(Debug)]
pub(crate) struct Table<I, T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    index: PhantomData<I>,
}

impl<I, T> Default for Table<I, T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), index: PhantomData }
    }
}

impl<I: TableIndex, T> Table<I, T> {
    pub(crate) fn insert(&mut self, value: T) -> I {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = Some(value);
            return I::from_slot(slot);
        }
        let slot = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push(Some(value));
        I::from_slot(slot)
    }

    pub(crate) fn remove(&mut self, index: I) -> Option<T> {
        let value = self.slots.get_mut(index.slot())?.take()?;
        self.free.push(u32::try_from(index.slot()).unwrap_or(u32::MAX));
        Some(value)
    }

    pub(crate) fn get(&self, index: I) -> Option<&T> {
        self.slots.get(index.slot())?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: I) -> Option<&mut T> {
        self.slots.get_mut(index.slot())?.as_mut()
    }

    /// The number of slots, including empty ones.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Iterates in slot order, which differs after a restart: decisions must not depend on it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.iter_from(I::from_slot(0))
    }

    pub(crate) fn iter_from(&self, from: I) -> impl Iterator<Item = (I, &T)> {
        let slots = (0..u32::MAX).zip(&self.slots).skip(from.slot());
        slots.filter_map(|(slot, value)| value.as_ref().map(|value| (I::from_slot(slot), value)))
    }
}

impl<I: TableIndex, T> Index<I> for Table<I, T> {
    type Output = T;
    #[inline]
    fn index(&self, index: I) -> &T {
        match &self.slots[index.slot()] {
            Some(value) => value,
            None => unreachable!("slot {} is empty", index.slot()),
        }
    }
}

impl<I: TableIndex, T> IndexMut<I> for Table<I, T> {
    #[inline]
    fn index_mut(&mut self, index: I) -> &mut T {
        match &mut self.slots[index.slot()] {
            Some(value) => value,
            None => unreachable!("slot {} is empty", index.slot()),
        }
    }
}

/// A value that contains its own lookup key.
pub(crate) trait Keyed {
    type Key: Hash + Eq + ?Sized;
    fn key(&self) -> &Self::Key;
}

/// Finds the slots of a table by key. It stores slots only, so that each key is in memory once, in its value.
#[derive(Debug)]
pub(crate) struct Lookup<I> {
    slots: HashTable<I>,
    hasher: Seeded,
}

impl<I> Default for Lookup<I> {
    fn default() -> Self {
        Self { slots: HashTable::new(), hasher: Seeded::default() }
    }
}

impl<I: TableIndex> Lookup<I> {
    pub(crate) fn find<T: Keyed>(&self, table: &Table<I, T>, key: &T::Key) -> Option<I> {
        self.slots.find(self.hasher.hash_one(key), |slot| table[*slot].key() == key).copied()
    }

    /// Adds a value that is already in the table.
    pub(crate) fn add<T: Keyed>(&mut self, table: &Table<I, T>, slot: I) {
        let hash = |slot: &I| self.hasher.hash_one(table[*slot].key());
        self.slots.insert_unique(hash(&slot), slot, hash);
    }

    /// Removes the value with `key`, which was removed from `slot` of the table or is about to be.
    pub(crate) fn remove<Q: Hash + ?Sized>(&mut self, key: &Q, slot: I) {
        if let Ok(entry) = self.slots.find_entry(self.hasher.hash_one(key), |other| *other == slot) {
            entry.remove();
        }
    }
}
