//! `[server]`, `[store]`, `[workers]`, `[log]` and `[[auth.keys]]`.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use eclusa_core::{Level, Name, Span};

use super::read::{At, Table, suggest};
use super::texts::LogFilter;
use super::tls::{server_tls, tls};
use super::types::{
    Ack, ClientBounds, Key, LogConfig, LogFormat, Role, Secret, ServerConfig, StoreConfig, StoreUrl,
    WhenLost, WorkersConfig,
};
use super::units::{ByteRate, PositiveSpan, Size, duration, on_or_off};

/// The engine takes payloads of 8 MiB; what is left is for the path, the headers and the rest of a job.
pub(super) const MAX_BODY: u64 = (8 << 20) - (64 << 10);

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const DEFAULT_MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();
const DEFAULT_CONCURRENCY: NonZeroUsize = NonZeroUsize::new(256).unwrap();
const SHORTEST_LEASE: Span = Span::from_secs(1);
const SHORTEST_TERM: Span = Span::from_millis(100);
const SHORTEST_KEY: usize = 16;
/// How long after it expired something may still be in the journal of a running process.
pub const FORGET_WITHIN: Duration = Duration::from_hours(1);
const UNSHARE_GATES: &str = "USE_REDIS_CIRCUIT_BREAKER";

pub(super) fn server(t: &mut Table<'_>, has_keys: bool) -> ServerConfig {
    let server = ServerConfig {
        listen: t.or("listen", DEFAULT_LISTEN, "Where to listen; port 0 picks a free one."),
        max_body: body_size(t, "max_body", Size(1 << 20), "The largest request body; at most 8128KiB."),
        max_bodies: all_bodies(t),
        max_wait: duration(t.or(
            "max_wait",
            Span::from_secs(60),
            "The longest that a caller may wait for a job, to be stored or to end.",
        )),
        max_connections: t
            .or("max_connections", DEFAULT_MAX_CONNECTIONS, "Connections served at the same time.")
            .get(),
        shutdown_grace: duration(t.or(
            "shutdown_grace",
            Span::from_secs(30),
            "How long running jobs may take to finish when the process is asked to stop.",
        )),
        client: t.section(
            "client",
            "How slow a client may be before it is cut off. Only the time counts in which it has yet to send bytes of its \
             request, or to read bytes of its answer.",
            client,
        ),
        public_url: t.get(
            "public_url",
            "Where others reach this server, such as `https://gw.example`: what `{webhook_url}` begins with in the `request` of an \
             upstream.",
        ),
        tls: t
            .table(
                "tls",
                "Serves HTTPS, with HTTP/2, in place of HTTP. A renewed certificate is used as soon as the files have changed, \
                 or on SIGHUP.",
                server_tls,
            )
            .flatten(),
        drain: duration(t.or(
            "drain",
            Span::from_secs(5),
            "How long the process goes on serving requests after it was asked to stop, with `/readyz` answering 503: load \
             balancers notice before the listener closes.",
        )),
    };
    // Whoever reaches the port may do everything where no key is asked for.
    if !has_keys && !server.listen.ip().to_canonical().is_loopback() {
        let help = "add `[[auth.keys]]` with `name`, `role` and `key`, or listen on 127.0.0.1";
        t.wrong("listen", "can be reached from other machines, and there are no keys", help);
    }
    server
}

fn client(t: &mut Table<'_>) -> ClientBounds {
    let total = "How long one request may be waited for, and as long again its answer.";
    let min_rate = "How fast it must be, over each ten seconds of waiting.";
    ClientBounds {
        total: duration(t.or("total", PositiveSpan(Span::from_secs(600)), total).0),
        min_rate: t.or("min_rate", ByteRate(1 << 10), min_rate).0,
    }
}

/// A size that a stored body can have.
pub(super) fn body_size(t: &mut Table<'_>, key: &'static str, default: Size, doc: &'static str) -> usize {
    let Size(size) = t.or(key, default, doc);
    if size > MAX_BODY {
        t.wrong(key, "is more than a job can carry", "write at most \"8128KiB\" (8 MiB less 64 KiB)");
    }
    usize::try_from(size).unwrap_or(usize::MAX)
}

fn all_bodies(t: &mut Table<'_>) -> usize {
    let doc = "Bytes of request bodies that are being received at the same time, over all connections. Requests beyond that are \
               refused with 503. Webhooks have an eighth as much of their own.";
    let Size(size) = t.or("max_bodies", Size(256 << 20), doc);
    usize::try_from(size).unwrap_or(usize::MAX)
}

pub(super) fn store(t: &mut Table<'_>) -> StoreConfig {
    let url = "Where the state lives: `embedded:FOLDER` (relative to the working directory), `memory:` to keep \
               nothing when the process ends, or `redis://HOST:PORT` (`rediss://` for TLS) to share it with other \
               processes.";
    let prefix = "What the names of all keys on Redis begin with. With `\"\"` the keys that other programs read \
                  have the names under which they look for them (`circuit_breaker:…`, `rate_limiter:…`).";
    let ack = "What \"accepted\" means: `fsync` survives a power cut; `write` is faster and survives the end of the \
               process, but a power cut may take the last second; `replicate` is on a replica of the Redis server too. On \
               Redis `write`, elsewhere `fsync` unless you say. On Redis `fsync` needs `appendfsync always` there.";
    let url = t.or("url", StoreUrl::Embedded("./data".into()), url);
    let prefix = t.or("prefix", "eclusa:".to_owned(), prefix);
    let shared = matches!(url, StoreUrl::Redis(_));
    let ack = t.get("ack", ack).unwrap_or(if shared { Ack::Write } else { Ack::Fsync });
    if !shared && ack == Ack::Replicate {
        t.wrong("ack", "is possible only on Redis", "write \"fsync\" or \"write\"");
    }
    let when_lost = "What direct lanes and the decision API do while Redis does not answer: `share` goes on with this \
                     process's part of every limit, `stop` lets nothing through.";
    let when_lost = t.or("when_lost", WhenLost::Share, when_lost);
    let shared_gates = "Whether direct lanes, `acquire` and breakers share limits with the other processes on one Redis. \
                        With `false` each process has its own, the whole limit; jobs stay under the shared ones. \
                        `USE_REDIS_CIRCUIT_BREAKER=false` in the environment does the same.";
    let shared_gates = t.or("shared_gates", true, shared_gates) && !gates_unshared_by_environment(t);
    let timeout = "On Redis: how long the server and the process that decides may be silent before callers are refused.";
    let timeout = t.or("timeout", PositiveSpan(Span::from_secs(2)), timeout);
    let term = "On Redis: how long the process that decides may be silent before another one takes over, and how long \
                processes wait for it after Redis lost data; at least 100ms.";
    let term = t.or("term", PositiveSpan(Span::from_secs(2)), term);
    if term.0 < SHORTEST_TERM {
        t.wrong("term", "is too short to be renewed in time", "write at least \"100ms\"");
    }
    let forget_within = "How long after something expired (a cached answer, a finished job, a dead letter, a key) it may still be in \
                         the directory or in the journal on Redis while a process runs; at least 1s. Everything that lives is written again \
                         twice in this time.";
    let forget_within = t.or("forget_within", PositiveSpan(FORGET_WITHIN.into()), forget_within);
    if forget_within.0 < Span::from_secs(1) {
        t.wrong("forget_within", "is too short", "write at least \"1s\"");
    }
    let forget_within = duration(forget_within.0);
    let tls = t.section("tls", "Certificates for `rediss://`, where the public ones do not do.", |t| {
        tls(t, "Trusted instead of the public ones: a PEM file with certificates.")
    });
    let encrypted = matches!(&url, StoreUrl::Redis(url) if url.reveal().starts_with("rediss:"));
    if t.has("tls") && !encrypted {
        t.misplaced("tls", "is of no use with this `url`", "write `rediss://`, or remove `tls`");
    }
    let (timeout, term) = (duration(timeout.0), duration(term.0));
    StoreConfig { url, prefix, ack, when_lost, shared_gates, tls, timeout, term, forget_within }
}

/// A way back that needs no change of the file.
fn gates_unshared_by_environment(t: &Table<'_>) -> bool {
    let Some(set) = t.context().variable(UNSHARE_GATES).filter(|set| !set.is_empty()) else { return false };
    let shared = on_or_off(&set);
    if shared.is_none() {
        let problem = format!("is overruled by `{UNSHARE_GATES}`, which is neither true nor false");
        t.wrong("shared_gates", &problem, "set the variable to `true` or `false`, or unset it");
    }
    shared == Some(false)
}

pub(super) fn workers(t: &mut Table<'_>) -> WorkersConfig {
    let concurrency = t.or(
        "concurrency",
        DEFAULT_CONCURRENCY,
        "Jobs that this process runs at the same time, over all lanes.",
    );
    let lease = t.or(
        "lease",
        PositiveSpan(Span::from_secs(10)),
        "How long a job stays with a worker that no longer answers; at least 1s.",
    );
    if lease.0 < SHORTEST_LEASE {
        t.wrong("lease", "is too short to be renewed in time", "write at least \"1s\"");
    }
    WorkersConfig { concurrency: concurrency.get(), lease: duration(lease.0) }
}

pub(super) fn log(t: &mut Table<'_>) -> LogConfig {
    let level = "What is written: `off`, `error`, `warn`, `info`, `debug`, `trace`, or a filter such as \
                 `info,eclusa=debug`.";
    LogConfig {
        filter: t.or("level", LogFilter("info".into()), level).0,
        format: t.or(
            "format",
            LogFormat::Auto,
            "How a line looks: `text` for people, `json` for machines, `auto` for text on a terminal and JSON elsewhere.",
        ),
        access: t.or(
            "access",
            false,
            "Whether each request to the server is a line of the log. Values in the query are masked.",
        ),
    }
}

/// A key, and its name even if the rest is wrong.
pub(super) struct ReadAuthKey {
    name: Option<At<String>>,
    pub(super) key: Option<Key>,
}

pub(super) fn key(t: &mut Table<'_>, lanes: &[String]) -> ReadAuthKey {
    let name: Option<At<String>> = t.need("name", "\"app\"", "Whose key it is; appears in the log.");
    let role: Option<Role> = t.need("role", "\"producer\"", "What it may do.");
    let text: Option<Secret> =
        t.get("key", "The key itself, at least 16 characters; better `${VAR}` than the text.");
    let file = t.file("key_file", "A file that holds the key, instead of `key`.");
    let only_lanes: Option<Vec<At<Name>>> = t.get("lanes", "Only these lanes; all if not given.");
    let tenants: Option<Vec<String>> =
        t.get("tenants", "Only these tenants; `*` stands for anything. All if not given.");
    let max_priority = t.or("max_priority", Level::High, "No more urgent than this.");
    for lane in
        only_lanes.iter().flatten().filter(|lane| !lanes.iter().any(|known| known == lane.value.as_str()))
    {
        unknown_name(t, lane, lanes, "a lane");
    }
    let secret = secret(t, ("key", "key_file"), text, file);
    let lanes = only_lanes.map(|lanes| lanes.into_iter().map(|lane| lane.value).collect());
    let key = name.clone().zip(role).zip(secret);
    let key = key.map(|((name, role), secret)| Key {
        name: name.value,
        role,
        secret,
        lanes,
        tenants,
        max_priority,
    });
    ReadAuthKey { name, key }
}

/// Notes that `name` names nothing of this kind, which comes with its article.
pub(super) fn unknown_name(t: &Table<'_>, name: &At<Name>, known: &[String], kind: &str) {
    let list = match known {
        [] => format!("this file does not have {kind} yet"),
        known => format!("this file has `{}`", known.join("`, `")),
    };
    let help = suggest(name.value.as_str(), known.iter().map(String::as_str)).unwrap_or(list);
    t.context().wrong(&name.place, &format!("names {kind} that does not exist"), &help);
}

/// A text that stands in the file under the first of two keys, or in a file of its own under the second; and which it was.
pub(super) fn secret_text<'k>(
    t: &Table<'_>,
    (inline, apart): (&'k str, &'k str),
    text: Option<Secret>,
    file: Option<Vec<u8>>,
) -> Option<(&'k str, Secret)> {
    match (t.has(inline), t.has(apart)) {
        (true, true) => t.misplaced(apart, &format!("stands beside `{inline}`"), "keep one of them"),
        (false, false) => {
            let help = format!("add `{inline} = \"${{VARIABLE}}\"` or `{apart} = \"path\"`");
            t.wrong(inline, "is missing", &help);
        }
        (true, false) => return text.map(|text| (inline, text)),
        (false, true) => {
            if let Ok(text) = String::from_utf8(file?) {
                return Some((apart, Secret::new(text.trim())));
            }
            t.wrong(
                apart,
                "names a file that is not text",
                &format!("name the file that holds the {inline}"),
            );
        }
    }
    None
}

/// The same for what must be hard to guess.
pub(super) fn secret(
    t: &Table<'_>,
    keys: (&str, &str),
    text: Option<Secret>,
    file: Option<Vec<u8>>,
) -> Option<Secret> {
    let (key, secret) = secret_text(t, keys, text, file)?;
    if secret.reveal().chars().count() < SHORTEST_KEY {
        t.wrong(
            key,
            "is too short to be safe",
            "use at least 16 characters, such as `openssl rand -hex 16` prints",
        );
        return None;
    }
    if !secret.reveal().bytes().all(|byte| byte.is_ascii_graphic()) {
        t.wrong(key, "cannot be sent in a header", "use letters, digits and signs of ASCII, no spaces");
        return None;
    }
    Some(secret)
}

/// Keys must be told apart: by name in the log, by text at the door.
pub(super) fn check_keys_differ(t: &Table<'_>, keys: &[ReadAuthKey]) {
    let secret = |read: &ReadAuthKey| read.key.as_ref().map(|key| key.secret.clone());
    for (at, read) in keys.iter().enumerate() {
        let Some(name) = &read.name else { continue };
        let mut before = keys[..at].iter();
        if before.clone().any(|other| other.name.as_ref().is_some_and(|other| other.value == name.value)) {
            t.context().wrong(
                &name.place,
                "is the name of another key too",
                "give each key a name of its own",
            );
        }
        if secret(read).is_some() && before.any(|other| secret(other) == secret(read)) {
            let problem = "belongs to a key with the same text as another";
            t.context().wrong(&name.place, problem, "give each key a text of its own");
        }
    }
}
