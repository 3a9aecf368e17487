//! The scripts of the Redis store name nothing that is not there, and hold nothing that nobody uses. Redis itself would say
//! the former only when it comes to such a line.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use eclusa::store::RedisStore;
use eclusa_core::gate::GateSpecs;
use eclusa_core::{Name, Spec, Store, UpstreamSpec};
use redis::FromRedisValue;

use crate::redis_server::RedisServer;

const GLOBALS: [&str; 13] = [
    "bit",
    "cmsgpack",
    "ipairs",
    "math",
    "next",
    "pairs",
    "redis",
    "setmetatable",
    "string",
    "struct",
    "table",
    "tonumber",
    "unpack",
];

/// The text of each file by its name.
fn files() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/redis/lua");
    let mut files = BTreeMap::new();
    for folder in [folder.join("lib"), folder] {
        for file in std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
            if file.extension().is_some_and(|extension| extension == "lua") {
                let text = std::fs::read_to_string(&file).unwrap();
                files.insert(file.to_str().unwrap().to_owned(), text);
            }
        }
    }
    files
}

/// The library as a server was told it, and its name before.
async fn library(server: &RedisServer) -> (String, String) {
    let upstream = UpstreamSpec::new(Name::new("any").unwrap(), GateSpecs::default());
    let spec = Spec::new(Vec::new(), vec![upstream]).unwrap();
    RedisStore::new(&server.url(), "scripts:", &spec).unwrap().upstreams().await.unwrap();
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let list = ["LIST", "LIBRARYNAME", "eclusa_*", "WITHCODE"];
    let mut found: Vec<BTreeMap<String, redis::Value>> =
        redis::cmd("FUNCTION").arg(&list).query(&mut connection).unwrap();
    let mut field = |name: &str| String::from_redis_value(found[0].remove(name).unwrap()).unwrap();
    (field("library_name"), field("library_code"))
}

#[tokio::test]
async fn scripts_use_no_name_that_is_not_declared() {
    let server = RedisServer::start();
    let (name, source) = library(&server).await;
    let source = source.strip_prefix(&format!("#!lua name={name}\n")).unwrap();
    let verbs = files().into_keys().filter(|file| !file.contains("/lib/")).count();
    assert_eq!((verbs > 10, source.matches("function verbs.").count()), (true, verbs));
    let compile = "return string.dump(assert(loadstring(ARGV[1])))";
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    let compiled: Vec<u8> =
        redis::cmd("EVAL").arg(compile).arg(0).arg(source).query(&mut connection).unwrap();
    let mut globals = Globals::default();
    globals.read_chunk(&compiled);
    let known: BTreeSet<_> = GLOBALS.into_iter().map(str::to_owned).collect();
    assert_eq!(globals.read, known, "what is read that nobody has declared, or not read");
    assert!(globals.written.is_empty(), "{:?} are written and not local", globals.written);
}

#[test]
fn scripts_hold_nothing_that_nobody_uses() {
    let words: BTreeMap<_, _> = files().into_iter().map(|(name, text)| (name, words(&text))).collect();
    let mut unused = Vec::new();
    for (file, own) in &words {
        let here = |name: &str| own.iter().filter(|word| *word == name).count();
        let elsewhere = |name: &str| {
            words.iter().any(|(other, all)| other != file && all.iter().any(|word| word == name))
        };
        let functions = functions(own).filter(|name| here(name) < 2 && !elsewhere(name));
        unused.extend(functions.map(|name| format!("{file}: {name}")));
        unused.extend(exports(own).filter(|name| !elsewhere(name)).map(|name| format!("{file}: {name}")));
    }
    assert_eq!(unused, Vec::<String>::new());
}

/// Names and signs, without comments and texts.
fn words(source: &str) -> Vec<String> {
    let mut words = Vec::new();
    for line in source.lines() {
        let mut in_text = false;
        let code = line.split("--").next().unwrap_or_default().chars().filter(|letter| {
            let quote = *letter == '\'';
            in_text ^= quote;
            !in_text && !quote
        });
        let mut name = String::new();
        for letter in code.chain([' ']) {
            if letter.is_ascii_alphanumeric() || letter == '_' {
                name.push(letter);
                continue;
            }
            if !name.is_empty() {
                words.push(std::mem::take(&mut name));
            }
            if letter != ' ' {
                words.push(letter.to_string());
            }
        }
    }
    words
}

/// The functions that are defined: `function name(`, `function Table.name(`, `function Table:name(`, but for verbs.
fn functions(words: &[String]) -> impl Iterator<Item = &String> {
    let after = |at: usize| words[at + 1..].iter().take_while(|word| *word != "(").last();
    let is_verb = |at: usize| words.get(at + 1).is_some_and(|word| word == "verbs");
    let defined = words.iter().enumerate().filter(move |(at, word)| *word == "function" && !is_verb(*at));
    defined.filter_map(move |(at, _)| after(at))
}

/// What a file of the library declares at its beginning for others: `local a, b do … end`.
fn exports(words: &[String]) -> impl Iterator<Item = &String> {
    let first = words.iter().position(|word| word == "local").map_or(0, |at| at + 1);
    let count =
        words[first..].iter().take_while(|word| !["do", "=", "function"].contains(&word.as_str())).count();
    let list = if words[first + count] == "do" { &words[first..first + count] } else { &[] };
    list.iter().filter(|word| *word != ",")
}

/// The names that compiled Lua 5.1 looks up in the environment.
#[derive(Default)]
struct Globals {
    read: BTreeSet<String>,
    written: BTreeSet<String>,
}

/// What is left of a compiled chunk.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn int(&mut self) -> usize {
        u32::from_le_bytes(self.take(4).try_into().unwrap()).try_into().unwrap()
    }

    /// With its final zero, or nothing at all.
    fn text(&mut self) -> String {
        let len = u64::from_le_bytes(self.take(8).try_into().unwrap()).try_into().unwrap();
        String::from_utf8_lossy(self.take(len)).trim_end_matches('\0').to_owned()
    }
}

impl Globals {
    /// As a 64-bit server writes it: integers of four bytes, sizes of eight.
    fn read_chunk(&mut self, chunk: &[u8]) {
        let mut bytes = Bytes(chunk);
        assert_eq!(bytes.take(12), [0x1b, b'L', b'u', b'a', 0x51, 0, 1, 4, 8, 4, 8, 0]);
        self.read_function(&mut bytes);
        assert!(bytes.0.is_empty(), "the chunk is longer than its function");
    }

    fn read_function(&mut self, bytes: &mut Bytes<'_>) {
        const GET_GLOBAL: usize = 5;
        const SET_GLOBAL: usize = 7;
        bytes.text();
        bytes.take(4 + 4 + 4);
        let code: Vec<_> = (0..bytes.int()).map(|_| bytes.int()).collect();
        let constants: Vec<_> = (0..bytes.int()).map(|_| read_constant(bytes)).collect();
        for instruction in code {
            let name = || constants[instruction >> 14].clone();
            match instruction & 0x3f {
                GET_GLOBAL => drop(self.read.insert(name())),
                SET_GLOBAL => drop(self.written.insert(name())),
                _ => {}
            }
        }
        for _ in 0..bytes.int() {
            self.read_function(bytes);
        }
        let lines = bytes.int();
        bytes.take(4 * lines);
        for _ in 0..bytes.int() {
            bytes.text();
            bytes.take(8);
        }
        for _ in 0..bytes.int() {
            bytes.text();
        }
    }
}

/// A constant of a function, if it is a text.
fn read_constant(bytes: &mut Bytes<'_>) -> String {
    match bytes.byte() {
        1 => drop(bytes.take(1)),
        3 => drop(bytes.take(8)),
        4 => return bytes.text(),
        _ => {}
    }
    String::new()
}
