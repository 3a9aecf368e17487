//! Finds the highest of many values that change one by one: a tournament between the slots of a table.

use std::marker::PhantomData;

use crate::table::TableIndex;

/// The default of `K` must be its lowest value: it stands for a slot that does not take part.
#[derive(Debug)]
pub(crate) struct Tournament<I, K> {
    /// By slot. The length is a power of two.
    values: Vec<K>,
    /// The slots that win, as a binary tree: node 1 is the root, and the children of node `n` are `2n` and `2n + 1`. The
    /// children of the last nodes are the slots.
    winners: Vec<u32>,
    index: PhantomData<I>,
}

impl<I, K> Default for Tournament<I, K> {
    fn default() -> Self {
        Self { values: Vec::new(), winners: Vec::new(), index: PhantomData }
    }
}

impl<I: TableIndex, K: Copy + Default + Ord> Tournament<I, K> {
    /// The slot with the highest value.
    pub(crate) fn winner(&self) -> Option<I> {
        let slot = if self.values.len() == 1 { 0 } else { *self.winners.get(1)? };
        (self.values[slot as usize] > K::default()).then(|| I::from_slot(slot))
    }

    /// The value of the winner.
    pub(crate) fn highest(&self) -> Option<K> {
        self.winner().map(|index| self.values[index.slot()])
    }

    pub(crate) fn set(&mut self, index: I, value: K) {
        let slot = index.slot();
        if slot >= self.values.len() {
            if value == K::default() {
                return;
            }
            self.grow(slot + 1);
        }
        self.values[slot] = value;
        let mut node = self.values.len() + slot;
        while node > 1 {
            node /= 2;
            let winner = self.winner_of(node);
            let before = std::mem::replace(&mut self.winners[node], winner);
            if before == winner && winner as usize != slot {
                break;
            }
        }
    }

    fn grow(&mut self, slots: usize) {
        let slots = slots.next_power_of_two();
        self.values.resize(slots, K::default());
        self.winners = vec![0; slots];
        for node in (1..slots).rev() {
            self.winners[node] = self.winner_of(node);
        }
    }

    fn winner_of(&self, node: usize) -> u32 {
        let [left, right] =
            [2 * node, 2 * node + 1].map(|child| match child.checked_sub(self.values.len()) {
                Some(slot) => u32::try_from(slot).unwrap_or(u32::MAX),
                None => self.winners[child],
            });
        if self.values[left as usize] >= self.values[right as usize] { left } else { right }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::table::LineIx;

    proptest! {
        #[test]
        fn the_highest_value_wins(steps in prop::collection::vec((0..20_u32, 0..5_u64), 1..100)) {
            let (mut tournament, mut values) = (Tournament::default(), [(0, 0); 20]);
            for (slot, value) in steps {
                // No two are equal.
                let value = if value == 0 { (0, 0) } else { (value, u64::from(slot)) };
                tournament.set(LineIx(slot), value);
                values[slot as usize] = value;
                let highest = values.iter().copied().max().filter(|value| *value > (0, 0));
                prop_assert_eq!(tournament.highest(), highest);
                prop_assert_eq!(tournament.winner(), highest.map(|(_, slot)| LineIx(u32::try_from(slot).unwrap())));
            }
        }
    }

    #[test]
    fn nobody_wins_if_none_takes_part() {
        let mut tournament = Tournament::<LineIx, u64>::default();
        assert_eq!(tournament.winner(), None);
        tournament.set(LineIx(0), 3);
        assert_eq!((tournament.winner(), tournament.highest()), (Some(LineIx(0)), Some(3)));
        tournament.set(LineIx(0), 0);
        assert_eq!(tournament.winner(), None);
    }
}
