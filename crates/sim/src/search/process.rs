//! A process of the search: the real state machine, and instead of an engine only the identity of its state.

use eclusa_core::{Span, Time};
use eclusa_fleet::{
    Ack, Batch, Chunk, Command, Event, Outgoing, Ownership, Position, ProcessId, Reply, Settings, Step,
    TermId, Unanswered, Wanted,
};

use super::tree::Tree;
use crate::archive::{Chain, Kind, ROOT};
use crate::bugs::Bug;
use crate::config::TERM_MS;
use crate::keys::Entry;

/// Parts of a snapshot: more than one, so that it can be left unfinished.
const PARTS: u8 = 2;

/// The server's reply, and its state at that time.
#[derive(Debug, Clone, Hash)]
pub(super) struct Replied {
    pub(super) reply: Result<Reply, Unanswered>,
    /// The page that was read.
    pub(super) page: Vec<Entry>,
    /// The state of the journal. Only checkers read it.
    pub(super) journal: Chain,
}

impl Replied {
    /// No reply.
    pub(super) fn nothing() -> Self {
        Self { reply: Err(Unanswered), page: Vec::new(), journal: ROOT }
    }
}

/// What a process waits for.
#[derive(Debug, Clone, Hash)]
pub(super) enum Waits {
    /// The time of its next step.
    Idle,
    /// It has sent this, and the server has not run it.
    Sent(Command),
    /// The reply has not arrived yet.
    Replied(Replied),
}

/// See the module.
#[derive(Debug, Clone, Hash)]
pub(super) struct SearchProcess {
    pub(super) id: ProcessId,
    pub(super) machine: Ownership,
    pub(super) waits: Waits,
    /// It is paused, or what it waits for is: time advances without it.
    pub(super) slow: bool,
    /// The state that it has.
    pub(super) chain: Option<Chain>,
    /// It has not read everything.
    pub(super) loading: bool,
    /// A snapshot that is being read.
    open: Option<Chain>,
    /// The states of the batches that were handed out.
    batches: Vec<Chain>,
    /// The last state known to be durable.
    pub(super) durable: Chain,
    changes: u64,
    parts_left: u8,
    first_part: u64,
    /// Something is to be appended.
    pub(super) staged: bool,
    /// The term whose questions it wants to receive.
    pub(super) listening: Option<TermId>,
    /// The checksums of its chunks, for a planted bug.
    sums: Vec<(u64, u64)>,
}

impl SearchProcess {
    /// A process that has just started.
    pub(super) fn new(id: u64) -> Self {
        let settings = Settings {
            process: ProcessId(id),
            term: Span::from_millis(TERM_MS),
            patience: Span::ZERO,
            format: 1,
            ack: Ack::Write,
            seed: u128::from(id) << 100,
        };
        Self {
            id: ProcessId(id),
            machine: Ownership::new(settings),
            waits: Waits::Idle,
            slow: false,
            chain: None,
            loading: false,
            open: None,
            batches: Vec::new(),
            durable: ROOT,
            changes: 0,
            parts_left: 0,
            first_part: 0,
            staged: false,
            listening: None,
            sums: Vec::new(),
        }
    }

    /// Sends the next command of the state machine.
    pub(super) fn step(&mut self, tree: &mut Tree, now: u64, bug: Option<Bug>) {
        let now = Time::from_millis(now);
        let mut machine = self.machine.clone();
        let mut step = machine.next(now, &mut |wanted| self.work(tree, wanted, bug));
        if let Step::Send(Command::Build { .. }) = step {
            // How long that takes depends only on this process.
            machine.reply(now, Ok(Reply::Built(true)));
            step = machine.next(now, &mut |wanted| self.work(tree, wanted, bug));
        }
        self.machine = machine;
        self.waits = match step {
            Step::Send(command) => Waits::Sent(command),
            Step::Idle(_) => Waits::Idle,
        };
        if let Waits::Sent(Command::Listen(term)) = &self.waits {
            self.listening = Some(*term);
        }
    }

    fn work(&mut self, tree: &mut Tree, wanted: Wanted, bug: Option<Bug>) -> Option<Batch> {
        let (before, epoch) = (self.chain?, self.machine.holds()?.1);
        let (number, kind, keep_from) = match wanted {
            Wanted::Changes { number } => {
                if !std::mem::take(&mut self.staged) {
                    return None;
                }
                self.changes += 1;
                let after = tree.grow(before, self.id, self.changes);
                self.chain = Some(after);
                (number, Kind::Changes { before, after }, Position::default())
            }
            Wanted::Snapshot { number, first } => {
                if first {
                    (self.parts_left, self.first_part) = (PARTS, number);
                }
                self.parts_left = self.parts_left.checked_sub(1)?;
                let last = self.parts_left == 0;
                let keep =
                    if last { Position { epoch, number: self.first_part } } else { Position::default() };
                (number, Kind::Snapshot { chain: before, first, last }, keep)
            }
        };
        let chunk = tree.chunk(kind, number, self.id, keep_from);
        self.remember(&chunk, bug);
        let chain = self.chain?;
        self.batches.push(chain);
        let answer = Outgoing { to: self.id, message: chain.to_le_bytes().as_slice().into(), sent: 0 };
        let answers = if matches!(kind, Kind::Changes { .. }) { vec![answer] } else { Vec::new() };
        Some(Batch { chunk: Some(chunk), answers })
    }

    fn remember(&mut self, chunk: &Chunk, bug: Option<Bug>) {
        if bug == Some(Bug::TailAlwaysMatches) {
            self.sums.retain(|(number, _)| *number != chunk.number);
            self.sums.push((chunk.number, chunk.checksum));
        }
    }

    /// Handles a reply of the server. Returns the events of its ownership.
    pub(super) fn hear(&mut self, tree: &Tree, now: u64, replied: Replied, bug: Option<Bug>) -> Vec<Event> {
        self.load(tree, &replied.page);
        let reply = match replied.reply {
            Ok(Reply::Tail(Some((number, _)))) if bug == Some(Bug::TailAlwaysMatches) => {
                Ok(Reply::Tail(self.sums.iter().find(|(own, _)| *own == number).copied()))
            }
            reply => reply,
        };
        self.machine.reply(Time::from_millis(now), reply);
        self.slow = false;
        self.machine.events()
    }

    fn load(&mut self, tree: &Tree, page: &[Entry]) {
        for entry in page {
            match tree.kind(entry.checksum) {
                Kind::Changes { after, .. } => (self.open, self.chain) = (None, Some(after)),
                Kind::Snapshot { chain, first, last } => {
                    if first {
                        self.open = Some(chain);
                    }
                    if last && self.open == Some(chain) {
                        (self.open, self.chain) = (None, Some(chain));
                    }
                }
            }
        }
    }

    /// Prepares to read the journal.
    pub(super) fn begin_reading(&mut self) {
        (self.chain, self.open) = (Some(ROOT), None);
    }

    /// Prepares to read the journal after what was read ahead.
    pub(super) fn begin_loading(&mut self, after: Position) {
        if after == Position::default() {
            self.begin_reading();
        }
        (self.loading, self.durable) = (true, ROOT);
    }

    /// The state after the first `batches` batches.
    pub(super) fn batch(&self, batches: u64) -> Chain {
        let at = usize::try_from(batches).ok().and_then(|count| count.checked_sub(1));
        at.and_then(|at| self.batches.get(at)).copied().unwrap_or(ROOT)
    }

    /// It is no longer the owner.
    pub(super) fn lose(&mut self) {
        (self.chain, self.loading, self.staged) = (None, false, false);
        self.batches.iter_mut().for_each(|chain| *chain = ROOT);
    }
}
