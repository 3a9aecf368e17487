//! Which bucket a request takes from, without revealing whose it is.
//!
//! A scope value (a tax number, a tenant) or a correlation id may identify a person. Both become keyed hashes before
//! they leave the process that read them, so that no key, log, metric or record contains the value. The hash key is
//! random, created once per store and kept in it: without it a value cannot be found by trying all values.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use siphasher::sip128::{Hash128, SipHasher24};

use crate::error::SpecError;
use crate::ids::Name;
use crate::tokens::Tokens;

/// The secret that scope values and correlation ids are hashed with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey(u128);

impl HashKey {
    /// A key with these bits, which must stay secret.
    pub const fn new(bits: u128) -> Self {
        Self(bits)
    }

    pub(crate) const fn bits(self) -> u128 {
        self.0
    }

    /// The hash of a scope value. A value has the same hash under all policies of a store.
    pub fn scope(self, value: &str) -> Scope {
        Scope(self.hash(b's', value))
    }

    /// The hash of a correlation id.
    pub fn correlation(self, id: &str) -> Correlation {
        Correlation(self.hash(b'c', id))
    }

    /// `kind` separates equal texts with different meanings.
    fn hash(self, kind: u8, text: &str) -> u128 {
        let hasher = SipHasher24::new_with_key(&self.0.to_le_bytes());
        let Hash128 { h1, h2 } = hasher.hash(&[&[kind], text.as_bytes()].concat());
        u128::from(h1) << 64 | u128::from(h2)
    }
}

/// Never shows the secret.
impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
}

/// The keyed hash of a scope value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope(pub(crate) u128);

/// 32 hexadecimal digits.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Scope {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let bad = || SpecError::new("scope", "must be 32 hexadecimal digits");
        if text.len() != 32 || text.starts_with('+') {
            return Err(bad());
        }
        u128::from_str_radix(text, 16).map(Scope).map_err(|_| bad())
    }
}

/// The keyed hash of the id that connects an event with the call it earns tokens for (`EndToEndId`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Correlation(pub(crate) u128);

/// Identifies a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketId {
    /// The upstream whose limit it counts.
    pub upstream: Name,
    /// The policy.
    pub policy: Name,
    /// The class of the policy, if it has classes.
    pub class: Option<Name>,
    /// The scope; `None` for the upstream as a whole.
    pub scope: Option<Scope>,
}

impl BucketId {
    /// The storage key.
    pub fn key(&self) -> Arc<str> {
        let class = self.class.as_ref().map_or("", Name::as_str);
        let family = format!("{}/{}/{class}/", self.upstream, self.policy);
        self.scope.map_or_else(|| family.as_str().into(), |scope| format!("{family}{scope}").into())
    }

    /// Parses the result of [`BucketId::key`].
    pub fn parse(key: &str) -> Option<Self> {
        let mut parts = key.split('/');
        let mut next = || parts.next();
        let (upstream, policy, class, scope) = (next()?, next()?, next()?, next()?);
        let class = if class.is_empty() { None } else { Some(Name::new(class).ok()?) };
        let scope = if scope.is_empty() { None } else { Some(scope.parse().ok()?) };
        let (upstream, policy) = (Name::new(upstream).ok()?, Name::new(policy).ok()?);
        next().is_none().then_some(Self { upstream, policy, class, scope })
    }
}

/// The part of a key that all buckets of one policy and class share.
pub(crate) fn family(key: &str) -> &str {
    key.rfind('/').map_or(key, |end| &key[..=end])
}

/// Orders buckets by how many requests share them: a scoped bucket before an unscoped one, then the smaller first.
pub(crate) fn width(key: &str, capacity: Tokens) -> (bool, Tokens) {
    (family(key) == key, capacity)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[test]
    fn a_key_contains_policy_class_and_hash_and_can_be_parsed() {
        let scope = HashKey::new(7).scope("12345678901");
        for (class, scope) in [(Some(name("PF")), Some(scope)), (None, Some(scope)), (None, None)] {
            let id = BucketId { upstream: name("dict"), policy: name("ENTRIES_READ"), class, scope };
            let key = id.key();
            assert_eq!(BucketId::parse(&key), Some(id), "{key}");
            assert!(!key.contains("12345678901"));
            assert!(family(&key).starts_with("dict/ENTRIES_READ/"));
        }
        for bad in ["", "a", "a/b", "a/b/c", "a/b//x", "a/b/c//", "/b//", "a//c/", "a/b/c d/"] {
            assert_eq!(BucketId::parse(bad), None, "{bad:?}");
        }
    }

    /// Stored buckets are found by these hashes, so they must stay the same.
    #[test]
    fn hashes_never_change() {
        let key = HashKey::new(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100);
        assert_eq!(key.scope("12345678901").to_string(), "18d4956485ad7666b6a267f418061e86");
        assert_eq!(key.scope("12345678901"), key.scope("12345678901"));
        assert_ne!(key.scope("12345678901").0, key.correlation("12345678901").0);
        assert_ne!(key.scope("12345678901"), HashKey::new(1).scope("12345678901"));
        assert_ne!(key.scope("12345678901"), key.scope("12345678902"));
    }

    #[test]
    fn neither_the_secret_nor_a_scope_value_is_shown() {
        assert_eq!(format!("{:?}", HashKey::new(12_345)), "HashKey(..)");
        let scope = HashKey::new(9).scope("x");
        assert_eq!(scope.to_string().parse(), Ok(scope));
        for bad in ["", "x", "+192f3a4000070008000000000000002a"] {
            assert!(bad.parse::<Scope>().is_err(), "{bad}");
        }
    }
}
