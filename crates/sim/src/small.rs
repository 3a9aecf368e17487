//! Small worlds with engines, in one order of events: three processes and a few appends, with every placement of two
//! faults on the commands that the server runs. `search` covers all orders, without engines.

use std::ops::Range;
use std::sync::Arc;

use eclusa_fleet::Ack;

use crate::bugs::Bug;
use crate::check::Violation;
use crate::config::Config;
use crate::world::World;

/// A fault that happens at a command, after the server has run it and before its process gets the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planned {
    /// The server restarts without its last writes of chunks; 0: with everything.
    Back(usize),
    /// The server is emptied.
    Flush,
    /// The process that sent the command is killed.
    Kill,
    /// The process that claims most of the journal is killed.
    KillClaimant,
    /// It is paused for longer than a term.
    Pause,
    /// Its connections are cut.
    Cut,
}

const SERVER: [Planned; 4] = [Planned::Back(0), Planned::Back(1), Planned::Back(2), Planned::Flush];
const ALL: [Planned; 8] = [
    Planned::Back(0),
    Planned::Back(1),
    Planned::Back(2),
    Planned::Flush,
    Planned::Kill,
    Planned::KillClaimant,
    Planned::Pause,
    Planned::Cut,
];

/// What was found.
#[derive(Debug)]
pub struct Placed {
    /// How many worlds there were.
    pub worlds: u64,
    /// The first plan that failed.
    pub violation: Option<(Vec<(u64, Planned)>, Violation)>,
}

/// Runs every world with a fault of the server at one of the `first` commands and another fault at one of the `later`
/// commands after it.
pub fn place_faults(ack: Ack, first: Range<u64>, later: u64, bug: Option<Bug>) -> Placed {
    let mut worlds = 0;
    let cfg = Config::small(ack);
    let blob: Arc<[u8]> = vec![0; cfg.chunk_bytes].into();
    for at in first {
        for one in SERVER {
            for after in 1..=later {
                for other in ALL {
                    let plan = vec![(at, one), (at + after, other)];
                    worlds += 1;
                    let outcome = World::small(cfg.clone(), plan.clone(), bug, &blob).run();
                    if let Some(violation) = outcome.violation {
                        return Placed { worlds, violation: Some((plan, violation)) };
                    }
                }
            }
        }
    }
    Placed { worlds, violation: None }
}
