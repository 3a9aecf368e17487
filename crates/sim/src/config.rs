//! The kind of world that a seed produces.

use eclusa_fleet::Ack;
use fastrand::Rng;

/// A term, in ms.
pub(crate) const TERM_MS: u64 = 2_000;
/// All claims expire this long after the last one was made, in ms.
pub(crate) const CLAIMS_MS: u64 = 10_000;
/// A process waits this long for a reply, in ms.
pub(crate) const TIMEOUT_MS: u64 = 1_000;

/// Faults that can happen in a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A process is killed.
    Kill,
    /// A process stops in an orderly way, or steps down.
    Stop,
    /// A process is paused for a while.
    Pause,
    /// The owner's connections fail: of commands, of messages, or both.
    CutOwner,
    /// A process's connections fail.
    Cut,
    /// The owner can never receive anything again. Its commands work.
    Deafen,
    /// The server restarts with all it had.
    Restart,
    /// The server restarts with what was on its disk.
    RestartOld,
    /// The server restarts empty.
    RestartEmpty,
    /// The replica, with what it has, replaces the server.
    FailOver,
    /// The server that was replaced last, with what it had then, comes back.
    FailBack,
    /// The server is emptied while it runs.
    FlushAll,
    /// The server does not answer for a while.
    Hang,
    /// The server answers "try again" for a while.
    Refuse,
}

impl Fault {
    /// Whether the fault affects the server.
    pub(crate) fn is_of_server(self) -> bool {
        use Fault::{FailBack, FailOver, FlushAll, Hang, Refuse, Restart, RestartEmpty, RestartOld};
        matches!(self, FailBack | FailOver | FlushAll | Hang | Refuse | Restart | RestartEmpty | RestartOld)
    }
}

const FAULTS: [Fault; 14] = [
    Fault::Kill,
    Fault::Stop,
    Fault::Pause,
    Fault::CutOwner,
    Fault::Cut,
    Fault::Deafen,
    Fault::Restart,
    Fault::RestartOld,
    Fault::RestartEmpty,
    Fault::FailOver,
    Fault::FailBack,
    Fault::FlushAll,
    Fault::Hang,
    Fault::Refuse,
];

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// How many processes there are.
    pub(crate) processes: usize,
    /// What "durable" means.
    pub(crate) ack: Ack,
    /// Messages take up to this long.
    pub(crate) latency_ms: u64,
    /// Chunks per page of the journal.
    pub(crate) page: usize,
    /// Reading a page takes up to this long.
    pub(crate) page_ms: u64,
    /// The size of a chunk: a process keeps its last 8 MiB.
    pub(crate) chunk_bytes: usize,
    /// The replica is up to this far behind.
    pub(crate) lag_ms: u64,
    /// A message in a thousand is lost, this many times.
    pub(crate) loss: u32,
    /// Faults that can happen.
    pub(crate) faults: Vec<Fault>,
    /// The longest time between faults.
    pub(crate) fault_ms: u64,
    /// The longest time between questions of a process.
    pub(crate) ask_ms: u64,
    /// The probability of a fault at each step of the protocol, in a thousand.
    pub(crate) strikes: u32,
    /// Late questions, in a thousand.
    pub(crate) late: u32,
    /// Large questions, in a hundred.
    pub(crate) large: u32,
    /// Long answers, in a hundred.
    pub(crate) long: u32,
    /// The last process is patient, as a library is.
    pub(crate) patient: bool,
    /// The last process cannot read what the others write.
    pub(crate) old_format: bool,
}

impl Config {
    /// A small world without random faults: three processes, little to do.
    pub(crate) fn small(ack: Ack) -> Self {
        Self {
            processes: 3,
            ack,
            latency_ms: 1,
            page: 3,
            page_ms: 1,
            chunk_bytes: 2_500_000,
            lag_ms: 5,
            loss: 0,
            faults: Vec::new(),
            fault_ms: 1,
            ask_ms: 700,
            strikes: 0,
            late: 0,
            large: 0,
            long: 0,
            patient: false,
            old_format: false,
        }
    }

    /// The world of a seed.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let mut faults: Vec<_> = FAULTS.into_iter().filter(|_| rng.u32(0..3) == 0).collect();
        if faults.is_empty() {
            faults.push(Fault::Kill);
        }
        let slow_reads = rng.u32(0..4) == 0;
        Self {
            processes: rng.usize(3..=4),
            ack: [Ack::Write, Ack::Fsync, Ack::Replicate][rng.usize(0..3)],
            latency_ms: [1, 3, 20, 50][rng.usize(0..4)],
            page: rng.usize(if slow_reads { 2..=3 } else { 1..=5 }),
            page_ms: if slow_reads { 600 } else { 10 },
            chunk_bytes: [300_000, 1_000_000, 2_500_000][rng.usize(0..3)],
            lag_ms: [5, 100, 2_000][rng.usize(0..3)],
            loss: [0, 0, 3, 15][rng.usize(0..4)],
            faults,
            fault_ms: [500, 1_500, 4_000][rng.usize(0..3)],
            ask_ms: [100, 300, 800][rng.usize(0..3)],
            strikes: [0, 10, 60][rng.usize(0..3)],
            late: [0, 5, 80][rng.usize(0..3)],
            large: [10, 25, 95][rng.usize(0..3)],
            long: [0, 10, 60][rng.usize(0..3)],
            patient: rng.bool(),
            old_format: rng.u32(0..8) == 0,
        }
    }
}
