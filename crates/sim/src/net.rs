//! Virtual time: the queue of future events, the random numbers, and the trace.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::rc::Rc;

use eclusa_fleet::{Command, ProcessId, Reply};
use fastrand::Rng;

use crate::archive::{Archive, Chain};
use crate::ask::{AnswerMessage, Question};
use crate::bugs::Bug;
use crate::check::Check;
use crate::config::Config;
use crate::keys::Entry;
use crate::small::Planned;

/// A connection to the server.
pub(crate) type ConnId = u64;

/// What a process sends to the server.
#[derive(Debug, Clone)]
pub(crate) enum Request {
    /// A command of the state machine.
    Fleet {
        /// The command.
        command: Command,
        /// The journal format of the process.
        format: u16,
    },
    /// A question for the owner.
    Publish(Rc<Question>),
    /// A planted bug: an answer that bypasses the fence.
    PublishAnswer(Rc<AnswerMessage>),
}

/// What the server sends back.
#[derive(Debug, Clone)]
pub(crate) enum Response {
    /// To a command of the state machine.
    Reply(Reply),
    /// To `Read`.
    Page(Vec<Entry>),
    /// READONLY, OOM, LOADING and the like.
    TryAgain,
    /// To a question: how many received it.
    Published(Rc<Question>, usize),
}

/// What is published.
#[derive(Debug, Clone)]
pub(crate) enum Message {
    /// To the owner.
    Question(Rc<Question>),
    /// To an asker.
    Answers(Rc<AnswerMessage>),
    /// To all processes: a term was taken or released.
    News,
}

/// A future event.
#[derive(Debug, Clone)]
pub(crate) enum Happening {
    /// A process checks what to do.
    Wake(ProcessId),
    /// A process asks something.
    Ask(ProcessId),
    /// A request reaches the server.
    Request {
        /// The connection.
        conn: ConnId,
        /// The call.
        call: u64,
        /// The request.
        request: Request,
        /// Whether the response is lost.
        lose: bool,
    },
    /// A response reaches its process.
    Response {
        /// The process.
        process: ProcessId,
        /// The call.
        call: u64,
        /// The response.
        response: Response,
        /// The server's clock.
        server_time: u64,
        /// The state of the journal. Only checkers read it.
        journal: Chain,
    },
    /// A process gives up waiting.
    Timeout {
        /// The process.
        process: ProcessId,
        /// The call.
        call: u64,
    },
    /// A process reads what is published to it.
    Deliver {
        /// The process.
        process: ProcessId,
        /// The connection.
        conn: ConnId,
    },
    /// Messages of an old connection arrive late.
    Late {
        /// The process.
        process: ProcessId,
        /// The messages.
        messages: Vec<Message>,
    },
    /// A process learns that a connection is closed.
    Closed {
        /// The process.
        process: ProcessId,
        /// The connection.
        conn: ConnId,
    },
    /// The server learns that a connection is closed.
    Gone(ConnId),
    /// A process reopens its connection for messages.
    Resubscribe(ProcessId),
    /// A call at the upstream ends.
    CallEnds {
        /// The process.
        process: ProcessId,
        /// The call.
        lease: crate::engine::LeaseId,
    },
    /// A process starts in this place.
    Start(usize),
    /// A fault happens.
    Fault,
    /// A fault hits this process at a step of the protocol.
    Strike(ProcessId),
    /// A fault of a small world, at a command of this process.
    Planned(Planned, ProcessId),
    /// The replica gets what the primary has.
    Replicate,
    /// The disk gets what the primary has.
    Sync,
    /// The server continues after a hang.
    ServerUp,
    /// Faults are over.
    Quiet,
    /// The owner is killed, once, in a healthy world.
    LastKill,
    /// The end.
    End,
}

/// The trace: always hashed, printed on demand.
#[derive(Debug)]
pub(crate) struct Trace {
    /// Hash of all lines.
    pub(crate) hash: u64,
    /// Whether to print.
    pub(crate) print: bool,
}

impl Write for Trace {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Net {
    /// True time in ms.
    pub(crate) now: u64,
    count: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    /// All randomness.
    pub(crate) rng: Rng,
    /// The kind of world.
    pub(crate) cfg: Config,
    /// The planted bug.
    pub(crate) bug: Option<Bug>,
    /// The trace.
    pub(crate) trace: Trace,
    /// When the last message of a connection arrives: messages stay in order.
    arrivals: BTreeMap<ConnId, u64>,
    /// Faults are over.
    pub(crate) quiet: bool,
    /// Faults of a small world, each with the number of commands before it.
    pub(crate) plan: Vec<(u64, Planned)>,
    /// Commands that the server has run, except looks and renewals.
    pub(crate) commands: u64,
}

impl Net {
    /// No future events.
    pub(crate) fn new(seed: u64, focus: Option<Bug>, bug: Option<Bug>, print: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut cfg = Config::draw(&mut rng);
        if let Some(focus) = focus {
            focus.focus(&mut cfg);
        }
        let trace = Trace { hash: 0xcbf2_9ce4_8422_2325, print };
        Self {
            now: 1_000_000,
            count: 0,
            queue: BTreeMap::new(),
            rng,
            cfg,
            bug,
            trace,
            arrivals: BTreeMap::new(),
            quiet: false,
            plan: Vec::new(),
            commands: 0,
        }
    }

    /// The server has run a command of a process: faults planned for it happen.
    pub(crate) fn ran(&mut self, command: &Command, process: ProcessId) {
        let renewal = matches!(command, Command::Append(append) if append.chunk.is_none());
        if self.plan.is_empty() || renewal || matches!(command, Command::Look) {
            return;
        }
        self.commands += 1;
        let due: Vec<_> =
            self.plan.iter().filter(|(at, _)| *at == self.commands).map(|(_, what)| *what).collect();
        for what in due {
            self.after(0, Happening::Planned(what, process));
        }
    }

    /// Whether this bug is planted.
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Schedules an event.
    pub(crate) fn after(&mut self, ms: u64, happening: Happening) {
        self.count += 1;
        self.queue.insert((self.now + ms, self.count), happening);
    }

    /// The next event.
    pub(crate) fn pop(&mut self) -> Option<Happening> {
        let ((at, _), happening) = self.queue.pop_first()?;
        self.now = at;
        Some(happening)
    }

    /// The delay of a message.
    pub(crate) fn latency(&mut self) -> u64 {
        self.rng.u64(0..=self.cfg.latency_ms)
    }

    /// Whether a fault with this probability happens; never after faults are over.
    pub(crate) fn mishap(&mut self, per_mille: u32) -> bool {
        !self.quiet && self.rng.u32(0..1_000) < per_mille
    }

    /// Sends a request on a connection, in order.
    pub(crate) fn request(&mut self, conn: ConnId, call: u64, request: Request) {
        let latency = self.latency();
        let (drop, lose) = (self.mishap(self.cfg.loss), self.mishap(self.cfg.loss));
        if drop {
            return;
        }
        let at = (self.now + latency).max(self.arrivals.get(&conn).copied().unwrap_or(0));
        self.arrivals.insert(conn, at);
        self.after(at - self.now, Happening::Request { conn, call, request, lose });
    }

    /// A line of the trace.
    pub(crate) fn log(&mut self, line: fmt::Arguments<'_>) {
        // Writing into the hash cannot fail.
        let _ = writeln!(self.trace, "{} {line}", self.now);
        if self.trace.print {
            println!("{:>8} {line}", self.now - 1_000_000);
        }
    }
}

/// The context of every event.
#[derive(Debug)]
pub(crate) struct Ctx {
    /// Time and randomness.
    pub(crate) net: Net,
    /// Everything produced so far.
    pub(crate) archive: Archive,
    /// The checkers.
    pub(crate) check: Check,
}
