//! A planned change of owner: a process that stops names its successor and goes on deciding while that one reads the journal
//! and makes an engine of it, which then follows what the owner still appends. So nobody waits for more than the last chunks
//! to be read. Used only where an owner stops in order, or steps down before it stops.

use eclusa_core::{Span, Time};

use crate::command::{Command, Look, TakeReason};
use crate::follower::{Follower, Verdict};
use crate::ownership::{Ownership, State};
use crate::settings::Settings;
use crate::step::Event;
use crate::tenure::Tenure;
use crate::term::{Position, ProcessId, RunId, TermId, TermView};

/// How often a successor looks, and the owner at most: a short journal is read at once.
const LOOK: Span = Span::from_millis(20);

/// What takes longer to be read and put together is done after the release.
const AT_MOST: Span = Span::from_secs(10);

/// A process that stops or steps down, and who should follow it.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) struct Stopping {
    pub(crate) successor: Option<ProcessId>,
    /// Whether it takes part afterwards: then it goes on if its successor does not get ready.
    pub(crate) stays: bool,
    /// Since the successor was named on the server.
    named: Option<Named>,
}

/// How far the successor is.
#[derive(Debug, Clone, Copy, Hash)]
struct Named {
    /// The last chunk when it was named: it is ready when its engine is that far.
    number: u64,
    /// It is waited for until then: a term from when it was last heard.
    until: Time,
    since: Time,
    look_at: Time,
    ready: bool,
}

impl Stopping {
    pub(crate) fn new(successor: Option<ProcessId>) -> Self {
        Self { successor, stays: false, named: None }
    }

    pub(crate) fn stepping_down(successor: ProcessId) -> Self {
        Self { stays: true, ..Self::new(Some(successor)) }
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
        self.named = Some(Named { number, until, since, look_at, ready: false });
    }

    /// Takes note of how far the successor is.
    pub(crate) fn see(&mut self, look: &Look, settings: &Settings, now: Time) {
        let Some(named) = &mut self.named else { return };
        named.look_at = now + now.since(named.since).min(LOOK);
        let claim = look.claims.iter().find(|claim| Some(claim.process) == self.successor);
        if claim.is_some() {
            named.until = now + settings.term;
        }
        // One that is late has done a part of it, and nobody else any. One that stays has the time to wait for it.
        let late = !self.stays && now >= named.since + AT_MOST;
        named.ready = claim.is_some_and(|claim| late || claim.position.number >= named.number);
        if !named.ready && now >= named.until {
            // Whoever is there takes over, and reads the journal then.
            self.successor = None;
        }
    }
}

/// A successor that reads the journal ahead, and makes an engine of it.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Preparing {
    follower: Follower,
    /// The owner's term.
    term: TermId,
    run: RunId,
    /// The last chunk that was read.
    at: Position,
    /// The journal's last chunk at the last look, once something was read: up to there it is whole, whatever the owner has
    /// cleaned away before.
    number: Option<u64>,
    /// Whether it was read up to there, or up to its end.
    end: bool,
    /// The last chunk that is in the engine.
    built: Position,
    /// When to tell how far the engine is.
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
            // There is nothing to read yet, or what was read is of no use.
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
    /// This process is named as the successor of a living owner.
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

    /// Whether all that was read is in the engine.
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
