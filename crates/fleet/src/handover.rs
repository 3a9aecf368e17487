//! A planned change of owner: a process that stops names its successor and goes on deciding while that one reads the journal.
//! So nobody waits for the journal to be read. Used only where an owner stops in order.

use eclusa_core::{Span, Time};

use crate::command::{Command, Look, TakeReason};
use crate::follower::{Follower, Verdict};
use crate::ownership::{Ownership, State};
use crate::settings::Settings;
use crate::step::Event;
use crate::tenure::Tenure;
use crate::term::{Position, ProcessId, RunId, TermId};

/// How often a successor looks, and the owner at most: a short journal is read at once.
const LOOK: Span = Span::from_millis(20);

/// A journal that takes longer to read is read after the release.
const AT_MOST: Span = Span::from_secs(10);

/// A process that stops, and who should follow it.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) struct Stopping {
    pub(crate) successor: Option<ProcessId>,
    /// Since the successor was named on the server.
    named: Option<Named>,
}

/// How far the successor is.
#[derive(Debug, Clone, Copy, Hash)]
struct Named {
    /// The last chunk when it was named: it is ready when it has read that far.
    number: u64,
    /// What it has read, as last seen.
    read: Option<Position>,
    /// It is waited for until then: a term from when it was last seen to get on.
    until: Time,
    since: Time,
    look_at: Time,
    ready: bool,
}

impl Stopping {
    pub(crate) fn new(successor: Option<ProcessId>) -> Self {
        Self { successor, named: None }
    }

    /// What to send to have the successor get ready; `None` if that is not due, or done.
    pub(crate) fn next(&self, tenure: &Tenure, now: Time) -> Option<Command> {
        let successor = self.successor?;
        match &self.named {
            None => Some(Command::Name { term: tenure.term, successor }),
            Some(named) => (!named.ready && now >= named.look_at).then_some(Command::Look),
        }
    }

    /// When there is something to send again; `None` if the term can be released.
    pub(crate) fn waits_until(&self) -> Option<Time> {
        self.successor?;
        self.named.filter(|named| !named.ready).map(|named| named.look_at)
    }

    /// The server knows who is to follow.
    pub(crate) fn named(&mut self, number: u64, settings: &Settings, now: Time) {
        let (until, since, look_at) = (now + settings.term, now, now + Span::from_millis(1));
        self.named = Some(Named { number, read: None, until, since, look_at, ready: false });
    }

    /// Takes note of how far the successor is.
    pub(crate) fn see(&mut self, look: &Look, settings: &Settings, now: Time) {
        let Some(named) = &mut self.named else { return };
        named.look_at = now + now.since(named.since).min(LOOK);
        let read = look.claims.iter().find(|claim| Some(claim.process) == self.successor);
        let read = read.map(|claim| claim.position);
        if read.is_some() && read != named.read {
            (named.read, named.until) = (read, now + settings.term);
        }
        named.ready = read.is_some_and(|read| read.number >= named.number);
        if !named.ready && now >= named.until.min(named.since + AT_MOST) {
            // Whoever is there takes over, and reads the journal then.
            self.successor = None;
        }
    }
}

/// A successor that reads the journal ahead.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Preparing {
    follower: Follower,
    /// The owner's term.
    term: TermId,
    run: RunId,
    /// The last chunk that was read.
    at: Position,
    /// Whether that was the last one there is.
    end: bool,
    /// When to tell how much was read.
    claim_at: Time,
    pub(crate) look_at: Time,
}

/// What was read ahead.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Prepared {
    term: TermId,
    run: RunId,
    at: Position,
}

impl Prepared {
    /// How much of the journal need not be read again after `term` was taken over on `run`: all that is in it was appended
    /// under that term or before, and chunks do not change.
    pub(crate) fn valid(self, term: Option<TermId>, run: &RunId) -> Position {
        if Some(self.term) == term && self.run == *run { self.at } else { Position::default() }
    }
}

impl Preparing {
    /// What to send next; `Err` is when.
    pub(crate) fn next(&self, settings: &Settings, now: Time) -> Result<Command, Time> {
        if now >= self.claim_at {
            let claim = crate::Claim { process: settings.process, position: self.at };
            return Ok(Command::Claim(claim));
        }
        if !self.end {
            return Ok(Command::Read { after: self.at });
        }
        if now >= self.look_at { Ok(Command::Look) } else { Err(self.look_at) }
    }

    pub(crate) fn claimed(self, settings: &Settings, now: Time) -> Self {
        Self { claim_at: now + settings.probe(), ..self }
    }

    pub(crate) fn read(self, last: Position, end: bool, now: Time) -> Self {
        let claim_at = if end { now } else { self.claim_at };
        Self { at: last, end, claim_at, look_at: now + LOOK, ..self }
    }
}

impl Ownership {
    /// This process is named as the successor of a living owner.
    pub(crate) fn prepare(&mut self, follower: Follower, look: &Look, now: Time) {
        let Some(view) = &look.term else { return };
        let (term, run, at) = (view.term, look.run.clone(), Position::default());
        self.events.push(Event::ReadsAhead);
        self.state =
            State::Preparing(Preparing { follower, term, run, at, end: false, claim_at: now, look_at: now });
    }

    /// What was read ahead is of no use.
    pub(crate) fn forget_prepared(&mut self) {
        let preparing = matches!(self.state, State::Preparing(_));
        if self.prepared.take().is_some() || preparing {
            self.events.push(Event::ReadInVain);
        }
    }

    /// The owner has released its term, goes on, or something else happened.
    pub(crate) fn look_while_preparing(&mut self, mut preparing: Preparing, look: &Look, now: Time) {
        self.note_view(look);
        let same = |view: &crate::TermView| view.term == preparing.term && look.run == preparing.run;
        let Some(view) = look.term.as_ref().filter(|view| same(view)) else {
            self.events.push(Event::ReadInVain);
            return self.looked(Follower::looking_at(now), look, now);
        };
        match preparing.follower.judge(look, &self.settings, false, now) {
            Verdict::Prepare => {
                preparing.end = view.number <= preparing.at.number;
                preparing.look_at = now + LOOK;
                self.state = State::Preparing(preparing);
            }
            Verdict::Take(TakeReason::Released) => {
                let Preparing { term, run, at, .. } = preparing;
                self.prepared = Some(Prepared { term, run, at });
                self.state = self.begin_take(look, TakeReason::Released, now);
            }
            _ => {
                self.events.push(Event::ReadInVain);
                self.looked(preparing.follower, look, now);
            }
        }
    }
}
