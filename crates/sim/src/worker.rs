//! What a process asks, and how it handles the answers: it starts calls and ends jobs.

use crate::ask::{Answer, Said, Verb};
use crate::bugs::Bug;
use crate::engine::LeaseId;
use crate::net::{Ctx, Happening, Request};
use crate::process::Process;
use crate::reply::Length;
use crate::server::Server;

/// How long a received engine time is used, in ms.
const KNOWN_MS: u64 = 2_000;
/// The number of jobs enqueued in a world.
const JOBS: u64 = 100;
/// A call takes up to this long, in ms.
const CALL_MS: u64 = 300;
/// The fleet is idle when no call was started for this long, in ms.
pub(crate) const IDLE_MS: u64 = 3_000;
/// The most open questions of a process.
const PENDING: usize = 7;

impl Process {
    pub(crate) fn ask(&mut self, ctx: &mut Ctx, verb: Verb, bytes: u64) {
        let (now, known) = (self.clock(ctx), ctx.check.losses.acknowledged());
        // What must not be answered twice has a short answer.
        let long =
            matches!(verb, Verb::Read(_) | Verb::Dispatch) && ctx.net.rng.u32(0..100) < ctx.net.cfg.long;
        let reply = if long { Length::long(&mut ctx.net.rng) } else { Length::default() };
        self.asker.ask(verb, (bytes, reply), now, known);
    }

    /// A planted bug: without work, nobody checks whether the owner is alive.
    pub(crate) fn unwatched(ctx: &Ctx) -> bool {
        ctx.net.has(Bug::IdleDeathUnnoticed) && ctx.net.quiet && ctx.net.now > ctx.check.started_at + IDLE_MS
    }

    /// It is time to ask something.
    pub(crate) fn on_ask(&mut self, ctx: &mut Ctx, server: &mut Server) {
        let next = ctx.net.rng.u64(1..=ctx.net.cfg.ask_ms);
        ctx.net.after(next, Happening::Ask(self.id));
        let has = |verb: Verb| self.asker.pending.values().any(|one| one.verb == verb);
        let (dispatches, probes) = (has(Verb::Dispatch), has(Verb::Probe));
        if !probes && !Self::unwatched(ctx) {
            self.ask(ctx, Verb::Probe, 100);
        }
        if !dispatches {
            self.ask(ctx, Verb::Dispatch, 200);
        }
        if !ctx.net.quiet && self.asker.pending.len() < PENDING {
            self.ask_anything(ctx);
        }
        if self.deaf
            && self.machine.owns()
            && let Some(journal) = &mut self.journal
        {
            // An owner also has its own work, so that its beat continues.
            journal.engine.register(self.id, self.stamp);
        }
        self.send_questions(ctx);
        self.step(ctx, server);
    }

    fn ask_anything(&mut self, ctx: &mut Ctx) {
        let large = ctx.net.rng.u32(0..100) < ctx.net.cfg.large;
        let bytes = if large { ctx.net.rng.u64(1 << 20..=4 << 20) } else { 1_000 };
        let verb = match ctx.net.rng.u32(0..9) {
            0..=3 if ctx.check.jobs < JOBS => {
                ctx.check.jobs += 1;
                Verb::Enqueue(ctx.check.jobs)
            }
            0..=5 => Verb::Read(ctx.net.rng.u64(0..=ctx.check.jobs)),
            6 | 7 => Verb::Spend,
            _ => Verb::Dispatch,
        };
        // A question that stays parked must not occupy the window.
        self.ask(ctx, verb, if verb == Verb::Dispatch { 200 } else { bytes });
    }

    pub(crate) fn send_questions(&mut self, ctx: &mut Ctx) {
        let now = self.clock(ctx);
        let Some(conn) = self.commands else { return };
        for question in self.asker.due(now, ctx.net.bug) {
            ctx.net.request(conn, 0, Request::Publish(question));
        }
    }

    pub(crate) fn on_answer(&mut self, ctx: &mut Ctx, answer: &Answer) {
        let now = self.clock(ctx);
        if self.heard.is_none_or(|(time, at)| answer.time >= time + (now - at)) {
            self.heard = Some((answer.time, now));
        }
        let Some(question) = self.asker.answered(answer, now) else {
            if answer.said == Said::RegisterFirst {
                self.register(ctx);
            }
            return;
        };
        ctx.net.log(format_args!("{} hears {:?} {:?}", self.id, question.verb, answer.said));
        ctx.check.delivered(answer, &question, &ctx.archive);
        ctx.check.acknowledge(answer.chain, &ctx.archive);
        match (question.verb, answer.said) {
            (Verb::Dispatch, Said::Granted { lease, until }) => self.start(ctx, lease, until),
            (Verb::Spend, Said::Yes) => ctx.check.spent(),
            (Verb::Enqueue(job), Said::Yes) => {
                ctx.check.accepted.insert(job);
            }
            _ => {}
        }
    }

    fn register(&mut self, ctx: &mut Ctx) {
        let stamp = self.stamp;
        let verb = Verb::Register { stamp };
        if !self.asker.pending.values().any(|one| one.verb == verb) {
            self.ask(ctx, verb, 500);
        }
    }

    /// Starts the call of a lease, if it is certain to end before the lease does.
    fn start(&mut self, ctx: &mut Ctx, lease: LeaseId, until: u64) {
        let now = self.clock(ctx);
        let Some((ahead, learned_at)) = self.asker.ahead else { return };
        let latest = now.cast_signed() + ahead;
        let left = until.cast_signed() - latest - 50;
        if left < 20 || now > learned_at + KNOWN_MS || !self.started.insert(lease) {
            return;
        }
        let takes = ctx.net.rng.u64(20..=left.cast_unsigned().min(CALL_MS));
        ctx.check.started(ctx.net.now, self.id, ctx.net.now + takes);
        ctx.net.after(takes, Happening::CallEnds { process: self.id, lease });
    }

    /// A call has ended.
    pub(crate) fn on_call_ended(&mut self, ctx: &mut Ctx, lease: LeaseId) {
        self.ask(ctx, Verb::Settle(lease), 300);
        self.send_questions(ctx);
    }
}
