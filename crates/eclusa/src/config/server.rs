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

/// The engine's limit is 8 MiB per payload; 64 KiB of it are reserved for the path, the headers and the rest of a job.
pub(super) const MAX_BODY: u64 = (8 << 20) - (64 << 10);

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const DEFAULT_MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();
const DEFAULT_CONCURRENCY: NonZeroUsize = NonZeroUsize::new(256).unwrap();
const SHORTEST_LEASE: Span = Span::from_secs(1);
const SHORTEST_TERM: Span = Span::from_millis(100);
const SHORTEST_KEY: usize = 16;
/// The default of `store.forget_within`.
pub const FORGET_WITHIN: Duration = Duration::from_hours(1);
/// In less, the journal is not looked at often enough.
pub(crate) const SHORTEST_FORGET_WITHIN: Duration = Duration::from_secs(10);
const UNSHARE_GATES: &str = "USE_REDIS_CIRCUIT_BREAKER";

pub(super) fn server(t: &mut Table<'_>, has_keys: bool) -> ServerConfig {
    let server = ServerConfig {
        listen: t.or("listen", DEFAULT_LISTEN, "The address to listen on; port 0 picks a free port."),
        max_body: body_size(t, "max_body", Size(1 << 20), "The largest request body; at most 8128KiB."),
        max_bodies: all_bodies(t),
        max_wait: duration(t.or(
            "max_wait",
            Span::from_secs(60),
            "The longest time a caller may wait for a job to be stored or to end, and for any answer while Redis replies but no process decides.",
        )),
        max_connections: t
            .or("max_connections", DEFAULT_MAX_CONNECTIONS, "The most concurrent connections.")
            .get(),
        shutdown_grace: duration(t.or(
            "shutdown_grace",
            Span::from_secs(30),
            "How long running jobs may take to finish when the process stops.",
        )),
        client: t.section(
            "client",
            "How slow a client may be before it is disconnected. Only time spent waiting for the client counts: for bytes of its \
             request, or for it to read bytes of its response.",
            client,
        ),
        public_url: t.get(
            "public_url",
            "The public URL of this server, such as `https://gw.example`. `{webhook_url}` starts with it in the `request` of an \
             upstream.",
        ),
        tls: t
            .table(
                "tls",
                "Serves HTTPS, with HTTP/2, instead of HTTP. A renewed certificate is loaded when the files change \
                 or on SIGHUP.",
                server_tls,
            )
            .flatten(),
        drain: duration(t.or(
            "drain",
            Span::from_secs(5),
            "How long the process keeps serving requests after it is asked to stop, while `/readyz` returns 503, so that load \
             balancers notice before the listener closes.",
        )),
    };
    // Without keys, anybody who can reach the port may do everything.
    if !has_keys && !server.listen.ip().to_canonical().is_loopback() {
        let help = "add `[[auth.keys]]` with `name`, `role` and `key`, or listen on 127.0.0.1";
        t.wrong("listen", "is reachable from other machines, but there are no keys", help);
    }
    server
}

fn client(t: &mut Table<'_>) -> ClientBounds {
    let total = "How long one request may be waited for, and the same again for its response.";
    let min_rate = "The minimum speed, over each ten seconds of waiting.";
    ClientBounds {
        total: duration(t.or("total", PositiveSpan(Span::from_secs(600)), total).0),
        min_rate: t.or("min_rate", ByteRate(1 << 10), min_rate).0,
    }
}

/// Reads a body size, which must fit in a job.
pub(super) fn body_size(t: &mut Table<'_>, key: &'static str, default: Size, doc: &'static str) -> usize {
    let Size(size) = t.or(key, default, doc);
    if size > MAX_BODY {
        t.wrong(key, "is more than a job can hold", "write at most \"8128KiB\"");
    }
    usize::try_from(size).unwrap_or(usize::MAX)
}

fn all_bodies(t: &mut Table<'_>) -> usize {
    let doc = "Bytes of request bodies that may be received at the same time, over all connections. Requests beyond that are \
               refused with 503. Webhooks have a separate budget, an eighth of this size.";
    let Size(size) = t.or("max_bodies", Size(256 << 20), doc);
    usize::try_from(size).unwrap_or(usize::MAX)
}

pub(super) fn store(t: &mut Table<'_>) -> StoreConfig {
    let url = "Where state is stored: `embedded:DIRECTORY` (relative to the working directory), `memory:` to keep \
               nothing when the process ends, or `redis://HOST:PORT` (`rediss://` for TLS) to share it with other \
               processes.";
    let prefix = "The prefix of all Redis keys. With `\"\"`, the keys that other programs read (`circuit_breaker:…`, \
                  `rate_limiter:…`) have the names those programs expect.";
    let ack = "When a change counts as accepted: `fsync` survives a power cut; `write` is faster and survives a crash of the \
               process, but a power cut may lose the last second; `replicate` is also on a replica of the Redis server. The \
               default is `write` on Redis and `fsync` elsewhere. On Redis, `fsync` requires `appendfsync always`.";
    let url = t.or("url", StoreUrl::Embedded("./data".into()), url);
    let prefix = t.or("prefix", "eclusa:".to_owned(), prefix);
    let shared = matches!(url, StoreUrl::Redis(_));
    let ack = t.get("ack", ack).unwrap_or(if shared { Ack::Write } else { Ack::Fsync });
    if !shared && ack == Ack::Replicate {
        t.wrong("ack", "works only with Redis", "write \"fsync\" or \"write\"");
    }
    let when_lost = "What direct lanes and the decision API do while Redis does not respond: `share` continues with this \
                     process's share of every limit, `stop` admits nothing.";
    let when_lost = t.or("when_lost", WhenLost::Share, when_lost);
    let shared_gates = "Whether direct lanes, `acquire` and breakers share limits with the other processes on the same Redis. \
                        With `false`, each process applies the full limit on its own; queued jobs still share theirs. \
                        `USE_REDIS_CIRCUIT_BREAKER=false` in the environment does the same.";
    let shared_gates = t.or("shared_gates", true, shared_gates) && !gates_unshared_by_environment(t);
    let timeout =
        "On Redis: how long the server and the owner process may be silent before callers are refused.";
    let timeout = t.or("timeout", PositiveSpan(Span::from_secs(2)), timeout);
    let term = "On Redis: how long the owner process may be silent before another one takes over, and how long \
                processes wait for each other after Redis lost data; at least 100ms.";
    let term = t.or("term", PositiveSpan(Span::from_secs(2)), term);
    if term.0 < SHORTEST_TERM {
        t.wrong("term", "is too short to be renewed in time", "write at least \"100ms\"");
    }
    let forget_within = "How long something that expired (a cached response, a finished job, a dead letter, a key) may remain in \
                         the directory or in the journal on Redis while a process runs; at least 10s. All live data is rewritten \
                         twice in this time.";
    let forget_within = t.or("forget_within", PositiveSpan(FORGET_WITHIN.into()), forget_within);
    if duration(forget_within.0) < SHORTEST_FORGET_WITHIN {
        t.wrong("forget_within", "is too short to be kept", "write at least \"10s\"");
    }
    let forget_within = duration(forget_within.0);
    let tls = t.section("tls", "Certificates for `rediss://`, if the public ones are not enough.", |t| {
        tls(t, "CA certificates to trust instead of the public ones: a PEM file.")
    });
    let encrypted = matches!(&url, StoreUrl::Redis(url) if url.reveal().starts_with("rediss:"));
    if t.has("tls") && !encrypted {
        t.misplaced("tls", "has no effect with this `url`", "write `rediss://`, or remove `tls`");
    }
    let (timeout, term) = (duration(timeout.0), duration(term.0));
    StoreConfig { url, prefix, ack, when_lost, shared_gates, tls, timeout, term, forget_within }
}

/// Whether the environment turns `shared_gates` off. It is a way back that needs no change to the file.
fn gates_unshared_by_environment(t: &Table<'_>) -> bool {
    let Some(set) = t.context().variable(UNSHARE_GATES).filter(|set| !set.is_empty()) else { return false };
    let shared = on_or_off(&set);
    if shared.is_none() {
        let problem = format!("is overridden by `{UNSHARE_GATES}`, which is neither true nor false");
        t.wrong("shared_gates", &problem, "set the variable to `true` or `false`, or unset it");
    }
    shared == Some(false)
}

pub(super) fn workers(t: &mut Table<'_>) -> WorkersConfig {
    let concurrency = t.or(
        "concurrency",
        DEFAULT_CONCURRENCY,
        "The most jobs that this process runs at the same time, over all lanes.",
    );
    let lease = t.or(
        "lease",
        PositiveSpan(Span::from_secs(10)),
        "How long a job stays with a worker that stopped responding; at least 1s.",
    );
    if lease.0 < SHORTEST_LEASE {
        t.wrong("lease", "is too short to be renewed in time", "write at least \"1s\"");
    }
    WorkersConfig { concurrency: concurrency.get(), lease: duration(lease.0) }
}

pub(super) fn log(t: &mut Table<'_>) -> LogConfig {
    let level = "What is logged: `off`, `error`, `warn`, `info`, `debug`, `trace`, or a filter such as \
                 `info,eclusa=debug`.";
    LogConfig {
        filter: t.or("level", LogFilter("info".into()), level).0,
        format: t.or(
            "format",
            LogFormat::Auto,
            "The line format: `text`, `json`, or `auto` for text on a terminal and JSON otherwise.",
        ),
        access: t.or("access", false, "Whether to log each request to the server. Query values are masked."),
    }
}

/// A key, and its name even if the rest is invalid.
pub(super) struct ReadAuthKey {
    name: Option<At<String>>,
    pub(super) key: Option<Key>,
}

pub(super) fn auth(t: &mut Table<'_>, lanes: &[String]) -> Vec<ReadAuthKey> {
    let doc =
        "An API key, sent as `Authorization: Bearer`. Without any keys, Eclusa listens on loopback only.";
    let keys = t.tables("keys", doc, |t| key(t, lanes));
    check_keys_differ(t, &keys);
    keys
}

fn key(t: &mut Table<'_>, lanes: &[String]) -> ReadAuthKey {
    let name: Option<At<String>> =
        t.need("name", "\"app\"", "The name of the key's owner; appears in the log.");
    let role: Option<Role> = t.need("role", "\"producer\"", "What the key may do.");
    let text: Option<Secret> =
        t.get("key", "The key, at least 16 characters; prefer `${VAR}` to the plain text.");
    let file = t.file("key_file", "A file that contains the key, instead of `key`.");
    let only_lanes: Option<Vec<At<Name>>> = t.get("lanes", "Only these lanes; all if not given.");
    let tenants: Option<Vec<String>> =
        t.get("tenants", "Only these tenants; `*` matches anything. All if not given.");
    let max_priority = t.or("max_priority", Level::High, "The highest priority it may use.");
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

/// Notes that nothing of this kind is called `name`. `kind` includes its article.
pub(super) fn unknown_name(t: &Table<'_>, name: &At<Name>, known: &[String], kind: &str) {
    let list = match known {
        [] => format!("this file does not define {kind}"),
        known => format!("this file has `{}`", known.join("`, `")),
    };
    let help = suggest(name.value.as_str(), known.iter().map(String::as_str)).unwrap_or(list);
    t.context().wrong(&name.place, &format!("names {kind} that does not exist"), &help);
}

/// Reads a secret that is given inline under the first of two keys, or in a separate file under the second. Returns the
/// key that was used, and the secret.
pub(super) fn secret_text<'k>(
    t: &Table<'_>,
    (inline, apart): (&'k str, &'k str),
    text: Option<Secret>,
    file: Option<Vec<u8>>,
) -> Option<(&'k str, Secret)> {
    match (t.has(inline), t.has(apart)) {
        (true, true) => t.misplaced(apart, &format!("cannot be used with `{inline}`"), "keep one of them"),
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
                "names a file that is not UTF-8 text",
                &format!("name the file that contains the {inline}"),
            );
        }
    }
    None
}

/// Reads a secret like [`secret_text`], and requires it to be long enough and valid in a header.
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
            "use at least 16 characters, for example from `openssl rand -hex 16`",
        );
        return None;
    }
    if !secret.reveal().bytes().all(|byte| byte.is_ascii_graphic()) {
        t.wrong(key, "cannot be sent in a header", "use printable ASCII characters without spaces");
        return None;
    }
    Some(secret)
}

/// Checks that no two keys share a name or a secret.
fn check_keys_differ(t: &Table<'_>, keys: &[ReadAuthKey]) {
    let secret = |read: &ReadAuthKey| read.key.as_ref().map(|key| key.secret.clone());
    for (at, read) in keys.iter().enumerate() {
        let Some(name) = &read.name else { continue };
        let mut before = keys[..at].iter();
        if before.clone().any(|other| other.name.as_ref().is_some_and(|other| other.value == name.value)) {
            t.context().wrong(
                &name.place,
                "is also the name of another key",
                "give each key a different name",
            );
        }
        if secret(read).is_some() && before.any(|other| secret(other) == secret(read)) {
            let problem = "has the same `key` as another key";
            t.context().wrong(&name.place, problem, "use a different key");
        }
    }
}
