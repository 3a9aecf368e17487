//! The bytes of everything that has a layout, compared with the files in `golden/`.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Message, messages, questions, records, replies, specs, terms};
use crate::alert::{Notice, Recipient};
use crate::engine::record::Record;
use crate::layout::{Answers, Questions, decode_lane, decode_spec, read_records};

/// If set, the files are written instead of compared.
const RENEW: &str = "ECLUSA_WRITE_GOLDEN";

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/layout/golden")
}

/// Hexadecimal, 32 bytes on a line.
fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(32) {
        line.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
        text.push('\n');
    }
    text
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// Compares these bytes with a file, or writes it; returns the bytes of the file.
fn written(name: &str, bytes: &[u8]) -> Vec<u8> {
    let file = dir().join(name).with_extension("hex");
    if std::env::var_os(RENEW).is_some() {
        fs::write(&file, to_hex(bytes)).unwrap();
    }
    let golden = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(to_hex(bytes), golden, "{name} is written differently");
    from_hex(&golden)
}

/// The bytes that an earlier version wrote.
fn previous(name: &str) -> Vec<u8> {
    let file = dir().join("previous").join(name).with_extension("hex");
    from_hex(&fs::read_to_string(&file).unwrap())
}

/// Compares or writes one file per sample. There must be no other files that start with `prefix`.
fn check<M: Message>(prefix: &str, samples: Vec<(&'static str, M)>) {
    let names: BTreeSet<String> = samples.iter().map(|(name, _)| format!("{name}.hex")).collect();
    assert_eq!(names.len(), samples.len(), "two samples share a file");
    for (name, sample) in samples {
        let golden = written(name, &sample.encoded());
        assert_eq!(M::decoded(&golden), Ok(sample), "{name} is read differently");
    }
    let files = fs::read_dir(dir()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<String> = files.filter(|file| file.starts_with(prefix)).collect();
    assert_eq!(files, names);
}

#[test]
fn questions_have_the_bytes_of_their_golden_files() {
    check("question-", questions::all());
}

#[test]
fn replies_have_the_bytes_of_their_golden_files() {
    check("reply-", replies::all());
}

/// Each kind of message is numbered by its position, which is the second byte.
#[test]
fn every_kind_of_message_has_a_sample() {
    fn kinds<M: Message>(samples: &[(&str, M)]) -> BTreeSet<u8> {
        samples.iter().map(|(_, sample)| sample.encoded()[1]).collect()
    }
    assert_eq!(kinds(&questions::all()), (0..44).collect());
    assert_eq!(kinds(&replies::all()), (0..39).collect());
}

#[test]
fn callbacks_have_the_bytes_of_their_golden_files() {
    check("callback", vec![("callback", replies::callback())]);
}

#[test]
fn notices_have_the_bytes_of_their_golden_files() {
    let alert = super::alert(None);
    let to = Recipient::Tenant("acme".into());
    let operators = Notice { to: Recipient::Operators, alert: alert.clone() };
    check("notice", vec![("notice-operators", operators), ("notice-tenant", Notice { to, alert })]);
}

#[test]
fn rules_have_the_bytes_of_their_golden_files() {
    check("spec", vec![("spec", specs::sample()), ("spec-partial", specs::partial())]);
}

#[test]
fn rules_of_a_lane_and_an_upstream_have_the_bytes_of_their_golden_files() {
    check("lane-rules", vec![("lane-rules", specs::sample().lanes[0].clone())]);
    check("upstream-rules", vec![("upstream-rules", specs::sample().upstreams[1].gates.clone())]);
}

#[test]
fn messages_have_the_bytes_of_their_golden_files() {
    let golden = written("message-questions", &messages::questions().encode());
    assert_eq!(Questions::decode(&golden), Ok(messages::questions()));
    let golden = written("message-answers", &messages::answers().encode());
    assert_eq!(Answers::decode(&golden), Ok(messages::answers()));
}

#[test]
fn rules_of_earlier_versions_are_read() {
    assert_eq!(decode_spec(&previous("spec-1")), Ok(specs::whole(false)));
    assert_eq!(decode_spec(&previous("spec-2")), Ok(specs::partial()));
    assert_eq!(decode_lane(&previous("lane-rules-1")), Ok(specs::whole(false).lanes[0].clone()));
}

#[test]
fn records_of_version_1_are_read() {
    let mut read = Vec::new();
    read_records(&previous("records-1"), |record| read.push(record)).unwrap();
    // The records that version 2 added come after all those of version 1. The event of a start after a wait is newer.
    let first_added = Record::Terms { family: "".into(), terms: terms() }.encoded()[1];
    let all = records::all().into_iter().filter(|(name, _)| *name != "record-job-waited");
    let all = all.map(|(_, record)| record).filter(|record| record.encoded()[1] < first_added);
    assert_eq!(read, all.collect::<Vec<_>>());
}

#[test]
fn records_have_the_bytes_of_their_golden_files() {
    check("record-", records::all());
}
