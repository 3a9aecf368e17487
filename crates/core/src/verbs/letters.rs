//! Queries about dead letters: filters, pages, counts.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::dead_letter::{DeadLetter, DeadLetterView};
use crate::error::SpecError;
use crate::ids::{JobId, Name};
use crate::pattern::matches;
use crate::time::Time;

/// Selects dead letters; absent fields do not restrict.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LetterFilter {
    /// In one of these lanes.
    pub lanes: Option<Vec<Name>>,
    /// Of this tenant.
    pub tenant: Option<Arc<str>>,
    /// Of a tenant that matches one of these patterns (`shop-*`).
    pub tenants: Option<Vec<Arc<str>>>,
    /// Whose last failure has this code, or a code of this class (`5xx`); `none` selects letters without a code.
    pub code: Option<Arc<str>>,
    /// Written at this time or later.
    pub since: Option<Time>,
    /// Written at this time or earlier.
    pub until: Option<Time>,
}

impl LetterFilter {
    pub(crate) fn has_lane(&self, lane: &Name) -> bool {
        self.lanes.as_ref().is_none_or(|lanes| lanes.contains(lane))
    }

    /// Whether a letter matches, apart from its lane.
    pub(crate) fn fits(&self, letter: &DeadLetter) -> bool {
        let tenants = |patterns: &Vec<Arc<str>>| patterns.iter().any(|one| matches(one, &letter.tenant));
        self.tenant.as_ref().is_none_or(|tenant| *tenant == letter.tenant)
            && self.tenants.as_ref().is_none_or(tenants)
            && self.code.as_ref().is_none_or(|code| fits_code(code, letter.last_failure.code.as_deref()))
            && self.since.is_none_or(|since| letter.moved_at >= since)
            && self.until.is_none_or(|until| letter.moved_at <= until)
    }
}

/// Selects letters whose last failure has no code.
pub(crate) const NO_CODE: &str = "none";

/// Whether `code` matches `pattern`: a code, a class such as `5xx`, or `none`.
pub(crate) fn fits_code(pattern: &str, code: Option<&str>) -> bool {
    let Some(code) = code else { return pattern == NO_CODE };
    let class =
        |digit: &str| code.len() == 3 && code.starts_with(digit) && code.bytes().all(|b| b.is_ascii_digit());
    pattern == code || pattern.strip_suffix("xx").is_some_and(|digit| digit.len() == 1 && class(digit))
}

/// Asks for a page of dead letters: by lane, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LetterQuery {
    /// Which letters.
    pub filter: LetterFilter,
    /// Where to start: the cursor of the previous page.
    pub after: Option<LetterCursor>,
    /// The most letters to return, capped at [`MAX_BATCH`](crate::MAX_BATCH).
    pub max: usize,
}

/// A position in the order of dead letters. It stays valid when its letter is removed, and across restarts.
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
        let bad = || SpecError::new("cursor", format!("{text:?} is not a cursor of a previous page"));
        parts.map(|(lane, number)| Self { lane, number }).ok_or_else(bad)
    }
}

/// A page of dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LetterPage {
    /// The letters. A page may be short or empty without being the last.
    pub letters: Vec<DeadLetterView>,
    /// Where the next page starts; `None` after the last page.
    pub next: Option<LetterCursor>,
}

/// How letters are grouped for counting.
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
    /// Which letters.
    pub filter: LetterFilter,
    /// How to group them.
    pub by: LetterBy,
    /// Where to start: the cursor of the previous step.
    pub after: Option<LetterCursor>,
    /// Only letters that are not being replayed.
    pub idle: bool,
    /// If set, letters are also counted by hour, for the [`TREND_HOURS`] that end then.
    pub trend_until: Option<Time>,
}

/// The hours of a trend of dead letters.
pub const TREND_HOURS: usize = 24;

/// The counts of one step, to be added to those of the previous steps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LetterCounts {
    /// The number of letters in each group.
    pub counts: Vec<(Arc<str>, u64)>,
    /// For each group with letters of the trend's time: how many were written in each hour, oldest first.
    pub trends: Vec<(Arc<str>, Vec<u64>)>,
    /// Where the next page starts; `None` after the last page.
    pub next: Option<LetterCursor>,
}

/// The result of discarding one page of letters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiscardedLetters {
    /// The removed letters.
    pub gone: Vec<(Name, JobId)>,
    /// Where the next page starts; `None` after the last page.
    pub next: Option<LetterCursor>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_matches_itself_or_its_class() {
        assert!(fits_code("550", Some("550")) && fits_code("5xx", Some("503")));
        assert!(fits_code("Throttling", Some("Throttling")) && fits_code("none", None));
        assert!(
            !fits_code("5xx", Some("404")) && !fits_code("5xx", Some("5.1.1")) && !fits_code("5xx", None)
        );
        assert!(!fits_code("xx", Some("5xx")) && !fits_code("55xx", Some("550")));
    }

    #[test]
    fn a_cursor_survives_a_round_trip_through_text() {
        let cursor = LetterCursor { lane: Name::new("mail.v1").unwrap(), number: 7 };
        assert_eq!(cursor.to_string().parse::<LetterCursor>().unwrap(), cursor);
        assert!("mail".parse::<LetterCursor>().is_err() && "a b:7".parse::<LetterCursor>().is_err());
    }
}
