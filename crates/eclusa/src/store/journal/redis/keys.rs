//! The names of all keys and channels on Redis.

use eclusa_core::Name;
use eclusa_fleet::{ProcessId, TermId};

/// The names of one basin. Its hash tag keeps the keys on one node of a cluster.
#[derive(Debug, Clone)]
pub(in crate::store) struct Keys {
    basin: String,
    /// Channels do not belong to a database, so their names carry its number.
    channels: String,
    gates: String,
}

impl Keys {
    /// The names of `basin` below `prefix` in database `db`. Without a prefix, breakers and limiters have the names
    /// that other programs expect.
    pub(in crate::store) fn new(prefix: &str, basin: &str, db: i64) -> Self {
        let tagged = format!("{prefix}{{{basin}}}");
        let gates = if prefix.is_empty() { String::new() } else { format!("{tagged}:") };
        Self { channels: format!("{tagged}@{db}"), basin: tagged, gates }
    }

    /// The term: the owner of the basin.
    pub(in crate::store) fn term(&self) -> String {
        format!("{}:term", self.basin)
    }

    /// The journal.
    pub(in crate::store) fn journal(&self) -> String {
        format!("{}:journal", self.basin)
    }

    /// The claims: how much of the journal each process has, after the server lost data.
    pub(in crate::store) fn claims(&self) -> String {
        format!("{}:claims", self.basin)
    }

    /// The channel of questions to the owner of `term`.
    pub(in crate::store) fn questions(&self, term: TermId) -> String {
        format!("{}{term}", self.questions_prefix())
    }

    /// The prefix of all channels of questions.
    pub(in crate::store) fn questions_prefix(&self) -> String {
        format!("{}:ask:", self.channels)
    }

    /// The channel of answers to `process`.
    pub(in crate::store) fn answers(&self, process: ProcessId) -> String {
        format!("{}:tell:{process}", self.channels)
    }

    /// The channel of notifications to every process: the owner changed, or a process left.
    pub(in crate::store) fn fleet(&self) -> String {
        format!("{}:fleet", self.channels)
    }

    /// The consecutive failures of an upstream.
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
    fn every_name_carries_its_basin_except_names_for_other_programs() {
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
