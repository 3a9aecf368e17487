//! Alerts, as the API and webhooks report them.

use eclusa_core::{AlertKey, AlertRule, Condition};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::iso;

/// An alert.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Alert {
    /// The rule.
    #[schema(value_type = super::vocabulary::AlertName)]
    pub name: String,
    /// `warning` or `critical`.
    #[schema(value_type = super::vocabulary::Severity)]
    pub severity: String,
    /// The lane, where the rule is about lanes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// The upstream, where the rule is about upstreams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// The policy of the upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The tenant, where the rule is about tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The last measured value: a count, a share (0 to 1), or seconds.
    pub value: f64,
    /// The limit, in the same unit.
    pub threshold: f64,
    /// When the condition began.
    #[schema(format = DateTime)]
    pub since: Option<String>,
    /// When it ended; absent while the alert fires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub resolved_at: Option<String>,
    /// The condition as a sentence; starts with `Resolved:` once it has ended.
    pub text: String,
}

/// The message posted when an alert fires and when it resolves, in the form proposed by Standard Webhooks.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct AlertMessage {
    /// `alert.firing` or `alert.resolved`.
    pub r#type: &'static str,
    /// Time of the event.
    #[schema(format = DateTime)]
    pub timestamp: Option<String>,
    /// The alert.
    pub data: Alert,
}

impl From<&eclusa_core::Alert> for AlertMessage {
    fn from(alert: &eclusa_core::Alert) -> Self {
        let (kind, at) = match alert.resolved {
            None => ("alert.firing", alert.since),
            Some(at) => ("alert.resolved", at),
        };
        Self { r#type: kind, timestamp: iso(at), data: alert.into() }
    }
}

impl From<&eclusa_core::Alert> for Alert {
    fn from(alert: &eclusa_core::Alert) -> Self {
        let Condition { key, value_micros, threshold_micros } = &alert.condition;
        let [lane, upstream, policy] =
            [&key.lane, &key.upstream, &key.policy].map(|name| name.as_ref().map(ToString::to_string));
        let (value, threshold) = (units(*value_micros), units(*threshold_micros));
        Self {
            name: key.rule.as_str().to_owned(),
            severity: key.severity.as_str().to_owned(),
            lane,
            upstream,
            policy,
            tenant: key.tenant.as_deref().map(ToOwned::to_owned),
            value,
            threshold,
            since: iso(alert.since),
            resolved_at: alert.resolved.and_then(iso),
            text: match alert.resolved {
                Some(_) => format!("Resolved: {}", text(key, value, threshold)),
                None => text(key, value, threshold),
            },
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "displayed values need no more precision")]
fn units(micros: u64) -> f64 {
    micros as f64 / 1e6
}

/// Whether a count is one.
fn is_one(count: f64) -> bool {
    (count - 1.0).abs() < 1e-9
}

fn letters(count: f64) -> &'static str {
    if is_one(count) { "dead letter" } else { "dead letters" }
}

/// Describes the condition in a sentence.
fn text(key: &AlertKey, value: f64, threshold: f64) -> String {
    let lane = key.lane.as_ref().map_or("", |lane| lane.as_str());
    let upstream = key.upstream.as_ref().map_or("", |upstream| upstream.as_str());
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    match key.rule {
        AlertRule::DeadLetters => {
            format!("Lane `{lane}` has {value} {}; the limit is {threshold}.", letters(value))
        }
        AlertRule::DeadLetterRate => {
            let (share, most) = (percent(value), percent(threshold));
            format!("{share} of the jobs of lane `{lane}` became dead letters; the limit is {most}.")
        }
        AlertRule::TenantDeadLetters => {
            let tenant = key.tenant.as_deref().unwrap_or_default();
            let letters = letters(value);
            format!("Tenant `{tenant}` has {value} {letters} in lane `{lane}`; the limit is {threshold}.")
        }
        AlertRule::OldestWait => {
            format!("A job of lane `{lane}` has waited for {value:.0} s; the limit is {threshold:.0} s.")
        }
        AlertRule::BreakerOpen => format!("The breaker of upstream `{upstream}` is open."),
        AlertRule::PolicyLow => {
            let (policy, part) =
                (key.policy.as_ref().map_or("", |policy| policy.as_str()), percent(threshold));
            let (balances, are) = if is_one(value) { ("balance", "is") } else { ("balances", "are") };
            format!("{value} {balances} under policy `{policy}` of upstream `{upstream}` {are} below {part}.")
        }
        AlertRule::RedisMemory => {
            format!("Redis uses {} of its memory; the limit is {}.", percent(value), percent(threshold))
        }
        AlertRule::RedisRejectedConnections => {
            let connections = if is_one(value) { "connection" } else { "connections" };
            format!("Redis refused {value} {connections} within five minutes: `maxclients` is reached.")
        }
        AlertRule::RedisAofOff => {
            "Redis keeps no append-only file: its data is lost when it stops. Set `appendonly yes`.".into()
        }
        AlertRule::RedisEviction => {
            "Redis evicts data when its memory is full. Set `maxmemory-policy noeviction`.".into()
        }
        AlertRule::StoreLostData => {
            "Redis lost data that it had acknowledged. What the processes still held was written again."
                .into()
        }
    }
}
