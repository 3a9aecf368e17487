//! Patterns of tenant names with `*` as a wildcard, and values by pattern.

use std::collections::BTreeMap;

/// Whether `text` matches `pattern`, in which `*` matches any text, including none. The cost is linear in the length of
/// both: the part between two stars is matched at its first occurrence, which leaves the most for the rest.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut text) = text.strip_prefix(first).and_then(|text| text.strip_suffix(last)) else {
        return false;
    };
    for part in middle.split('*') {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    true
}

/// Values by pattern. Of several patterns that match, the most specific one wins: one without a star first, then the
/// one with the most characters other than stars, then the first in alphabetical order. The order of definition does
/// not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patterns<T> {
    exact: BTreeMap<String, T>,
    /// Patterns with stars, the most specific first.
    open: Vec<(String, T)>,
}

impl<T> Default for Patterns<T> {
    fn default() -> Self {
        Self { exact: BTreeMap::new(), open: Vec::new() }
    }
}

impl<T> Patterns<T> {
    /// Gives every text the same value.
    pub fn of_all(value: T) -> Self {
        Self { exact: BTreeMap::new(), open: vec![("*".into(), value)] }
    }

    /// The value of the pattern that matches `text` best.
    pub fn find(&self, text: &str) -> Option<&T> {
        let open = || self.open.iter().find(|(pattern, _)| matches(pattern, text)).map(|(_, value)| value);
        self.exact.get(text).or_else(open)
    }

    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.open.is_empty()
    }

    /// All patterns with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        let open = self.open.iter().map(|(pattern, value)| (pattern.as_str(), value));
        self.exact.iter().map(|(text, value)| (text.as_str(), value)).chain(open)
    }
}

impl<T> FromIterator<(String, T)> for Patterns<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(entries: I) -> Self {
        let (mut open, exact): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|(pattern, _)| pattern.contains('*'));
        let fixed = |pattern: &str| pattern.chars().filter(|c| *c != '*').count();
        open.sort_by(|(a, _), (b, _)| fixed(b).cmp(&fixed(a)).then(a.cmp(b)));
        Self { exact: exact.into_iter().collect(), open }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_matches_any_text() {
        for (pattern, fitting, other) in [
            ("acme", vec!["acme"], vec!["", "acm", "acmes"]),
            ("", vec![""], vec!["a"]),
            ("*", vec!["", "a", "é*"], vec![]),
            ("gold-*", vec!["gold-", "gold-acme"], vec!["gold", "a-gold-b"]),
            ("*-gold", vec!["-gold", "a-gold-gold"], vec!["gold", "a-gold-b"]),
            ("a*a", vec!["aa", "aba"], vec!["a", "ab"]),
            ("a*b*c", vec!["abc", "aXbYbZc"], vec!["acb", "ab", "abcd"]),
            ("**é**", vec!["é", "aéa"], vec!["e", ""]),
        ] {
            assert!(fitting.iter().all(|text| matches(pattern, text)), "{pattern}");
            assert!(!other.iter().any(|text| matches(pattern, text)), "{pattern}");
        }
    }

    /// With backtracking, five stars against the longest tenant name would not finish.
    #[test]
    fn hostile_patterns_are_matched_in_linear_time() {
        let text = "a".repeat(100_000);
        for stars in [1, 5, 100] {
            let pattern = format!("{}b", "*a".repeat(stars));
            assert!(!matches(&pattern, &text));
            assert!(matches(&"*a".repeat(stars), &text));
        }
        let nearly = format!("*{}b*", "a".repeat(50_000));
        assert!(!matches(&nearly, &text));
        assert!(matches(&"*".repeat(100_000), &text));
    }

    #[test]
    fn the_most_specific_pattern_wins_in_any_order() {
        let all =
            [("*", 0), ("gold-*", 1), ("gold-*-*", 2), ("gold-acme", 3), ("*-trial", 4), ("gold-*trial", 5)];
        for turn in 0..all.len() {
            let mut entries = all;
            entries.rotate_left(turn);
            let patterns: Patterns<u32> =
                entries.iter().map(|(pattern, value)| ((*pattern).to_owned(), *value)).collect();
            let found = ["x", "gold-x", "gold-x-y", "gold-acme", "x-trial", "gold-x-trial"];
            assert_eq!(found.map(|text| *patterns.find(text).unwrap()), [0, 1, 2, 3, 4, 5]);
        }
        assert_eq!(Patterns::<u32>::default().find("a"), None);
        assert_eq!(Patterns::of_all(7).find("a"), Some(&7));
    }

    fn by_definition(pattern: &[u8], text: &[u8]) -> bool {
        match pattern {
            [] => text.is_empty(),
            [b'*', rest @ ..] => (0..=text.len()).any(|n| by_definition(rest, &text[n..])),
            [c, rest @ ..] => text.first() == Some(c) && by_definition(rest, &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_its_definition(pattern in "[ab*]{0,8}", text in "[ab]{0,8}") {
            prop_assert_eq!(matches(&pattern, &text), by_definition(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
