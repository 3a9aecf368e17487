//! What the server does for each command: the scripts, each atomic.

use eclusa_core::Span;
use eclusa_fleet::{
    Append, Claim, Command, Look, Position, ProcessId, Refusal, Reply, Take, TakeReason, TermId, TermView,
};

use crate::bugs::Bug;
use crate::config::TERM_MS;
use crate::net::{ConnId, Ctx, Response};
use crate::server::{Channel, Entry, Server, Stored};

/// A small world can go back this many writes.
const HISTORY: usize = 2;
/// So many terms are remembered.
const FROM: usize = 16;

impl Server {
    /// Runs a command. `None`: its connection is closed by it.
    pub(crate) fn run_command(
        &mut self,
        ctx: &mut Ctx,
        conn: ConnId,
        command: &Command,
        format: u16,
    ) -> Option<Response> {
        let process = self.conns.get(&conn)?.process;
        Some(Response::Reply(match command {
            Command::Look => Reply::Looked(self.look(ctx)),
            Command::Listen(term) => {
                self.conns.get_mut(&conn)?.channels.insert(Channel::Term(*term));
                Reply::Listening
            }
            Command::Take(take) => self.take(ctx, process?, take, format),
            Command::Read { after } => {
                let owned = |view: &TermView| Some(view.owner) == process && view.reader > format;
                if self.data.term.as_ref().is_some_and(|stored| owned(&stored.view)) {
                    ctx.check.fail("I10", format_args!("a process reads what it cannot read"));
                }
                return Some(self.read(*after, ctx.net.cfg.page));
            }
            Command::Tail => {
                Reply::Tail(self.data.stream.back().map(|entry| (entry.at.number, entry.checksum)))
            }
            Command::Append(append) => self.append(ctx, conn, append),
            Command::Confirm => match self.conns.get(&conn)?.wrote {
                Some(version) => Reply::Confirmed(self.replica.version >= version),
                None if ctx.net.has(Bug::ConfirmOnAnotherConnection) => Reply::Confirmed(true),
                None => return Some(Response::TryAgain),
            },
            Command::Claim(Claim { process, position }) => {
                self.data.claims.insert(*process, (*position, ctx.net.now + TERM_MS));
                self.wrote(Some(conn));
                Reply::Claimed
            }
            Command::Name { term, successor } => self.release(ctx, *term, Some(*successor), false),
            Command::Release { term, successor } => self.release(ctx, *term, *successor, true),
        }))
    }

    fn look(&self, ctx: &Ctx) -> Look {
        let now = ctx.net.now;
        let mut term = self.data.term.as_ref().map(|stored| stored.view.clone());
        let hidden = ctx.net.has(Bug::NoSettling) || ctx.net.has(Bug::RunIgnored);
        if let Some(view) = &mut term
            && hidden
        {
            view.run = self.run.clone();
        }
        let listeners = term.as_ref().map_or(0, |view| self.listeners(Channel::Term(view.term)));
        let claims = self.data.claims.iter().filter(|(_, (_, expires))| *expires > now);
        let claims = claims.map(|(process, (position, _))| Claim { process: *process, position: *position });
        let first = term.is_none() && ctx.net.has(Bug::EmptiedTakenAsFirst);
        Look {
            run: self.run.clone(),
            uptime: Span::from_millis(if first { u64::MAX } else { now - self.started }),
            listeners,
            connected: if first { 1 } else { self.connected() },
            claims: claims.collect(),
            term,
        }
    }

    fn take(&mut self, ctx: &mut Ctx, process: ProcessId, take: &Take, format: u16) -> Reply {
        let (listens, allowed) =
            (self.listeners(Channel::Term(take.term)), self.may_take(ctx, process, take));
        if listens == 0 && !ctx.net.has(Bug::SubscribeAfterTake) || !allowed {
            return Reply::NotTaken;
        }
        let stored = self.data.term.take();
        let listeners = stored.as_ref().map_or(0, |stored| self.listeners(Channel::Term(stored.view.term)));
        ctx.check.taken(ctx.net.now, process, take, stored.as_ref(), (&self.run, listeners));
        let old = stored.map(|stored| stored.view);
        let stored_epoch = old.as_ref().map_or(0, |view| view.epoch);
        let epoch = if ctx.net.has(Bug::EpochStoredPlusOne) {
            stored_epoch + 1
        } else {
            (stored_epoch + 1).max(take.epoch_above + 1).max(self.time(ctx))
        };
        let number = old.as_ref().map_or(0, |view| view.number);
        let mut from = old.as_ref().map_or_else(Vec::new, |view| view.from.clone());
        from.push((take.term, number));
        if from.len() > FROM {
            from.remove(0);
        }
        let view = TermView {
            term: take.term,
            epoch,
            run: self.run.clone(),
            number,
            beat: old.as_ref().map_or(0, |view| view.beat) + 1,
            reader: old.map_or(0, |view| view.reader).max(format),
            from,
            owner: process,
            repairing: take.reason == TakeReason::Settled,
            released: false,
            successor: None,
        };
        self.data.term = Some(Stored { view, beat_at: ctx.net.now });
        self.wrote(None);
        Reply::Taken { epoch, number }
    }

    /// Term, beat and run are as they were seen, and the reason holds as far as the server can tell.
    fn may_take(&self, ctx: &Ctx, process: ProcessId, take: &Take) -> bool {
        if take.reason == TakeReason::Settled && !self.data.claims.contains_key(&process) {
            return false;
        }
        let Some(Stored { view, .. }) = &self.data.term else {
            return take.saw.is_none()
                && take.run == self.run
                && matches!(take.reason, TakeReason::First | TakeReason::Settled);
        };
        let same_beat = take.saw.is_some_and(|(_, beat)| beat == view.beat);
        let seen = take.saw.is_some_and(|(term, _)| term == view.term);
        let hidden = ctx.net.has(Bug::NoSettling) || ctx.net.has(Bug::RunIgnored);
        let same_run = view.run == self.run || hidden;
        seen && (same_beat || ctx.net.has(Bug::BeatNotCompared))
            && take.run == self.run
            && match take.reason {
                TakeReason::Released => same_run && view.released,
                TakeReason::NobodyListens => same_run && self.listeners(Channel::Term(view.term)) == 0,
                TakeReason::Silent => same_run,
                TakeReason::Settled => !same_run,
                TakeReason::First => false,
            }
    }

    fn read(&self, after: Position, page: usize) -> Response {
        let mut entries = self.data.stream.iter().filter(|entry| entry.at > after);
        let page = entries.by_ref().take(page).map(|entry| (entry.at, entry.checksum)).collect();
        Response::Page { entries: page, end: entries.next().is_none() }
    }

    /// Why an append is refused.
    fn refusal(&self, ctx: &Ctx, append: &Append) -> Option<Refusal> {
        let regressed = append.run != self.run && !ctx.net.has(Bug::RunIgnored);
        let (by_epoch, term_first) = (ctx.net.has(Bug::FenceOnEpochOnly), ctx.net.has(Bug::TermBeforeRun));
        if regressed && !by_epoch && !(term_first && self.data.term.is_some()) {
            return Some(Refusal::Regressed);
        }
        let Some(Stored { view, .. }) = &self.data.term else { return Some(Refusal::Empty) };
        let fenced = if by_epoch { append.epoch < view.epoch } else { append.term != view.term };
        if fenced {
            return Some(Refusal::Fenced);
        }
        if regressed && !by_epoch {
            return Some(Refusal::Regressed);
        }
        let next = append.chunk.is_some() && append.number == view.number + 1;
        (append.number != view.number && !next).then_some(Refusal::Number(view.number))
    }

    fn append(&mut self, ctx: &mut Ctx, conn: ConnId, append: &Append) -> Reply {
        if let Some(refusal) = self.refusal(ctx, append) {
            return Reply::Refused(refusal);
        }
        if !ctx.net.plan.is_empty() && append.chunk.is_some() {
            self.history.push_back(self.data.clone());
            if self.history.len() > HISTORY {
                self.history.pop_front();
            }
        }
        let Some(stored) = &mut self.data.term else { return Reply::Refused(Refusal::Empty) };
        let new = append.chunk.as_ref().filter(|_| append.number != stored.view.number);
        stored.view.beat += 1;
        stored.view.number = append.number;
        stored.view.repairing &= !append.whole;
        stored.beat_at = ctx.net.now;
        if let Some(chunk) = new {
            let at = Position { epoch: append.epoch, number: append.number };
            if at <= self.data.last {
                ctx.check.fail("I1", format_args!("id {at:?} is not above {:?}", self.data.last));
            }
            self.data.last = at;
            let body = ctx.archive.body(chunk.checksum);
            ctx.check.appended(&mut self.data.audit, &body, append.term, &ctx.archive);
            self.data.stream.push_back(Entry { at, checksum: chunk.checksum });
            self.data.stream.retain(|entry| entry.at >= chunk.keep_from);
        }
        self.wrote(Some(conn));
        let mut unheard = Vec::new();
        for (at, answer) in append.answers.iter().enumerate() {
            let answer = *ctx.archive.answer(&answer.message);
            if self.publish_answer(ctx, answer) == 0 {
                unheard.push(at);
            }
        }
        Reply::Appended { listeners: self.listeners(Channel::Term(append.term)), unheard }
    }

    /// Ends a term, or only names who is to follow.
    fn release(
        &mut self,
        ctx: &mut Ctx,
        term: TermId,
        successor: Option<ProcessId>,
        released: bool,
    ) -> Reply {
        let run = self.run.clone();
        let Some(Stored { view, .. }) = &mut self.data.term else { return Reply::Refused(Refusal::Empty) };
        if view.run != run && !ctx.net.has(Bug::RunIgnored) {
            return Reply::Refused(Refusal::Regressed);
        }
        if view.term != term {
            return Reply::Refused(Refusal::Fenced);
        }
        (view.released, view.successor) = (released, successor);
        self.wrote(None);
        if released { Reply::Released } else { Reply::Named }
    }
}
