//! Alerts: conditions that people must hear of.
//!
//! A *condition* is what one look at the state finds: a rule, what it is about, and how far it is beyond its threshold. An *alert* is
//! a condition that has held for a while. It fires once and resolves once, whichever process looks.

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
    /// The store lost what it had acknowledged.
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

    /// Whether one look is enough: a breaker has counted failures before it opens, and the other two happened or did not.
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
    /// To be looked at soon.
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

/// What an alert is about. Two alerts with the same key are the same alert.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AlertKey {
    /// The rule.
    pub rule: AlertRule,
    /// How urgent it is.
    pub severity: Severity,
    /// The lane, where the rule is about lanes.
    pub lane: Option<Name>,
    /// The upstream, where the rule is about upstreams.
    pub upstream: Option<Name>,
    /// The policy of the upstream.
    pub policy: Option<Name>,
    /// The tenant, where the rule is about tenants.
    pub tenant: Option<Arc<str>>,
}

impl AlertKey {
    /// About everything.
    pub const fn new(rule: AlertRule, severity: Severity) -> Self {
        Self { rule, severity, lane: None, upstream: None, policy: None, tenant: None }
    }
}

/// One thing that is beyond its threshold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// What it is about.
    pub key: AlertKey,
    /// How much it is, in millionths: of a count, a share, or a second.
    pub value_micros: u64,
    /// How much it may be, in the same unit.
    pub threshold_micros: u64,
}

/// An alert that fires or has fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// What it was at the last look.
    pub condition: Condition,
    /// Since when the condition holds.
    pub since: Time,
    /// When it was over; `None` while it fires.
    pub resolved: Option<Time>,
}

/// Thresholds of the rules that a store looks after by itself; a rule without one is off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertLimits {
    /// Dead letters that a lane may have.
    pub dead_letters: Option<u64>,
    /// Dead letters of one tenant that a lane may have.
    pub tenant_dead_letters: Option<u64>,
    /// The share of a lane's jobs that may become dead letters.
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
    /// How long it must be over before its alert resolves.
    pub clear: Span,
}

/// A bound on the share of jobs that become dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadLetterRate {
    /// The share, in millionths.
    pub share_micros: u64,
    /// Of the jobs that ended in this last time.
    pub over: Span,
    /// Unless fewer ended.
    pub min: u64,
}

/// Asks the store to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// The asker has just found that the store lost data.
    pub lost_data: bool,
    /// The rest: only one process of a fleet evaluates.
    pub evaluation: Option<Evaluation>,
}

/// What the evaluating process knows and the store does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// Thresholds.
    pub limits: AlertLimits,
    /// Conditions that the process found by itself.
    pub seen: Vec<Condition>,
    /// How many connections Redis has refused since it started.
    pub rejected_connections: Option<u64>,
    /// Whether the operators are to be notified.
    pub operators: bool,
    /// Tenants that are to be notified of their own alerts.
    pub tenants: Vec<Arc<str>>,
}

/// What changed by a look.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlertChanges {
    /// Alerts that fire now.
    pub fired: Vec<Alert>,
    /// Alerts that are over.
    pub resolved: Vec<Alert>,
    /// Jobs that ended because notifications needed their room, and notifications that found none.
    pub ended: Vec<Ended>,
}

/// All alerts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlertsView {
    /// Those that fire, ordered by what they are about.
    pub firing: Vec<Alert>,
    /// Those that resolved last, the newest first.
    pub recent: Vec<Alert>,
}

/// Who is notified. Where they are and what a message is signed with is in the config of whoever delivers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipient {
    /// `alerts.webhook`.
    Operators,
    /// One of `alerts.tenants`.
    Tenant(Arc<str>),
}

/// What a job of the lane [`CALLBACKS`](crate::CALLBACKS) carries that notifies somebody of an alert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Whom.
    pub to: Recipient,
    /// Of what.
    pub alert: Alert,
}
