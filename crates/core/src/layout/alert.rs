//! The layouts of alerts, and the payload of a job that delivers a notice of one.

use super::LayoutError;
use super::convert::{Layout, decode, encode, layout_enum, layout_struct};
use crate::alert::{Alert, AlertKey, AlertRule, Condition, Notice, Recipient, Severity};
use crate::engine::Callback;
use crate::job::Payload;

/// The version of a notice. No other payload starts with this byte.
const VERSION: u8 = 0xc2;

layout_enum!(
    AlertRuleLayout = AlertRule {
        DeadLetters,
        DeadLetterRate,
        TenantDeadLetters,
        OldestWait,
        BreakerOpen,
        PolicyLow,
        RedisMemory,
        RedisRejectedConnections,
        RedisAofOff,
        RedisEviction,
        StoreLostData,
    }
);

layout_enum!(SeverityLayout = Severity { Warning, Critical });

layout_struct!(AlertKeyLayout<'a> = AlertKey {
    rule: AlertRuleLayout,
    severity: SeverityLayout,
    lane: Option<&'a str>,
    upstream: Option<&'a str>,
    policy: Option<&'a str>,
    tenant: Option<&'a str>,
});

layout_struct!(ConditionLayout<'a> = Condition {
    key: AlertKeyLayout<'a>,
    value_micros: u64,
    threshold_micros: u64,
});

layout_struct!(AlertLayout<'a> = Alert {
    condition: ConditionLayout<'a>,
    since: u64,
    resolved: Option<u64>,
});

layout_enum!(RecipientLayout<'a> = Recipient { Operators, Tenant(tenant: &'a str) });

layout_struct!(NoticeLayout<'a> = Notice { to: RecipientLayout<'a>, alert: AlertLayout<'a> });

impl Notice {
    /// Encodes it as the payload of a job.
    pub fn encode(&self) -> Payload {
        let mut bytes = Vec::new();
        encode(VERSION, &NoticeLayout::from_domain(self), &mut bytes);
        bytes.into()
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(payload: &[u8]) -> Result<Self, LayoutError> {
        decode::<NoticeLayout<'_>>(VERSION, payload)?.into_domain()
    }
}

/// The payload of a job of the lane [`CALLBACKS`](crate::CALLBACKS).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// The end of a job.
    Callback(Box<Callback>),
    /// An alert.
    Notice(Box<Notice>),
}

impl Delivery {
    /// Decodes the payload of a job.
    pub fn decode(payload: &[u8]) -> Result<Self, LayoutError> {
        if payload.first() == Some(&VERSION) {
            return Notice::decode(payload).map(|notice| Self::Notice(Box::new(notice)));
        }
        Callback::decode(payload).map(|callback| Self::Callback(Box::new(callback)))
    }
}
