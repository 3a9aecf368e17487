//! Counting dead letters, in as many steps as it takes.

use std::collections::BTreeMap;

use eclusa_core::{CountLetters, Store, StoreError};

/// Counts the dead letters that match, grouped as requested.
pub(crate) async fn count_letters(
    store: &impl Store,
    mut ask: CountLetters,
) -> Result<BTreeMap<String, u64>, StoreError> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    loop {
        let step = store.count_letters(ask.clone()).await?;
        for (key, count) in step.counts {
            *sums.entry(key.to_string()).or_default() += count;
        }
        if step.next.is_none() {
            return Ok(sums);
        }
        ask.after = step.next;
    }
}
