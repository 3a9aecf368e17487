//! A process's tenure as the owner: what it has sent, what was acknowledged, what it can send again.

use std::collections::VecDeque;
use std::sync::Arc;

use eclusa_core::{Span, Time};

use crate::command::{Append, Outgoing};
use crate::settings::{Ack, Settings};
use crate::step::Batch;
use crate::term::{Position, RunId, TermId};

/// Bytes of recent chunks that are kept, to append them again if the server loses them. Beyond that, a snapshot is
/// written.
const RECENT_BYTES: usize = 8 << 20;

/// A numbered piece of the journal. Its bytes never change once sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Chunk {
    /// Its number in the journal.
    pub number: u64,
    /// The stored bytes.
    pub bytes: Arc<[u8]>,
    /// Distinguishes it from any other chunk with the same number. In addition to the bytes it covers the previous
    /// chunks, or the owner and term. Otherwise equal chunks of two branches of the journal would look like a common
    /// base.
    pub checksum: u64,
    /// Chunks before this position are not needed once this chunk is stored.
    pub keep_from: Position,
}

/// An append in flight, and what its reply releases.
#[derive(Debug, Clone, Hash)]
pub(crate) struct InFlight {
    pub(crate) append: Append,
    /// Answers that must not be sent before the reply.
    pub(crate) later: Vec<Outgoing>,
    /// The number of batches handed out before it was sent.
    pub(crate) batches: u64,
    /// The number of batches known to be on a replica before it was sent. Its reply proves that the term was still
    /// held.
    pub(crate) confirmed: Option<u64>,
    /// A reply was lost, so it may have been run before.
    pub(crate) repeated: bool,
}

/// How much of this process's state the journal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Journal {
    /// The journal was not read to its end: there is no state to claim.
    Unread,
    /// The server may have lost chunks that this process still has.
    Behind,
    /// A snapshot was started and not finished: the kept chunks are not everything.
    Rewriting,
    /// Everything that was acknowledged.
    Whole,
}

/// An owner without a subscription to its questions.
#[derive(Debug, Clone, Copy, Hash)]
struct Deaf {
    /// When to subscribe again.
    listen_at: Time,
    /// When to check whether another process could be the owner instead.
    look_at: Time,
}

/// The state of an owner.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Tenure {
    pub(crate) term: TermId,
    pub(crate) epoch: u64,
    pub(crate) run: RunId,
    /// The server's last chunk.
    pub(crate) number: u64,
    /// The epoch and number of the last acknowledged chunk: what this process claims.
    pub(crate) claimed: Position,
    pub(crate) journal: Journal,
    pub(crate) in_flight: Option<InFlight>,
    /// When the last renewal of the term was sent.
    pub(crate) renewed_at: Time,
    /// Answers whose chunk is durable, to be sent with the next append.
    pub(crate) held: Vec<Outgoing>,
    /// Answers that wait until the journal is complete again.
    waiting: Vec<Outgoing>,
    /// Batches that are appended but not confirmed by a replica, and their answers.
    pub(crate) unconfirmed: Option<(u64, Vec<Outgoing>)>,
    /// The number of batches on a replica, to be reported after the next append.
    pub(crate) confirmed: Option<u64>,
    /// The connection may differ from that of the last append. A replica can only be waited for on the same connection,
    /// so write first.
    pub(crate) write_to_confirm: bool,
    deaf: Option<Deaf>,
    recent: VecDeque<Chunk>,
    recent_bytes: usize,
}

impl Tenure {
    pub(crate) fn new(term: TermId, epoch: u64, run: RunId, number: u64, now: Time) -> Self {
        Self {
            term,
            epoch,
            run,
            number,
            claimed: Position { epoch, number },
            journal: Journal::Unread,
            in_flight: None,
            renewed_at: now,
            held: Vec::new(),
            waiting: Vec::new(),
            unconfirmed: None,
            confirmed: None,
            write_to_confirm: false,
            deaf: None,
            recent: VecDeque::new(),
            recent_bytes: 0,
        }
    }

    /// Moves the state to a new term, on a server whose last chunk is `number`. What was in flight is sent again from
    /// memory; answers wait until that is done.
    pub(crate) fn move_to(&mut self, term: TermId, epoch: u64, run: RunId, number: u64, now: Time) {
        self.waiting.append(&mut self.held);
        self.confirmed = None;
        if let Some((_, answers)) = self.unconfirmed.take() {
            self.waiting.extend(answers);
        }
        if let Some(lost) = self.in_flight.take() {
            self.waiting.extend(lost.append.answers.iter().cloned());
            self.waiting.extend(lost.later);
        }
        if self.journal == Journal::Whole {
            self.journal = Journal::Behind;
        }
        (self.term, self.epoch, self.run, self.number, self.renewed_at) = (term, epoch, run, number, now);
    }

    /// The journal has everything that this process has.
    pub(crate) fn complete(&mut self, batches: u64, ack: Ack) {
        self.journal = Journal::Whole;
        let answers = std::mem::take(&mut self.waiting);
        match ack {
            Ack::Write | Ack::Fsync => self.held.extend(answers),
            Ack::Replicate => self.unconfirmed = Some((batches, answers)),
        }
    }

    /// Renews the term and sends the answers that are due.
    pub(crate) fn renewal(&mut self, batches: u64) -> Append {
        let answers = std::mem::take(&mut self.held);
        self.send(None, answers, Vec::new(), batches)
    }

    /// Whether answers wait only for a fenced round trip.
    pub(crate) fn has_answers(&self) -> bool {
        !self.held.is_empty() || self.confirmed.is_some()
    }

    /// Records whether this owner receives questions. Returns whether to subscribe again: not with every append, which
    /// would close the connection that is being opened.
    pub(crate) fn hears(&mut self, hears: bool, settings: &Settings, now: Time) -> bool {
        if hears {
            self.deaf = None;
            return false;
        }
        let deaf = self.deaf.get_or_insert(Deaf { listen_at: now, look_at: now + settings.term });
        let due = now >= deaf.listen_at;
        if due {
            deaf.listen_at = now + settings.probe();
        }
        due
    }

    /// Whether it has received no questions for a term, and should check whether another process could be the owner.
    pub(crate) fn is_to_be_left(&self, now: Time) -> bool {
        self.deaf.is_some_and(|deaf| now >= deaf.look_at)
    }

    /// Nobody could: it stays the owner and checks again after `wait`.
    pub(crate) fn stay(&mut self, wait: Span, now: Time) {
        if let Some(deaf) = &mut self.deaf {
            deaf.look_at = now + wait;
        }
    }

    /// Appends a batch.
    pub(crate) fn append(&mut self, batch: Batch, batches: u64, ack: Ack) -> Append {
        let Batch { chunk, answers } = batch;
        if let Some(chunk) = &chunk {
            self.remember(chunk.clone());
        }
        if self.journal != Journal::Whole {
            self.waiting.extend(answers);
            return self.send(chunk, Vec::new(), Vec::new(), batches);
        }
        let mut now = std::mem::take(&mut self.held);
        // What a read saw is already stored, unless it is not on the replica yet.
        let at_once = ack == Ack::Write || chunk.is_none() && self.unconfirmed.is_none();
        let later = if at_once {
            now.extend(answers);
            Vec::new()
        } else {
            answers
        };
        self.send(chunk, now, later, batches)
    }

    /// Appends a chunk that was sent before.
    pub(crate) fn append_again(&mut self, chunk: Chunk, batches: u64) -> Append {
        self.send(Some(chunk), Vec::new(), Vec::new(), batches)
    }

    fn send(
        &mut self,
        chunk: Option<Chunk>,
        answers: Vec<Outgoing>,
        later: Vec<Outgoing>,
        batches: u64,
    ) -> Append {
        let append = Append {
            term: self.term,
            epoch: self.epoch,
            run: self.run.clone(),
            number: chunk.as_ref().map_or(self.number, |chunk| chunk.number),
            chunk,
            whole: self.journal == Journal::Whole,
            answers: answers.into(),
        };
        let confirmed = self.confirmed.take();
        self.in_flight =
            Some(InFlight { append: append.clone(), later, batches, confirmed, repeated: false });
        append
    }

    /// No reply to what was sent last.
    pub(crate) fn unanswered(&mut self) {
        self.write_to_confirm = true;
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.repeated = true;
        }
    }

    /// The server has stored what was in flight.
    pub(crate) fn acknowledge(&mut self) -> Option<InFlight> {
        let done = self.in_flight.take()?;
        self.write_to_confirm = false;
        self.number = done.append.number;
        self.claimed = Position { epoch: self.epoch, number: self.number };
        Some(done)
    }

    /// The chunks after `number`, if they are kept and the server's chunk `number` is ours.
    pub(crate) fn missing_after(&self, number: u64, checksum: Option<u64>) -> Option<VecDeque<Chunk>> {
        if self.journal == Journal::Rewriting {
            return None;
        }
        let first = self.recent.front()?.number;
        let same = match checksum {
            Some(sum) => self.recent.iter().any(|chunk| chunk.number == number && chunk.checksum == sum),
            None => number == 0 && first == 1,
        };
        same.then(|| self.recent.iter().filter(|chunk| chunk.number > number).cloned().collect())
    }

    /// Drops the kept chunks: a snapshot replaces them.
    pub(crate) fn begin_snapshot(&mut self) {
        self.journal = Journal::Rewriting;
        self.recent.clear();
        self.recent_bytes = 0;
    }

    fn remember(&mut self, chunk: Chunk) {
        self.recent_bytes += chunk.bytes.len();
        self.recent.push_back(chunk);
        while self.recent_bytes > RECENT_BYTES && self.recent.len() > 1 {
            if let Some(oldest) = self.recent.pop_front() {
                self.recent_bytes -= oldest.bytes.len();
            }
        }
    }
}
