//! What the server does for each command, with calls to the checkers. The scripts themselves are in `keys`.

use eclusa_fleet::{Append, Command, ProcessId, Reply, Take, TermView};

use crate::bugs::Bug;
use crate::config::{CLAIMS_MS, TERM_MS};
use crate::keys::ScriptCall;
use crate::net::{ConnId, Ctx, Message, Response};
use crate::server::{Channel, Data, Server, listeners};

/// A small world can go back this many writes.
const HISTORY: usize = 2;

impl Server {
    /// Runs a command; `None` if nobody waits for the reply.
    pub(crate) fn run_command(
        &mut self,
        ctx: &mut Ctx,
        conn: ConnId,
        command: &Command,
        format: u16,
    ) -> Option<Response> {
        let process = self.conns.get(&conn)?.process?;
        let (time, run, connected) = (self.time(ctx), self.run.clone(), self.connected());
        let conns = &self.conns;
        let heard = |term| listeners(conns, Channel::Term(term));
        let (least_epoch, bug) = (time, ctx.net.bug);
        let call = ScriptCall { process, format, run: &run, time, least_epoch, listeners: &heard, bug };
        let keys = &mut self.data.keys;
        let reply = match command {
            Command::Look => Reply::Looked(keys.look(&call, ctx.net.now - self.started, connected, TERM_MS)),
            Command::Listen(term) => {
                self.listen(conn, Channel::Term(*term));
                Reply::Listening
            }
            Command::Take(take) => {
                let old = keys.term.clone();
                let reply = keys.take(&call, take);
                let listeners = old.as_ref().map_or(0, |view| heard(view.term));
                self.taken(ctx, process, take, (old.as_ref(), listeners), &reply);
                reply
            }
            Command::Read { after } => {
                let owned = |view: &TermView| view.owner == process && view.reader > format;
                if keys.term.as_ref().is_some_and(owned) {
                    ctx.check.fail("I10", format_args!("a process reads what it cannot read"));
                }
                return Some(Response::Page(keys.page(*after, ctx.net.cfg.page)));
            }
            // The process itself handles this command.
            Command::Build { .. } => return None,
            Command::Tail => keys.tail(),
            Command::Append(append) => {
                let before = (!ctx.net.plan.is_empty() && append.chunk.is_some()).then(|| self.data.clone());
                let last = self.data.keys.last;
                match self.data.keys.append(&call, append) {
                    Err(refusal) => Reply::Refused(refusal),
                    Ok(added) => {
                        if added.is_some_and(|at| at <= last) {
                            ctx.check.fail("I1", format_args!("{added:?} is not above {last:?}"));
                        }
                        self.appended(ctx, conn, append, added.is_some(), before)
                    }
                }
            }
            Command::Confirm => match self.conns.get(&conn)?.wrote {
                Some(version) => Reply::Confirmed(self.replica.version >= version),
                None if ctx.net.has(Bug::ConfirmOnAnotherConnection) => Reply::Confirmed(true),
                None => return Some(Response::TryAgain),
            },
            Command::Claim(claim) => {
                let reply = keys.claim(&call, claim, CLAIMS_MS);
                self.wrote(Some(conn));
                reply
            }
            Command::Name { term, successor } => {
                let reply = keys.release(&call, *term, Some(*successor), Reply::Named);
                if reply == Reply::Named {
                    self.changed_hands(ctx);
                }
                reply
            }
            Command::Release { term, successor } => {
                let reply = keys.release(&call, *term, *successor, Reply::Released);
                if reply == Reply::Released {
                    ctx.check.losses.released(process);
                    self.changed_hands(ctx);
                }
                reply
            }
        };
        Some(Response::Reply(reply))
    }

    /// A process is subscribed to the questions of one term at a time.
    fn listen(&mut self, conn: ConnId, term: Channel) {
        if let Some(conn) = self.conns.get_mut(&conn) {
            conn.channels.retain(|channel| !matches!(channel, Channel::Term(_)));
            conn.channels.insert(term);
        }
    }

    fn taken(
        &mut self,
        ctx: &mut Ctx,
        process: ProcessId,
        take: &Take,
        (old, listeners): (Option<&TermView>, u64),
        reply: &Reply,
    ) {
        if matches!(reply, Reply::Taken { .. }) {
            let silent_ms = ctx.net.now - self.data.beat_at;
            ctx.check.taken(ctx.net.now, process, take, old, (&self.run, listeners, silent_ms));
            self.changed_hands(ctx);
        }
    }

    /// Announces to all processes that the term was taken or released, or its successor named.
    fn changed_hands(&mut self, ctx: &mut Ctx) {
        self.data.beat_at = ctx.net.now;
        self.wrote(None);
        self.publish(ctx, Channel::Fleet, &Message::News, 10);
    }

    fn appended(
        &mut self,
        ctx: &mut Ctx,
        conn: ConnId,
        append: &Append,
        added: bool,
        before: Option<Data>,
    ) -> Reply {
        self.history.extend(before);
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
        self.data.beat_at = ctx.net.now;
        if let Some(chunk) = append.chunk.as_ref().filter(|_| added) {
            let body = ctx.archive.body(chunk.checksum);
            ctx.check.appended(&mut self.data.audit, &body, append.term, &ctx.archive);
        }
        self.wrote(Some(conn));
        let mut unheard = Vec::new();
        for (at, answer) in append.answers.iter().enumerate() {
            let message = ctx.archive.answers(&answer.message);
            if self.publish_answers(ctx, &message) == 0 {
                unheard.push(at);
            }
        }
        Reply::Appended { listeners: self.listeners(Channel::Term(append.term)), unheard }
    }
}
