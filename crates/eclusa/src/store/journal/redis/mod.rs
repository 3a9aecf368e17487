//! The journal on Redis: a stream of chunks, appended under the fence of a term.

mod chunk;
mod connection;
mod examine;
mod inspect;
mod keys;
mod oldest;
mod server;

use std::collections::VecDeque;
use std::sync::LazyLock;

use eclusa_core::{Span, Time};
use eclusa_fleet::{
    Append, Claim, Look, Position, ProcessId, Refusal, Reply, RunId, Take, TakeReason, TermId, TermView,
};
use redis::{Cmd, Connection, ErrorKind, FromRedisValue, RedisError, Script, ServerErrorKind, Value};

pub(in crate::store) use self::chunk::{ChunkError, FORMAT, Mark, decode, encode};
use self::connection::Open;
pub(in crate::store) use self::connection::Server;
pub(crate) use self::examine::Examined;
pub(in crate::store) use self::examine::examine;
pub(in crate::store) use self::inspect::Inspector;
pub(crate) use self::inspect::ServerFacts;
pub(in crate::store) use self::keys::Keys;
pub(in crate::store) use self::server::Promise;

static APPEND: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/append.lua")));
static TAKE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/take.lua")));
static RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/release.lua")));
static CLAIM: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/claim.lua")));
static LOOK: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("scripts/look.lua")));

/// The approximate size of a page of the journal, in bytes.
const PAGE_BYTES: u64 = 1 << 20;
const MAX_PAGE: u64 = 1_000;

/// Intake stops when this many tenths of `maxmemory` are used.
const FULL_TENTHS: u64 = 9;

/// How long to wait for a replica before asking again.
const REPLICATION_MS: u64 = 100;

/// A chunk that is in the stream.
#[derive(Debug, Clone, Copy)]
struct Stored {
    position: Position,
    bytes: u64,
}

/// A write to a key that other programs read.
#[derive(Debug, Clone)]
pub(in crate::store) struct PublicWrite {
    pub(in crate::store) key: String,
    /// The arguments of the script: kind, two values, lifetime in milliseconds.
    pub(in crate::store) args: [String; 4],
}

/// The journal as one process sees it.
pub(in crate::store) struct RedisJournal {
    server: Server,
    keys: Keys,
    process: ProcessId,
    /// The chunks in the stream, oldest first, as far as this process has read or appended them.
    stored: VecDeque<Stored>,
    /// Chunks before this were removed, as far as this process knows.
    trimmed: Position,
    bytes: u64,
    page: u64,
    /// How long a claim counts after it was made.
    claims_live: Span,
    /// The number of the connection of the last append.
    appended_on: u64,
}

/// The term and the claims, with the server's time.
pub(in crate::store) struct Looked {
    pub(in crate::store) look: Look,
    pub(in crate::store) time: Time,
}

impl RedisJournal {
    pub(in crate::store) fn new(server: Server, keys: Keys, process: ProcessId, claims_live: Span) -> Self {
        Self {
            server,
            keys,
            process,
            stored: VecDeque::new(),
            trimmed: Position::default(),
            bytes: 0,
            page: 16,
            claims_live,
            appended_on: 0,
        }
    }

    /// Forgets which chunks exist, before they are read again.
    pub(in crate::store) fn forget(&mut self) {
        self.stored.clear();
        self.trimmed = Position::default();
        self.bytes = 0;
    }

    pub(in crate::store) fn look(&mut self) -> Result<Looked, RedisError> {
        let (keys, live) = (&self.keys, self.claims_live);
        self.server.run(|open| {
            let mut call = LOOK.prepare_invoke();
            call.key(keys.term()).key(keys.claims()).arg(keys.questions_prefix()).arg(keys.fleet());
            let (term, claims, listeners, connected, seconds, micros): LookReply =
                call.invoke(&mut open.connection)?;
            let time = Time::from_millis(seconds * 1_000 + micros / 1_000);
            let read = |(process, claim): &(String, String)| read_claim(process, claim, time, live);
            let look = Look {
                run: open.run.clone(),
                uptime: open.uptime(),
                term: term_view(&term),
                listeners,
                connected,
                claims: claims.iter().filter_map(read).collect(),
            };
            Ok(Looked { look, time })
        })
    }

    pub(in crate::store) fn take(&mut self, take: &Take) -> Result<Reply, RedisError> {
        let (keys, process) = (&self.keys, self.process);
        self.server.run(|open| {
            if open.run != take.run {
                return Ok(Reply::NotTaken);
            }
            let mut call = TAKE.prepare_invoke();
            call.key(keys.term()).key(keys.claims());
            match take.saw {
                Some((term, beat)) => call.arg(term.to_string()).arg(beat),
                None => call.arg("").arg(""),
            };
            call.arg(&*take.run).arg(take.term.to_string()).arg(take.epoch_above).arg(reason(take.reason));
            call.arg(keys.questions(take.term));
            call.arg(take.saw.map_or(String::new(), |(term, _)| keys.questions(term)));
            call.arg(process.to_string()).arg(keys.fleet());
            call.arg(take.own.map_or(String::new(), |own| own.to_string()));
            let reply: Vec<String> = call.invoke(&mut open.connection)?;
            Ok(match reply.as_slice() {
                [word, epoch, number] if word == "taken" => {
                    Reply::Taken { epoch: parse(epoch), number: parse(number) }
                }
                _ => Reply::NotTaken,
            })
        })
    }

    /// Appends, and does `meanwhile` while the server works.
    pub(in crate::store) fn append(
        &mut self,
        append: &Append,
        public: &[PublicWrite],
        meanwhile: impl FnOnce(),
    ) -> Result<Reply, RedisError> {
        let call = append_call(&self.keys, append, self.trimmed, public);
        let reply: Vec<Value> = self.server.run(|open| {
            if open.run != append.run {
                meanwhile();
                return Ok(vec![Value::SimpleString("regressed".into())]);
            }
            call_script(&APPEND, &call, &mut open.connection, meanwhile)
        })?;
        let reply = read_outcome(&reply)?;
        self.appended_on = self.server.connections();
        match (&reply, &append.chunk) {
            (Reply::Refused(_), _) => {
                // The server may have returned to an older state, in which removed chunks exist again.
                self.trimmed = Position::default();
            }
            (_, Some(chunk)) => {
                self.note(Position { epoch: append.epoch, number: append.number }, chunk.bytes.len() as u64);
                self.let_go(chunk.keep_from);
            }
            _ => {}
        }
        Ok(reply)
    }

    fn note(&mut self, position: Position, bytes: u64) {
        if self.stored.back().is_none_or(|last| last.position < position) {
            self.stored.push_back(Stored { position, bytes });
            self.bytes += bytes;
        }
    }

    fn let_go(&mut self, keep_from: Position) {
        self.trimmed = self.trimmed.max(keep_from);
        while let Some(oldest) = self.stored.front().filter(|oldest| oldest.position < keep_from) {
            self.bytes -= oldest.bytes;
            self.stored.pop_front();
        }
    }

    /// Waits until a replica has all that was written on this connection; returns whether it has.
    pub(in crate::store) fn confirm(&mut self) -> Result<Reply, RedisError> {
        if self.appended_on != self.server.connections() {
            // Nothing was written on this connection, so there is nothing to wait for.
            return Err((ErrorKind::Io, "the connection was replaced").into());
        }
        let replicas: u32 = self
            .server
            .run(|open| redis::cmd("WAIT").arg(1).arg(REPLICATION_MS).query(&mut open.connection))?;
        Ok(Reply::Confirmed(replicas > 0))
    }

    /// Stores a claim. The key lives as long as any process renews a claim, and a little longer.
    pub(in crate::store) fn claim(&mut self, claim: Claim, lives_ms: u64) -> Result<Reply, RedisError> {
        let key = self.keys.claims();
        let value = stream_id(claim.position);
        let new: bool = self.server.run(|open| {
            let mut call = CLAIM.prepare_invoke();
            call.key(&key).arg(claim.process.to_string()).arg(&value).arg(lives_ms);
            call.invoke(&mut open.connection)
        })?;
        Ok(Reply::Claimed(!new))
    }

    /// Names the successor; the term continues.
    pub(in crate::store) fn name(&mut self, term: TermId, successor: ProcessId) -> Result<Reply, RedisError> {
        self.end_term(term, Some(successor), "named")
    }

    /// Ends the term.
    pub(in crate::store) fn release(
        &mut self,
        term: TermId,
        successor: Option<ProcessId>,
    ) -> Result<Reply, RedisError> {
        self.end_term(term, successor, "released")
    }

    fn end_term(
        &mut self,
        term: TermId,
        successor: Option<ProcessId>,
        how: &str,
    ) -> Result<Reply, RedisError> {
        let keys = &self.keys;
        let reply: Vec<Value> = self.server.run(|open| {
            let mut call = RELEASE.prepare_invoke();
            call.key(keys.term()).arg(term.to_string()).arg(&*open.run);
            call.arg(successor.map_or(String::new(), |process| process.to_string()))
                .arg(keys.fleet())
                .arg(how);
            call.invoke(&mut open.connection)
        })?;
        read_outcome(&reply)
    }

    /// Whether the server has so little memory left that intake must stop.
    pub(in crate::store) fn is_full(&mut self) -> Result<bool, RedisError> {
        let reply: String =
            self.server.run(|open| redis::cmd("INFO").arg("memory").query(&mut open.connection))?;
        let bytes = |name| server::field(&reply, name).map_or(0, parse::<u64>);
        let most = bytes("maxmemory");
        Ok(most > 0 && bytes("used_memory") > most / 10 * FULL_TENTHS)
    }

    /// Publishes a message; returns how many subscribers received it.
    pub(in crate::store) fn publish(&mut self, channel: &str, message: &[u8]) -> Result<u64, RedisError> {
        self.server.run(|open| redis::cmd("PUBLISH").arg(channel).arg(message).query(&mut open.connection))
    }

    /// The last chunk: its number and checksum.
    pub(in crate::store) fn tail(&mut self) -> Result<Option<(u64, u64)>, RedisError> {
        let mut command = redis::cmd("XREVRANGE");
        command.arg(self.keys.journal()).arg("+").arg("-").arg("COUNT").arg(1);
        let page = self.range(&command)?;
        let sum = |(position, bytes): (Position, Vec<u8>)| {
            let decoded = decode(position.number, &bytes).ok()?;
            Some((position.number, decoded.checksum))
        };
        Ok(page.into_iter().next().and_then(sum))
    }

    /// The next page of chunks after a position, oldest first.
    pub(in crate::store) fn page(&mut self, after: Position) -> Result<Vec<(Position, Vec<u8>)>, RedisError> {
        let page = self.chunks_after(after, self.page)?;
        let bytes: u64 = page.iter().map(|(_, chunk)| chunk.len() as u64).sum();
        let mean = bytes.checked_div(page.len() as u64).unwrap_or(PAGE_BYTES).max(1);
        self.page = (PAGE_BYTES / mean).clamp(1, MAX_PAGE);
        page.iter().for_each(|(position, chunk)| self.note(*position, chunk.len() as u64));
        Ok(page)
    }

    fn chunks_after(&mut self, after: Position, count: u64) -> Result<Vec<(Position, Vec<u8>)>, RedisError> {
        let mut command = redis::cmd("XRANGE");
        command.arg(self.keys.journal()).arg(format!("({}", stream_id(after))).arg("+");
        command.arg("COUNT").arg(count);
        self.range(&command)
    }

    fn range(&mut self, command: &Cmd) -> Result<Vec<(Position, Vec<u8>)>, RedisError> {
        let entries: Vec<(String, Vec<Vec<u8>>)> =
            self.server.run(|open: &mut Open| command.query(&mut open.connection))?;
        let chunk = |(id, mut fields): (String, Vec<Vec<u8>>)| Some((read_stream_id(&id)?, fields.pop()?));
        Ok(entries.into_iter().filter_map(chunk).collect())
    }
}

type LookReply = (Vec<(String, String)>, Vec<(String, String)>, u64, u64, u64, u64);

fn reason(reason: TakeReason) -> &'static str {
    match reason {
        TakeReason::Released => "released",
        TakeReason::NobodyListens => "deaf",
        TakeReason::Silent => "silent",
        TakeReason::Settled => "settled",
        TakeReason::First => "first",
    }
}

/// The call of the script that appends to a journal that is `trimmed` up to a position. It holds the chunk, so it is built
/// without copies in between.
fn append_call(keys: &Keys, append: &Append, trimmed: Position, public: &[PublicWrite]) -> Cmd {
    let mut call = redis::cmd("EVALSHA");
    call.arg(APPEND.get_hash()).arg(2 + public.len()).arg(keys.term()).arg(keys.journal());
    public.iter().for_each(|write| {
        call.arg(write.key.as_str());
    });
    let chunk = append.chunk.as_ref();
    call.arg(append.term.to_string()).arg(&*append.run).arg(append.epoch).arg(append.number);
    call.arg(chunk.map_or(&[][..], |chunk| &*chunk.bytes));
    let keep_from = chunk.map(|chunk| chunk.keep_from).filter(|keep_from| *keep_from > trimmed);
    call.arg(keep_from.map_or(String::new(), stream_id));
    call.arg(FORMAT).arg(keys.questions(append.term)).arg(u8::from(append.whole)).arg(public.len());
    public.iter().for_each(|write| {
        call.arg(&write.args);
    });
    for answer in &*append.answers {
        call.arg(keys.answers(answer.to)).arg(&*answer.message);
    }
    call
}

/// Sends the call of a script, does `meanwhile`, and returns the reply. Loads the script if the server does not have it.
fn call_script<T: FromRedisValue>(
    script: &Script,
    call: &Cmd,
    connection: &mut Connection,
    meanwhile: impl FnOnce(),
) -> Result<T, RedisError> {
    let sent = connection.send_packed_command(&call.get_packed_command());
    meanwhile();
    sent?;
    match connection.recv_response().and_then(Value::extract_error) {
        Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
            script.load(connection)?;
            call.query(connection)
        }
        reply => Ok(redis::from_redis_value(reply?)?),
    }
}

/// The result of an append or a release.
fn read_outcome(reply: &[Value]) -> Result<Reply, RedisError> {
    let word = reply.first().cloned().map(String::from_redis_value).transpose()?.unwrap_or_default();
    let number = |at: usize| reply.get(at).cloned().map(u64::from_redis_value).transpose();
    Ok(match word.as_str() {
        "ok" => {
            let unheard = reply.iter().skip(2).cloned().map(usize::from_redis_value);
            Reply::Appended {
                listeners: number(1)?.unwrap_or_default(),
                unheard: unheard.collect::<Result<_, _>>()?,
            }
        }
        "named" => Reply::Named,
        "released" => Reply::Released,
        "fenced" => Reply::Refused(Refusal::Fenced),
        "regressed" => Reply::Refused(Refusal::Regressed),
        "empty" => Reply::Refused(Refusal::Empty),
        _ => Reply::Refused(Refusal::Number(number(1)?.unwrap_or_default())),
    })
}

fn term_view(fields: &[(String, String)]) -> Option<TermView> {
    let field = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
    let from = |entry: &str| {
        let (term, number) = entry.split_once(':')?;
        Some((read_term(term)?, number.parse().ok()?))
    };
    Some(TermView {
        term: read_term(field("term")?)?,
        epoch: parse(field("epoch")?),
        run: RunId::from(field("run")?),
        number: parse(field("number")?),
        beat: parse(field("beat")?),
        reader: parse(field("reader").unwrap_or("0")),
        from: field("from").unwrap_or_default().split_whitespace().filter_map(from).collect(),
        owner: read_process(field("owner")?)?,
        repairing: field("repairing") == Some("1"),
        released: field("released") == Some("1"),
        successor: field("successor").and_then(read_process),
    })
}

fn read_term(text: &str) -> Option<TermId> {
    u128::from_str_radix(text, 16).ok().map(TermId)
}

fn read_process(text: &str) -> Option<ProcessId> {
    u64::from_str_radix(text, 16).ok().map(ProcessId)
}

/// A claim that was made less than `live` ago.
fn read_claim(process: &str, claim: &str, now: Time, live: Span) -> Option<Claim> {
    let (position, made) = claim.split_once(' ')?;
    let made = Time::from_millis(made.parse().ok()?);
    let claim = Claim { process: read_process(process)?, position: read_stream_id(position)? };
    (made + live > now).then_some(claim)
}

fn stream_id(position: Position) -> String {
    format!("{}-{}", position.epoch, position.number)
}

fn read_stream_id(id: &str) -> Option<Position> {
    let (epoch, number) = id.split_once('-')?;
    Some(Position { epoch: epoch.parse().ok()?, number: number.parse().ok()? })
}

/// A number that a script wrote; anything else would be in a foreign key.
fn parse<T: std::str::FromStr + Default>(text: &str) -> T {
    text.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_is_not_renewed_expires() {
        let read = |now| read_claim("07", "5-90 1000", Time::from_millis(now), Span::from_millis(500));
        let claim = Claim { process: ProcessId(7), position: Position { epoch: 5, number: 90 } };
        assert_eq!([read(1_000), read(1_499), read(1_500)], [Some(claim), Some(claim), None]);
    }
}
