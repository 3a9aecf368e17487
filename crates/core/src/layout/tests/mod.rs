//! Everything sent has exactly the expected bytes, and no bytes do harm.

mod damage;
mod golden;
mod history;
mod messages;
mod questions;
mod records;
mod replies;
mod specs;

use std::fmt::Debug;
use std::sync::Arc;

use super::shared::ReasonLayout;
use super::{
    FORMAT, LayoutError, Question, RECORD_VERSION, Reply, append_record, decode_gates, decode_lane,
    decode_spec, encode_gates, encode_lane, encode_spec, read_records,
};
use crate::alert::{Alert, AlertKey, AlertRule, Condition, Notice, Severity};
use crate::charge::{Charge, CreditRule, Terms};
use crate::engine::Callback;
use crate::engine::record::Record;
use crate::gate::{BucketSpec, GateSpecs, Reason};
use crate::ids::{JobId, LeaseId, Name};
use crate::job::Hold;
use crate::policy::{BucketId, Scope};
use crate::spec::{LaneSpec, Spec};
use crate::time::{Span, Time};
use crate::timeline::{FailureNote, Waited};
use crate::tokens::Tokens;
use crate::verbs::{LetterCursor, LetterFilter};
use crate::views::JobCursor;

/// Anything with a layout.
trait Message: Debug + Clone + PartialEq + Sized {
    fn encoded(&self) -> Vec<u8>;
    fn decoded(bytes: &[u8]) -> Result<Self, LayoutError>;
}

impl Message for Question {
    fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
    fn decoded(bytes: &[u8]) -> Result<Self, LayoutError> {
        Question::decode(bytes)
    }
}

impl Message for Reply {
    fn encoded(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
    fn decoded(bytes: &[u8]) -> Result<Self, LayoutError> {
        Reply::decode(bytes)
    }
}

impl Message for Callback {
    fn encoded(&self) -> Vec<u8> {
        self.encode().to_vec()
    }
    fn decoded(bytes: &[u8]) -> Result<Self, LayoutError> {
        Callback::decode(bytes)
    }
}

impl Message for Notice {
    fn encoded(&self) -> Vec<u8> {
        self.encode().to_vec()
    }
    fn decoded(bytes: &[u8]) -> Result<Self, LayoutError> {
        Notice::decode(bytes)
    }
}

impl Message for Spec {
    fn encoded(&self) -> Vec<u8> {
        encode_spec(self)
    }
    fn decoded(bytes: &[u8]) -> Result<Self, LayoutError> {
        decode_spec(bytes)
    }
}

impl Message for LaneSpec {
    fn encoded(&self) -> Vec<u8> {
        encode_lane(self)
    }
    fn decoded(bytes: &[u8]) -> Result<Self, LayoutError> {
        decode_lane(bytes)
    }
}

impl Message for GateSpecs {
    fn encoded(&self) -> Vec<u8> {
        encode_gates(self)
    }
    fn decoded(bytes: &[u8]) -> Result<Self, LayoutError> {
        decode_gates(bytes)
    }
}

/// A chunk with one record.
impl Message for Record {
    fn encoded(&self) -> Vec<u8> {
        let mut chunk = vec![RECORD_VERSION];
        append_record(self, &mut chunk).unwrap();
        chunk
    }
    fn decoded(bytes: &[u8]) -> Result<Self, LayoutError> {
        let mut records = Vec::new();
        read_records(bytes, |record| records.push(record))?;
        match <[Record; 1]>::try_from(records) {
            Ok([record]) => Ok(record),
            Err(records) => Err(LayoutError::Unreadable(format!("{} records", records.len()))),
        }
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn id(number: u128) -> JobId {
    JobId(0x0192_f3a4_0000_7000_8000_0000_0000_0000 + number)
}

fn lease(number: u64) -> LeaseId {
    LeaseId { epoch: 1_700_000_000_000, number, nonce: 0xfeed_0000_0000_0000 + number }
}

fn cursor() -> JobCursor {
    JobCursor { created_at: time(7), job: id(7) }
}

fn alert_key() -> AlertKey {
    AlertKey {
        rule: AlertRule::TenantDeadLetters,
        severity: Severity::Warning,
        lane: Some(name("email")),
        upstream: Some(name("ses")),
        policy: Some(name("READ")),
        tenant: Some("acme".into()),
    }
}

fn alert(resolved: Option<Time>) -> Alert {
    let condition = Condition { key: alert_key(), value_micros: 51_000_000, threshold_micros: 50_000_000 };
    Alert { condition, since: time(7), resolved }
}

fn letter_cursor() -> LetterCursor {
    LetterCursor { lane: name("email"), number: 302 }
}

fn filter() -> LetterFilter {
    LetterFilter {
        lanes: Some(vec![name("email"), name("sms")]),
        tenant: Some("acme".into()),
        tenants: Some(vec!["a*".into()]),
        code: Some("5xx".into()),
        since: Some(time(3)),
        until: Some(time(9)),
    }
}

fn time(ms: u64) -> Time {
    Time::from_millis(1_700_000_000_000 + ms)
}

const fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

fn hold() -> Hold {
    let spec = BucketSpec::new(20, 3, Span::from_secs(60)).unwrap();
    Hold::new(name("bureau"), "cpf:1", spec, Tokens::whole(2)).unwrap()
}

fn waited() -> Waited {
    Waited { reason: Reason::Window, since: time(3), until: time(60_003) }
}

fn note() -> Arc<FailureNote> {
    Arc::new(FailureNote { code: Some("429".into()), reason: "answered 429 Too Many Requests".into() })
}

fn terms() -> Arc<Terms> {
    let charge = Charge::default().on("404", Tokens::whole(20)).unwrap().on("5xx", Tokens::ZERO).unwrap();
    let charge = charge.on("default", Tokens::ONE).unwrap().from_usage("body:/usage/total_tokens").unwrap();
    let credit = CreditRule::new(&[("payment", Tokens::whole(2))], ms(86_400_000)).unwrap();
    Arc::new(Terms { charge, credit: Some(credit) })
}

fn bucket_id() -> BucketId {
    let scope = Some(Scope(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
    BucketId { upstream: name("dict"), policy: name("ENTRIES_READ"), class: Some(name("PF")), scope }
}

/// A newer record or newer rules in a journal must keep programs that cannot read them from taking over.
#[test]
fn the_format_rises_with_every_stored_version() {
    let (spec, record) = (specs::sample(), &records::all()[0].1);
    let stored =
        [record.encoded(), spec.encoded(), spec.lanes[0].encoded(), spec.upstreams[0].gates.encoded()];
    assert_eq!(FORMAT, stored.iter().map(|bytes| u16::from(bytes[0])).sum::<u16>());
}

/// A reason that has a layout but is not listed would be missing wherever all reasons are shown.
#[test]
fn every_reason_is_listed() {
    let with_layout = (0_u8..).map_while(|number| postcard::from_bytes::<ReasonLayout>(&[number]).ok());
    assert_eq!(with_layout.count(), Reason::ALL.len());
}
