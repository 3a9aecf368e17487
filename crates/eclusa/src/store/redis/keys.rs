//! The names of keys. Functions build the names of what they find out themselves (lines, tenants) from the basin's.

use eclusa_core::{JobId, Name};

use super::wire::job_bytes;

/// Names all keys of one basin. Its hash tag keeps them together on a cluster.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    basin: String,
    gates: String,
}

impl Keys {
    /// Keys of `basin` below `prefix`. Without a prefix, breakers, limiters and cached answers have the names under which
    /// others look for them.
    pub(super) fn new(prefix: &str, basin: &str) -> Self {
        let tagged = format!("{prefix}{{{basin}}}");
        let gates = if prefix.is_empty() { String::new() } else { format!("{tagged}:") };
        Self { basin: tagged, gates }
    }

    /// The basin's own record; all other names begin with it.
    pub(super) fn basin(&self) -> &str {
        &self.basin
    }

    /// What the names of breakers, limiters and cached answers begin with.
    pub(super) fn gates(&self) -> &str {
        &self.gates
    }

    pub(super) fn lanes(&self) -> String {
        self.below("lanes")
    }

    pub(super) fn upstreams(&self) -> String {
        self.below("upstreams")
    }

    pub(super) fn jobs(&self) -> String {
        self.below("jobs")
    }

    pub(super) fn payloads(&self) -> String {
        self.below("payloads")
    }

    pub(super) fn results(&self) -> String {
        self.below("results")
    }

    pub(super) fn dead(&self, lane: &Name) -> String {
        self.below(&format!("dead:{lane}"))
    }

    /// There while somebody waits for a job that is not kept.
    pub(super) fn wanted(&self, job: JobId) -> Vec<u8> {
        self.of_job("wanted", job)
    }

    /// Such a job as it ended.
    pub(super) fn gone(&self, job: JobId) -> Vec<u8> {
        self.of_job("gone", job)
    }

    fn of_job(&self, what: &str, job: JobId) -> Vec<u8> {
        [self.below(what).as_bytes(), b":", &job_bytes(job)].concat()
    }

    /// Where news are told.
    pub(super) fn news(&self) -> String {
        self.below("news")
    }

    fn below(&self, name: &str) -> String {
        format!("{}:{name}", self.basin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_carries_its_basin_but_those_that_others_know() {
        let keys = Keys::new("eclusa:", "main");
        assert_eq!((keys.basin(), keys.gates()), ("eclusa:{main}", "eclusa:{main}:"));
        let bare = Keys::new("", "main");
        assert_eq!((bare.basin(), bare.gates()), ("{main}", ""));
        assert_eq!(bare.jobs(), "{main}:jobs");
    }
}
