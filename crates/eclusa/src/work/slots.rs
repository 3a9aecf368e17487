//! Slots: how many jobs this process runs at the same time, in total and per lane.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use eclusa_core::MAX_BATCH;
use futures_util::poll;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;

/// The slots that one lane can use.
pub(super) struct Slots {
    /// What the lane's `concurrency` allows.
    own: Arc<Semaphore>,
    /// Slots of the process that no other lane can take, so that a hanging lane does not stop the others.
    reserved: Arc<Semaphore>,
    /// Slots of the process that any lane may take.
    shared: Arc<Semaphore>,
}

/// A resizable number of slots; some may be taken during a resize.
#[derive(Debug)]
pub(super) struct SlotPool {
    slots: Arc<Semaphore>,
    size: usize,
}

impl Default for SlotPool {
    fn default() -> Self {
        Self { slots: Arc::new(Semaphore::new(0)), size: 0 }
    }
}

impl SlotPool {
    /// Changes the number of slots. Surplus slots that are taken are removed when they are released.
    pub(super) fn resize(&mut self, size: usize) {
        let old = std::mem::replace(&mut self.size, size);
        self.slots.add_permits(size.saturating_sub(old));
        let surplus = u32::try_from(old.saturating_sub(size)).unwrap_or(u32::MAX);
        if surplus > 0 {
            let slots = self.slots.clone();
            tokio::spawn(async move {
                if let Ok(released) = slots.acquire_many_owned(surplus).await {
                    released.forget();
                }
            });
        }
    }
}

impl Slots {
    pub(super) fn new(own: &SlotPool, reserved: &SlotPool, shared: &SlotPool) -> Self {
        Self { own: own.slots.clone(), reserved: reserved.slots.clone(), shared: shared.slots.clone() }
    }

    /// Waits for a slot, then takes as many more as are free.
    pub(super) async fn take(&self) -> Vec<TakenSlots> {
        // The lane's own slot first: holding a slot of the process while waiting for it would block other lanes.
        let Ok(own) = self.own.clone().acquire_owned().await else { return Vec::new() };
        let process = tokio::select! {
            biased;
            // The reserved slot last: `take_one` prefers it while nothing can start.
            shared = self.shared.clone().acquire_owned() => shared,
            reserved = self.reserved.clone().acquire_owned() => reserved,
        };
        let Ok(process) = process else { return Vec::new() };
        // Calls often end together: let the others release their slots first.
        yield_now().await;
        let mut taken = vec![TakenSlots { own, process }];
        taken.extend(self.more(&self.shared, MAX_BATCH - 1));
        let count: usize = taken.iter().map(TakenSlots::len).sum();
        taken.extend(self.more(&self.reserved, MAX_BATCH - count));
        taken
    }

    /// Takes a slot, if one is free.
    pub(super) fn take_one(&self) -> Option<TakenSlots> {
        self.more(&self.reserved, 1).or_else(|| self.more(&self.shared, 1))
    }

    /// Takes at most `max` more slots, with the process's part from `process`. Takes none if another lane is faster;
    /// the next call tries again.
    fn more(&self, process: &Arc<Semaphore>, max: usize) -> Option<TakenSlots> {
        let free = max.min(self.own.available_permits()).min(process.available_permits());
        let free = u32::try_from(free).ok().filter(|free| *free > 0)?;
        let own = self.own.clone().try_acquire_many_owned(free).ok()?;
        let process = process.clone().try_acquire_many_owned(free).ok()?;
        Some(TakenSlots { own, process })
    }
}

/// Taken slots. Dropping this releases them.
pub(super) struct TakenSlots {
    own: OwnedSemaphorePermit,
    process: OwnedSemaphorePermit,
}

impl TakenSlots {
    /// How many jobs they are for.
    pub(super) fn len(&self) -> usize {
        self.own.num_permits()
    }

    /// Splits off one slot.
    pub(super) fn split_one(&mut self) -> Option<TakenSlots> {
        Some(TakenSlots { own: self.own.split(1)?, process: self.process.split(1)? })
    }
}

/// Starts `settling` and then releases the slot, because the call is over. The store gets the settlement before the
/// question for the next job, so one append can hold both.
pub(super) async fn release_early<S, T>(slot: S, settling: impl Future<Output = T>) -> T {
    let mut settling = pin!(settling);
    let early = poll!(&mut settling);
    drop(slot);
    match early {
        Poll::Ready(settled) => settled,
        Poll::Pending => settling.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(size: usize) -> SlotPool {
        let mut pool = SlotPool::default();
        pool.resize(size);
        pool
    }

    #[tokio::test]
    async fn a_shrunken_pool_hands_out_no_surplus_slot() {
        let (mut own, shared) = (pool(3), pool(10));
        let lane = Slots::new(&own, &pool(0), &shared);
        let taken = lane.take().await;
        own.resize(1);
        tokio::task::yield_now().await;
        drop(taken);
        assert_eq!(total(&lane.take().await), 1);
        own.resize(2);
        assert_eq!(total(&lane.take().await), 2);
    }

    fn total(taken: &[TakenSlots]) -> usize {
        taken.iter().map(TakenSlots::len).sum()
    }

    #[tokio::test]
    async fn a_lane_takes_reserved_and_shared_slots_up_to_a_batch() {
        let shared = pool(150);
        let greedy = Slots::new(&pool(500), &pool(1), &shared);
        let first = greedy.take().await;
        let second = greedy.take().await;
        assert_eq!([total(&first), total(&second)], [100, 51]);
        let modest = Slots::new(&pool(500), &pool(1), &shared);
        assert_eq!(total(&modest.take().await), 1, "the slot reserved for it");
        drop((first, second));
        assert_eq!(shared.slots.available_permits(), 150);
    }

    #[tokio::test]
    async fn take_one_succeeds_while_a_slot_is_free() {
        let lane = Slots::new(&pool(500), &pool(1), &pool(2));
        let taken: Vec<_> = std::iter::from_fn(|| lane.take_one()).collect();
        assert_eq!(taken.iter().map(TakenSlots::len).collect::<Vec<_>>(), [1, 1, 1]);
        drop(taken);
        assert!(lane.take_one().is_some());
    }

    #[tokio::test]
    async fn a_lane_never_exceeds_its_own_concurrency() {
        let lane = Slots::new(&pool(3), &pool(1), &pool(10));
        let mut taken = lane.take().await;
        assert_eq!(total(&taken), 3);
        let one = taken.iter_mut().find_map(TakenSlots::split_one);
        drop(taken);
        assert_eq!(total(&lane.take().await), 2, "one still runs");
        drop(one);
        assert_eq!(total(&lane.take().await), 3);
    }

    #[tokio::test]
    async fn a_slot_is_free_while_the_settlement_is_being_stored() {
        let lane = Slots::new(&pool(1), &pool(0), &pool(1));
        let slot = lane.take_one();
        let (asked, stored) = (Semaphore::new(0), Semaphore::new(0));
        let settling = async {
            asked.add_permits(1);
            stored.acquire().await.map(drop)
        };
        let next = async {
            assert_eq!(asked.available_permits(), 1, "the store is asked first");
            assert!(lane.take_one().is_some());
            stored.add_permits(1);
        };
        let (settled, ()) = tokio::join!(biased; release_early(slot, settling), next);
        assert!(settled.is_ok());
    }

    #[tokio::test]
    async fn slots_that_are_released_together_are_taken_together() {
        let lane = Slots::new(&pool(3), &pool(0), &pool(3));
        let taken: Vec<_> = std::iter::from_fn(|| lane.take_one()).collect();
        let release = async {
            for slot in taken {
                drop(slot);
                yield_now().await;
            }
        };
        let (next, ()) = tokio::join!(lane.take(), release);
        assert!(total(&next) > 1);
    }
}
