//! What a reload of the config changes.

use std::collections::BTreeMap;
use std::fmt;

use eclusa_core::Name;
use eclusa_core::gate::GateSpecs;

use super::types::{Config, LaneConfig};
use super::upstream_types::UpstreamKind;

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
    differing(&same)
}

/// The other changes, for the log.
pub(crate) struct Changes {
    lanes: Names,
    upstreams: Names,
    others: Vec<&'static str>,
}

impl Changes {
    pub(crate) fn between(old: &Config, new: &Config) -> Self {
        let lanes = Names::between(&old.lanes, &new.lanes, |name| lane_keys(name, old, new));
        let upstreams = Names::between(&old.upstreams, &new.upstreams, |name| upstream_keys(name, old, new));
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
        Self { lanes, upstreams, others: differing(&others) }
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

/// A key, and whether its value is the same in two configs.
type Compared = (&'static str, bool);

/// Compares the keys of a lane.
fn lane_keys(name: &Name, old: &Config, new: &Config) -> Vec<Compared> {
    let (Some(a), Some(b)) = (old.lanes.get(name), new.lanes.get(name)) else { return Vec::new() };
    let (Some(c), Some(d)) = (old.spec.lane(name), new.spec.lane(name)) else { return Vec::new() };
    let chains = |lane: &LaneConfig| lane.chains.as_ref().map(|chains| chains.chains.clone());
    let by = |lane: &LaneConfig| lane.chains.as_ref().map(|chains| chains.by.clone());
    let mut keys = vec![
        ("mode", a.mode == b.mode),
        ("chain", a.chain == b.chain),
        ("chain_by", by(a) == by(b)),
        ("chains", chains(a) == chains(b)),
        ("capacity", c.capacity.jobs() == d.capacity.jobs()),
        ("max_bytes", c.capacity.bytes() == d.capacity.bytes()),
        ("ttl", c.ttl == d.ttl),
        ("admit", c.in_time == d.in_time),
        ("types", a.types == b.types),
        ("validate", a.validate == b.validate),
        ("accept", a.accept == b.accept),
        ("mask", a.mask == b.mask),
        ("retry", a.retry == b.retry),
        ("cache", a.cache_key == b.cache_key && c.cache == d.cache),
        ("fairness", c.fairness == d.fairness),
        ("dead_letters", c.dead_letters == d.dead_letters),
        ("keep", c.keep == d.keep),
        ("tenant_rate", c.tenant_limits.rate == d.tenant_limits.rate),
        ("tenant_concurrency", c.tenant_limits.concurrency == d.tenant_limits.concurrency),
    ];
    keys.extend(gate_keys(&c.gates, &d.gates, "concurrency"));
    keys
}

/// Compares the keys of an upstream.
fn upstream_keys(name: &Name, old: &Config, new: &Config) -> Vec<Compared> {
    let (Some(a), Some(b)) = (old.upstreams.get(name), new.upstreams.get(name)) else { return Vec::new() };
    let (Some(c), Some(d)) = (old.spec.upstream(name), new.spec.upstream(name)) else { return Vec::new() };
    let mut keys = vec![
        ("kind", std::mem::discriminant(&a.kind) == std::mem::discriminant(&b.kind)),
        ("timeout", a.timeout == b.timeout),
        ("connect_timeout", a.connect_timeout == b.connect_timeout),
        ("retryable", a.codes.retryable == b.codes.retryable),
        ("permanent", a.codes.permanent == b.codes.permanent),
        ("tls", a.tls == b.tls),
        ("breaker", c.gates.breaker == d.gates.breaker),
        ("cooldown", c.gates.cooldown == d.gates.cooldown),
        ("pace", c.gates.pace == d.gates.pace),
    ];
    keys.extend(match (&a.kind, &b.kind) {
        (UpstreamKind::Http(a), UpstreamKind::Http(b)) => vec![
            ("url", a.url == b.url),
            ("headers", a.headers == b.headers),
            ("keys", a.keys == b.keys),
            ("request", a.request == b.request),
            ("async", a.awaited == b.awaited),
            ("max_response", a.max_response == b.max_response),
            ("policies", a.policies == b.policies),
            ("reconcile", a.reconcile == b.reconcile),
        ],
        (UpstreamKind::Smtp(a), UpstreamKind::Smtp(b)) => vec![
            ("url", a.url == b.url),
            ("auth", a.auth == b.auth),
            ("starttls", a.starttls == b.starttls),
            ("max_connections", a.max_connections == b.max_connections),
        ],
        (UpstreamKind::Ses(a), UpstreamKind::Ses(b)) => vec![
            ("region", a.region == b.region),
            ("url", a.url == b.url),
            ("credentials", a.credentials == b.credentials),
            ("configuration_set", a.configuration_set == b.configuration_set),
        ],
        _ => Vec::new(),
    });
    keys.extend(gate_keys(&c.gates, &d.gates, "max_concurrent"));
    keys
}

/// Compares the limits that lanes and upstreams have in common; `slots` is the key of the concurrency limit.
fn gate_keys(old: &GateSpecs, new: &GateSpecs, slots: &'static str) -> [Compared; 3] {
    [
        ("rpm", old.window == new.window),
        ("rate", old.bucket == new.bucket),
        (slots, old.slots() == new.slots()),
    ]
}

fn differing(keys: &[Compared]) -> Vec<&'static str> {
    keys.iter().filter(|(_, same)| !same).map(|(key, _)| *key).collect()
}

/// Names of lanes or upstreams, by change.
struct Names {
    added: Vec<Name>,
    removed: Vec<Name>,
    /// With the keys that differ.
    changed: Vec<(Name, Vec<&'static str>)>,
}

impl Names {
    /// `compare` compares the keys of a name that both have.
    fn between<T>(
        old: &BTreeMap<Name, T>,
        new: &BTreeMap<Name, T>,
        compare: impl Fn(&Name) -> Vec<Compared>,
    ) -> Self {
        let missing_in = |other: &BTreeMap<Name, T>, names: &BTreeMap<Name, T>| {
            names.keys().filter(|name| !other.contains_key(*name)).cloned().collect()
        };
        let kept = old.keys().filter(|name| new.contains_key(*name));
        let kept = kept.map(|name| (name.clone(), differing(&compare(name))));
        Self {
            added: missing_in(old, new),
            removed: missing_in(new, old),
            changed: kept.filter(|(_, keys)| !keys.is_empty()).collect(),
        }
    }

    fn say(&self, what: &str) -> Vec<String> {
        let plain = |names: &[Name]| names.iter().map(Name::to_string).collect::<Vec<_>>();
        let changed = self.changed.iter().map(|(name, keys)| format!("{name} ({})", keys.join(", ")));
        let list = [
            ("added", plain(&self.added)),
            ("removed", plain(&self.removed)),
            ("changed", changed.collect()),
        ];
        let list = list.iter().filter(|(_, names)| !names.is_empty());
        list.map(|(how, names)| format!("{what} {how}: {}", names.join(", "))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::read::ValueKind;

    const OLD: &str = "[lanes.a]\nchain = [\"up\"]\n[lanes.b]\nchain = [\"up\"]\n[lanes.c]\nchain = [\"up\"]\n\
                       [upstreams.up]\nurl = \"http://up\"\n";

    fn read(text: &str) -> Config {
        Config::parse("test.toml", text, &|_| None).unwrap()
    }

    #[test]
    fn every_key_is_compared() {
        let config = read(
            "[store]\nurl = \"memory:\"\n[lanes.a]\nchain = [\"http\"]\n[upstreams.http]\nurl = \"http://up\"\n\
             [upstreams.smtp]\nkind = \"smtp\"\nurl = \"smtp://127.0.0.1\"\n\
             [upstreams.ses]\nkind = \"ses\"\nregion = \"eu-west-1\"\ncredentials = \"instance\"\n",
        );
        let names = |keys: Vec<Compared>| keys.into_iter().map(|(key, _)| key).collect::<BTreeSet<_>>();
        let lane = names(lane_keys(&Name::new("a").unwrap(), &config, &config));
        let upstream =
            ["http", "smtp", "ses"].map(|name| upstream_keys(&Name::new(name).unwrap(), &config, &config));
        // These belong to `rate` and `credentials`.
        let part = ["burst", "credentials_file", "profile"];
        for (section, compared) in [("lanes", lane), ("upstreams", names(upstream.concat()))] {
            let doc = crate::config::describe().into_iter().find(|doc| doc.name == section).unwrap();
            let ValueKind::Named(keys) = doc.kind else { panic!("{section}") };
            let keys = keys.iter().map(|key| key.name).filter(|key| !part.contains(key));
            assert_eq!(compared, keys.collect(), "{section}");
        }
    }

    #[test]
    fn changes_are_listed_by_name_with_their_keys() {
        let new = "[server]\nmax_wait = \"7s\"\n[lanes.a]\nchain = [\"up\"]\n[lanes.b]\nchain = [\"up\"]\nttl = \"1m\"\n\
                   [lanes.d]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"http://other\"\nrpm = 60\n";
        assert_eq!(
            Changes::between(&read(OLD), &read(new)).to_string(),
            "lanes added: d; lanes removed: c; lanes changed: b (ttl); upstreams changed: up (url, rpm); \
             changed: server.max_wait"
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
