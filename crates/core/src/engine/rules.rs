//! Which process's rules are in force.
//!
//! Each process registers its rules with a stamp, the time of its start or last reload. A lane or upstream follows the
//! registration with the highest stamp that names it. So a deployment is in force as soon as its first process is up,
//! and a change of owner changes no rule.
//!
//! A gateway registers all gates of its upstreams, so a gate that was removed from its config is removed here. A
//! program that uses the library registers only the gates it uses ([`Spec::partial`]). They are added to those of the
//! newest gateway; if both define the same gate, the higher stamp wins.
//!
//! A registration ends when its process deregisters or has been silent for [`SILENCE`]. A lane or upstream without a
//! registration keeps its state and its last rules, and waits: the rules are still needed for decisions such as what
//! happens to a job whose worker vanished.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Engine;
use crate::gate::GateSpecs;
use crate::ids::Name;
use crate::spec::{LaneSpec, Spec, UpstreamSpec};
use crate::table::{LaneIx, UpstreamIx};
use crate::time::{Span, Time};

/// A registration ends when its process has been silent for this long.
pub const SILENCE: Span = Span::from_secs(30);

/// A process that shares the engine, by a number that it chose when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u64);

impl ProcessId {
    /// The process of an embedded store. It holds the engine itself, so it is never silent.
    pub const EMBEDDED: ProcessId = ProcessId(0);
}

/// The rules of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The process. It has one registration; a newer one replaces the older.
    pub process: ProcessId,
    /// When the process was started or last reloaded. The highest stamp wins.
    pub stamp: u64,
    /// A description of the process for display, such as host and version.
    pub about: Arc<str>,
    /// The rules.
    pub spec: Arc<Spec>,
}

/// The most names that a view lists of what follows other rules than those of a registration.
const MAX_DIFFERING: usize = 20;

/// A registration as shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrationView {
    /// The process that registered.
    pub process: ProcessId,
    /// When the process was started or last reloaded.
    pub stamp: u64,
    /// The process's description of itself.
    pub about: Arc<str>,
    /// When the process was last heard from; `None` if not since the engine was restored.
    pub last_heard: Option<Time>,
    /// The number of lanes and upstreams that follow other rules than these.
    pub differs: usize,
    /// The names of the first of them, at most `MAX_DIFFERING`.
    pub differing: Vec<Name>,
}

/// A registration that has not ended.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) registration: Registration,
    last_heard: Option<Time>,
    unsaved: bool,
}

impl Live {
    fn falls_silent(&self) -> bool {
        self.registration.process != ProcessId::EMBEDDED
    }

    /// Its gates for an upstream.
    fn gates(&self, upstream: &Name) -> Option<&GateSpecs> {
        self.registration.spec.upstream(upstream).map(|upstream| &upstream.gates)
    }

    /// The registration with the highest rank wins.
    fn rank(&self) -> (u64, ProcessId) {
        (self.registration.stamp, self.registration.process)
    }
}

/// All registrations.
#[derive(Debug, Default)]
pub(super) struct Rules {
    live: BTreeMap<ProcessId, Live>,
    /// Ended registrations that are not saved yet.
    ended: Vec<ProcessId>,
    /// Numbers of lanes and upstreams whose rules are not saved yet.
    pub(super) unsaved_lanes: BTreeSet<usize>,
    pub(super) unsaved_upstreams: BTreeSet<usize>,
    /// No process can exceed [`SILENCE`] before this time.
    silent_at: Time,
}

impl Rules {
    /// Adds a registration that was read from the journal.
    pub(super) fn restore(&mut self, registration: Registration) {
        let live = Live { registration, last_heard: None, unsaved: false };
        self.live.insert(live.registration.process, live);
    }

    /// Removes a registration that has ended according to the journal.
    pub(super) fn restore_ended(&mut self, process: ProcessId) {
        self.live.remove(&process);
    }

    /// The rules that a lane should follow.
    fn lane(&self, name: &Name) -> Option<&LaneSpec> {
        let naming =
            self.live.values().filter_map(|live| Some((live.rank(), live.registration.spec.lane(name)?)));
        naming.max_by_key(|(rank, _)| *rank).map(|(_, found)| found)
    }

    /// The gates that an upstream should follow.
    fn gates(&self, upstream: &Name) -> Option<GateSpecs> {
        let names_all = |live: &&Live| !live.registration.spec.partial && live.gates(upstream).is_some();
        let newest = self.live.values().filter(names_all).max_by_key(|live| live.rank());
        self.merged(upstream, newest.map(|live| live.registration.process))
    }

    /// For each kind of gate, the newest rule for an upstream among the partial registrations and that of `whole`.
    fn merged(&self, upstream: &Name, whole: Option<ProcessId>) -> Option<GateSpecs> {
        let counts =
            |live: &&Live| live.registration.spec.partial || Some(live.registration.process) == whole;
        let naming = self.live.values().filter(counts);
        let mut naming: Vec<_> =
            naming.filter_map(|live| Some((live.rank(), live.gates(upstream)?))).collect();
        naming.sort_unstable_by_key(|(rank, _)| Reverse(*rank));
        naming.into_iter().map(|(_, gates)| gates.clone()).reduce(|newer, older| newer.or(&older))
    }

    /// Ends a registration. Returns whether there was one.
    fn end(&mut self, process: ProcessId) -> bool {
        let ended = self.live.remove(&process).is_some();
        self.ended.extend(ended.then_some(process));
        ended
    }

    /// Ends the registrations of silent processes. Returns whether there were any.
    fn end_silent(&mut self, now: Time) -> bool {
        self.silent_at = Time::NEVER;
        let mut silent = Vec::new();
        for (process, live) in self.live.iter_mut().filter(|(_, live)| live.falls_silent()) {
            let silent_at = *live.last_heard.get_or_insert(now) + SILENCE;
            if silent_at <= now {
                silent.push(*process);
            } else {
                self.silent_at = self.silent_at.min(silent_at);
            }
        }
        for process in &silent {
            self.end(*process);
        }
        !silent.is_empty()
    }

    pub(super) fn touch(&mut self, process: ProcessId) {
        if let Some(live) = self.live.get_mut(&process) {
            live.unsaved = true;
        }
    }

    pub(super) fn has_changes(&self) -> bool {
        !self.ended.is_empty()
            || !self.unsaved_lanes.is_empty()
            || !self.unsaved_upstreams.is_empty()
            || self.live.values().any(|live| live.unsaved)
    }

    /// Reports registrations that changed since the last call; `None` means ended.
    pub(super) fn drain_changes(&mut self, mut changed: impl FnMut(ProcessId, Option<&Registration>)) {
        self.ended.drain(..).for_each(|process| changed(process, None));
        for (process, live) in &mut self.live {
            if std::mem::take(&mut live.unsaved) {
                changed(*process, Some(&live.registration));
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Registration> {
        self.live.values().map(|live| &live.registration)
    }
}

impl Engine {
    /// Puts the rules of a process in force and replaces its earlier registration. A registration with an older stamp
    /// than that is late and ignored.
    pub fn register(&mut self, registration: Registration, now: Time) {
        let Registration { process, stamp, .. } = registration;
        self.rules.silent_at = self.rules.silent_at.min(now + SILENCE);
        if let Some(live) = self.rules.live.get_mut(&process) {
            live.last_heard = live.last_heard.max(Some(now));
            if stamp < live.registration.stamp || live.registration == registration {
                return;
            }
        }
        for upstream in &registration.spec.upstreams {
            self.add_upstream(&upstream.name);
        }
        for lane in &registration.spec.lanes {
            self.add_lane(&lane.name);
        }
        self.rules.live.insert(process, Live { registration, last_heard: Some(now), unsaved: true });
        self.follow_rules(now);
    }

    /// Ends the registration of a process that stops.
    pub fn unregister(&mut self, process: ProcessId, now: Time) {
        if self.rules.end(process) {
            self.follow_rules(now);
        }
    }

    /// Notes that a process is alive. `false`: it has no registration and must register first.
    pub fn heard_from(&mut self, process: ProcessId, now: Time) -> bool {
        self.rules.live.get_mut(&process).is_some_and(|live| {
            live.last_heard = live.last_heard.max(Some(now));
            true
        })
    }

    /// All registrations.
    pub fn registrations(&self) -> impl Iterator<Item = RegistrationView> {
        self.rules.live.values().map(|live| {
            let mut differing = self.differing(&live.registration.spec);
            let differs = differing.len();
            differing.truncate(MAX_DIFFERING);
            RegistrationView {
                process: live.registration.process,
                stamp: live.registration.stamp,
                about: live.registration.about.clone(),
                last_heard: live.last_heard,
                differs,
                differing,
            }
        })
    }

    /// The lanes and upstreams of `spec` that follow other rules.
    fn differing(&self, spec: &Spec) -> Vec<Name> {
        let lane = |name: &Name| self.lane_by_name.get(name).and_then(|lane| self.lane(*lane).spec.as_ref());
        let upstream =
            |name: &Name| self.upstream_by_name.get(name).and_then(|ix| self.upstream(*ix).spec.as_ref());
        // Gates that others add are not a difference.
        let added = |own: &UpstreamSpec| {
            if spec.partial { upstream(&own.name).cloned() } else { self.rules.merged(&own.name, None) }
        };
        let expected = |own: &UpstreamSpec| own.gates.clone().or(&added(own).unwrap_or_default());
        let lanes = spec.lanes.iter().filter(|own| lane(&own.name) != Some(own));
        let upstreams = spec.upstreams.iter().filter(|own| upstream(&own.name) != Some(&expected(own)));
        lanes.map(|own| own.name.clone()).chain(upstreams.map(|own| own.name.clone())).collect()
    }

    /// Ends the registrations of processes that were silent for too long.
    pub(super) fn end_silent(&mut self, now: Time) {
        if now >= self.rules.silent_at && self.rules.end_silent(now) {
            self.follow_rules(now);
        }
    }

    /// Applies to every lane and upstream the rules that it should follow.
    pub(super) fn follow_rules(&mut self, now: Time) {
        let mut rules = std::mem::take(&mut self.rules);
        for number in 0..self.upstreams.len() {
            let rule = rules.gates(&self.upstreams[number].name);
            let gone = std::mem::replace(&mut self.upstreams[number].gone, rule.is_none());
            let back = gone && rule.is_some();
            let changed = rule.is_some_and(|rule| self.configure_upstream(number, &rule, now));
            if changed {
                rules.unsaved_upstreams.insert(number);
            }
            if changed || back {
                self.mark_users_ready(
                    self.without_key(UpstreamIx(u32::try_from(number).unwrap_or(u32::MAX))),
                );
            }
        }
        for number in 0..self.lanes.len() {
            let rule = rules.lane(&self.lanes[number].name);
            let gone = std::mem::replace(&mut self.lanes[number].gone, rule.is_none());
            let back = gone && rule.is_some();
            let changed = rule.is_some_and(|rule| self.configure_lane(number, rule, now));
            if changed {
                rules.unsaved_lanes.insert(number);
            }
            if changed || back {
                self.mark_ready(LaneIx(u32::try_from(number).unwrap_or(u32::MAX)));
            }
        }
        self.rules = rules;
    }
}
