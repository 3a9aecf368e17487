//! Shares of limits, for processes that cannot reach each other.

/// One process's share of every limit. Shares are whole numbers and add up to the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    number: u32,
    of: u32,
}

impl Share {
    /// The whole limit.
    pub const WHOLE: Share = Share { number: 0, of: 1 };

    /// Share `number`, counted from 0, of `of` shares; `None` if `number` is too large.
    pub fn new(number: u32, of: u32) -> Option<Self> {
        (number < of).then_some(Self { number, of })
    }

    /// Its share of `limit`.
    pub(crate) fn of(self, limit: u32) -> u32 {
        limit / self.of + u32::from(self.number < limit % self.of)
    }

    /// Its number, counted from 0.
    pub(crate) const fn number(self) -> u32 {
        self.number
    }

    /// How many shares there are.
    pub(crate) const fn count(self) -> u32 {
        self.of
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shares_add_up_to_the_limit() {
        for (limit, of) in [(10, 1), (10, 3), (1, 2), (0, 4), (7, 7), (2, 5)] {
            let shares: Vec<_> = (0..of).map(|number| Share::new(number, of).unwrap().of(limit)).collect();
            assert_eq!(shares.iter().sum::<u32>(), limit, "{shares:?}");
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1, "{shares:?}");
        }
        assert_eq!(Share::new(2, 2), None);
    }
}
