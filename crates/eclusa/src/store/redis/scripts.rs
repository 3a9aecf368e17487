//! The scripts, each made of the shared library and its own verb.

use std::sync::LazyLock;

use sha1_smol::Sha1;

/// A script and the name Redis knows it by.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) source: String,
    pub(super) sha: String,
}

const LIBRARY: &[&str] = &[
    include_str!("lua/lib/base.lua"),
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

/// What Redis must know before it runs a script: whether it may run at `maxmemory`, or writes nothing.
const FREES: &str = "#!lua flags=allow-oom\n";
const READS: &str = "#!lua flags=no-writes\n";
const WRITES: &str = "#!lua\n";

impl Script {
    fn new(flags: &str, verb: &str) -> Self {
        let source = [flags].into_iter().chain(LIBRARY.iter().copied()).chain([verb]).collect::<String>();
        let sha = Sha1::from(&source).digest().to_string();
        Self { source, sha }
    }
}

macro_rules! scripts {
    ($($name:ident = $flags:ident $file:literal),* $(,)?) => {
        $(pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new($flags, include_str!(concat!("lua/", $file))));)*
    };
}

scripts! {
    ENQUEUE = WRITES "enqueue.lua",
    DISPATCH = FREES "dispatch.lua",
    ADVANCE = FREES "advance.lua",
    EXTEND = FREES "extend.lua",
    SETTLE = FREES "settle.lua",
    CANCEL = FREES "cancel.lua",
    ADMIT = FREES "admit.lua",
    RECORD = FREES "record.lua",
    DISCARD = FREES "discard.lua",
    PAUSE = FREES "pause.lua",
    SWEEP = FREES "sweep.lua",
    REGISTER = FREES "register.lua",
    LOOK = READS "look.lua",
    LANES = READS "lanes.lua",
    UPSTREAMS = READS "upstreams.lua",
    TENANTS = READS "tenants.lua",
    LETTERS = READS "letters.lua",
}
