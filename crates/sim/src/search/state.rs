//! One state of a small fleet, and what can happen in it.

use std::rc::Rc;

use eclusa_fleet::{Command, Event};

use super::audit::SearchAudit;
use super::fingerprint::{MOMENTS, fingerprint};
use super::process::{Replied, SearchProcess, Waits};
use super::server::{Branch, SearchServer, Subscriber};
use super::tree::Tree;
use crate::bugs::Bug;

/// One step of time, which is how often a term is looked at and renewed, in ms. Within a step, all processes with
/// something to do act, in any order.
const TICK_MS: u64 = 500;

/// How often each event can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// How many processes there are.
    pub processes: usize,
    /// Chunks that are appended after the first one.
    pub appends: u8,
    /// The server restarts with an earlier state or with nothing, or is emptied.
    pub regressions: u8,
    /// A process is killed.
    pub kills: u8,
    /// A process starts in the place of one that was killed.
    pub starts: u8,
    /// A process stops in an orderly way.
    pub stops: u8,
    /// An owner steps down for the process in the next place, and stays in the fleet.
    pub step_downs: u8,
    /// A reply is lost, a command arrives late, a process is paused, or its subscription is lost.
    pub troubles: u8,
}

/// What can happen. The number is a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// The server runs the command of a process, which gets the reply.
    Run(usize),
    /// The server runs it, and the reply is lost.
    Lose(usize),
    /// The server runs it, and the reply takes long.
    Hold(usize),
    /// The reply arrives at last.
    Deliver(usize),
    /// The process is paused, or its command takes long.
    Delay(usize),
    /// The process gives up waiting. The server runs the command within this step of time, or never.
    GiveUp(usize),
    /// The server runs a command that was given up.
    RunLate(usize),
    /// The owner has something to append.
    Write(usize),
    /// The subscription of a process is lost, and only the server knows.
    Deafen(usize),
    /// A process is killed.
    Kill(usize),
    /// A process starts.
    Start(usize),
    /// A process stops in an orderly way.
    Stop(usize),
    /// A process steps down for the next one.
    StepDown(usize),
    /// The server restarts with what it had before a write; the number counts writes.
    Back(usize),
    /// The server restarts with what it has.
    Restart,
    /// The server restarts with nothing.
    RestartEmpty,
    /// The server is emptied.
    Flush,
    /// Time advances by one step.
    Tick,
}

/// See the module.
#[derive(Debug, Clone, Hash)]
pub(super) struct SearchState {
    now: u64,
    /// The process in each place.
    pub(super) places: Vec<Option<Rc<SearchProcess>>>,
    server: Rc<SearchServer>,
    /// Commands that were given up, each with the place and the id of its process.
    late: Vec<(usize, u64, Command)>,
    left: Bounds,
    started: u64,
    pub(super) audit: Rc<SearchAudit>,
}

impl SearchState {
    /// A fleet whose first process owns and has appended one chunk.
    pub(super) fn new(bounds: Bounds, tree: &mut Tree, bug: Option<Bug>) -> Self {
        let none = Bounds {
            processes: bounds.processes,
            appends: 1,
            regressions: 0,
            kills: 0,
            starts: 0,
            stops: 0,
            step_downs: 0,
            troubles: 0,
        };
        let mut state = Self {
            now: MOMENTS * 2,
            places: (1..=bounds.processes as u64).map(|id| Some(Rc::new(SearchProcess::new(id)))).collect(),
            server: Rc::new(SearchServer::new(bounds.processes)),
            late: Vec::new(),
            left: none,
            started: bounds.processes as u64,
            audit: Rc::default(),
        };
        state.tick(tree, bug);
        // Always take the first possible action: the processes settle on an empty server and the first one takes over.
        while state.left.appends > 0 || !state.actions().contains(&Action::Tick) {
            let action = state.actions()[0];
            state.apply(action, tree, bug);
        }
        state.left = bounds;
        state.forget_past();
        state
    }

    /// Its fingerprint.
    pub(super) fn fingerprint(&self) -> u128 {
        fingerprint(self, self.now, self.server.beat)
    }

    /// Everything that can happen.
    pub(super) fn actions(&self) -> Vec<Action> {
        let mut all = Vec::new();
        let left = &self.left;
        let mut quiet = true;
        for (place, process) in self.places.iter().enumerate() {
            let Some(process) = process else {
                all.extend((left.starts > 0).then_some(Action::Start(place)));
                continue;
            };
            let trouble = left.troubles > 0 && !process.slow;
            match &process.waits {
                Waits::Idle => {
                    let writes = left.appends > 0 && process.machine.owns();
                    all.extend(writes.then_some(Action::Write(place)));
                }
                Waits::Sent(_) => {
                    quiet &= process.slow;
                    all.push(Action::Run(place));
                    if trouble {
                        let of = [Action::Lose, Action::Hold, Action::Delay, Action::GiveUp];
                        all.extend(of.map(|action| action(place)));
                    }
                }
                Waits::Replied(_) => all.push(Action::Deliver(place)),
            }
            let hears = self.server.subscribers[place].term.is_some();
            all.extend((left.troubles > 0 && hears).then_some(Action::Deafen(place)));
            all.extend((left.kills > 0).then_some(Action::Kill(place)));
            all.extend((left.stops > 0).then_some(Action::Stop(place)));
            let steps_down = left.step_downs > 0 && process.machine.owns();
            all.extend(steps_down.then_some(Action::StepDown(place)));
        }
        all.extend((0..self.late.len()).map(Action::RunLate));
        if left.regressions > 0 {
            all.extend((0..self.server.past.len()).map(Action::Back));
            all.extend([Action::Restart, Action::RestartEmpty, Action::Flush]);
        }
        all.extend(quiet.then_some(Action::Tick));
        all
    }

    /// Applies an action.
    pub(super) fn apply(&mut self, action: Action, tree: &mut Tree, bug: Option<Bug>) {
        match action {
            Action::Run(place) => {
                let replied = self.execute(place, tree, bug);
                self.hear(place, replied, tree, bug);
            }
            Action::Lose(place) => {
                self.left.troubles -= 1;
                self.execute(place, tree, bug);
                self.away(place);
                self.hear(place, Replied::nothing(), tree, bug);
            }
            Action::Hold(place) => {
                self.left.troubles -= 1;
                let replied = self.execute(place, tree, bug);
                self.change(place, |process| (process.waits, process.slow) = (Waits::Replied(replied), true));
            }
            Action::Deliver(place) => {
                if let Some(Waits::Replied(replied)) = self.process(place).map(|one| one.waits.clone()) {
                    self.hear(place, replied, tree, bug);
                }
            }
            Action::Delay(place) => {
                self.left.troubles -= 1;
                self.change(place, |process| process.slow = true);
            }
            Action::GiveUp(place) => {
                self.left.troubles -= 1;
                if let Some(process) = self.process(place)
                    && let Waits::Sent(command) = &process.waits
                {
                    let late = (place, process.id.0, command.clone());
                    self.late.push(late);
                }
                self.away(place);
                self.hear(place, Replied::nothing(), tree, bug);
            }
            Action::RunLate(at) => {
                let (place, id, command) = self.late.remove(at);
                let audit = &mut self.audit;
                let process = (place, eclusa_fleet::ProcessId(id));
                Rc::make_mut(&mut self.server).run(&command, process, (tree, bug), audit, self.now);
            }
            Action::Write(place) => {
                self.left.appends -= 1;
                self.change(place, |process| process.staged = true);
                self.step(place, tree, bug);
            }
            Action::Deafen(place) => {
                self.left.troubles -= 1;
                Rc::make_mut(&mut self.server).subscribers[place].term = None;
            }
            Action::Tick => self.tick(tree, bug),
            fault => self.break_something(fault, tree, bug),
        }
    }

    fn break_something(&mut self, fault: Action, tree: &mut Tree, bug: Option<Bug>) {
        match fault {
            Action::Kill(place) => {
                self.left.kills -= 1;
                if let Some(process) = self.places[place].take() {
                    Rc::make_mut(&mut self.audit).losses.died(process.id);
                }
                Rc::make_mut(&mut self.server).subscribers[place] = Subscriber::default();
            }
            Action::Start(place) => {
                self.left.starts -= 1;
                self.started += 1;
                self.places[place] = Some(Rc::new(SearchProcess::new(self.started)));
                Rc::make_mut(&mut self.server).subscribers[place].connected = true;
                self.step(place, tree, bug);
            }
            Action::Stop(place) => {
                self.left.stops -= 1;
                self.change(place, |process| process.machine.stop(None));
                if matches!(self.process(place), Some(SearchProcess { waits: Waits::Idle, .. })) {
                    self.step(place, tree, bug);
                }
            }
            Action::StepDown(place) => {
                self.left.step_downs -= 1;
                let next = self.process((place + 1) % self.places.len()).map(|process| process.id);
                self.change(place, |process| {
                    if let Some(next) = next.filter(|next| *next != process.id) {
                        process.machine.step_down(next);
                    }
                });
                if matches!(self.process(place), Some(SearchProcess { waits: Waits::Idle, .. })) {
                    self.step(place, tree, bug);
                }
            }
            Action::Back(at) => {
                let branch = Branch::clone(&self.server.past[at]);
                self.regress(branch, true, tree);
            }
            Action::Restart => self.regress(self.server.branch.clone(), true, tree),
            Action::RestartEmpty => self.regress(Branch::default(), true, tree),
            _ => self.regress(Branch::default(), false, tree),
        }
    }

    /// Earlier states of the server do not matter once it cannot go back.
    fn forget_past(&mut self) {
        if self.left.regressions == 0 {
            let server = Rc::make_mut(&mut self.server);
            (server.goes_back, server.past) = (false, Vec::new());
        }
    }

    fn regress(&mut self, branch: Branch, restarts: bool, tree: &Tree) {
        self.left.regressions -= 1;
        let (before, after) = (self.server.branch.chain, branch.chain);
        let server = Rc::make_mut(&mut self.server);
        // A replaced state can come back.
        server.keep(server.branch.clone());
        if restarts {
            server.restart(branch, self.now);
            self.late.clear();
        } else {
            server.branch = branch;
        }
        // Except a process that reads ahead for a released term: it has nothing to claim.
        let holders = self.places.iter().flatten();
        let holders = holders.filter(|process| !process.loading && process.machine.holds().is_some());
        let holders = holders.filter_map(|process| Some((process.id, (process.chain?, 0))));
        let losses = &mut Rc::make_mut(&mut self.audit).losses;
        losses.regressed((before, after), holders, &tree.archive);
        self.forget_past();
    }

    fn tick(&mut self, tree: &mut Tree, bug: Option<Bug>) {
        self.now += TICK_MS;
        // The connection of an abandoned command is closed by now. But a hanging server may still have a take.
        self.late.retain(|(_, _, command)| matches!(command, Command::Take(_)));
        for place in 0..self.places.len() {
            let Some(process) = self.process(place) else { continue };
            let (slow, listening) = (process.slow, process.listening);
            if slow {
                self.away(place);
                continue;
            }
            if !self.server.subscribers[place].connected {
                let subscriber = Subscriber { connected: true, term: listening };
                Rc::make_mut(&mut self.server).subscribers[place] = subscriber;
            }
            self.step(place, tree, bug);
        }
    }

    fn process(&self, place: usize) -> Option<&SearchProcess> {
        self.places[place].as_deref()
    }

    fn change(&mut self, place: usize, change: impl FnOnce(&mut SearchProcess)) {
        if let Some(process) = &mut self.places[place] {
            change(Rc::make_mut(process));
        }
    }

    fn away(&mut self, place: usize) {
        if let Some(process) = &self.places[place]
            && self.audit.losses.any_regression()
        {
            Rc::make_mut(&mut self.audit).losses.away(process.id, TICK_MS);
        }
    }

    fn execute(&mut self, place: usize, tree: &Tree, bug: Option<Bug>) -> Replied {
        let Some(process) = &self.places[place] else { return Replied::nothing() };
        let Waits::Sent(command) = &process.waits else { return Replied::nothing() };
        let audit = &mut self.audit;
        Rc::make_mut(&mut self.server).run(command, (place, process.id), (tree, bug), audit, self.now)
    }

    fn hear(&mut self, place: usize, replied: Replied, tree: &mut Tree, bug: Option<Bug>) {
        let (now, journal) = (self.now, replied.journal);
        let Some(process) = &mut self.places[place] else { return };
        let events = Rc::make_mut(process).hear(tree, now, replied, bug);
        self.handle_events(place, events, journal, tree);
        self.step(place, tree, bug);
    }

    /// The process sends its next command.
    fn step(&mut self, place: usize, tree: &mut Tree, bug: Option<Bug>) {
        let now = self.now;
        self.change(place, |process| process.step(tree, now, bug));
        if self.process(place).is_some_and(|process| process.machine.is_stopped()) {
            self.places[place] = None;
            Rc::make_mut(&mut self.server).subscribers[place] = Subscriber::default();
            return;
        }
        let mut events = Vec::new();
        self.change(place, |process| events = process.machine.events());
        self.handle_events(place, events, 0, tree);
    }

    fn handle_events(&mut self, place: usize, events: Vec<Event>, journal: usize, tree: &Tree) {
        for event in events {
            let Some(process) = &mut self.places[place] else { return };
            let process = Rc::make_mut(process);
            match event {
                Event::ReadsAhead => process.begin_reading(),
                Event::ReadInVain => process.chain = None,
                Event::Loading { after, .. } => process.begin_loading(after),
                Event::Owns { term, .. } => {
                    process.loading = false;
                    if let Some(chain) = process.chain.filter(|_| self.server.holds(term)) {
                        Rc::make_mut(&mut self.audit).goes_on(chain, tree);
                    }
                }
                Event::Durable { batches } => {
                    let chain = process.batch(batches);
                    if chain != process.durable {
                        process.durable = chain;
                        Rc::make_mut(&mut self.audit).durable(chain, tree);
                    }
                }
                Event::Deaf => {
                    process.listening = process.machine.holds().map(|(term, _)| term);
                    Rc::make_mut(&mut self.server).subscribers[place].term = process.listening;
                }
                Event::Lost => process.lose(),
                Event::Superseded { missing } => {
                    Rc::make_mut(&mut self.audit).superseded(process.durable, journal, missing, tree);
                }
                Event::Released => Rc::make_mut(&mut self.audit).losses.left(process.id),
                Event::Unheard(_) | Event::Ready | Event::InDoubt | Event::Follows(_) => {}
            }
        }
    }
}
