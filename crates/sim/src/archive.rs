//! Everything that processes have produced: the chunks and answers behind the bytes that the state machine carries, and
//! the tree of states that the chunks form.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use eclusa_fleet::{ProcessId, TermId};

use crate::ask::AnswerMessage;
use crate::engine::{LeaseId, Record};

/// A state of the engine, named by the chunk that led to it. `ROOT` is the empty one. Children have higher numbers.
pub(crate) type Chain = usize;

/// The state before the first chunk.
pub(crate) const ROOT: Chain = 0;

/// How a chunk changes the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Turns the state `before` into the state `after`.
    Changes {
        /// The state of its author without it.
        before: Chain,
        /// The state with it.
        after: Chain,
    },
    /// A part of a snapshot of the state `chain`.
    Snapshot {
        /// The state.
        chain: Chain,
        /// The first part.
        first: bool,
        /// The last part.
        last: bool,
    },
}

/// A question that changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effect {
    /// The asker.
    pub(crate) asker: ProcessId,
    /// The sequence number.
    pub(crate) seq: u64,
    /// The term it ran under.
    pub(crate) term: TermId,
    /// Must not run again, whatever happens to the term.
    pub(crate) once: bool,
    /// Its lease, if it got one.
    pub(crate) lease: Option<LeaseId>,
    /// The true time.
    pub(crate) at: u64,
}

/// The contents of a chunk.
#[derive(Debug, Clone)]
pub(crate) struct Body {
    /// How it changes the state.
    pub(crate) kind: Kind,
    /// New states of things.
    pub(crate) records: Vec<Record>,
    /// Engine time.
    pub(crate) time: u64,
    /// How far engine time is ahead of the server's clock.
    pub(crate) ahead: i64,
    /// The stamp of the rules in force.
    pub(crate) rule: u64,
    /// Leases that expired, with the true time.
    pub(crate) expired: Vec<(LeaseId, u64)>,
    /// Questions whose effects it contains.
    pub(crate) effects: Vec<Effect>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Archive {
    bodies: Vec<Rc<Body>>,
    answers: Vec<Rc<AnswerMessage>>,
    parents: Vec<Chain>,
    /// The true time at which each lease was granted.
    pub(crate) granted: BTreeMap<LeaseId, u64>,
    /// The bytes of every chunk: only their length matters.
    pub(crate) blob: Arc<[u8]>,
}

impl Archive {
    /// An empty archive. All chunks have these bytes.
    pub(crate) fn new(blob: Arc<[u8]>) -> Self {
        Self { bodies: Vec::new(), answers: Vec::new(), parents: vec![ROOT], granted: BTreeMap::new(), blob }
    }

    /// A new state after `parent`.
    pub(crate) fn grow(&mut self, parent: Chain) -> Chain {
        self.parents.push(parent);
        self.parents.len() - 1
    }

    /// Whether the state `later` contains the state `earlier`.
    pub(crate) fn contains(&self, later: Chain, earlier: Chain) -> bool {
        let mut at = later;
        while at > earlier {
            at = self.parents[at];
        }
        at == earlier
    }

    /// The last state that both contain.
    pub(crate) fn common(&self, mut one: Chain, mut other: Chain) -> Chain {
        while one != other {
            if one > other {
                one = self.parents[one];
            } else {
                other = self.parents[other];
            }
        }
        one
    }

    /// Keeps a chunk; the checksum identifies it.
    pub(crate) fn keep_body(&mut self, body: Body) -> u64 {
        for effect in &body.effects {
            if let Some(lease) = effect.lease {
                self.granted.entry(lease).or_insert(effect.at);
            }
        }
        self.bodies.push(Rc::new(body));
        self.bodies.len() as u64
    }

    /// The chunk with this checksum.
    pub(crate) fn body(&self, checksum: u64) -> Rc<Body> {
        let index = usize::try_from(checksum - 1).unwrap_or(usize::MAX);
        Rc::clone(&self.bodies[index])
    }

    /// Keeps a message with answers; the bytes identify it.
    pub(crate) fn keep_answers(&mut self, message: AnswerMessage) -> Vec<u8> {
        self.answers.push(Rc::new(message));
        (self.answers.len() - 1).to_le_bytes().to_vec()
    }

    /// The message of these bytes.
    pub(crate) fn answers(&self, bytes: &[u8]) -> Rc<AnswerMessage> {
        Rc::clone(&self.answers[index(bytes)])
    }
}

fn index(bytes: &[u8]) -> usize {
    let mut eight = [0; 8];
    eight.copy_from_slice(bytes);
    usize::from_le_bytes(eight)
}
