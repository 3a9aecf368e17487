//! A model of the Redis server: what it stores, its replica and disk, its connections, publishing. The scripts are in
//! `script`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use eclusa_fleet::{Ack, ProcessId, RunId, TermId};

use crate::archive::Chain;
use crate::ask::AnswerMessage;
use crate::check::Audit;
use crate::keys::Keys;
use crate::net::{ConnId, Ctx, Happening, Message, Request, Response};

/// A subscriber with more than this in its output buffer is disconnected.
pub(crate) const OUTPUT_LIMIT: u64 = 32 << 20;

/// What a server stores.
#[derive(Debug, Clone, Default)]
pub(crate) struct Data {
    /// What the scripts know.
    pub(crate) keys: Keys,
    /// When the beat last changed. Only checkers read it.
    pub(crate) beat_at: u64,
    /// Counts writes.
    pub(crate) version: u64,
    /// What the checkers know about this journal.
    pub(crate) audit: Audit,
}

/// A channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Channel {
    /// Questions of a term.
    Term(TermId),
    /// Answers to a process.
    Process(ProcessId),
    /// Announcements of the owner, for all processes.
    Fleet,
}

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Conn {
    /// Its process; `None` once the process has vanished without the server noticing.
    pub(crate) process: Option<ProcessId>,
    /// The channels it is subscribed to.
    pub(crate) channels: BTreeSet<Channel>,
    queue: VecDeque<(Message, u64)>,
    bytes: u64,
    /// The version of its last write.
    pub(crate) wrote: Option<u64>,
}

/// Whether the server answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It does.
    Up,
    /// It accepts requests and does not answer.
    Hung,
    /// It is down.
    Down,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Server {
    /// What it stores.
    pub(crate) data: Data,
    /// What its replica stores.
    pub(crate) replica: Data,
    /// What it stored before its last writes of chunks, oldest first.
    pub(crate) history: VecDeque<Data>,
    /// What a replaced server stored.
    pub(crate) former: Data,
    /// What is on its disk.
    pub(crate) disk: Data,
    /// Its run.
    pub(crate) run: RunId,
    runs: u64,
    /// When the run began.
    pub(crate) started: u64,
    /// How far its clock is behind.
    pub(crate) behind_ms: u64,
    /// Whether it answers.
    pub(crate) mode: Mode,
    /// It does not answer until this time.
    back_at: u64,
    /// It answers "try again" until this time.
    pub(crate) refuses_until: u64,
    /// Its connections.
    pub(crate) conns: BTreeMap<ConnId, Conn>,
    next_conn: ConnId,
    backlog: Vec<(ConnId, u64, Request, bool)>,
    writes: u64,
    /// States that disk and replica pass through until they have the current one.
    to_disk: Vec<Chain>,
    to_replica: Vec<Chain>,
}

impl Server {
    /// An empty server that has run for a while.
    pub(crate) fn new() -> Self {
        Self {
            data: Data::default(),
            replica: Data::default(),
            history: VecDeque::new(),
            former: Data::default(),
            disk: Data::default(),
            run: "run-0".into(),
            runs: 0,
            started: 0,
            behind_ms: 0,
            mode: Mode::Up,
            back_at: 0,
            refuses_until: 0,
            conns: BTreeMap::new(),
            next_conn: 0,
            backlog: Vec::new(),
            writes: 0,
            to_disk: Vec::new(),
            to_replica: Vec::new(),
        }
    }

    /// Its clock.
    pub(crate) fn time(&self, ctx: &Ctx) -> u64 {
        ctx.net.now - self.behind_ms
    }

    /// A new connection, if the server is up.
    pub(crate) fn connect(&mut self, process: ProcessId, channels: &[Channel]) -> Option<ConnId> {
        if self.mode != Mode::Up {
            return None;
        }
        self.next_conn += 1;
        let channels = channels.iter().copied().collect();
        let conn = Conn { process: Some(process), channels, ..Conn::default() };
        self.conns.insert(self.next_conn, conn);
        Some(self.next_conn)
    }

    /// Something was written.
    pub(crate) fn wrote(&mut self, conn: Option<ConnId>) {
        self.writes += 1;
        self.data.version = self.writes;
        if let Some(conn) = conn.and_then(|conn| self.conns.get_mut(&conn)) {
            conn.wrote = Some(self.writes);
        }
    }

    /// A request arrives.
    pub(crate) fn receive(&mut self, ctx: &mut Ctx, conn: ConnId, call: u64, request: Request, lose: bool) {
        match self.mode {
            Mode::Hung => self.backlog.push((conn, call, request, lose)),
            Mode::Up => self.answer(ctx, conn, call, &request, lose),
            Mode::Down => {}
        }
    }

    fn answer(&mut self, ctx: &mut Ctx, conn: ConnId, call: u64, request: &Request, lose: bool) {
        let Some(process) = self.conns.get(&conn).map(|conn| conn.process) else { return };
        let refuses = ctx.net.now < self.refuses_until && !matches!(request, Request::Publish(_));
        let response = if refuses { Some(Response::TryAgain) } else { self.execute(ctx, conn, request) };
        if let (Request::Fleet { command, .. }, Some(process)) = (request, process) {
            ctx.net.ran(command, process);
        }
        if ctx.net.cfg.ack == Ack::Fsync {
            self.sync(ctx);
        }
        let (Some(process), Some(response), false) = (process, response, lose) else { return };
        let slow = matches!(response, Response::Page(_));
        let latency = ctx.net.latency() + if slow { ctx.net.rng.u64(0..=ctx.net.cfg.page_ms) } else { 0 };
        let server_time = self.time(ctx);
        let journal = self.data.audit.chain;
        ctx.net.after(latency, Happening::Response { process, call, response, server_time, journal });
    }

    fn execute(&mut self, ctx: &mut Ctx, conn: ConnId, request: &Request) -> Option<Response> {
        match request {
            Request::Fleet { command, format } => self.run_command(ctx, conn, command, *format),
            Request::Publish(question) => {
                let message = Message::Question(question.clone());
                let heard = self.publish(ctx, Channel::Term(question.term), &message, question.bytes);
                Some(Response::Published(question.clone(), heard))
            }
            Request::PublishAnswer(message) => {
                self.publish_answers(ctx, message);
                None
            }
        }
    }

    /// Publishes answers; returns how many received them.
    pub(crate) fn publish_answers(&mut self, ctx: &mut Ctx, message: &Rc<AnswerMessage>) -> usize {
        let (archive, ack) = (&ctx.archive, ctx.net.cfg.ack);
        for answer in &message.answers {
            ctx.check.published(answer, &self.data.audit, archive, ack);
        }
        let published = Message::Answers(Rc::clone(message));
        self.publish(ctx, Channel::Process(message.asker), &published, message.bytes)
    }

    pub(crate) fn publish(
        &mut self,
        ctx: &mut Ctx,
        channel: Channel,
        message: &Message,
        bytes: u64,
    ) -> usize {
        let mut full = Vec::new();
        let mut heard = 0;
        for (id, conn) in self.conns.iter_mut().filter(|(_, conn)| conn.channels.contains(&channel)) {
            heard += 1;
            conn.queue.push_back((message.clone(), bytes));
            conn.bytes += bytes;
            ctx.check.queued(conn.bytes);
            if conn.bytes > OUTPUT_LIMIT {
                full.push(*id);
            } else if let Some(process) = conn.process {
                let latency = ctx.net.latency();
                ctx.net.after(latency, Happening::Deliver { process, conn: *id });
            }
        }
        for conn in full {
            self.close(ctx, conn);
        }
        heard
    }

    /// A process reads what is queued for it.
    pub(crate) fn read_messages(&mut self, conn: ConnId) -> Vec<Message> {
        let Some(conn) = self.conns.get_mut(&conn) else { return Vec::new() };
        conn.bytes = 0;
        conn.queue.drain(..).map(|(message, _)| message).collect()
    }

    /// How many listen to a channel.
    pub(crate) fn listeners(&self, channel: Channel) -> u64 {
        listeners(&self.conns, channel)
    }

    /// How many processes are connected, as the server counts them.
    pub(crate) fn connected(&self) -> u64 {
        self.listeners(Channel::Fleet)
    }

    /// Closes a connection and lets its process know.
    pub(crate) fn close(&mut self, ctx: &mut Ctx, id: ConnId) {
        if let Some(Conn { process: Some(process), queue, .. }) = self.conns.remove(&id) {
            let latency = ctx.net.latency();
            if ctx.net.rng.bool() {
                let messages = queue.into_iter().map(|(message, _)| message).collect();
                let late = ctx.net.rng.u64(0..3_000);
                ctx.net.after(late, Happening::Late { process, messages });
            }
            ctx.net.after(latency, Happening::Closed { process, conn: id });
        }
    }

    fn close_all(&mut self, ctx: &mut Ctx) {
        for conn in self.conns.keys().copied().collect::<Vec<_>>() {
            self.close(ctx, conn);
        }
        self.backlog.clear();
    }

    /// Ends this run; the next one begins with `data` after `down_ms`.
    pub(crate) fn restart(&mut self, ctx: &mut Ctx, data: Data, down_ms: u64) {
        self.close_all(ctx);
        self.to_disk.clear();
        self.to_replica.clear();
        self.data = data;
        self.runs += 1;
        self.run = format!("run-{}", self.runs).into();
        self.started = ctx.net.now + down_ms;
        self.mode = Mode::Down;
        self.back_at = self.started;
        ctx.net.after(down_ms, Happening::ServerUp);
    }

    /// Does not answer for a while.
    pub(crate) fn hang(&mut self, ctx: &mut Ctx, ms: u64) {
        if self.mode == Mode::Up {
            self.mode = Mode::Hung;
            self.back_at = ctx.net.now + ms;
            ctx.net.after(ms, Happening::ServerUp);
        }
    }

    /// Continues with the requests that have arrived since.
    pub(crate) fn up(&mut self, ctx: &mut Ctx) {
        if ctx.net.now < self.back_at {
            return;
        }
        self.mode = Mode::Up;
        for (conn, call, request, lose) in std::mem::take(&mut self.backlog) {
            self.answer(ctx, conn, call, &request, lose);
        }
    }

    /// Records the state before a write.
    pub(crate) fn passed(&mut self, chain: Chain) {
        self.to_disk.push(chain);
        self.to_replica.push(chain);
    }

    /// Writes everything to disk.
    pub(crate) fn sync(&mut self, ctx: &mut Ctx) {
        if self.disk.version != self.data.version {
            self.disk = self.data.clone();
            ctx.check.synced.append(&mut self.to_disk);
            ctx.check.synced.push(self.data.audit.chain);
        }
    }

    /// Sends everything to the replica.
    pub(crate) fn replicate(&mut self, ctx: &mut Ctx) {
        if self.mode != Mode::Down {
            self.resync(ctx);
        }
    }

    /// The replica becomes a copy.
    pub(crate) fn resync(&mut self, ctx: &mut Ctx) {
        if self.replica.version != self.data.version {
            self.replica = self.data.clone();
            ctx.check.replicated.append(&mut self.to_replica);
            ctx.check.replicated.push(self.data.audit.chain);
        }
    }
}

/// How many of these connections listen to a channel.
pub(crate) fn listeners(conns: &BTreeMap<ConnId, Conn>, channel: Channel) -> u64 {
    conns.values().filter(|conn| conn.channels.contains(&channel)).count() as u64
}
