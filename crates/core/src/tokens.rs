//! Amounts in token buckets, in millionths of a token so that fractions are kept without floats.

use std::ops::{Add, Sub};

const MICRO: i64 = 1_000_000;

/// An amount of tokens; negative amounts are debt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tokens(i64);

impl Tokens {
    /// No tokens.
    pub const ZERO: Tokens = Tokens(0);
    /// One token.
    pub const ONE: Tokens = Tokens(MICRO);

    /// This many whole tokens.
    pub const fn whole(tokens: u32) -> Self {
        Tokens(tokens as i64 * MICRO)
    }

    /// This many millionths of a token.
    pub const fn from_micro(micro: i64) -> Self {
        Tokens(micro)
    }

    /// The amount in millionths of a token.
    pub const fn as_micro(self) -> i64 {
        self.0
    }
}

impl Add for Tokens {
    type Output = Tokens;
    fn add(self, other: Tokens) -> Tokens {
        Tokens(self.0.saturating_add(other.0))
    }
}

impl Sub for Tokens {
    type Output = Tokens;
    fn sub(self, other: Tokens) -> Tokens {
        Tokens(self.0.saturating_sub(other.0))
    }
}
