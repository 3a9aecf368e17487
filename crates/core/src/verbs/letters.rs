//! What is asked about dead letters, one or many at a time.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::dead_letter::{DeadLetter, DeadLetterView};
use crate::error::SpecError;
use crate::ids::{JobId, Name};
use crate::pattern::matches;
use crate::time::Time;

/// Which dead letters; what is absent does not narrow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LetterFilter {
    /// Of one of these lanes.
    pub lanes: Option<Vec<Name>>,
    /// Of this tenant.
    pub tenant: Option<Arc<str>>,
    /// Of a tenant that fits one of these patterns (`shop-*`).
    pub tenants: Option<Vec<Arc<str>>>,
    /// With this code of the last failure, or of this class (`5xx`); `none` is for letters without one.
    pub code: Option<Arc<str>>,
    /// That were written then or later.
    pub since: Option<Time>,
    /// That were written then or earlier.
    pub until: Option<Time>,
}

impl LetterFilter {
    pub(crate) fn has_lane(&self, lane: &Name) -> bool {
        self.lanes.as_ref().is_none_or(|lanes| lanes.contains(lane))
    }

    /// Whether a letter of a lane that fits does so too.
    pub(crate) fn fits(&self, letter: &DeadLetter) -> bool {
        let tenants = |patterns: &Vec<Arc<str>>| patterns.iter().any(|one| matches(one, &letter.tenant));
        self.tenant.as_ref().is_none_or(|tenant| *tenant == letter.tenant)
            && self.tenants.as_ref().is_none_or(tenants)
            && self.code.as_ref().is_none_or(|code| fits_code(code, letter.last_failure.code.as_deref()))
            && self.since.is_none_or(|since| letter.moved_at >= since)
            && self.until.is_none_or(|until| letter.moved_at <= until)
    }
}

/// The word for letters whose last failure has no code.
pub(crate) const NO_CODE: &str = "none";

/// Whether a failure with `code` is meant by `pattern`: a code, a class of them such as `5xx`, or `none`.
pub(crate) fn fits_code(pattern: &str, code: Option<&str>) -> bool {
    let Some(code) = code else { return pattern == NO_CODE };
    let class =
        |digit: &str| code.len() == 3 && code.starts_with(digit) && code.bytes().all(|b| b.is_ascii_digit());
    pattern == code || pattern.strip_suffix("xx").is_some_and(|digit| digit.len() == 1 && class(digit))
}

/// Asks for a page of dead letters: by lane, in each the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LetterQuery {
    /// Which.
    pub filter: LetterFilter,
    /// Go on from there: what the last page said.
    pub after: Option<LetterCursor>,
    /// How many at the most; no more than [`MAX_BATCH`](crate::MAX_BATCH) are given.
    pub max: usize,
}

/// A place in the order of dead letters. It stays valid when the letter there is gone, and over a restart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LetterCursor {
    /// The lane.
    pub lane: Name,
    /// The letter's number in it.
    pub number: u64,
}

impl fmt::Display for LetterCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.lane, self.number)
    }
}

impl FromStr for LetterCursor {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let parts = text.rsplit_once(':');
        let parts = parts.and_then(|(lane, number)| Some((Name::new(lane).ok()?, number.parse().ok()?)));
        let bad = || SpecError::new("cursor", format!("{text:?} is not one that a page gave"));
        parts.map(|(lane, number)| Self { lane, number }).ok_or_else(bad)
    }
}

/// Some dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LetterPage {
    /// Those found. A page may be short, or empty, and still not be the last.
    pub letters: Vec<DeadLetterView>,
    /// Where to go on; `None` when all were looked at.
    pub next: Option<LetterCursor>,
}

/// What letters are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LetterBy {
    /// The code of the last failure; `none` if there is none.
    Code,
    /// The tenant.
    Tenant,
    /// The lane.
    Lane,
}

/// Asks for the number of dead letters, in steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountLetters {
    /// Which.
    pub filter: LetterFilter,
    /// Counted by what.
    pub by: LetterBy,
    /// Go on from there: what the last step said.
    pub after: Option<LetterCursor>,
    /// Only those that are not being replayed.
    pub idle: bool,
}

/// The numbers of one step, to be added to those of the steps before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LetterCounts {
    /// How many letters by what was asked for.
    pub counts: Vec<(Arc<str>, u64)>,
    /// Where to go on; `None` when all were looked at.
    pub next: Option<LetterCursor>,
}

/// What became of a page of letters to discard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiscardedLetters {
    /// Those that are gone.
    pub gone: Vec<(Name, JobId)>,
    /// Where to go on; `None` when all were looked at.
    pub next: Option<LetterCursor>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_meant_by_itself_or_by_its_class() {
        assert!(fits_code("550", Some("550")) && fits_code("5xx", Some("503")));
        assert!(fits_code("Throttling", Some("Throttling")) && fits_code("none", None));
        assert!(
            !fits_code("5xx", Some("404")) && !fits_code("5xx", Some("5.1.1")) && !fits_code("5xx", None)
        );
        assert!(!fits_code("xx", Some("5xx")) && !fits_code("55xx", Some("550")));
    }

    #[test]
    fn a_cursor_is_read_as_it_is_written() {
        let cursor = LetterCursor { lane: Name::new("mail.v1").unwrap(), number: 7 };
        assert_eq!(cursor.to_string().parse::<LetterCursor>().unwrap(), cursor);
        assert!("mail".parse::<LetterCursor>().is_err() && "a b:7".parse::<LetterCursor>().is_err());
    }
}
