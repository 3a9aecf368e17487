//! Alerts: conditions that operators or tenants are notified of.
//!
//! A *condition* is what one evaluation finds: a rule, its subject, and how far it is beyond its threshold. An *alert*
//! is a condition that has held for a while. It fires once and resolves once, no matter which process evaluates.

use std::sync::Arc;

use crate::ended::Ended;
use crate::ids::Name;
use crate::time::{Span, Time};

/// The rules. Their names are used in the config, the API, webhooks and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertRule {
    /// A lane has too many dead letters.
    DeadLetters,
    /// Too large a share of a lane's jobs became dead letters.
    DeadLetterRate,
    /// A tenant has too many dead letters in a lane.
    TenantDeadLetters,
    /// A job has waited in its line for too long.
    OldestWait,
    /// The breaker of an upstream is not closed.
    BreakerOpen,
    /// Balances under a policy are below its `alert_below`.
    PolicyLow,
    /// Redis uses too much of its memory.
    RedisMemory,
    /// Redis refused connections.
    RedisRejectedConnections,
    /// Redis keeps no append-only file.
    RedisAofOff,
    /// Redis removes keys when its memory is full.
    RedisEviction,
    /// The store lost acknowledged data.
    StoreLostData,
}

impl AlertRule {
    /// All of them.
    pub const ALL: [AlertRule; 11] = [
        AlertRule::DeadLetters,
        AlertRule::DeadLetterRate,
        AlertRule::TenantDeadLetters,
        AlertRule::OldestWait,
        AlertRule::BreakerOpen,
        AlertRule::PolicyLow,
        AlertRule::RedisMemory,
        AlertRule::RedisRejectedConnections,
        AlertRule::RedisAofOff,
        AlertRule::RedisEviction,
        AlertRule::StoreLostData,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            AlertRule::DeadLetters => "dead_letters",
            AlertRule::DeadLetterRate => "dead_letter_rate",
            AlertRule::TenantDeadLetters => "tenant_dead_letters",
            AlertRule::OldestWait => "oldest_wait",
            AlertRule::BreakerOpen => "breaker_open",
            AlertRule::PolicyLow => "policy_low",
            AlertRule::RedisMemory => "redis_memory",
            AlertRule::RedisRejectedConnections => "redis_rejected_connections",
            AlertRule::RedisAofOff => "redis_aof_off",
            AlertRule::RedisEviction => "redis_eviction",
            AlertRule::StoreLostData => "store_lost_data",
        }
    }

    /// Whether one evaluation is enough: a breaker counts failures before it opens, and the other two are single
    /// events.
    pub(crate) const fn fires_at_once(self) -> bool {
        matches!(
            self,
            AlertRule::BreakerOpen | AlertRule::RedisRejectedConnections | AlertRule::StoreLostData
        )
    }
}

/// How urgent an alert is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Needs attention soon.
    Warning,
    /// Jobs are being lost or refused, or will be.
    Critical,
}

impl Severity {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// The subject of an alert. Two alerts with the same key are the same alert.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AlertKey {
    /// The rule.
    pub rule: AlertRule,
    /// How urgent it is.
    pub severity: Severity,
    /// The lane, if the rule is about lanes.
    pub lane: Option<Name>,
    /// The upstream, if the rule is about upstreams.
    pub upstream: Option<Name>,
    /// The policy of the upstream, if the rule is about policies.
    pub policy: Option<Name>,
    /// The tenant, if the rule is about tenants.
    pub tenant: Option<Arc<str>>,
}

impl AlertKey {
    /// A key without a particular subject.
    pub const fn new(rule: AlertRule, severity: Severity) -> Self {
        Self { rule, severity, lane: None, upstream: None, policy: None, tenant: None }
    }
}

/// One thing that is beyond its threshold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Rule and subject.
    pub key: AlertKey,
    /// The value, in millionths of a count, a share, or a second.
    pub value_micros: u64,
    /// The threshold, in the same unit.
    pub threshold_micros: u64,
}

/// An alert that fires or has fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// The condition at the last evaluation.
    pub condition: Condition,
    /// When the condition began.
    pub since: Time,
    /// When it resolved; `None` while it fires.
    pub resolved: Option<Time>,
}

/// Thresholds of the rules that the store evaluates; a rule without a threshold is off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertLimits {
    /// The most dead letters in a lane.
    pub dead_letters: Option<u64>,
    /// The most dead letters of one tenant in a lane.
    pub tenant_dead_letters: Option<u64>,
    /// The largest share of a lane's jobs that may become dead letters.
    pub dead_letter_rate: Option<DeadLetterRate>,
    /// How long a job may wait in its line.
    pub oldest_wait: Option<Span>,
    /// Whether an open breaker is an alert.
    pub breaker_open: bool,
    /// Whether refused connections are an alert.
    pub redis_rejected_connections: bool,
    /// Whether lost data is an alert.
    pub store_lost_data: bool,
    /// How long a condition must hold before its alert fires.
    pub hold: Span,
    /// How long the condition must be over before its alert resolves.
    pub clear: Span,
}

/// A bound on the share of jobs that become dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadLetterRate {
    /// The share, in millionths.
    pub share_micros: u64,
    /// The period: jobs that ended this recently count.
    pub over: Span,
    /// The rule applies once this many jobs ended in the period.
    pub min: u64,
}

/// Asks the store to evaluate the alerts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// The caller has just found that the store lost data.
    pub lost_data: bool,
    /// Everything else, sent by the one process of a fleet that evaluates.
    pub evaluation: Option<Evaluation>,
}

/// What the evaluating process knows and the store does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// The thresholds at which alerts fire.
    pub limits: AlertLimits,
    /// Conditions that the process itself found.
    pub seen: Vec<Condition>,
    /// Connections that Redis has refused since it started.
    pub rejected_connections: Option<u64>,
    /// Whether the operators are to be notified.
    pub operators: bool,
    /// Tenants that are to be notified of their own alerts.
    pub tenants: Vec<Arc<str>>,
}

/// What an evaluation changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlertChanges {
    /// Alerts that started to fire.
    pub fired: Vec<Alert>,
    /// Alerts that resolved.
    pub resolved: Vec<Alert>,
    /// Jobs that were evicted for notifications, and notifications that found no room.
    pub ended: Vec<Ended>,
}

/// All alerts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlertsView {
    /// Firing alerts, ordered by key.
    pub firing: Vec<Alert>,
    /// The most recently resolved alerts, newest first.
    pub recent: Vec<Alert>,
}

/// The recipient of a notification. Its address and signing key are in the config of the delivering process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipient {
    /// `alerts.webhook`.
    Operators,
    /// One of `alerts.tenants`.
    Tenant(Arc<str>),
}

/// The payload of a job in the lane [`CALLBACKS`](crate::CALLBACKS) that reports an alert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The recipient.
    pub to: Recipient,
    /// The alert.
    pub alert: Alert,
}
