//! Recognizes a state that was seen before. Times are compared by their distance from now. Beats only go up, so for
//! past beats only equality matters. So a fleet in which nothing happens returns to the same state.

use std::hash::{Hash, Hasher};

use crate::config::TERM_MS;

/// Times are numbers from here on, and nothing else is.
pub(super) const MOMENTS: u64 = 1 << 40;
/// Beats are numbers from here on, and nothing else is.
pub(super) const BEATS: u64 = 1 << 50;

const MOMENT: u64 = 1 << 60;
const BEAT: u64 = 1 << 61;

/// A hash of 128 bits: among a hundred million states two equal ones have a chance of 1 in 10²².
pub(super) fn fingerprint(state: &impl Hash, now: u64, beat: u64) -> u128 {
    let mut hasher = Relative { now, beats: vec![beat], hash: 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d };
    state.hash(&mut hasher);
    let hash = (hasher.hash ^ hasher.hash >> 67).wrapping_mul(0xda94_2042_e4dd_58b5_94d0_49bb_1331_11eb);
    hash ^ hash >> 61
}

struct Relative {
    now: u64,
    /// The server's beat and those seen so far.
    beats: Vec<u64>,
    hash: u128,
}

impl Relative {
    fn place_of(&mut self, beat: u64) -> u64 {
        let place = self.beats.iter().position(|known| *known == beat).unwrap_or(self.beats.len());
        if place == self.beats.len() {
            self.beats.push(beat);
        }
        place as u64
    }

    fn mix(&mut self, number: u128) {
        let hash = self.hash.rotate_left(43) ^ number;
        self.hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    }
}

impl Hasher for Relative {
    fn finish(&self) -> u64 {
        u64::try_from(self.hash >> 64).unwrap_or_default()
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.mix(u128::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        let relative = match number {
            // A time more than a term ago is equivalent to none.
            MOMENTS..BEATS if number + TERM_MS <= self.now => 0,
            MOMENTS..BEATS => MOMENT.wrapping_add(number.wrapping_sub(self.now)),
            BEATS..MOMENT => BEAT + self.place_of(number),
            plain => plain,
        };
        self.mix(u128::from(relative));
    }

    fn write_u128(&mut self, number: u128) {
        self.mix(number);
    }

    fn write_u8(&mut self, number: u8) {
        self.mix(u128::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.mix(u128::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.mix(number as u128);
    }
}
