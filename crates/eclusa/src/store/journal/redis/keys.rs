//! The names of keys and channels on Redis, all of them.

use eclusa_core::Name;
use eclusa_fleet::{ProcessId, TermId};

/// Names everything of one basin. Its hash tag keeps the keys together on a cluster.
#[derive(Debug, Clone)]
pub(in crate::store) struct Keys {
    basin: String,
    /// Channels do not belong to a database, so their names carry its number.
    channels: String,
    gates: String,
}

impl Keys {
    /// Names of `basin` below `prefix` in database `db`. Without a prefix, breakers and limiters have the names under which
    /// other programs look for them.
    pub(in crate::store) fn new(prefix: &str, basin: &str, db: i64) -> Self {
        let tagged = format!("{prefix}{{{basin}}}");
        let gates = if prefix.is_empty() { String::new() } else { format!("{tagged}:") };
        Self { channels: format!("{tagged}@{db}"), basin: tagged, gates }
    }

    /// Who owns the basin.
    pub(in crate::store) fn term(&self) -> String {
        format!("{}:term", self.basin)
    }

    /// The journal.
    pub(in crate::store) fn journal(&self) -> String {
        format!("{}:journal", self.basin)
    }

    /// Who has how much of the journal, after the server lost data.
    pub(in crate::store) fn claims(&self) -> String {
        format!("{}:claims", self.basin)
    }

    /// Where the owner of `term` is asked.
    pub(in crate::store) fn questions(&self, term: TermId) -> String {
        format!("{}{term}", self.questions_prefix())
    }

    /// What the names of all such channels begin with.
    pub(in crate::store) fn questions_prefix(&self) -> String {
        format!("{}:ask:", self.channels)
    }

    /// Where `process` is answered.
    pub(in crate::store) fn answers(&self, process: ProcessId) -> String {
        format!("{}:tell:{process}", self.channels)
    }

    /// Heard by every process: another one owns.
    pub(in crate::store) fn fleet(&self) -> String {
        format!("{}:fleet", self.channels)
    }

    /// Failures in a row of an upstream.
    pub(in crate::store) fn breaker_failures(&self, upstream: &Name) -> String {
        format!("{}circuit_breaker:{upstream}:failures", self.gates)
    }

    /// Until when an upstream is degraded.
    pub(in crate::store) fn breaker_until(&self, upstream: &Name) -> String {
        format!("{}circuit_breaker:{upstream}:degraded_until", self.gates)
    }

    /// The tokens of an upstream.
    pub(in crate::store) fn rate_limiter(&self, upstream: &Name) -> String {
        format!("{}rate_limiter:{upstream}", self.gates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_carries_its_basin_but_those_that_others_know() {
        let upstream = Name::new("pncp").unwrap();
        let keys = Keys::new("eclusa:", "main", 0);
        assert_eq!(keys.term(), "eclusa:{main}:term");
        assert_eq!(keys.rate_limiter(&upstream), "eclusa:{main}:rate_limiter:pncp");
        assert_eq!(keys.fleet(), "eclusa:{main}@0:fleet");
        let bare = Keys::new("", "main", 3);
        assert_eq!(bare.journal(), "{main}:journal");
        assert_eq!(bare.breaker_failures(&upstream), "circuit_breaker:pncp:failures");
        assert_eq!(bare.answers(ProcessId(7)), "{main}@3:tell:0000000000000007");
    }
}
