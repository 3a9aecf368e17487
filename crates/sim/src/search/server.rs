//! The server of the search: the scripts, subscriptions, and the earlier states that it can go back to.

use std::rc::Rc;

use eclusa_fleet::{Append, Command, Position, ProcessId, Reply, RunId, TermId, Unanswered};

use super::audit::SearchAudit;
use super::fingerprint::BEATS;
use super::process::Replied;
use super::tree::Tree;
use crate::archive::{Chain, Kind};
use crate::bugs::Bug;
use crate::check::is_gone;
use crate::config::TERM_MS;
use crate::keys::{Keys, ScriptCall};

/// All claims expire this long after the last one was made. Shorter than in the product, so that fewer states differ.
const CLAIMS_MS: u64 = TERM_MS + 500;

/// What a server stores, and what the checkers know about it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Branch {
    pub(super) keys: Keys,
    /// The state that the journal leads to.
    pub(super) chain: Chain,
    /// A snapshot whose end is missing.
    open: Option<Chain>,
    /// When the beat last changed.
    beat_at: u64,
}

/// The subscriber of a process.
#[derive(Debug, Clone, Copy, Default, Hash)]
pub(super) struct Subscriber {
    pub(super) connected: bool,
    pub(super) term: Option<TermId>,
}

/// See the module.
#[derive(Debug, Clone, Hash)]
pub(super) struct SearchServer {
    pub(super) branch: Branch,
    /// What it stored before its writes, oldest first.
    pub(super) past: Vec<Rc<Branch>>,
    /// Whether it may go back to an earlier state.
    pub(super) goes_back: bool,
    /// The last beat. Beats never repeat: an owner that continues after the server went back has another term.
    pub(super) beat: u64,
    run: RunId,
    runs: u8,
    started: u64,
    /// One for each place.
    pub(super) subscribers: Vec<Subscriber>,
}

impl SearchServer {
    /// An empty server that has run for a while.
    pub(super) fn new(places: usize) -> Self {
        let subscribers = vec![Subscriber { connected: true, term: None }; places];
        Self {
            branch: Branch::default(),
            past: Vec::new(),
            goes_back: true,
            beat: BEATS,
            run: "0".into(),
            runs: 0,
            started: 0,
            subscribers,
        }
    }

    /// Whether this term is in force.
    pub(super) fn holds(&self, term: TermId) -> bool {
        self.branch.keys.term.as_ref().is_some_and(|view| view.term == term && view.run == self.run)
    }

    /// A state the server can go back to, without claims. States that differ only in their beat are equal.
    pub(super) fn keep(&mut self, mut branch: Branch) {
        if !self.goes_back {
            return;
        }
        if let Some(view) = &mut branch.keys.term {
            view.beat = 0;
        }
        branch.beat_at = 0;
        branch.keys.forget_claims();
        if !self.past.iter().any(|known| **known == branch) {
            self.past.push(Rc::new(branch));
        }
    }

    /// Restarts with `branch`.
    pub(super) fn restart(&mut self, branch: Branch, now: u64) {
        self.branch = branch;
        self.set_beat(self.beat + 1);
        self.runs += 1;
        (self.run, self.started) = (self.runs.to_string().into(), now);
        self.subscribers.fill(Subscriber::default());
    }

    fn set_beat(&mut self, beat: u64) {
        self.beat = beat;
        if let Some(view) = &mut self.branch.keys.term {
            view.beat = beat;
        }
    }

    /// Runs a command of a process.
    pub(super) fn run(
        &mut self,
        command: &Command,
        (place, process): (usize, ProcessId),
        (tree, bug): (&Tree, Option<Bug>),
        audit: &mut Rc<SearchAudit>,
        now: u64,
    ) -> Replied {
        let (run, subscribers) = (self.run.clone(), self.subscribers.clone());
        let heard = |term| subscribers.iter().filter(|one| one.term == Some(term)).count() as u64;
        let least_epoch = audit.terms.len() as u64 + 1;
        let call =
            ScriptCall { process, format: 1, run: &run, time: now, least_epoch, listeners: &heard, bug };
        let keys = &mut self.branch.keys;
        let mut page = Vec::new();
        let reply = match command {
            Command::Look => {
                let connected = subscribers.iter().filter(|one| one.connected).count() as u64;
                Ok(Reply::Looked(keys.look(&call, now - self.started, connected, TERM_MS)))
            }
            Command::Listen(term) if subscribers[place].connected => {
                self.subscribers[place].term = Some(*term);
                Ok(Reply::Listening)
            }
            Command::Take(take) => {
                let before = self.branch.clone();
                let reply = self.branch.keys.take(&call, take);
                if let Reply::Taken { epoch, .. } = reply {
                    let silent_ms = now.saturating_sub(before.beat_at);
                    let old = before.keys.term.as_ref();
                    let gone =
                        old.is_none_or(|view| is_gone(take.reason, view, &run, heard(view.term), silent_ms));
                    Rc::make_mut(audit).taken(take, process, epoch, gone);
                    self.keep(before);
                    self.branch.beat_at = now;
                    self.set_beat(self.beat + 1);
                }
                Ok(reply)
            }
            Command::Read { after } => {
                page = keys.page(*after, usize::MAX);
                Ok(Reply::Read { last: page.last().map_or(*after, |entry| entry.at), end: page.is_empty() })
            }
            Command::Tail => Ok(keys.tail()),
            Command::Append(append) => {
                let before = append.chunk.as_ref().map(|_| self.branch.clone());
                match self.branch.keys.append(&call, append) {
                    Err(refusal) => Ok(Reply::Refused(refusal)),
                    Ok(added) => {
                        self.branch.beat_at = now;
                        self.set_beat(self.beat + 1);
                        if let (Some(at), Some(before)) = (added, before) {
                            self.added(append, at, before.keys.last, tree, Rc::make_mut(audit));
                            self.keep(before);
                        }
                        if !append.answers.is_empty() || !self.holds(append.term) {
                            Rc::make_mut(audit).appended(append, process, &self.branch, tree);
                        }
                        Ok(Reply::Appended { listeners: heard(append.term), unheard: Vec::new() })
                    }
                }
            }
            Command::Claim(claim) => Ok(keys.claim(&call, claim, CLAIMS_MS)),
            Command::Name { term, successor } => {
                Ok(self.release(&call, *term, Some(*successor), Reply::Named))
            }
            Command::Release { term, successor } => {
                let reply = self.release(&call, *term, *successor, Reply::Released);
                if reply == Reply::Released {
                    Rc::make_mut(audit).losses.released(process);
                }
                Ok(reply)
            }
            Command::Listen(_) | Command::Confirm | Command::Build { .. } => Err(Unanswered),
        };
        Replied { reply, page, journal: self.branch.chain }
    }

    fn release(
        &mut self,
        call: &ScriptCall<'_>,
        term: TermId,
        successor: Option<ProcessId>,
        done: Reply,
    ) -> Reply {
        let reply = self.branch.keys.release(call, term, successor, done);
        self.branch.beat_at = call.time;
        self.set_beat(self.beat + 1);
        reply
    }

    /// I1: a chunk was added; its author had exactly the state before it.
    fn added(&mut self, append: &Append, at: Position, last: Position, tree: &Tree, audit: &mut SearchAudit) {
        let Some(chunk) = &append.chunk else { return };
        let branch = &mut self.branch;
        if at <= last {
            audit.fail("I1", format_args!("{at:?} is not above {last:?}"));
        }
        match tree.kind(chunk.checksum) {
            Kind::Changes { before, after } => {
                if before != branch.chain {
                    let chain = branch.chain;
                    audit.fail("I1", format_args!("a chunk made after state {before} follows {chain}"));
                }
                (branch.chain, branch.open) = (after, None);
            }
            Kind::Snapshot { chain, first, last } => {
                if first {
                    branch.open = Some(chain);
                }
                if branch.open != Some(chain) {
                    audit.fail("I1", format_args!("a part of a snapshot without its beginning"));
                }
                if last {
                    (branch.chain, branch.open) = (chain, None);
                }
            }
        }
        audit.journaled.insert(branch.chain);
    }
}
