//! Answers on their way to one process. They are bounded: Redis cuts off a subscriber for which it must buffer more
//! than 32 MB, and everything that was on the way is lost.

use std::collections::VecDeque;
use std::sync::Arc;

use eclusa_core::layout::ReceivedAnswers;

/// The most bytes of answers in a message, unless a single one is longer.
const MAX_MESSAGE: usize = 1 << 20;

/// The most bytes that a process may not have received yet, unless a single answer is longer.
const WINDOW: u64 = 4 << 20;

/// A process confirms what it received when it is this many bytes, or with its next question. Below it, an answer of
/// any length may be sent.
pub const CONFIRMED_EVERY: u64 = 512 << 10;

/// The most bytes that may wait for room. Longer answers beyond it are dropped; their questions are asked again.
const MAX_QUEUED: usize = 32 << 20;
/// Answers up to this many bytes are never dropped.
const SHORT: usize = 4 << 10;

/// An answer: the sequence of its question, and its bytes.
pub type QueuedAnswer = (u64, Arc<[u8]>);

/// Answers on their way to one process, bounded in bytes.
#[derive(Debug, Default)]
pub struct Outbox {
    queued: VecDeque<QueuedAnswer>,
    queued_bytes: usize,
    /// Bytes of all answers that were sent.
    sent: u64,
    /// `sent` after the last message that was published. Later ones wait until they are durable.
    published: u64,
    received: ReceivedAnswers,
}

impl Outbox {
    /// Queues an answer; returns whether there was room.
    pub fn queue(&mut self, sequence: u64, reply: Arc<[u8]>) -> bool {
        if reply.len() > SHORT && self.queued_bytes > 0 && self.queued_bytes + reply.len() > MAX_QUEUED {
            return false;
        }
        self.queued_bytes += reply.len();
        self.queued.push_back((sequence, reply));
        true
    }

    /// Notes what the process has received.
    pub fn received(&mut self, received: ReceivedAnswers) {
        if received.connection == self.received.connection {
            self.received.bytes = self.received.bytes.max(received.bytes.min(self.published));
        } else {
            self.received = ReceivedAnswers { connection: received.connection, bytes: self.published };
        }
    }

    /// Notes that the message that ended at `sent` is being published.
    pub fn published(&mut self, sent: u64) {
        self.published = self.published.max(sent.min(self.sent));
    }

    /// Notes that nothing of what was published is on the way: nobody listens.
    pub fn unheard(&mut self) {
        self.received.bytes = self.published;
    }

    /// Whether an answer may be sent now.
    pub fn is_ready(&self) -> bool {
        self.queued.front().is_some_and(|(_, reply)| self.has_room_for(reply.len()))
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        let under_way = self.sent - self.received.bytes;
        under_way < CONFIRMED_EVERY || under_way + bytes as u64 <= WINDOW
    }

    /// The answers of the next message, as far as there is room.
    pub fn next_message(&mut self) -> Vec<QueuedAnswer> {
        let (mut chosen, mut bytes) = (Vec::new(), 0);
        while let Some((_, reply)) = self.queued.front()
            && (bytes == 0 || bytes + reply.len() <= MAX_MESSAGE)
            && self.has_room_for(reply.len())
        {
            bytes += reply.len();
            self.sent += reply.len() as u64;
            self.queued_bytes -= reply.len();
            chosen.extend(self.queued.pop_front());
        }
        chosen
    }

    /// The bytes of all answers that were sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether an answer that ended at `sent` may still be on the way.
    pub fn is_under_way(&self, sent: u64) -> bool {
        sent > self.received.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn outbox(answers: &[usize]) -> Outbox {
        let mut outbox = Outbox::default();
        for (sequence, bytes) in (1..).zip(answers) {
            assert!(outbox.queue(sequence, vec![0; *bytes].into()));
        }
        outbox
    }

    /// The answers of the next message, which is published.
    fn next(outbox: &mut Outbox) -> Vec<u64> {
        let message = outbox.next_message();
        outbox.published(outbox.sent());
        message.iter().map(|(sequence, _)| *sequence).collect()
    }

    #[test]
    fn a_message_has_a_megabyte_or_one_answer() {
        let mut outbox = outbox(&[MIB / 2, MIB / 2, 1, 3 * MIB, 1]);
        assert_eq!((next(&mut outbox), next(&mut outbox)), (vec![1, 2], vec![3]));
        assert_eq!(next(&mut outbox), [0_u64; 0], "no room for 3 MiB");
        outbox.received(ReceivedAnswers { connection: 0, bytes: MIB as u64 });
        assert_eq!(next(&mut outbox), [4]);
    }

    #[test]
    fn at_most_a_window_is_on_the_way_until_it_is_received() {
        let mut outbox = outbox(&[MIB; 10]);
        let sent = std::iter::from_fn(|| Some(next(&mut outbox)).filter(|sent| !sent.is_empty()));
        assert_eq!(sent.flatten().collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert!(!outbox.is_ready());
        outbox.received(ReceivedAnswers { connection: 0, bytes: 2 * MIB as u64 });
        assert!(
            outbox.is_ready() && outbox.is_under_way(3 * MIB as u64) && !outbox.is_under_way(2 * MIB as u64)
        );
        outbox.received(ReceivedAnswers { connection: 0, bytes: MIB as u64 });
        assert_eq!((next(&mut outbox), next(&mut outbox), next(&mut outbox)), (vec![5], vec![6], vec![]));
    }

    #[test]
    fn an_answer_of_any_length_is_sent_when_little_is_on_the_way() {
        let mut outbox = outbox(&[100, 20 * MIB, 1]);
        assert_eq!((next(&mut outbox), next(&mut outbox)), (vec![1], vec![2]));
        assert!(!outbox.is_ready());
    }

    #[test]
    fn a_new_connection_or_nobody_listening_means_that_nothing_is_on_the_way() {
        let mut outbox = outbox(&[10 * MIB, 10 * MIB, 1]);
        assert_eq!((next(&mut outbox), outbox.is_ready()), (vec![1], false));
        outbox.received(ReceivedAnswers { connection: 2, bytes: 0 });
        assert_eq!((next(&mut outbox), outbox.is_ready()), (vec![2], false));
        outbox.unheard();
        assert_eq!(next(&mut outbox), [3]);
    }

    #[test]
    fn an_answer_that_is_not_published_yet_is_on_the_way_to_a_new_connection_too() {
        let mut outbox = outbox(&[8 * MIB, 8 * MIB, 1]);
        assert_eq!(next(&mut outbox), [1]);
        outbox.received(ReceivedAnswers { connection: 2, bytes: 0 });
        assert_eq!(outbox.next_message().len(), 1);
        let sent = outbox.sent();
        for connection in [3, 4] {
            outbox.received(ReceivedAnswers { connection, bytes: 0 });
            assert!(outbox.is_under_way(sent) && !outbox.is_ready());
        }
        outbox.unheard();
        assert!(outbox.is_under_way(sent) && !outbox.is_ready(), "nobody received an earlier message");
        outbox.published(sent);
        outbox.received(ReceivedAnswers { connection: 5, bytes: 0 });
        assert!(!outbox.is_under_way(sent) && outbox.is_ready());
    }

    #[test]
    fn long_answers_that_wait_for_room_are_bounded() {
        let mut outbox = outbox(&[40 * MIB]);
        assert!(!outbox.queue(2, vec![0; MIB].into()), "beyond the bound");
        assert!(outbox.queue(3, vec![0; SHORT].into()), "short answers are kept");
        assert_eq!((next(&mut outbox), outbox.queued_bytes), (vec![1], SHORT));
        assert!(outbox.queue(2, vec![0; MIB].into()));
    }
}
