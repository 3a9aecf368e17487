//! One process against scripted replies. `crates/sim` runs whole fleets.

mod handover;
mod owner;
mod takeover;

use std::sync::Arc;

use eclusa_core::{Span, Time};

use crate::{
    Ack, Append, Batch, Chunk, Claim, Command, Event, Look, Outgoing, Ownership, Position, ProcessId,
    Refusal, Reply, RunId, Settings, Step, Take, TermId, TermView, Unanswered, Wanted,
};

const TERM: u64 = 2_000;
const ME: ProcessId = ProcessId(1);
const OTHER: ProcessId = ProcessId(2);

/// A process, its clock and what it would append.
struct Process {
    machine: Ownership,
    now: u64,
    changes: Vec<u8>,
    parts: Vec<u8>,
    /// What it has claimed.
    claim: Option<Claim>,
}

impl Process {
    fn new(ack: Ack) -> Self {
        let term = Span::from_millis(TERM);
        let settings = Settings { process: ME, term, patience: Span::ZERO, format: 1, ack, seed: 7 };
        Self {
            machine: Ownership::new(settings),
            now: 10_000,
            changes: Vec::new(),
            parts: Vec::new(),
            claim: None,
        }
    }

    /// A process that owns, on run `a`, a journal whose last chunk is `number`.
    fn owner(ack: Ack, number: u64) -> Self {
        let mut process = Self::new(ack);
        process.take(&gone("a", number, 1), number);
        process.read(number);
        assert!(process.renews());
        process.stored();
        process.machine.events();
        process
    }

    /// Looks until it takes the term, and confirms that it has.
    fn take(&mut self, look: &Look, number: u64) {
        for _ in 0..20 {
            match self.send() {
                Command::Look => self.looked(look),
                Command::Claim(claim) => self.claimed(claim),
                Command::Listen(_) => self.reply(Reply::Listening),
                Command::Take(_) => return self.reply(Reply::Taken { epoch: self.now, number }),
                other => panic!("{other:?}"),
            }
        }
        panic!("it does not take over");
    }

    fn read(&mut self, number: u64) {
        assert_eq!(self.send(), Command::Read { after: Position::default() });
        self.reply(Reply::Read { last: Position { epoch: 1, number }, end: true });
        if let Step::Send(Command::Build { .. }) = self.step() {
            self.reply(Reply::Built(true));
        }
    }

    fn step(&mut self) -> Step {
        let (changes, parts) = (&mut self.changes, &mut self.parts);
        let mut work = |wanted| {
            let (number, byte) = match wanted {
                Wanted::Changes { number } => (number, changes.pop()?),
                Wanted::Snapshot { number, .. } => (number, parts.pop()?),
            };
            Some(Batch { chunk: Some(chunk(number, byte)), answers: vec![answer(byte)] })
        };
        self.machine.next(Time::from_millis(self.now), &mut work)
    }

    /// The next command, waiting for it.
    fn send(&mut self) -> Command {
        for _ in 0..10 {
            match self.step() {
                Step::Send(command) => return command,
                Step::Idle(until) => self.now = self.now.max(until.as_millis()),
            }
        }
        panic!("it sends nothing");
    }

    fn appends(&mut self) -> Append {
        match self.send() {
            Command::Append(append) => append,
            other => panic!("{other:?} instead of an append"),
        }
    }

    fn renews(&mut self) -> bool {
        self.appends().chunk.is_none()
    }

    fn reply(&mut self, reply: Reply) {
        self.machine.reply(Time::from_millis(self.now), Ok(reply));
    }

    /// Replies to a look with `look` plus the process's own claim.
    fn looked(&mut self, look: &Look) {
        let mut look = look.clone();
        look.claims.extend(self.claim);
        self.reply(Reply::Looked(look));
    }

    fn claimed(&mut self, claim: Claim) {
        let renewed = self.claim.replace(claim).is_some();
        self.reply(Reply::Claimed(renewed));
    }

    fn stored(&mut self) {
        self.reply(Reply::Appended { listeners: 1, unheard: Vec::new() });
    }

    fn lost(&mut self) {
        self.machine.reply(Time::from_millis(self.now), Err(Unanswered));
    }

    fn refused(&mut self, refusal: Refusal) {
        self.reply(Reply::Refused(refusal));
    }

    fn refused_append(&mut self, refusal: Refusal) {
        self.appends();
        self.refused(refusal);
    }
}

fn chunk(number: u64, byte: u8) -> Chunk {
    Chunk { number, bytes: Arc::new([byte]), checksum: u64::from(byte), keep_from: Position::default() }
}

fn answer(byte: u8) -> Outgoing {
    Outgoing { to: OTHER, message: Arc::new([byte]), sent: 0 }
}

/// A server whose owner has vanished.
fn gone(run: &str, number: u64, epoch: u64) -> Look {
    let run: RunId = run.into();
    let term = TermView {
        term: TermId(99),
        epoch,
        run: run.clone(),
        number,
        beat: 3,
        reader: 1,
        from: vec![(TermId(99), 0)],
        owner: OTHER,
        repairing: false,
        released: false,
        successor: None,
    };
    Look {
        run,
        uptime: Span::from_secs(60),
        term: Some(term),
        listeners: 0,
        connected: 2,
        claims: Vec::new(),
    }
}

/// That server after a restart.
fn restarted(number: u64) -> Look {
    Look { run: "b".into(), ..gone("a", number, 1) }
}
