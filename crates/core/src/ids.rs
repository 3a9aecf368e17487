//! Names and ids.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::SpecError;
use crate::time::Time;

/// Separates an upstream from its key.
const KEY_SEPARATOR: char = '/';

/// The name of a lane or an upstream. It appears in metrics, keys and paths, so its characters are restricted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    const MAX_LEN: usize = 64;

    /// Checks a name: at most 64 letters, digits, `-`, `_` and `.`.
    pub fn new(name: &str) -> Result<Self, SpecError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > Self::MAX_LEN || !name.chars().all(allowed) {
            let problem = format!("{name:?} must be 1 to 64 letters, digits, '-', '_' or '.'");
            return Err(SpecError::new("name", problem));
        }
        Ok(Name(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The engine's name for `key` of this upstream: `replicate/a`. No lane or upstream can have such a name.
    #[must_use]
    pub fn with_key(&self, key: &Name) -> Self {
        Name(format!("{}{KEY_SEPARATOR}{}", self.0, key.0).into())
    }

    /// The key part of the name, if it has one.
    pub fn key(&self) -> Option<&str> {
        self.0.split_once(KEY_SEPARATOR).map(|(_, key)| key)
    }

    /// The name without its key part.
    #[must_use]
    pub fn without_key(&self) -> Self {
        self.0.split_once(KEY_SEPARATOR).map_or_else(|| self.clone(), |(upstream, _)| Name(upstream.into()))
    }

    /// Parses a name that was stored or sent; it may have a key part.
    pub(crate) fn read(text: &str) -> Result<Self, SpecError> {
        match text.split_once(KEY_SEPARATOR) {
            Some((upstream, key)) => Ok(Self::new(upstream)?.with_key(&Self::new(key)?)),
            None => Self::new(text),
        }
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A job's id, chosen by the process that enqueues it, so that a repeated call is recognized.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u128);

impl JobId {
    pub(crate) fn halves(self) -> [u64; 2] {
        [self.0 >> 64, self.0 & u128::from(u64::MAX)].map(|half| u64::try_from(half).unwrap_or_default())
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({self})")
    }
}

/// Formatted like a UUID.
impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [b'-'; 36];
        let places = (0..text.len()).filter(|at| ![8, 13, 18, 23].contains(at));
        let nibbles = self.0.to_be_bytes().into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
        for (at, nibble) in places.zip(nibbles) {
            text[at] = b"0123456789abcdef"[usize::from(nibble)];
        }
        f.write_str(str::from_utf8(&text).unwrap_or_default())
    }
}

impl FromStr for JobId {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let hex: String = text.chars().filter(|c| *c != '-').collect();
        let invalid = || SpecError::new("jobId", format!("{text:?} is not a job id (32 hexadecimal digits)"));
        if hex.len() != 32 || hex.starts_with('+') {
            return Err(invalid());
        }
        u128::from_str_radix(&hex, 16).map(JobId).map_err(|_| invalid())
    }
}

/// Identifies a worker's fenced right to run one job, or to make one call without a job.
///
/// The number could be issued twice after a restore; the store's epoch and the worker's nonce make the id unique.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId {
    /// The store's epoch when the lease was issued; grows each time the store opens.
    pub epoch: u64,
    /// Counts the leases of the store.
    pub number: u64,
    /// Chosen by the worker that asked.
    pub nonce: u64,
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({self})")
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}-{:x}", self.epoch, self.number, self.nonce)
    }
}

impl FromStr for LeaseId {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut parts = text.split('-').map(|part| u64::from_str_radix(part, 16).ok());
        let mut next = || parts.next().flatten();
        let fields = (next(), next(), next(), parts.next());
        match fields {
            (Some(epoch), Some(number), Some(nonce), None) => Ok(LeaseId { epoch, number, nonce }),
            _ => Err(SpecError::new("leaseId", format!("{text:?} is not a lease id"))),
        }
    }
}

/// A well-mixed hash of numbers, the same on every machine and in every version.
pub(crate) fn mix(values: &[u64]) -> u64 {
    values.iter().fold(0x9e37_79b9_7f4a_7c15, |state, value| {
        let mut x = (state ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    })
}

/// An id derived from other ids, which cannot be guessed without them. It looks like an id created at `at`.
pub(crate) fn derived_id(at: Time, from: &[JobId], salt: u64) -> JobId {
    const VERSION: u128 = 0x7 << 76;
    const VARIANT: u128 = 0b10 << 62;
    let half = |which: u64| {
        let ids = from.iter().flat_map(|id| id.halves());
        mix(&[which, salt].into_iter().chain(ids).collect::<Vec<_>>())
    };
    let random = (u128::from(half(1) & 0xfff) << 64) | (u128::from(half(2)) & ((1 << 62) - 1));
    JobId((u128::from(at.as_millis()) << 80) | VERSION | VARIANT | random)
}

/// A stable fingerprint of bytes (FNV-1a), to distinguish a repeated payload from another one.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_ids_are_far_apart() {
        let ids = |salt| {
            (0..1_000).map(move |letter| derived_id(Time::from_millis(1), &[JobId(9), JobId(letter)], salt))
        };
        let low: std::collections::BTreeSet<u64> = ids(0).chain(ids(1)).map(|id| id.halves()[1]).collect();
        assert_eq!(low.len(), 2_000);
        assert!(ids(0).all(|id| id.to_string().starts_with("00000000-0001-7")), "{:?}", ids(0).next());
    }

    #[test]
    fn ids_survive_a_round_trip_through_text() {
        let job = JobId(0x0192_f3a4_0000_7000_8000_0000_0000_002a);
        assert_eq!(job.to_string(), "0192f3a4-0000-7000-8000-00000000002a");
        assert_eq!(job.to_string().parse(), Ok(job));
        let lease = LeaseId { epoch: 1 << 40, number: u64::MAX, nonce: u64::MAX - 1 };
        assert_eq!(lease.to_string().parse(), Ok(lease));
    }

    #[test]
    fn bad_ids_and_names_are_refused() {
        for bad in ["", "xyz", "0192f3a4", "+192f3a4000070008000000000000002a"] {
            assert!(bad.parse::<JobId>().is_err(), "{bad}");
        }
        for bad in ["", "1-2", "1-2-3-4", "10000000000000000-1-1", "g-1-1"] {
            assert!(bad.parse::<LeaseId>().is_err(), "{bad}");
        }
        for bad in ["", "a b", "a:b", "a/b", "ção", &"x".repeat(65)] {
            assert!(Name::new(bad).is_err(), "{bad}");
        }
        for bad in ["/", "a/", "/b", "a/b/c"] {
            assert!(Name::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_are_named_after_their_upstream() {
        let (upstream, key) = (Name::new("replicate").unwrap(), Name::new("a").unwrap());
        let both = upstream.with_key(&key);
        assert_eq!((both.as_str(), both.key()), ("replicate/a", Some("a")));
        assert_eq!((both.without_key(), upstream.without_key()), (upstream.clone(), upstream.clone()));
        assert_eq!((Name::read("replicate/a"), upstream.key()), (Ok(both), None));
    }
}
