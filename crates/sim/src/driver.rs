//! How a process handles replies, messages and events.

use std::rc::Rc;

use eclusa_core::Time;
use eclusa_fleet::{Append, Command, Event, Position, Refusal, Reply, TermId, Unanswered};

use crate::answer::Answers;
use crate::ask::{AnswerMessage, Verb};
use crate::bugs::Bug;
use crate::config::TIMEOUT_MS;
use crate::journal::Journal;
use crate::net::{ConnId, Ctx, Happening, Message, Request, Response};
use crate::process::{Process, ServerTime};
use crate::server::Server;

impl Process {
    /// Some commands are not for the server; planted bugs answer others without it.
    pub(crate) fn answer_itself(&mut self, ctx: &mut Ctx, call: u64, command: &Command) -> bool {
        let reply = match command {
            Command::Build { .. } => {
                let takes = 1 + 3 * ctx.net.cfg.page_ms;
                let ready = self.built_at.get_or_insert_with(|| ctx.net.now + ctx.net.rng.u64(0..takes));
                Reply::Built(ctx.net.now >= *ready)
            }
            Command::Listen(_) if ctx.net.has(Bug::SubscribeAfterTake) => Reply::Listening,
            Command::Append(Append { chunk: None, .. })
                if self.loading && ctx.net.has(Bug::NoRenewalWhileLoading) =>
            {
                Reply::Appended { listeners: 1, unheard: Vec::new() }
            }
            _ => return false,
        };
        let response = Response::Reply(reply);
        let server_time = self.server_time.time;
        let (process, journal) = (self.id, self.seen_journal);
        let takes = if matches!(command, Command::Build { .. }) { 10 } else { 1 };
        ctx.net.after(takes, Happening::Response { process, call, response, server_time, journal });
        true
    }

    /// A response of the server.
    pub(crate) fn on_response(
        &mut self,
        ctx: &mut Ctx,
        server: &mut Server,
        id: u64,
        response: Response,
        server_time: u64,
    ) {
        let now = self.clock(ctx);
        if let Response::Published(question, heard) = &response {
            if *heard == 0 {
                self.asker.unheard(question);
                self.machine.look_soon(Time::from_millis(now));
                self.step(ctx, server);
            }
            return;
        }
        let Some(call) = self.call.take_if(|call| call.id == id) else { return };
        if !matches!(call.command, Command::Build { .. }) {
            self.server_time = ServerTime { time: server_time, sent_at: call.sent_at, received_at: now };
        }
        let reply = self.reply(ctx, &call.command, response);
        if !matches!(reply, Ok(Reply::Appended { .. } | Reply::Looked(_))) {
            ctx.net.log(format_args!("{} got {reply:?}", self.id));
        }
        self.machine.reply(Time::from_millis(now), reply);
        self.handle_events(ctx, server);
        self.step(ctx, server);
    }

    fn reply(&mut self, ctx: &mut Ctx, command: &Command, response: Response) -> Result<Reply, Unanswered> {
        match response {
            Response::Page(entries) => {
                let Command::Read { after } = command else { return Err(Unanswered) };
                let begins = *after == Position::default();
                if begins {
                    self.journal = Some(Journal::default());
                }
                if !begins && entries.first().is_some_and(|entry| entry.at.number != after.number + 1) {
                    // Chunks were cleaned since.
                    return Ok(Reply::Read { last: Position::default(), end: true });
                }
                let journal = self.journal.get_or_insert_default();
                for entry in &entries {
                    journal.load(&ctx.archive.body(entry.checksum), entry.at, ctx.net.bug);
                }
                let last = entries.last().map_or(*after, |entry| entry.at);
                Ok(Reply::Read { last, end: entries.is_empty() })
            }
            Response::TryAgain
                if ctx.net.has(Bug::ReadonlyIsFenced) && matches!(command, Command::Append(_)) =>
            {
                Ok(Reply::Refused(Refusal::Fenced))
            }
            Response::Reply(Reply::Tail(Some((number, _)))) if ctx.net.has(Bug::TailAlwaysMatches) => {
                let sums = self.journal.as_ref().map(|journal| &journal.sums);
                Ok(Reply::Tail(sums.and_then(|sums| Some((number, *sums.get(&number)?)))))
            }
            Response::Reply(Reply::Looked(mut look))
                if ctx.net.has(Bug::DeafOwnerStays) && self.machine.owns() =>
            {
                look.connected = 0;
                Ok(Reply::Looked(look))
            }
            Response::Reply(reply) => Ok(reply),
            Response::TryAgain | Response::Published(..) => Err(Unanswered),
        }
    }

    /// It has waited too long for a reply: it opens a new connection.
    pub(crate) fn on_timeout(&mut self, ctx: &mut Ctx, server: &mut Server, id: u64) {
        let Some(call) = self.call.as_ref().filter(|call| call.id == id) else { return };
        ctx.net.log(format_args!("{} has no reply", self.id));
        ctx.check.losses.away(self.id, TIMEOUT_MS);
        let conn = match call.command {
            Command::Listen(_) => self.messages.take(),
            _ => self.commands.take(),
        };
        if let Some(conn) = conn {
            let late = ctx.net.rng.u64(0..500);
            ctx.net.after(late, Happening::Gone(conn));
        }
        self.connect(ctx, server);
        self.unanswered(ctx, server);
    }

    fn unanswered(&mut self, ctx: &mut Ctx, server: &mut Server) {
        let Some(call) = self.call.take() else { return };
        if ctx.net.has(Bug::ChunkChangedBeforeRepeat)
            && let Command::Append(Append { chunk: Some(chunk), .. }) = &call.command
            && let Some(journal) = &mut self.journal
        {
            self.changed = journal.change(&mut ctx.archive, chunk, ctx.net.bug);
        }
        self.machine.reply(Time::from_millis(self.clock(ctx)), Err(Unanswered));
        self.handle_events(ctx, server);
        self.step(ctx, server);
    }

    /// A connection is closed.
    pub(crate) fn on_closed(&mut self, ctx: &mut Ctx, server: &mut Server, conn: ConnId) {
        let listening = self.call.as_ref().is_some_and(|call| matches!(call.command, Command::Listen(_)));
        let (commands, messages) = (self.commands == Some(conn), self.messages == Some(conn));
        if commands {
            self.commands = None;
        }
        if messages {
            self.messages = None;
        }
        let wait = ctx.net.rng.u64(0..60);
        ctx.net.after(wait, Happening::Resubscribe(self.id));
        if commands && !listening || messages && listening {
            self.unanswered(ctx, server);
        }
    }

    /// Messages arrive.
    pub(crate) fn on_messages(&mut self, ctx: &mut Ctx, server: &mut Server, messages: Vec<Message>) {
        let now = self.clock(ctx);
        for message in messages {
            match message {
                Message::Question(question) if ctx.net.mishap(ctx.net.cfg.late) => {
                    let late = ctx.net.rng.u64(0..15_000);
                    let messages = vec![Message::Question(question)];
                    ctx.net.after(late, Happening::Late { process: self.id, messages });
                }
                Message::Question(question) => {
                    let (true, Some(term), Some(journal)) =
                        (self.machine.owns(), self.term, &mut self.journal)
                    else {
                        continue;
                    };
                    journal.engine.true_now = ctx.net.now;
                    journal.engine.advance(self.base.0 + (now - self.base.1));
                    self.answers.receive(question, term, journal, ctx.net.bug);
                }
                Message::Answers(message) => {
                    self.asker.received(&message);
                    message.answers.iter().for_each(|answer| self.on_answer(ctx, answer));
                }
                Message::News => self.machine.look_soon(Time::from_millis(now)),
            }
        }
        self.send_questions(ctx);
        self.step(ctx, server);
    }

    /// A planted bug: answers to reads are sent at once.
    pub(crate) fn publish_reads(&mut self, ctx: &mut Ctx) {
        let (Some(conn), Some(journal)) = (self.commands, &self.journal) else { return };
        if !journal.engine.staged.is_empty() {
            return;
        }
        let chain = journal.chain;
        self.answers.ready.retain(|one| {
            if one.read {
                let (asker, bytes) = (one.asker, one.reply.bytes().len() as u64);
                let message = AnswerMessage { asker, sent: 0, bytes, answers: vec![one.answer(chain)] };
                ctx.net.request(conn, 0, Request::PublishAnswer(Rc::new(message)));
            }
            !one.read
        });
    }

    pub(crate) fn on_event(&mut self, ctx: &mut Ctx, server: &mut Server, event: Event) {
        match event {
            Event::ReadInVain => self.journal = None,
            Event::Loading { after, .. } => {
                if after == Position::default() {
                    self.journal = Some(Journal::default());
                }
                self.forget_answers(ctx.net.bug);
                (self.loading, self.built_at) = (true, None);
                self.durable = 0;
            }
            Event::Owns { term, epoch } => self.on_owns(ctx, server, term, epoch),
            Event::Durable { batches } => {
                let handed = usize::try_from(batches).ok().and_then(|count| count.checked_sub(1));
                if let Some(chain) = handed.and_then(|at| self.batches.get(at)).copied() {
                    self.durable = chain;
                    ctx.check.durable(chain, &ctx.archive, ctx.net.cfg.ack);
                    ctx.check.acknowledge(chain, &ctx.archive);
                }
            }
            Event::Unheard(answers) => {
                for answer in answers {
                    let message = ctx.archive.answers(&answer.message);
                    self.answers.unheard(&message, self.journal.as_mut());
                }
            }
            Event::Deaf => {
                // It differs from the term it last subscribed to if the server ran an earlier attempt to take it.
                self.listening = self.machine.holds().map(|(term, _)| term);
                if let Some(conn) = self.messages.take() {
                    server.close(ctx, conn);
                }
                self.connect(ctx, server);
            }
            Event::Lost => {
                self.journal = None;
                self.loading = false;
                self.forget_answers(ctx.net.bug);
                self.batches.iter_mut().for_each(|chain| *chain = 0);
            }
            Event::Follows(view) => {
                let new = self.asker.term != Some(view.term);
                self.asker.follow(view.term);
                if new {
                    let stamp = self.stamp;
                    self.ask(ctx, Verb::Register { stamp }, 500);
                }
                self.send_questions(ctx);
            }
            Event::Superseded { missing } => {
                ctx.check.superseded(self.durable, self.seen_journal, missing, &ctx.archive);
            }
            Event::ReadsAhead => self.built_at = None,
            Event::Released => ctx.check.losses.left(self.id),
            Event::InDoubt | Event::Ready => {}
        }
    }

    /// Answers of another tenure may not be in the journal.
    fn forget_answers(&mut self, bug: Option<Bug>) {
        if bug == Some(Bug::AnswersOfLostTenureKept) {
            self.answers.ready.clear();
        } else {
            self.answers = Answers::default();
        }
    }

    fn on_owns(&mut self, ctx: &mut Ctx, server: &mut Server, term: TermId, epoch: u64) {
        let now = self.clock(ctx);
        let journal = self.journal.get_or_insert_default();
        if self.loading {
            ctx.check.loaded(self.id, journal.chain, &journal.engine.state);
            let served = self.server_time.at_least(now).saturating_add_signed(journal.ahead);
            let heard = self.heard.map_or(served, |(time, at)| time + (now - at));
            self.base = (journal.engine.time.max(heard.min(served)), now);
        }
        self.loading = false;
        journal.engine.begin(epoch, ctx.net.bug);
        self.term = Some(term);
        self.asker.follow(term);
        let chain = journal.chain;
        let holds = server.data.keys.term.as_ref();
        if holds.is_some_and(|view| view.term == term && view.run == server.run)
            && let Some(lost) = ctx.check.losses.goes_on(chain, &ctx.archive)
        {
            ctx.check.fail("I3", format_args!("{lost}"));
        }
        if ctx.net.has(Bug::SubscribeAfterTake) {
            self.listening = Some(term);
            if let Some(conn) = self.messages.take() {
                server.close(ctx, conn);
            }
            self.connect(ctx, server);
        }
        self.send_questions(ctx);
    }
}
