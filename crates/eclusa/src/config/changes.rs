//! What a reload of the config changes.

use std::collections::BTreeMap;
use std::fmt;

use eclusa_core::Name;

use super::types::Config;

/// Returns the changed keys that take effect only after a restart.
pub(crate) fn need_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let (server, store, workers, log) = (&old.server, &old.store, &old.workers, &old.log);
    let same = [
        ("server.listen", server.listen == new.server.listen),
        ("server.max_connections", server.max_connections == new.server.max_connections),
        ("server.shutdown_grace", server.shutdown_grace == new.server.shutdown_grace),
        ("server.drain", server.drain == new.server.drain),
        // A certificate can be replaced at run time, but not added or removed.
        ("server.tls", server.tls.is_some() == new.server.tls.is_some()),
        ("store.url", store.url == new.store.url),
        ("store.prefix", store.prefix == new.store.prefix),
        ("store.ack", store.ack == new.store.ack),
        ("store.when_lost", store.when_lost == new.store.when_lost),
        ("store.shared_gates", store.shared_gates == new.store.shared_gates),
        ("store.tls", store.tls == new.store.tls),
        ("store.timeout", store.timeout == new.store.timeout),
        ("store.term", store.term == new.store.term),
        ("store.forget_within", store.forget_within == new.store.forget_within),
        ("workers.concurrency", workers.concurrency == new.workers.concurrency),
        ("workers.lease", workers.lease == new.workers.lease),
        ("log.level", log.filter == new.log.filter),
        ("log.format", log.format == new.log.format),
        ("log.access", log.access == new.log.access),
        ("traces", old.traces == new.traces),
    ];
    same.iter().filter(|(_, same)| !same).map(|(key, _)| *key).collect()
}

/// The other changes, for the log.
pub(crate) struct Changes {
    lanes: Names,
    upstreams: Names,
    others: Vec<&'static str>,
}

impl Changes {
    pub(crate) fn between(old: &Config, new: &Config) -> Self {
        let lanes = Names::between(&old.lanes, &new.lanes, |name| {
            old.lanes.get(name) == new.lanes.get(name) && old.spec.lane(name) == new.spec.lane(name)
        });
        let upstreams = Names::between(&old.upstreams, &new.upstreams, |name| {
            old.upstreams.get(name) == new.upstreams.get(name)
                && old.spec.upstream(name) == new.spec.upstream(name)
        });
        let others = [
            ("server.max_body", old.server.max_body == new.server.max_body),
            ("server.max_bodies", old.server.max_bodies == new.server.max_bodies),
            ("server.max_wait", old.server.max_wait == new.server.max_wait),
            ("server.client", old.server.client == new.server.client),
            ("server.public_url", old.server.public_url == new.server.public_url),
            ("server.tls", old.server.tls == new.server.tls),
            ("auth.keys", old.keys == new.keys),
            ("callbacks", old.callbacks == new.callbacks),
            ("alerts", old.alerts == new.alerts),
            ("schedules", old.schedules == new.schedules),
        ];
        let others = others.iter().filter(|(_, same)| !same).map(|(key, _)| *key).collect();
        Self { lanes, upstreams, others }
    }
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.lanes.say("lanes");
        said.extend(self.upstreams.say("upstreams"));
        if !self.others.is_empty() {
            said.push(format!("changed: {}", self.others.join(", ")));
        }
        f.write_str(if said.is_empty() { "nothing changed".into() } else { said.join("; ") }.as_str())
    }
}

/// Names of lanes or upstreams, by change.
struct Names {
    added: Vec<Name>,
    removed: Vec<Name>,
    changed: Vec<Name>,
}

impl Names {
    fn between<T>(old: &BTreeMap<Name, T>, new: &BTreeMap<Name, T>, same: impl Fn(&Name) -> bool) -> Self {
        let missing_in = |other: &BTreeMap<Name, T>, names: &BTreeMap<Name, T>| {
            names.keys().filter(|name| !other.contains_key(*name)).cloned().collect()
        };
        let kept = old.keys().filter(|name| new.contains_key(*name));
        Self {
            added: missing_in(old, new),
            removed: missing_in(new, old),
            changed: kept.filter(|name| !same(name)).cloned().collect(),
        }
    }

    fn say(&self, what: &str) -> Vec<String> {
        let list = [("added", &self.added), ("removed", &self.removed), ("changed", &self.changed)];
        let list = list.iter().filter(|(_, names)| !names.is_empty());
        list.map(|(how, names)| {
            let names: Vec<&str> = names.iter().map(Name::as_str).collect();
            format!("{what} {how}: {}", names.join(", "))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "[lanes.a]\nchain = [\"up\"]\n[lanes.b]\nchain = [\"up\"]\n[lanes.c]\nchain = [\"up\"]\n\
                       [upstreams.up]\nurl = \"http://up\"\n";

    fn read(text: &str) -> Config {
        Config::parse("test.toml", text, &|_| None).unwrap()
    }

    #[test]
    fn changes_are_listed_by_name() {
        let new = "[server]\nmax_wait = \"7s\"\n[lanes.a]\nchain = [\"up\"]\n[lanes.b]\nchain = [\"up\"]\nttl = \"1m\"\n\
                   [lanes.d]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"http://other\"\n";
        assert_eq!(
            Changes::between(&read(OLD), &read(new)).to_string(),
            "lanes added: d; lanes removed: c; lanes changed: b; upstreams changed: up; changed: server.max_wait"
        );
        assert_eq!(Changes::between(&read(OLD), &read(OLD)).to_string(), "nothing changed");
    }

    #[test]
    fn changed_keys_that_need_a_restart_are_listed() {
        let new = format!(
            "[server]\nlisten = \"127.0.0.1:1\"\n[store]\nurl = \"memory:\"\n[workers]\nlease = \"3s\"\n{OLD}"
        );
        let named = need_restart(&read(OLD), &read(&new));
        assert_eq!(named, ["server.listen", "store.url", "workers.lease"]);
        assert!(need_restart(&read(OLD), &read(OLD)).is_empty());
    }
}
