//! Slots: how many jobs this process runs at the same time, in all and of each lane.

use std::sync::Arc;

use eclusa_core::MAX_BATCH;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Room for jobs of one lane.
pub(super) struct Slots {
    /// What the lane's `concurrency` allows.
    own: Arc<Semaphore>,
    /// Slots of the process that no other lane can take, so that one that hangs does not stop the others.
    sure: Arc<Semaphore>,
    /// Slots of the process for whoever comes first.
    shared: Arc<Semaphore>,
}

impl Slots {
    pub(super) fn new(own: usize, sure: usize, shared: Arc<Semaphore>) -> Self {
        Self { own: Arc::new(Semaphore::new(own)), sure: Arc::new(Semaphore::new(sure)), shared }
    }

    /// Waits for a slot, then takes as many more as are free.
    pub(super) async fn take(&self) -> Vec<Room> {
        // Own slots first: who holds one of the process's while waiting for its own keeps other lanes from it.
        let Ok(own) = self.own.clone().acquire_owned().await else { return Vec::new() };
        let process = tokio::select! {
            biased;
            sure = self.sure.clone().acquire_owned() => sure,
            shared = self.shared.clone().acquire_owned() => shared,
        };
        let Ok(process) = process else { return Vec::new() };
        let mut rooms = vec![Room { own, process }];
        rooms.extend(self.more(&self.sure, MAX_BATCH - rooms.len()));
        rooms.extend(self.more(&self.shared, MAX_BATCH - rooms.len()));
        rooms
    }

    /// At most `max` more slots whose process part is of `process`. A slot that somebody else takes meanwhile is had next
    /// time.
    fn more(&self, process: &Arc<Semaphore>, max: usize) -> Option<Room> {
        let free = max.min(self.own.available_permits()).min(process.available_permits());
        let free = u32::try_from(free).ok().filter(|free| *free > 0)?;
        let own = self.own.clone().try_acquire_many_owned(free).ok()?;
        let process = process.clone().try_acquire_many_owned(free).ok()?;
        Some(Room { own, process })
    }
}

/// Slots that were taken; they are free again when this is dropped.
pub(super) struct Room {
    own: OwnedSemaphorePermit,
    process: OwnedSemaphorePermit,
}

impl Room {
    /// For so many jobs.
    pub(super) fn len(&self) -> usize {
        self.own.num_permits()
    }

    /// Takes one slot out.
    pub(super) fn split_one(&mut self) -> Option<Room> {
        Some(Room { own: self.own.split(1)?, process: self.process.split(1)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(rooms: &[Room]) -> usize {
        rooms.iter().map(Room::len).sum()
    }

    #[tokio::test]
    async fn a_lane_takes_its_own_and_what_is_shared_but_no_more_than_a_batch() {
        let shared = Arc::new(Semaphore::new(150));
        let greedy = Slots::new(500, 1, shared.clone());
        let first = greedy.take().await;
        let second = greedy.take().await;
        assert_eq!([total(&first), total(&second)], [100, 51]);
        let modest = Slots::new(500, 1, shared.clone());
        assert_eq!(total(&modest.take().await), 1, "the slot it is sure of");
        drop((first, second));
        assert_eq!(shared.available_permits(), 150);
    }

    #[tokio::test]
    async fn the_lanes_own_limit_holds() {
        let lane = Slots::new(3, 1, Arc::new(Semaphore::new(10)));
        let mut rooms = lane.take().await;
        assert_eq!(total(&rooms), 3);
        let one = rooms.iter_mut().find_map(Room::split_one);
        drop(rooms);
        assert_eq!(total(&lane.take().await), 2, "one still runs");
        drop(one);
        assert_eq!(total(&lane.take().await), 3);
    }
}
