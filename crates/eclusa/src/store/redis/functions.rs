//! The verbs as functions of one library, which a server keeps once it was told. The library's name tells its source, so
//! that different versions of the program share a server.

use std::sync::LazyLock;

use sha1_smol::Sha1;

/// What all verbs are made of, in the order in which it is needed. A function of Lua has at most 200 locals, so the first
/// file stands around the others.
const BASE: &str = include_str!("lua/lib/base.lua");
const LIBRARY: &[&str] = &[
    include_str!("lua/lib/memory.lua"),
    include_str!("lua/lib/clock.lua"),
    include_str!("lua/lib/set.lua"),
    include_str!("lua/lib/records.lua"),
    include_str!("lua/lib/queue.lua"),
    include_str!("lua/lib/bucket.lua"),
    include_str!("lua/lib/gates.lua"),
    include_str!("lua/lib/upstreams.lua"),
    include_str!("lua/lib/leases.lua"),
    include_str!("lua/lib/jobs.lua"),
    include_str!("lua/lib/lanes.lua"),
    include_str!("lua/lib/idempotency.lua"),
    include_str!("lua/lib/lines.lua"),
    include_str!("lua/lib/buckets.lua"),
    include_str!("lua/lib/waiting.lua"),
    include_str!("lua/lib/cache.lua"),
    include_str!("lua/lib/ending.lua"),
    include_str!("lua/lib/news.lua"),
    include_str!("lua/lib/calls.lua"),
    include_str!("lua/lib/place.lua"),
    include_str!("lua/lib/passing.lua"),
];

const FUNCTIONS: &str = include_str!("lua/lib/functions.lua");

/// What Redis must know before it runs a verb: whether it may run at `maxmemory`, or writes nothing.
const FREES: &str = "'allow-oom'";
const READS: &str = "'no-writes'";
const WRITES: &str = "";

/// How much of the hash of its source stands in the library's name.
const HASH: usize = 12;

/// The library as it is loaded.
#[derive(Debug)]
pub(super) struct Library {
    name: String,
    pub(super) source: String,
}

/// A verb, by the name that its function has on a server.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: LazyLock<String>,
}

pub(super) static ALL: LazyLock<Library> = LazyLock::new(|| {
    let verbs = VERBS.iter().map(|(_, _, verb)| format!("do\n{verb}end\n"));
    let library = LIBRARY.iter().map(|&part| part.to_owned()).chain(verbs).collect::<String>();
    let registered = VERBS.iter().map(|(name, flag, _)| format!("register('{name}', {{ {flag} }})\n"));
    let registered = registered.collect::<String>();
    let library = format!("{BASE}local function make()\n{library}end\nmake()\nreturn begin_call, verbs\n");
    let body = format!("local function library()\n{library}end\n{FUNCTIONS}{registered}");
    let name = format!("eclusa_{}", &Sha1::from(&body).digest().to_string()[..HASH]);
    Library { source: format!("#!lua name={name}\nlocal NAME = '{name}'\n{body}"), name }
});

macro_rules! functions {
    ($($constant:ident = $flag:ident $name:literal),* $(,)?) => {
        $(pub(super) static $constant: Function =
            Function { name: LazyLock::new(|| format!("{}_{}", ALL.name, $name)) };)*

        /// All verbs: name, flag and source.
        const VERBS: &[(&str, &str, &str)] =
            &[$(($name, $flag, include_str!(concat!("lua/", $name, ".lua")))),*];
    };
}

functions! {
    ENQUEUE = WRITES "enqueue",
    DISPATCH = FREES "dispatch",
    ADVANCE = FREES "advance",
    EXTEND = FREES "extend",
    SETTLE = FREES "settle",
    CANCEL = FREES "cancel",
    ADMIT = FREES "admit",
    RECORD = FREES "record",
    DISCARD = FREES "discard",
    PAUSE = FREES "pause",
    SWEEP = FREES "sweep",
    REGISTER = FREES "register",
    LOOK = READS "look",
    LANES = READS "lanes",
    UPSTREAMS = READS "upstreams",
    TENANTS = READS "tenants",
    LETTERS = READS "letters",
}
