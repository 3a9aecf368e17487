//! Searches small fleets exhaustively: every order of steps, every placement of a few faults. The state machine and the
//! scripts are those of the worlds. The search is breadth first, so the trace to a violation is a shortest one.
//!
//! It checks I1, I2, I3, I9 and that no term is taken from a live owner. Only the worlds cover engines and questions,
//! acknowledgements other than `write`, journals longer than a process keeps, and servers whose clocks differ. Time
//! advances in steps; an abandoned command runs in the same step or never, except takes; a server that goes back has
//! lost all claims; epochs count terms instead of milliseconds.

mod audit;
mod fingerprint;
mod process;
mod server;
mod state;
mod tree;

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashSet;

use self::process::Waits;
pub use self::state::Bounds;
use self::state::{Action, SearchState};
use self::tree::Tree;
use crate::bugs::Bug;
use crate::check::Violation;

/// The result of a search.
#[derive(Debug)]
pub struct Searched {
    /// How many different states there are.
    pub states: usize,
    /// How many steps lead from one to another.
    pub steps: usize,
    /// Whether all states were searched; otherwise there are more than the limit.
    pub complete: bool,
    /// The first violation, and the trace to it.
    pub violation: Option<(Violation, Vec<String>)>,
}

/// Searches all states within the bounds, up to a maximum number.
pub fn search(bounds: Bounds, most: usize, bug: Option<Bug>) -> Searched {
    let mut tree = Tree::new();
    let start = SearchState::new(bounds, &mut tree, bug);
    let mut met = HashSet::with_hasher(FixedState::default());
    met.insert(start.fingerprint());
    // The state from which each state was first reached, and the index of the action.
    let mut reached: Vec<(u32, u16)> = vec![(0, 0)];
    let mut next = VecDeque::from([(0_u32, start)]);
    let mut steps = 0;
    while let Some((at, state)) = next.pop_front() {
        for (nth, action) in (0..).zip(state.actions()) {
            steps += 1;
            let mut after = state.clone();
            after.apply(action, &mut tree, bug);
            if let Some(violation) = after.audit.violation.clone() {
                let trace = trace(bounds, &reached, (at, nth), bug);
                let violation = Some((violation, trace));
                return Searched { states: met.len(), steps, complete: false, violation };
            }
            if met.insert(after.fingerprint()) {
                let Ok(index) = u32::try_from(reached.len()) else { break };
                reached.push((at, nth));
                next.push_back((index, after));
            }
        }
        if met.len() > most {
            return Searched { states: met.len(), steps, complete: false, violation: None };
        }
    }
    Searched { states: met.len(), steps, complete: true, violation: None }
}

/// The actions that led to a step, one line each.
fn trace(bounds: Bounds, reached: &[(u32, u16)], last: (u32, u16), bug: Option<Bug>) -> Vec<String> {
    let (mut at, nth) = last;
    let mut way = vec![nth];
    while at != 0 {
        let (from, nth) = reached[at as usize];
        way.push(nth);
        at = from;
    }
    let mut tree = Tree::new();
    let mut state = SearchState::new(bounds, &mut tree, bug);
    let mut lines = Vec::new();
    for nth in way.into_iter().rev() {
        let action = state.actions()[usize::from(nth)];
        lines.push(describe(&state, action));
        state.apply(action, &mut tree, bug);
    }
    lines
}

fn describe(state: &SearchState, action: Action) -> String {
    let place = match action {
        Action::Run(place)
        | Action::Lose(place)
        | Action::Hold(place)
        | Action::Delay(place)
        | Action::GiveUp(place) => place,
        other => return format!("{other:?}"),
    };
    match state.places[place].as_ref().map(|process| &process.waits) {
        Some(Waits::Sent(command)) => format!("{action:?} {command:?}"),
        _ => format!("{action:?}"),
    }
}
