//! The messages between processes.

use crate::layout::{Answers, LayoutError, Questions, QuestionsHeader, ReceivedAnswers, SentRules};

pub(super) fn questions() -> Questions<'static> {
    Questions {
        process: 0x0102_0304_0506_0708,
        stamp: 1_768_000_000_000,
        done_below: 41,
        wants: 300,
        received: ReceivedAnswers { connection: 3, bytes: 70_000 },
        in_fallback: true,
        registration: Some(SentRules { about: "all 7f", spec: b"rules" }),
        items: vec![(41, b"first"), (42, b"second")],
    }
}

pub(super) fn answers() -> Answers<'static> {
    Answers { window: 65_536, sent: 80_000, register: true, items: vec![(41, b"done")] }
}

#[test]
fn damaged_messages_are_refused() {
    let (asked, told) = (questions().encode(), answers().encode());
    for end in 0..asked.len() {
        assert!(Questions::decode(&asked[..end]).is_err(), "cut off after {end} bytes");
    }
    for end in 0..told.len() {
        assert!(Answers::decode(&told[..end]).is_err(), "cut off after {end} bytes");
    }
    assert!(Questions::decode(&[&*asked, &[0]].concat()).is_err());
    assert!(Answers::decode(&[&*told, &[0]].concat()).is_err());
    let mut fewer = questions();
    fewer.items.pop();
    let header = |message: &Questions<'_>| message.encode()[..1 + 9 + 1 + message.items.len()].to_vec();
    let body = asked[header(&questions()).len()..].to_vec();
    assert!(Questions::decode(&[header(&fewer), body].concat()).is_err(), "a question without a sequence");
}

#[test]
fn a_newer_message_is_refused_but_tells_whom_to_answer() {
    let (mut asked, mut told) = (questions().encode(), answers().encode());
    (asked[0], told[0]) = (2, 2);
    let newer = LayoutError::NewerVersion { found: 2, known: 1 };
    assert_eq!(Questions::decode(&asked), Err(newer.clone()));
    assert_eq!(Answers::decode(&told), Err(newer));
    asked[0] = 0;
    assert!(matches!(Questions::decode(&asked), Err(LayoutError::Unreadable(_))));
    let header = QuestionsHeader { process: 0x0102_0304_0506_0708, sequences: vec![41, 42] };
    // Versions 7 and 255 continue differently.
    for version in [2, 7, 255] {
        let message = [&[version], &asked[1..13], &[0xff; 9]].concat();
        assert_eq!(QuestionsHeader::decode(&message), Ok(header.clone()));
    }
    assert!(QuestionsHeader::decode(&[]).is_err());
}
