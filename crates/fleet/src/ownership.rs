//! The state machine of one process: following, settling, taking over. Its part as the owner is in `owner`.

use std::collections::VecDeque;

use eclusa_core::{Span, Time};

use crate::command::{Command, Look, Reply, Take, TakeReason, Unanswered};
use crate::follower::{Follower, Verdict};
use crate::handover::{Prepared, Preparing, Stopping};
use crate::settings::Settings;
use crate::settling::{Settling, Subscribing};
use crate::step::{Event, Step, Work};
use crate::tenure::{Chunk, Journal, Tenure};
use crate::term::{Position, ProcessId, RunId, TermId, TermView};

/// Delay before a command without a reply is repeated.
pub(crate) const RETRY: Span = Span::from_millis(100);

/// What a process is doing.
#[derive(Debug, Clone, Hash)]
pub(crate) enum State {
    Follower(Follower),
    /// Reads the journal of an owner that is about to stop, and follows it.
    Preparing(Preparing),
    Settling(Settling),
    /// Subscribes to the questions of a term that it is about to take.
    Listening {
        take: Take,
        looked_at: Time,
    },
    Taking(Take),
    /// Reads the journal up to the last chunk of its term.
    Loading(Position),
    /// Has read everything and builds the engine: with very many jobs that takes longer than a term.
    Building,
    /// Checks that what was read belongs to this term and run: reads are not fenced.
    Verifying,
    /// Compares its memory with the journal's last chunk.
    Comparing,
    /// Appends again what the server lost.
    Repeating(VecDeque<Chunk>),
    /// Writes a snapshot; `true` before the first part.
    Rewriting(bool),
    Owning,
    Releasing,
    Stopped,
}

/// A tenure that ended before it was released.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) struct LostTenure {
    pub(crate) term: TermId,
    /// The last acknowledged chunk.
    pub(crate) number: u64,
    /// Whether the journal had everything.
    pub(crate) whole: bool,
}

/// The state machine of one process. One command is in flight at a time.
#[derive(Debug, Clone, Hash)]
pub struct Ownership {
    pub(crate) settings: Settings,
    pub(crate) state: State,
    /// Its tenure as the owner, or the one it had when the server lost data.
    pub(crate) tenure: Option<Tenure>,
    /// The tenure it lost, until the new owner is known.
    pub(crate) lost: Option<LostTenure>,
    /// What it has read ahead, for the term that it takes over.
    pub(crate) prepared: Option<Prepared>,
    /// The highest epoch seen.
    epoch: u64,
    terms: u64,
    /// Number of batches handed out.
    pub(crate) handed: u64,
    pub(crate) retry_at: Time,
    pub(crate) confirm_at: Time,
    pub(crate) subscribing: Subscribing,
    /// Set when the process stops or steps down.
    pub(crate) stopping: Option<Stopping>,
    pub(crate) events: Vec<Event>,
}

impl Ownership {
    /// The state of a process that has just started.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            state: State::Follower(Follower::default()),
            tenure: None,
            lost: None,
            prepared: None,
            epoch: 0,
            terms: 0,
            handed: 0,
            retry_at: Time::default(),
            confirm_at: Time::default(),
            subscribing: Subscribing::Works,
            stopping: None,
            events: Vec::new(),
        }
    }

    /// Whether verbs may run here.
    pub fn owns(&self) -> bool {
        matches!(self.state, State::Owning)
    }

    /// The term and epoch that this process believes to hold, also while it reads or repairs the journal.
    pub fn holds(&self) -> Option<(TermId, u64)> {
        self.tenure.as_ref().map(|tenure| (tenure.term, tenure.epoch))
    }

    /// Looks as soon as possible, because a question was not answered.
    pub fn look_soon(&mut self, now: Time) {
        match &mut self.state {
            State::Follower(follower) => follower.look_at = follower.look_at.min(now),
            State::Preparing(preparing) => preparing.look_at = preparing.look_at.min(now),
            _ => {}
        }
    }

    /// Stops: lets `successor` get ready, and releases the term once nothing is staged, after a quarter of a term at the
    /// latest. May be called again to name another successor.
    pub fn stop(&mut self, successor: Option<ProcessId>) {
        self.stopping = Some(Stopping::new(successor));
    }

    /// As the owner: lets `successor` get ready, releases the term to it, and follows it. Stays the owner if the
    /// successor does not get ready.
    pub fn step_down(&mut self, successor: ProcessId) {
        if self.owns() {
            self.stopping = Some(Stopping::stepping_down(successor));
        }
    }

    pub(crate) fn stops(&self) -> bool {
        self.stopping.is_some_and(|stopping| !stopping.stays)
    }

    /// Whether it has stopped.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, State::Stopped)
    }

    /// Events since the last call, in order.
    pub fn events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The next step. `work` is called for changes to append.
    pub fn next(&mut self, now: Time, work: Work<'_>) -> Step {
        if self.stops() && self.tenure.is_none() && !matches!(self.state, State::Taking(_)) {
            self.state = State::Stopped;
        }
        if matches!(self.state, State::Stopped) {
            return Step::Idle(Time::NEVER);
        }
        if now < self.retry_at {
            return Step::Idle(self.retry_at);
        }
        match &mut self.state {
            State::Follower(follower) if now < follower.look_at => Step::Idle(follower.look_at),
            State::Follower(_) => Step::Send(Command::Look),
            State::Preparing(preparing) => match preparing.next(&self.settings, now) {
                Ok(command) => Step::Send(command),
                Err(at) => Step::Idle(at),
            },
            State::Settling(settling) => {
                if now < settling.next_at {
                    return Step::Idle(settling.next_at);
                }
                let look = settling.look;
                Step::Send(if look { Command::Look } else { Command::Claim(self.claim()) })
            }
            State::Listening { take, .. } => Step::Send(Command::Listen(take.term)),
            State::Taking(take) => Step::Send(Command::Take(take.clone())),
            State::Stopped => Step::Idle(Time::NEVER),
            State::Loading(_)
            | State::Building
            | State::Verifying
            | State::Comparing
            | State::Repeating(_)
            | State::Rewriting(_)
            | State::Owning
            | State::Releasing => self.next_of_owner(now, work),
        }
    }

    /// Handles the server's reply to the last command.
    pub fn reply(&mut self, now: Time, reply: Result<Reply, Unanswered>) {
        let Ok(reply) = reply else { return self.unanswered(now) };
        if reply == Reply::Listening {
            self.subscribing = Subscribing::Works;
        }
        match (std::mem::replace(&mut self.state, State::Stopped), reply) {
            (State::Follower(follower), Reply::Looked(look)) => self.looked(follower, &look, now),
            (State::Preparing(preparing), Reply::Looked(look)) => {
                self.look_while_preparing(preparing, &look, now);
            }
            (State::Preparing(preparing), Reply::Read { last, end }) => {
                self.state = State::Preparing(preparing.read(last, end));
            }
            (State::Preparing(preparing), Reply::Built(built)) => self.built_ahead(preparing, built, now),
            (State::Preparing(preparing), Reply::Claimed(_)) => {
                self.state = State::Preparing(preparing.claimed(&self.settings, now));
            }
            (State::Settling(settling), Reply::Looked(look)) => self.settle(settling, &look, now),
            (State::Settling(settling), Reply::Claimed(renewed)) => {
                self.state = State::Settling(settling.claimed(renewed, &self.settings, now));
            }
            (State::Listening { looked_at, .. }, Reply::Listening)
                if now >= looked_at + self.settings.probe() =>
            {
                self.forget_prepared();
                self.state = self.watch(now);
            }
            (State::Listening { take, .. }, Reply::Listening) => self.state = State::Taking(take),
            (State::Taking(take), Reply::Taken { epoch, number }) => {
                let saw = take.saw.map(|(term, _)| term);
                // No look has shown another owner.
                self.account(|lost| saw != Some(lost.term) || !lost.whole || number < lost.number);
                let prepared = self.prepared.take();
                let after = prepared.map(|prepared| prepared.valid(saw, &take.run)).unwrap_or_default();
                self.hold(take.term, epoch, take.run, (number, after), now);
            }
            (State::Taking(_), Reply::NotTaken) => self.not_taken(now),
            (State::Loading(_) | State::Building, Reply::Read { last, end }) => self.read(last, end, now),
            (State::Building, Reply::Built(true)) => self.state = State::Verifying,
            (State::Comparing, Reply::Tail(tail)) => self.compare(tail),
            (state, Reply::Appended { listeners, unheard }) => {
                self.state = state;
                self.appended(listeners, &unheard, now);
            }
            (state, Reply::Confirmed(confirmed)) => {
                self.state = state;
                self.confirmed(confirmed, now);
            }
            (state, Reply::Refused(refusal)) => {
                self.state = state;
                self.refused(refusal, now);
            }
            (State::Owning, reply @ (Reply::Named | Reply::Looked(_))) => {
                self.state = State::Owning;
                self.hand_over(&reply, now);
            }
            (State::Releasing, Reply::Released) => {
                self.events.push(Event::Released);
                if self.stops() {
                    self.tenure = None;
                } else {
                    self.lose(now);
                }
            }
            (state, _) => self.state = state,
        }
    }

    fn unanswered(&mut self, now: Time) {
        self.retry_at = now + RETRY;
        self.forget_prepared();
        if let Some(tenure) = &mut self.tenure {
            tenure.unanswered();
        }
        let listened = matches!(self.state, State::Listening { .. });
        self.subscribing = self.subscribing.unanswered(listened);
        match &mut self.state {
            State::Follower(follower) => follower.unanswered(now + RETRY),
            State::Settling(settling) => settling.restart(now + RETRY),
            // The term may have been taken, by this process or another: a new look shows it. The old look cannot be
            // used, because a server without a term has no beat that would reveal a change. What was read ahead may be
            // incomplete.
            State::Listening { .. } | State::Taking(_) | State::Preparing(_) => self.state = self.watch(now),
            _ => {}
        }
    }

    /// Returns to looking; restarts settling if this process has state.
    pub(crate) fn watch(&self, now: Time) -> State {
        match self.tenure {
            Some(_) => State::Settling(Settling::begin(now)),
            None => State::Follower(Follower::looking_at(now)),
        }
    }

    fn not_taken(&mut self, now: Time) {
        self.forget_prepared();
        self.state = self.watch(now);
    }

    pub(crate) fn looked(&mut self, mut follower: Follower, look: &Look, now: Time) {
        self.note_view(look);
        if self.resume_take(look, now) {
            return;
        }
        match follower.judge(look, &self.settings, self.epoch == 0, now) {
            Verdict::Settle => self.state = State::Settling(Settling::begin(now)),
            Verdict::Take(reason) => self.state = self.begin_take(look, reason, now),
            Verdict::Prepare => self.prepare(follower, look, now),
            Verdict::Follow(look_at) => {
                follower.look_at = look_at;
                self.state = State::Follower(follower);
            }
        }
    }

    /// Keeps the highest epoch and reports the owner.
    pub(crate) fn note_view(&mut self, look: &Look) {
        let claims = look.claims.iter().map(|claim| claim.position.epoch);
        let term = look.term.iter().map(|view| view.epoch);
        self.epoch = claims.chain(term).fold(self.epoch, u64::max);
        let Some(view) = look.term.as_ref().filter(|view| view.run == look.run) else { return };
        if self.is_taken_unheard(view) {
            return;
        }
        if let Some(lost) = self.lost.take_if(|lost| lost.term != view.term) {
            self.events.push(Event::Superseded { missing: is_missing(view, lost) });
        }
        self.events.push(Event::Follows(view.clone()));
    }

    /// Whether this process has taken the term without receiving the reply. The server may run a take long after this
    /// process gave it up and tried again.
    fn is_taken_unheard(&self, view: &TermView) -> bool {
        let known = self.tenure.as_ref().is_some_and(|tenure| tenure.term == view.term);
        view.owner == self.settings.process && !view.released && !known
    }

    fn resume_take(&mut self, look: &Look, now: Time) -> bool {
        let Some(view) = &look.term else { return false };
        if view.run != look.run || !self.is_taken_unheard(view) {
            return false;
        }
        self.account(|lost| is_missing(view, lost));
        self.hold(view.term, view.epoch, look.run.clone(), (view.number, Position::default()), now);
        true
    }

    /// Reports whether anything of a lost tenure is missing.
    fn account(&mut self, missing: impl FnOnce(LostTenure) -> bool) {
        if let Some(lost) = self.lost.take() {
            self.events.push(Event::Superseded { missing: missing(lost) });
        }
    }

    pub(crate) fn begin_take(&mut self, look: &Look, reason: TakeReason, now: Time) -> State {
        self.terms += 1;
        let take = Take {
            saw: look.term.as_ref().map(|view| (view.term, view.beat)),
            run: look.run.clone(),
            term: TermId(mix(self.settings.seed, self.terms)),
            epoch_above: self.epoch,
            own: self.tenure.as_ref().map(|tenure| tenure.term),
            reason,
        };
        State::Listening { take, looked_at: now }
    }

    /// This process holds the term: it reads the journal up to `number`, after what it has read ahead, or continues
    /// from its state.
    fn hold(&mut self, term: TermId, epoch: u64, run: RunId, (number, after): (u64, Position), now: Time) {
        self.epoch = self.epoch.max(epoch);
        if let Some(tenure) = &mut self.tenure {
            tenure.move_to(term, epoch, run, number, now);
            self.state = State::Comparing;
        } else {
            self.tenure = Some(Tenure::new(term, epoch, run, number, now));
            self.load(epoch, after);
            if after > Position::default() && after.number >= number {
                self.state = State::Building;
            }
        }
    }

    fn settle(&mut self, mut settling: Settling, look: &Look, now: Time) {
        if self.resume_take(look, now) {
            return;
        }
        if look.term.as_ref().is_some_and(|view| view.run == look.run) {
            return self.settled_by_another(look, now);
        }
        self.note_view(look);
        if self.is_superseded(look) {
            return self.lose(now);
        }
        let own = self.claim();
        let unreadable = look.term.as_ref().is_some_and(|view| view.reader > self.settings.format);
        settling.see(look, &own, now);
        if (self.tenure.is_some() || !unreadable) && settling.may_take(&self.settings, now) {
            self.state = self.begin_take(look, TakeReason::Settled, now);
            return;
        }
        self.state = State::Settling(settling.looked(now));
    }

    /// Whether another process has taken over since: then the state of this process is too old to be written over the
    /// journal, even if nobody claims more.
    fn is_superseded(&self, look: &Look) -> bool {
        let (Some(own), Some(view)) = (&self.tenure, &look.term) else { return false };
        view.epoch > own.epoch && view.owner != self.settings.process
    }

    /// There is a term on this run of the server: it belongs to another process, or the server has lost nothing after
    /// all.
    fn settled_by_another(&mut self, look: &Look, now: Time) {
        let current = look.term.as_ref().map(|view| view.term);
        match &self.tenure {
            // Its next append shows whether anything is missing.
            Some(own) if Some(own.term) == current && own.journal == Journal::Whole => {
                self.state = State::Repeating(VecDeque::new());
            }
            Some(own) if Some(own.term) == current => self.state = State::Comparing,
            _ => {
                self.lose(now);
                self.looked(Follower::looking_at(now), look, now);
            }
        }
    }
}

/// Whether acknowledged chunks of a lost tenure are missing from the journal of `view`.
fn is_missing(view: &TermView, lost: LostTenure) -> bool {
    let Some(at) = view.from.iter().position(|(one, _)| *one == lost.term) else { return true };
    !lost.whole || view.from.get(at + 1).is_none_or(|(_, began)| *began < lost.number)
}

/// Derives a unique number from a unique seed.
fn mix(seed: u128, count: u64) -> u128 {
    let mut x = seed.wrapping_add(u128::from(count).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
    x ^= x >> 67;
    x = x.wrapping_mul(0xda94_2042_e4dd_58b5_94d0_49bb_1331_11eb);
    x ^ (x >> 61)
}
