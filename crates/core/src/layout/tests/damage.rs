//! Damaged bytes are refused or read as something else, but never panic or allocate without bound.

use proptest::prelude::*;

use super::{Message, hold, id, lease, ms, name, questions, records, replies, specs};
use crate::charge::{Charge, Terms};
use crate::engine::record::Record;
use crate::gate::{BucketSpec, CallResult};
use crate::job::{CallFailure, FailureReason, Hold, NewJob};
use crate::layout::{LayoutError, Question, Reply};
use crate::tokens::Tokens;
use crate::verbs::{Admit, Outcome, Settlement};

/// The largest possible length: a decoder that trusted it would run out of memory.
const HUGE: [u8; 10] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];

/// Whatever can be decoded can be encoded and decoded again.
fn harmless<M: Message>(bytes: &[u8]) {
    if let Ok(read) = M::decoded(bytes) {
        assert_eq!(M::decoded(&read.encoded()), Ok(read));
    }
}

fn damage<M: Message>(samples: &[(&str, M)]) {
    for (what, sample) in samples {
        let bytes = sample.encoded();
        for end in 0..bytes.len() {
            assert!(is_unreadable(&M::decoded(&bytes[..end])), "{what} cut off after {end} bytes");
        }
        assert!(is_unreadable(&M::decoded(&[&bytes[..], &[0]].concat())), "{what} with a byte too many");
        for bit in 8..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            harmless::<M>(&flipped);
        }
        for at in 1..=bytes.len() {
            harmless::<M>(&[&bytes[..at], &HUGE, &bytes[at..]].concat());
            harmless::<M>(&[&bytes[..at], &HUGE, bytes.get(at + 1..).unwrap_or_default()].concat());
        }
    }
}

fn is_unreadable<M>(read: &Result<M, LayoutError>) -> bool {
    matches!(read, Err(LayoutError::Unreadable(_)))
}

#[test]
fn damaged_questions_do_no_harm() {
    damage(&questions::all());
}

#[test]
fn damaged_replies_do_no_harm() {
    damage(&replies::all());
}

#[test]
fn damaged_rules_do_no_harm() {
    damage(&[("spec", specs::sample()), ("spec-partial", specs::partial())]);
}

#[test]
fn damaged_records_do_no_harm() {
    damage(&records::all());
}

proptest! {
    #[test]
    fn made_up_bytes_do_no_harm(kind in 0..30u8, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes = [&[1, kind], &bytes[..]].concat();
        harmless::<Question>(&bytes);
        harmless::<Reply>(&bytes);
        harmless::<Record>(&bytes);
    }
}

#[test]
fn a_newer_version_is_a_permanent_error() {
    fn check<M: Message>(sample: &M) {
        let mut bytes = sample.encoded();
        let known = bytes[0];
        bytes[0] = known + 1;
        let error = M::decoded(&bytes).unwrap_err();
        assert_eq!(error, LayoutError::NewerVersion { found: known + 1, known }, "{sample:?}");
        assert!(!error.is_transient());
        let text = format!("version {} of the layout; versions up to {known} ", known + 1);
        assert!(error.to_string().contains(&text), "{error}");
        bytes[0] = 0;
        assert!(is_unreadable(&M::decoded(&bytes)), "there is no version before the first: {sample:?}");
    }
    let spec = specs::sample();
    check(&Question::Sweep);
    check(&Reply::Done(true));
    check(&records::all()[0].1);
    check(&spec);
    check(&spec.lanes[0]);
    check(&spec.upstreams[0].gates);
}

#[test]
fn names_and_reasons_are_checked() {
    let failure = CallFailure { reason: FailureReason::fixed("m"), code: None, upstream: None };
    let (lease, report, outcome) = (lease(1), CallResult::Failed.into(), Outcome::Dead(failure));
    let settlement = Settlement { lease, report, outcome, answer: None, unsent: None };
    for question in [Question::Recover(name("email")), Question::Settle(vec![settlement])] {
        let mut bytes = question.encoded();
        let at = bytes.iter().position(|byte| *byte == b'm').unwrap();
        bytes[at] = b' ';
        assert!(is_unreadable(&Question::decode(&bytes)), "{question:?}");
    }
}

#[test]
fn holds_that_would_mint_tokens_or_divide_by_zero_are_refused() {
    let good = (20, (1, 20_000), 2, "cpf:1");
    let decode = |(capacity, refill, tokens, bucket): (i64, (u64, u64), i64, &str)| {
        let spec = BucketSpec::restore(Tokens::from_micro(capacity), refill);
        let hold = Hold::restore(name("bureau"), bucket, spec, Tokens::from_micro(tokens));
        let (chain, nonce) = (vec![name("bureau")], 1);
        let ask = Admit {
            lane: None,
            tenant: None,
            chain,
            holds: vec![hold],
            correlation: None,
            lease: ms(1),
            nonce,
            after: None,
            probe: true,
        };
        Question::decode(&Question::Admit(ask).encoded())
    };
    assert!(decode(good).is_ok());
    let (capacity, refill, tokens, bucket) = good;
    for bad in [
        (0, refill, tokens, bucket),
        (capacity, (0, 1), tokens, bucket),
        (capacity, (1, 0), tokens, bucket),
        (capacity, refill, 0, bucket),
        (capacity, refill, -1, bucket),
        (capacity, refill, tokens, ""),
    ] {
        assert!(is_unreadable(&decode(bad)), "{bad:?}");
    }
}

#[test]
fn terms_that_would_mint_tokens_are_refused() {
    let minting = Charge { costs: vec![(200, Tokens::from_micro(-1))], ..Charge::default() };
    let terms = Terms { charge: minting, credit: None };
    let job = NewJob::new(id(1), name("email"), "acme", *b"x");
    let job = NewJob { holds: vec![hold().under(terms.into())], ..job };
    assert!(is_unreadable(&Question::decode(&Question::Enqueue(vec![job]).encoded())));
}

#[test]
fn bytes_are_appended() {
    let mut out = b"header".to_vec();
    Question::Cancel(id(1)).encode(&mut out);
    assert_eq!(&out[..6], b"header");
    assert_eq!(Question::decode(&out[6..]), Ok(Question::Cancel(id(1))));
}
