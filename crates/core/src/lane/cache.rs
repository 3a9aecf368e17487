//! The cached answers of a lane.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::job::Payload;
use crate::seeded::Seeded;
use crate::spec::CacheSpec;
use crate::time::Time;

/// An upstream's answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) answer: Payload,
    pub(crate) stored_at: Time,
    /// One of the lane's job numbers: jobs with a lower number were waiting when the answer was stored.
    pub(crate) number: u64,
}

/// The answers of a lane by cache key. The oldest is evicted first.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    entries: HashMap<Arc<str>, Entry, Seeded>,
    order: BTreeMap<u64, Arc<str>>,
    /// Total size of keys and answers.
    bytes: u64,
    dirty: Vec<Arc<str>>,
}

fn size(key: &str, entry: &Entry) -> u64 {
    (key.len() + entry.answer.len()) as u64
}

impl Cache {
    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Stores an answer, replaces an older one and evicts others until it fits. Returns whether it was stored: an
    /// answer larger than the whole cache is not.
    pub(crate) fn store(&mut self, key: &Arc<str>, entry: Entry, spec: &CacheSpec) -> bool {
        if size(key, &entry) > spec.max_bytes {
            return false;
        }
        self.restore(key.clone(), Some(entry));
        self.dirty.push(key.clone());
        while self.is_over(spec)
            && let Some((_, oldest)) = self.order.first_key_value()
        {
            self.remove(&oldest.clone());
        }
        true
    }

    /// Applies the journal's entry for `key`; `None` removes it.
    pub(crate) fn restore(&mut self, key: Arc<str>, entry: Option<Entry>) {
        self.take(&key);
        if let Some(entry) = entry {
            self.bytes += size(&key, &entry);
            self.order.insert(entry.number, key.clone());
            self.entries.insert(key, entry);
        }
    }

    pub(crate) fn remove(&mut self, key: &Arc<str>) {
        if self.take(key).is_some() {
            self.dirty.push(key.clone());
        }
    }

    fn take(&mut self, key: &Arc<str>) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        self.bytes -= size(key, &entry);
        self.order.remove(&entry.number);
        Some(entry)
    }

    fn is_over(&self, spec: &CacheSpec) -> bool {
        self.entries.len() as u64 > spec.max || self.bytes > spec.max_bytes
    }

    /// The oldest entry, if it has expired or the cache is too large. Without a rule every entry has expired.
    pub(crate) fn surplus(&self, spec: Option<&CacheSpec>, now: Time) -> Option<&Arc<str>> {
        let (_, key) = self.order.first_key_value()?;
        let entry = self.entries.get(key)?;
        let useful = spec.is_some_and(|spec| now < spec.usable_until(entry.stored_at) && !self.is_over(spec));
        (!useful).then_some(key)
    }

    /// When the oldest entry expires.
    pub(crate) fn next_expiry(&self, spec: Option<&CacheSpec>) -> Option<Time> {
        let entry = self.entries.get(self.order.first_key_value()?.1)?;
        Some(spec.map_or(entry.stored_at, |spec| spec.usable_until(entry.stored_at)))
    }

    /// Marks an entry as changed and returns its size; 0 if it no longer exists.
    pub(crate) fn touch(&mut self, key: &str) -> u64 {
        let Some((key, entry)) = self.entries.get_key_value(key) else { return 0 };
        self.dirty.push(key.clone());
        size(key, entry)
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Passes each entry changed since the last call to `changed`; removed entries are passed as `None`.
    pub(crate) fn drain_changes(&mut self, mut changed: impl FnMut(&Arc<str>, Option<&Entry>)) {
        for key in self.dirty.drain(..) {
            changed(&key, self.entries.get(&key));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// In the order in which they were stored.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Entry)> {
        self.order.values().filter_map(|key| self.entries.get_key_value(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    fn store(cache: &mut Cache, key: &str, bytes: usize, number: u64, spec: &CacheSpec) -> bool {
        let entry = Entry { answer: vec![0; bytes].into(), stored_at: Time::from_millis(number), number };
        cache.store(&key.into(), entry, spec)
    }

    fn keys(cache: &Cache) -> Vec<&str> {
        cache.iter().map(|(key, _)| &**key).collect()
    }

    #[test]
    fn the_oldest_answer_is_evicted_first() {
        let spec = CacheSpec::new(Span::from_secs(1), Span::ZERO).unwrap().bounded(2, 100).unwrap();
        let mut cache = Cache::default();
        for (number, key) in (1..).zip(["a", "b", "a", "c"]) {
            assert!(store(&mut cache, key, 10, number, &spec));
        }
        assert_eq!(keys(&cache), ["a", "c"], "the second answer of a came after b");
        assert_eq!(cache.bytes(), 22);
    }

    #[test]
    fn bytes_are_bounded_and_a_too_large_answer_evicts_nothing() {
        let spec = CacheSpec::new(Span::from_secs(1), Span::ZERO).unwrap().bounded(10, 100).unwrap();
        let mut cache = Cache::default();
        for (number, key) in (1..).zip(["a", "b", "c"]) {
            assert!(store(&mut cache, key, 40, number, &spec));
        }
        assert_eq!(keys(&cache), ["b", "c"]);
        assert!(!store(&mut cache, "d", 100, 9, &spec));
        assert_eq!(keys(&cache), ["b", "c"]);
    }
}
