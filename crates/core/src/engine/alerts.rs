//! Watch: which alerts fire.
//!
//! A condition must hold for `limits.hold` before its alert fires, and be over for `limits.clear` before it resolves,
//! so that a value near its threshold does not flap. Each transition is recorded and its notifications are enqueued in
//! the same step, so each is sent once even if the process dies. A new owner knows what fires and does not fire it
//! again.

mod conditions;
pub(crate) mod history;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::history::History;
use super::Engine;
use super::record::Record;
use crate::alert::{
    Alert, AlertChanges, AlertKey, AlertsView, Condition, Evaluation, Notice, Recipient, Watch,
};
use crate::ids::{JobId, fingerprint, mix};
use crate::job::Payload;
use crate::time::Time;

/// Resolved alerts that are kept for display.
const MAX_RECENT: usize = 100;
/// Conditions that are watched at a time; those already watched have precedence.
const MAX_WATCHED: usize = 1_000;
/// The tenant of notifications to operators.
const OPERATORS: &str = "_operators";

/// A condition that holds, or held at the last evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AlertState {
    pub(crate) value_micros: u64,
    pub(crate) threshold_micros: u64,
    /// Since when the condition holds.
    pub(crate) since: Time,
    pub(crate) firing: bool,
    /// Since when the condition no longer holds.
    pub(crate) over_since: Option<Time>,
}

/// State of counters that are kept elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AlertMeters {
    /// Connections that Redis had rejected at the last evaluation.
    pub(crate) rejected: Option<u64>,
    /// When Redis was last seen to reject more, and how many since the alert began.
    pub(crate) rejected_at: Option<Time>,
    pub(crate) newly_rejected: u64,
    /// When data was last lost.
    pub(crate) lost_at: Option<Time>,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Alerts {
    watched: BTreeMap<AlertKey, AlertState>,
    /// The newest last.
    resolved: VecDeque<Alert>,
    meters: AlertMeters,
    /// By lane number.
    histories: BTreeMap<u32, History>,
    unsaved: UnsavedAlerts,
}

#[derive(Debug, Default)]
struct UnsavedAlerts {
    watched: BTreeSet<AlertKey>,
    resolved: bool,
    meters: bool,
    histories: BTreeSet<u32>,
}

impl Alerts {
    pub(super) fn restore(&mut self, key: AlertKey, state: Option<AlertState>) {
        match state {
            Some(state) => drop(self.watched.insert(key, state)),
            None => drop(self.watched.remove(&key)),
        }
    }

    pub(super) fn restore_resolved(&mut self, resolved: Vec<Alert>) {
        self.resolved = resolved.into();
    }

    pub(super) fn restore_meters(&mut self, meters: AlertMeters) {
        self.meters = meters;
    }

    pub(super) fn restore_history(&mut self, lane: u32, history: History) {
        if history == History::default() {
            self.histories.remove(&lane);
        } else {
            self.histories.insert(lane, history);
        }
    }

    pub(super) fn touch(&mut self, key: &AlertKey) {
        if self.watched.contains_key(key) {
            self.unsaved.watched.insert(key.clone());
        }
    }

    pub(super) fn touch_resolved(&mut self) {
        self.unsaved.resolved = true;
    }

    pub(super) fn touch_meters(&mut self) {
        self.unsaved.meters = true;
    }

    pub(super) fn touch_history(&mut self, lane: u32) {
        if self.histories.contains_key(&lane) {
            self.unsaved.histories.insert(lane);
        }
    }

    pub(super) fn has_changes(&self) -> bool {
        let UnsavedAlerts { watched, resolved, meters, histories } = &self.unsaved;
        !watched.is_empty() || *resolved || *meters || !histories.is_empty()
    }

    pub(super) fn drain_changes(&mut self) -> Vec<Record> {
        let unsaved = std::mem::take(&mut self.unsaved);
        let watched = unsaved.watched.into_iter().map(|key| match self.watched.get(&key) {
            Some(state) => Record::Alert { key: Box::new(key), state: state.clone() },
            None => Record::AlertGone(Box::new(key)),
        });
        let histories = unsaved.histories.into_iter().map(|lane| {
            let history = self.histories.get(&lane).cloned().unwrap_or_default();
            Record::AlertHistory { lane, history }
        });
        let resolved = unsaved.resolved.then(|| self.resolved_record());
        let meters = unsaved.meters.then(|| Record::AlertMeters(self.meters.clone()));
        watched.chain(histories).chain(resolved).chain(meters).collect()
    }

    pub(super) fn records(&self) -> Vec<Record> {
        let watched = self.watched.iter();
        let watched =
            watched.map(|(key, state)| Record::Alert { key: Box::new(key.clone()), state: state.clone() });
        let histories = self.histories.iter();
        let histories =
            histories.map(|(lane, history)| Record::AlertHistory { lane: *lane, history: history.clone() });
        let resolved = (!self.resolved.is_empty()).then(|| self.resolved_record());
        let meters =
            (self.meters != AlertMeters::default()).then(|| Record::AlertMeters(self.meters.clone()));
        watched.chain(histories).chain(resolved).chain(meters).collect()
    }

    fn resolved_record(&self) -> Record {
        Record::AlertsResolved(self.resolved.iter().cloned().collect())
    }

    fn alert(&self, key: &AlertKey, resolved: Option<Time>) -> Option<Alert> {
        let AlertState { value_micros, threshold_micros, since, .. } = self.watched.get(key)?.clone();
        let condition = Condition { key: key.clone(), value_micros, threshold_micros };
        Some(Alert { condition, since, resolved })
    }

    /// Records the conditions that hold now. Returns the keys of alerts that start to fire.
    fn hold(&mut self, conditions: Vec<Condition>, evaluation: &Evaluation, now: Time) -> Vec<AlertKey> {
        let mut fired = Vec::new();
        for Condition { key, value_micros, threshold_micros } in conditions {
            if self.watched.len() >= MAX_WATCHED && !self.watched.contains_key(&key) {
                continue;
            }
            let new =
                AlertState { value_micros, threshold_micros, since: now, firing: false, over_since: None };
            let state = self.watched.entry(key.clone()).or_insert_with(|| new.clone());
            let firing =
                state.firing || key.rule.fires_at_once() || now.since(state.since) >= evaluation.limits.hold;
            if firing && !state.firing {
                fired.push(key.clone());
            }
            let next = AlertState { since: state.since, firing, ..new };
            if *state != next || now == state.since {
                *state = next;
                self.unsaved.watched.insert(key);
            }
        }
        fired
    }

    /// Records that no other condition holds. Returns the keys of alerts that resolve.
    fn let_go(&mut self, holding: &BTreeSet<AlertKey>, evaluation: &Evaluation, now: Time) -> Vec<AlertKey> {
        let mut resolved = Vec::new();
        let unsaved = &mut self.unsaved.watched;
        self.watched.retain(|key, state| {
            if holding.contains(key) {
                return true;
            }
            if !state.firing {
                unsaved.insert(key.clone());
                return false;
            }
            if state.over_since.is_none() {
                state.over_since = Some(now);
                unsaved.insert(key.clone());
            }
            if state.over_since.is_some_and(|since| now.since(since) >= evaluation.limits.clear) {
                resolved.push(key.clone());
            }
            true
        });
        resolved
    }

    fn resolve(&mut self, key: AlertKey, now: Time) -> Option<Alert> {
        let alert = self.alert(&key, Some(now))?;
        self.watched.remove(&key);
        self.unsaved.watched.insert(key);
        self.resolved.push_back(alert.clone());
        self.resolved.drain(..self.resolved.len().saturating_sub(MAX_RECENT));
        self.unsaved.resolved = true;
        Some(alert)
    }
}

impl Engine {
    /// Evaluates which alerts fire or resolve, and enqueues the notifications.
    pub fn watch(&mut self, ask: Watch, now: Time) -> AlertChanges {
        if ask.lost_data {
            self.alerts.meters.lost_at = Some(now);
            self.alerts.unsaved.meters = true;
        }
        let Some(evaluation) = ask.evaluation else { return AlertChanges::default() };
        let mut conditions = self.conditions(&evaluation, now);
        conditions.extend(evaluation.seen.iter().cloned());
        let holding: BTreeSet<AlertKey> = conditions.iter().map(|condition| condition.key.clone()).collect();
        let over = self.alerts.let_go(&holding, &evaluation, now);
        let resolved: Vec<Alert> = over.into_iter().filter_map(|key| self.alerts.resolve(key, now)).collect();
        let began = self.alerts.hold(conditions, &evaluation, now);
        let fired: Vec<Alert> = began.iter().filter_map(|key| self.alerts.alert(key, None)).collect();
        for alert in resolved.iter().chain(&fired) {
            self.notify(alert, &evaluation, now);
        }
        AlertChanges { fired, resolved, ended: std::mem::take(&mut self.ended) }
    }

    /// All alerts.
    pub fn alerts(&self) -> AlertsView {
        let firing = self.alerts.watched.iter().filter(|(_, state)| state.firing);
        AlertsView {
            firing: firing.filter_map(|(key, _)| self.alerts.alert(key, None)).collect(),
            recent: self.alerts.resolved.iter().rev().cloned().collect(),
        }
    }

    fn notify(&mut self, alert: &Alert, evaluation: &Evaluation, now: Time) {
        let tenant = alert.condition.key.tenant.as_ref();
        let tenant = tenant.filter(|tenant| evaluation.tenants.contains(tenant)).cloned();
        let operators = evaluation.operators.then_some(Recipient::Operators);
        for to in operators.into_iter().chain(tenant.map(Recipient::Tenant)) {
            let whose = match &to {
                Recipient::Operators => OPERATORS.into(),
                Recipient::Tenant(tenant) => tenant.clone(),
            };
            let notice = Notice { to, alert: alert.clone() }.encode();
            self.deliver(notice_id(&notice, now), &whose, notice, now);
        }
    }
}

/// Derived from the time and the content, so that no two notices share an id.
fn notice_id(notice: &Payload, now: Time) -> JobId {
    let rest = mix(&[fingerprint(notice), now.as_millis()]);
    JobId(u128::from(now.as_millis()) << 80 | 0xa1e7 << 64 | u128::from(rest))
}
