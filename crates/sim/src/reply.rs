//! The bytes of answers. Only their length matters, so all answers of one length share them.

use std::sync::{Arc, LazyLock};

use fastrand::Rng;

/// The length of a short answer.
const SHORT: usize = 200;
/// The lengths of long answers: less than a message, and one for each bound of the outbox.
const LONG: [usize; 4] = [300 << 10, 900 << 10, 3 << 20, 8 << 20];

static BYTES: LazyLock<Vec<Arc<[u8]>>> =
    LazyLock::new(|| std::iter::once(SHORT).chain(LONG).map(|length| vec![0; length].into()).collect());

/// How long an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Length(usize);

impl Length {
    /// The length of a long answer.
    pub(crate) fn long(rng: &mut Rng) -> Self {
        Self(rng.usize(1..=LONG.len()))
    }

    /// Bytes of this length.
    pub(crate) fn bytes(self) -> Arc<[u8]> {
        Arc::clone(&BYTES[self.0])
    }
}
