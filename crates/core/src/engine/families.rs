//! Families: the terms (costs and credits) of calls, by policy and class.
//!
//! All buckets of one policy and class are a family: their keys share a prefix. Its terms come with the holds and are
//! stored once per family rather than per bucket, and a settlement need not name them. A family is kept after its last
//! bucket is forgotten: there are only as many as the rules define, and a replayed dead letter does not carry its
//! terms.

use std::sync::Arc;

use hashbrown::HashMap;

use crate::charge::Terms;
use crate::policy::family;
use crate::seeded::Seeded;

/// The index of a family.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FamilyIx(u32);

#[derive(Debug)]
struct Family {
    name: Arc<str>,
    terms: Option<Arc<Terms>>,
    dirty: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Families {
    all: Vec<Family>,
    by_name: HashMap<Arc<str>, FamilyIx, Seeded>,
}

impl Families {
    pub(crate) fn find_or_create(&mut self, name: &str) -> FamilyIx {
        if let Some(found) = self.by_name.get(name) {
            return *found;
        }
        let next = FamilyIx(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        let name: Arc<str> = name.into();
        self.all.push(Family { name: name.clone(), terms: None, dirty: false });
        self.by_name.insert(name, next);
        next
    }

    /// Sets the terms of a family.
    pub(crate) fn set_terms(&mut self, index: FamilyIx, terms: &Arc<Terms>) {
        let family = &mut self.all[index.0 as usize];
        let same = |known: &Arc<Terms>| Arc::ptr_eq(known, terms) || known == terms;
        if !family.terms.as_ref().is_some_and(same) {
            family.terms = Some(terms.clone());
            family.dirty = true;
        }
    }

    pub(crate) fn restore(&mut self, name: &str, terms: Arc<Terms>) {
        let index = self.find_or_create(name);
        self.all[index.0 as usize].terms = Some(terms);
    }

    pub(crate) fn terms_of(&self, index: FamilyIx) -> Option<&Arc<Terms>> {
        self.all[index.0 as usize].terms.as_ref()
    }

    /// The terms of the bucket with `key`, even if that is full and forgotten.
    pub(crate) fn terms_of_key(&self, key: &str) -> Option<&Arc<Terms>> {
        self.by_name.get(family(key)).and_then(|index| self.terms_of(*index))
    }

    /// The key prefixes, one per policy and class.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.all.iter().map(|family| &family.name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Terms>)> {
        self.all.iter().filter_map(|family| Some((&family.name, family.terms.as_ref()?)))
    }

    pub(crate) fn touch(&mut self, name: &str) {
        if let Some(index) = self.by_name.get(name) {
            self.all[index.0 as usize].dirty = true;
        }
    }

    pub(crate) fn has_changes(&self) -> bool {
        self.all.iter().any(|family| family.dirty)
    }

    /// Reports terms that changed since the last call.
    pub(crate) fn drain_changes(&mut self, mut changed: impl FnMut(&Arc<str>, &Arc<Terms>)) {
        for family in self.all.iter_mut().filter(|family| family.dirty) {
            family.dirty = false;
            family.terms.iter().for_each(|terms| changed(&family.name, terms));
        }
    }
}
