//! A vector with holes, addressed by typed indexes.

use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use hashbrown::HashTable;

use crate::seeded::Seeded;

/// Makes an index type of a table.
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
    /// Upstreams that jobs of one lane may still use, in order.
    GroupIx
);

/// Values that stay where they are until removed; freed places are used again.
#[derive(Debug)]
pub(crate) struct Table<I, T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
    index: PhantomData<I>,
}

impl<I, T> Default for Table<I, T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new(), index: PhantomData }
    }
}

impl<I: TableIndex, T> Table<I, T> {
    pub(crate) fn insert(&mut self, value: T) -> I {
        if let Some(slot) = self.free.pop() {
            self.places[slot as usize] = Some(value);
            return I::from_slot(slot);
        }
        let slot = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        self.places.push(Some(value));
        I::from_slot(slot)
    }

    pub(crate) fn remove(&mut self, index: I) -> Option<T> {
        let value = self.places.get_mut(index.slot())?.take()?;
        self.free.push(u32::try_from(index.slot()).unwrap_or(u32::MAX));
        Some(value)
    }

    pub(crate) fn get(&self, index: I) -> Option<&T> {
        self.places.get(index.slot())?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: I) -> Option<&mut T> {
        self.places.get_mut(index.slot())?.as_mut()
    }

    /// How many places there are, empty ones counted.
    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// In the order of places, which differs after a restart: not for decisions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.iter_from(I::from_slot(0))
    }

    pub(crate) fn iter_from(&self, from: I) -> impl Iterator<Item = (I, &T)> {
        let places = (0..u32::MAX).zip(&self.places).skip(from.slot());
        places.filter_map(|(slot, place)| place.as_ref().map(|value| (I::from_slot(slot), value)))
    }
}

impl<I: TableIndex, T> Index<I> for Table<I, T> {
    type Output = T;
    fn index(&self, index: I) -> &T {
        match &self.places[index.slot()] {
            Some(value) => value,
            None => unreachable!("place {} is empty", index.slot()),
        }
    }
}

impl<I: TableIndex, T> IndexMut<I> for Table<I, T> {
    fn index_mut(&mut self, index: I) -> &mut T {
        match &mut self.places[index.slot()] {
            Some(value) => value,
            None => unreachable!("place {} is empty", index.slot()),
        }
    }
}

/// A value that is found by a key it holds itself.
pub(crate) trait Keyed {
    type Key: Hash + Eq + ?Sized;
    fn key(&self) -> &Self::Key;
}

/// Finds places of a table by key. It holds places only, so that each key is in memory once, with its value.
#[derive(Debug)]
pub(crate) struct Lookup<I> {
    places: HashTable<I>,
    hasher: Seeded,
}

impl<I> Default for Lookup<I> {
    fn default() -> Self {
        Self { places: HashTable::new(), hasher: Seeded::default() }
    }
}

impl<I: TableIndex> Lookup<I> {
    pub(crate) fn find<T: Keyed>(&self, table: &Table<I, T>, key: &T::Key) -> Option<I> {
        self.places.find(self.hasher.hash_one(key), |place| table[*place].key() == key).copied()
    }

    /// Makes a value known that is in the table already.
    pub(crate) fn add<T: Keyed>(&mut self, table: &Table<I, T>, place: I) {
        let hash = |place: &I| self.hasher.hash_one(table[*place].key());
        self.places.insert_unique(hash(&place), place, hash);
    }

    /// Forgets the value with `key`, which has left `place` or is about to.
    pub(crate) fn remove<Q: Hash + ?Sized>(&mut self, key: &Q, place: I) {
        if let Ok(entry) = self.places.find_entry(self.hasher.hash_one(key), |other| *other == place) {
            entry.remove();
        }
    }
}
