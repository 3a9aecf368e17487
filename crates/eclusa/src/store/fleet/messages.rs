//! The messages between processes: questions to the owner and its answers. Each has a version; the questions and
//! replies inside have a separate one (`eclusa_core::layout`).

use std::sync::Arc;

use eclusa_core::layout::LayoutError;
use serde::{Deserialize, Serialize};
use serde_bytes::Bytes;

use super::outbox::Received;

/// The version this release writes, and the newest it reads.
const VERSION: u8 = 1;

/// Questions of one process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Questions<'a> {
    /// The asking process.
    pub(super) process: u64,
    /// The stamp of its registration.
    pub(super) stamp: u64,
    /// All sequences below this one are finished: their answers need not be kept.
    pub(super) done_below: u64,
    /// The window it needs for its next question, in bytes; 0 if its window is large enough.
    pub(super) wants: u64,
    /// The answers that it has received.
    pub(super) received: Received,
    /// Whether it decides about gates locally: what it did without the owner is not reported yet.
    pub(super) in_fallback: bool,
    /// Its rules, if the owner may not have them.
    #[serde(borrow)]
    pub(super) registration: Option<Registration<'a>>,
    /// The questions, each with its sequence.
    #[serde(borrow)]
    pub(super) items: Vec<(u64, &'a Bytes)>,
}

/// The rules of a process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Registration<'a> {
    /// Its role and the version of its rules, for displays of the fleet.
    pub(super) about: &'a str,
    /// The encoded rules.
    #[serde(borrow)]
    pub(super) spec: &'a Bytes,
}

/// Answers to one process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Answers<'a> {
    /// The bytes that the process may have on the way to the owner.
    pub(super) window: u64,
    /// The bytes of all replies that were sent to it, with those of this message.
    pub(super) sent: u64,
    /// Whether the owner lacks its rules: the process must register and ask again.
    pub(super) register: bool,
    /// The replies, each with its sequence.
    #[serde(borrow)]
    pub(super) items: Vec<(u64, &'a Bytes)>,
}

impl<'a> Questions<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, LayoutError> {
        decode(bytes)
    }
}

impl<'a> Answers<'a> {
    pub(super) fn encode(&self) -> Arc<[u8]> {
        encode(self).into()
    }

    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, LayoutError> {
        decode(bytes)
    }
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    // Writing to memory fails only if a length does not fit a usize.
    postcard::to_extend(message, vec![VERSION]).unwrap_or_default()
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, LayoutError> {
    let Some((&found, rest)) = bytes.split_first() else {
        return Err(LayoutError::Unreadable("it is empty".into()));
    };
    if found > VERSION {
        return Err(LayoutError::NewerVersion { found, known: VERSION });
    }
    postcard::from_bytes(rest).map_err(|error| LayoutError::Unreadable(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn questions() -> Questions<'static> {
        Questions {
            process: 0x0102_0304_0506_0708,
            stamp: 1_768_000_000_000,
            done_below: 41,
            wants: 300,
            received: Received { connection: 3, bytes: 70_000 },
            in_fallback: true,
            registration: Some(Registration { about: "all 7f", spec: Bytes::new(b"rules") }),
            items: vec![(41, Bytes::new(b"first")), (42, Bytes::new(b"second"))],
        }
    }

    fn answers() -> Answers<'static> {
        Answers { window: 65_536, sent: 80_000, register: true, items: vec![(41, Bytes::new(b"told"))] }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
    }

    #[test]
    fn messages_are_sent_as_the_golden_files_say() {
        assert_eq!(hex(&questions().encode()), include_str!("golden/questions.hex").trim());
        assert_eq!(hex(&answers().encode()), include_str!("golden/answers.hex").trim());
    }

    #[test]
    fn messages_round_trip_and_newer_versions_are_refused() {
        let mut bytes = questions().encode();
        assert_eq!(Questions::decode(&bytes), Ok(questions()));
        assert_eq!(Answers::decode(&answers().encode()), Ok(answers()));
        bytes[0] = VERSION + 1;
        assert_eq!(Questions::decode(&bytes), Err(LayoutError::NewerVersion { found: 2, known: 1 }));
        assert!(matches!(Questions::decode(&[]), Err(LayoutError::Unreadable(_))));
        for cut in 1..bytes.len() {
            assert!(Questions::decode(&questions().encode()[..cut]).is_err(), "cut at {cut}");
        }
    }
}
