//! The messages between processes: questions to the owner and its answers. What they carry (questions, replies and
//! rules) has versions of its own.
//!
//! Questions open with a header that is the same in all versions, so that an owner can answer even a message that it
//! cannot read.

use serde::{Deserialize, Serialize};

use super::LayoutError;
use super::convert::{Bytes, append, decode, encode, known, take, take_all, unreadable};

/// The version of both messages.
const VERSION: u8 = 1;

/// Questions of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Questions<'a> {
    /// The asking process.
    pub process: u64,
    /// The stamp of its registration.
    pub stamp: u64,
    /// All sequences below this one are finished: their answers need not be kept.
    pub done_below: u64,
    /// The window it needs for its next question, in bytes; 0 if its window is large enough.
    pub wants: u64,
    /// The answers that it has received.
    pub received: ReceivedAnswers,
    /// Whether it decides about gates locally: what it did without the owner is not reported yet.
    pub in_fallback: bool,
    /// Its rules, if the owner may not have them.
    pub registration: Option<SentRules<'a>>,
    /// The encoded questions, each with its sequence.
    pub items: Vec<(u64, &'a [u8])>,
}

/// What a process has received from the owner.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedAnswers {
    /// The number of its connection: answers sent to an earlier one have arrived or are lost.
    pub connection: u64,
    /// [`Answers::sent`] of the last message on it.
    pub bytes: u64,
}

/// The rules of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentRules<'a> {
    /// Its role and the version of its rules, for displays of the fleet.
    pub about: &'a str,
    /// The encoded rules.
    pub spec: &'a [u8],
}

/// The part of a message of any version that an owner needs to refuse its questions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionsHeader {
    /// The asking process.
    pub process: u64,
    /// The sequences of its questions.
    pub sequences: Vec<u64>,
}

/// Answers to one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answers<'a> {
    /// The bytes that the process may have on the way to the owner.
    pub window: u64,
    /// The bytes of all replies that were sent to it, with those of this message.
    pub sent: u64,
    /// Whether the owner lacks its rules: the process must register and ask again.
    pub register: bool,
    /// The encoded replies, each with its sequence.
    pub items: Vec<(u64, &'a [u8])>,
}

/// What follows the header.
#[derive(Serialize, Deserialize)]
struct QuestionsLayout<'a> {
    stamp: u64,
    done_below: u64,
    wants: u64,
    received: ReceivedAnswers,
    in_fallback: bool,
    #[serde(borrow)]
    registration: Option<(&'a str, Bytes<'a>)>,
    /// In the order of the sequences.
    #[serde(borrow)]
    items: Vec<Bytes<'a>>,
}

#[derive(Serialize, Deserialize)]
struct AnswersLayout<'a> {
    window: u64,
    sent: u64,
    register: bool,
    #[serde(borrow)]
    items: Vec<(u64, Bytes<'a>)>,
}

impl<'a> Questions<'a> {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let sequences = self.items.iter().map(|(sequence, _)| *sequence).collect();
        let body = QuestionsLayout {
            stamp: self.stamp,
            done_below: self.done_below,
            wants: self.wants,
            received: self.received,
            in_fallback: self.in_fallback,
            registration: self.registration.as_ref().map(|rules| (rules.about, Bytes(rules.spec))),
            items: self.items.iter().map(|(_, question)| Bytes(question)).collect(),
        };
        let mut bytes = Vec::new();
        encode(VERSION, &QuestionsHeader { process: self.process, sequences }, &mut bytes);
        let appended = append(&body, &mut bytes);
        debug_assert!(appended.is_ok(), "{appended:?}");
        bytes
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, LayoutError> {
        let (QuestionsHeader { process, sequences }, body) = take(known(VERSION, bytes)?)?;
        let QuestionsLayout { stamp, done_below, wants, received, in_fallback, registration, items } =
            take_all(body)?;
        if items.len() != sequences.len() {
            return Err(unreadable("not as many questions as sequences"));
        }
        let registration = registration.map(|(about, Bytes(spec))| SentRules { about, spec });
        let items = sequences.into_iter().zip(items.into_iter().map(|Bytes(question)| question)).collect();
        Ok(Self { process, stamp, done_below, wants, received, in_fallback, registration, items })
    }
}

impl QuestionsHeader {
    /// Reads the header of [`Questions`] of any version.
    pub fn decode(bytes: &[u8]) -> Result<Self, LayoutError> {
        let (_, rest) = bytes.split_first().ok_or_else(|| unreadable("no bytes"))?;
        take(rest).map(|(header, _)| header)
    }
}

impl<'a> Answers<'a> {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let items = self.items.iter().map(|(sequence, reply)| (*sequence, Bytes(reply))).collect();
        let mut bytes = Vec::new();
        let layout = AnswersLayout { window: self.window, sent: self.sent, register: self.register, items };
        encode(VERSION, &layout, &mut bytes);
        bytes
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, LayoutError> {
        let AnswersLayout { window, sent, register, items } = decode(VERSION, bytes)?;
        let items = items.into_iter().map(|(sequence, Bytes(reply))| (sequence, reply)).collect();
        Ok(Self { window, sent, register, items })
    }
}
