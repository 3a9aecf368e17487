//! Counting dead letters, in as many steps as it takes.

use std::collections::BTreeMap;

use eclusa_core::{CountLetters, Store, StoreError, TREND_HOURS};

/// Numbers of dead letters by group.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) counts: BTreeMap<String, u64>,
    /// By hour, oldest first; only of groups with letters in the time of the trend, if one was asked for.
    pub(crate) trends: BTreeMap<String, Vec<u64>>,
}

/// Counts the dead letters that match, grouped as requested.
pub(crate) async fn count_letters(store: &impl Store, mut ask: CountLetters) -> Result<Counted, StoreError> {
    let mut sums = Counted::default();
    loop {
        let step = store.count_letters(ask.clone()).await?;
        for (key, count) in step.counts {
            *sums.counts.entry(key.to_string()).or_default() += count;
        }
        for (key, hours) in step.trends {
            let trend = sums.trends.entry(key.to_string()).or_insert_with(|| vec![0; TREND_HOURS]);
            trend.iter_mut().zip(hours).for_each(|(sum, count)| *sum += count);
        }
        if step.next.is_none() {
            return Ok(sums);
        }
        ask.after = step.next;
    }
}
