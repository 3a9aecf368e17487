//! A deterministic simulator of the ownership protocol: a model of the Redis server and several processes with the real
//! state machine of `eclusa-fleet`, driven by one seed. The same seed gives the same trace. Small fleets without engines are
//! searched exhaustively (`search`). Both use the model of the scripts in `keys`.

mod answer;
mod archive;
mod ask;
mod bugs;
mod check;
mod config;
mod driver;
mod engine;
mod faults;
mod journal;
mod keys;
mod loss;
mod net;
mod process;
mod reply;
mod script;
mod search;
mod server;
mod small;
mod worker;
mod world;

pub use bugs::Bug;
pub use check::Violation;
pub use search::{Bounds, Searched, search};
pub use small::{Placed, place_faults};
pub use world::{Outcome, World};

/// Runs the world of a seed.
pub fn run(seed: u64) -> Outcome {
    World::new(seed, None, None, false).run()
}

/// Runs a world in which a bug would show, with it if it is `planted`.
pub fn run_for(seed: u64, bug: Bug, planted: bool) -> Outcome {
    World::new(seed, Some(bug), planted.then_some(bug), false).run()
}
