//! A planned change of owner. A process that stops names its successor and stays the owner while the successor reads
//! the journal, builds an engine, and follows what the owner still appends. So after the release only the last chunks
//! must be read. Used only if an owner stops in an orderly way, or steps down before it stops.

use eclusa_core::{Span, Time};

use crate::command::{Command, Look, TakeReason};
use crate::follower::{Follower, Verdict};
use crate::ownership::{Ownership, State};
use crate::settings::Settings;
use crate::step::Event;
use crate::tenure::Tenure;
use crate::term::{Position, ProcessId, RunId, TermId, TermView};

/// How often a successor looks, and the longest interval between looks of the owner: a short journal is read at once.
const LOOK: Span = Span::from_millis(20);

/// The owner waits at most this long; the rest is read and built after the release.
const AT_MOST: Span = Span::from_secs(10);

/// A process that stops or steps down, and its successor.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) struct Stopping {
    pub(crate) successor: Option<ProcessId>,
    /// Whether it only steps down: then it stays the owner if its successor does not get ready.
    pub(crate) stays: bool,
    /// Set once the successor is named on the server.
    named: Option<Named>,
    /// Set once the term can be released: until then the owner appends what is staged.
    release_by: Option<Time>,
}

/// The progress of the successor.
#[derive(Debug, Clone, Copy, Hash)]
struct Named {
    /// The last chunk when it was named: the successor is ready when its engine has this chunk.
    number: u64,
    /// The owner waits until this time: a term after the successor's last claim.
    until: Time,
    since: Time,
    look_at: Time,
    ready: bool,
}

impl Stopping {
    pub(crate) fn new(successor: Option<ProcessId>) -> Self {
        Self { successor, stays: false, named: None, release_by: None }
    }

    pub(crate) fn stepping_down(successor: ProcessId) -> Self {
        Self { stays: true, ..Self::new(Some(successor)) }
    }

    /// The next command for the handover; `None` if nothing is due or it is done.
    pub(crate) fn next(&self, tenure: &Tenure, now: Time) -> Option<Command> {
        let successor = self.successor?;
        match &self.named {
            None => Some(Command::Name { term: tenure.term, successor }),
            Some(named) => (!named.ready && now >= named.look_at).then_some(Command::Look),
        }
    }

    /// When the next command is due; `None` if the term can be released.
    pub(crate) fn waits_until(&self) -> Option<Time> {
        self.successor?;
        self.named.filter(|named| !named.ready).map(|named| named.look_at)
    }

    /// Whether the term could have been released for `wait`, but something was always staged.
    pub(crate) fn is_overdue(&mut self, wait: Span, now: Time) -> bool {
        self.waits_until().is_none() && now >= *self.release_by.get_or_insert(now + wait)
    }

    /// The successor is named on the server.
    pub(crate) fn named(&mut self, number: u64, settings: &Settings, now: Time) {
        let (until, since, look_at) = (now + settings.term, now, now + Span::from_millis(1));
        self.named = Some(Named { number, until, since, look_at, ready: false });
    }

    /// Records the progress of the successor.
    pub(crate) fn see(&mut self, look: &Look, settings: &Settings, now: Time) {
        let Some(named) = &mut self.named else { return };
        named.look_at = now + now.since(named.since).min(LOOK);
        let claim = look.claims.iter().find(|claim| Some(claim.process) == self.successor);
        if claim.is_some() {
            named.until = now + settings.term;
        }
        // A late successor has done part of the work, and no other process any. A process that only steps down can
        // wait.
        let late = !self.stays && now >= named.since + AT_MOST;
        named.ready = claim.is_some_and(|claim| late || claim.position.number >= named.number);
        if !named.ready && now >= named.until {
            // Any process may take over, and reads the journal then.
            self.successor = None;
        }
    }
}

/// A successor that reads the journal ahead and builds an engine.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Preparing {
    follower: Follower,
    /// The owner's term.
    term: TermId,
    run: RunId,
    /// The last chunk that was read.
    at: Position,
    /// The journal's last chunk at the last look, once something was read. Up to there the journal is complete,
    /// whatever the owner has cleaned before.
    number: Option<u64>,
    /// Whether the journal was read up to that chunk, or to its end.
    end: bool,
    /// The last chunk in the engine.
    built: Position,
    /// When to claim the engine's position again.
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
    /// The part of the journal that need not be read again after `term` was taken over on `run`: it was appended under
    /// that term or before, and chunks do not change.
    pub(crate) fn valid(self, term: Option<TermId>, run: &RunId) -> Position {
        if Some(self.term) == term && self.run == *run { self.at } else { Position::default() }
    }
}

impl Preparing {
    /// The next command; `Err` is the time when one is due.
    pub(crate) fn next(&self, settings: &Settings, now: Time) -> Result<Command, Time> {
        if now >= self.claim_at {
            let claim = crate::Claim { process: settings.process, position: self.built };
            return Ok(Command::Claim(claim));
        }
        if now >= self.look_at {
            return Ok(Command::Look);
        }
        if !self.end {
            return Ok(Command::Read { after: self.at });
        }
        if self.built == self.at { Err(self.look_at) } else { Ok(Command::Build { epoch: None }) }
    }

    pub(crate) fn claimed(self, settings: &Settings, now: Time) -> Self {
        Self { claim_at: now + settings.probe(), ..self }
    }

    pub(crate) fn read(self, last: Position, end: bool) -> Self {
        if last == Position::default() {
            // There is nothing to read yet, or what was read cannot be used.
            return Self { at: last, number: None, end, built: last, ..self };
        }
        let end = end || self.number.is_some_and(|number| last.number >= number);
        Self { at: last, end, ..self }
    }

    fn look(&mut self, view: &TermView, now: Time) {
        if self.at > Position::default() {
            self.number = Some(view.number);
        }
        self.end = view.number <= self.at.number;
        self.look_at = now + LOOK;
    }
}

impl Ownership {
    /// This process was named as the successor of a live owner.
    pub(crate) fn prepare(&mut self, follower: Follower, look: &Look, now: Time) {
        let Some(view) = &look.term else { return };
        self.events.push(Event::ReadsAhead);
        self.state = State::Preparing(Preparing {
            follower,
            term: view.term,
            run: look.run.clone(),
            at: Position::default(),
            number: None,
            end: false,
            built: Position::default(),
            claim_at: now,
            look_at: now + LOOK,
        });
    }

    /// Handles a reply to `Build`: whether everything that was read is in the engine.
    pub(crate) fn built_ahead(&mut self, preparing: Preparing, built: bool, now: Time) {
        let first = built && preparing.built == Position::default();
        self.events.extend(first.then_some(Event::Ready));
        let at = preparing.at;
        self.state = State::Preparing(if built {
            Preparing { built: at, claim_at: now, ..preparing }
        } else {
            preparing
        });
    }

    /// Discards what was read ahead.
    pub(crate) fn forget_prepared(&mut self) {
        let preparing = matches!(self.state, State::Preparing(_));
        if self.prepared.take().is_some() || preparing {
            self.events.push(Event::ReadInVain);
        }
    }

    /// Handles a look: the owner has released its term, continues, or something else happened.
    pub(crate) fn look_while_preparing(&mut self, mut preparing: Preparing, look: &Look, now: Time) {
        self.note_view(look);
        let same = |view: &TermView| view.term == preparing.term && look.run == preparing.run;
        let Some(view) = look.term.as_ref().filter(|view| same(view)) else {
            self.events.push(Event::ReadInVain);
            return self.looked(Follower::looking_at(now), look, now);
        };
        match preparing.follower.judge(look, &self.settings, false, now) {
            Verdict::Prepare => {
                preparing.look(view, now);
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
