//! `[lanes.NAME]`.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};

use eclusa_core::gate::BucketSpec;
use eclusa_core::retry::{OnAmbiguous, RetryBudget, RetryPolicy};
use eclusa_core::{
    Capacity, Chain, DeadLetterSpec, Fairness, Keep, LaneSpec, Level, Name, RedriveSpec, Span, TenantLimits,
};

use super::accept::accept;
use super::cache::cache;
use super::gates::gates;
use super::mail::{LaneUse, Uses};
use super::read::{At, ByPattern, Entries, FromText, Table};
use super::server::unknown_name;
use super::texts::Code;
use super::types::{Admit, Chains, Check, Field, LaneConfig, Mode};
use super::units::{Percent, PositiveSpan, RateValue, Size};

/// Keys that do not apply to direct lanes, where nothing waits.
const QUEUE_ONLY: [&str; 11] = [
    "admit",
    "capacity",
    "max_bytes",
    "ttl",
    "types",
    "mask",
    "retry",
    "cache",
    "fairness",
    "dead_letters",
    "keep",
];

/// The defaults of `redrive`.
const REDRIVE_AFTER: Span = Span::from_secs(600);
const REDRIVE_TIMES: NonZeroU32 = NonZeroU32::new(3).unwrap();

pub(super) fn lane(
    name: &Name,
    t: &mut Table<'_>,
    upstreams: &[String],
    uses: &Uses,
) -> Option<(LaneConfig, LaneSpec)> {
    let mode = mode(t);
    let (own_chain, mut used) = own_chain(t, upstreams);
    let chains = chains(t, upstreams, mode, &mut used);
    let capacity = capacity(t);
    let ttl: Option<PositiveSpan> =
        t.get("ttl", "How long a job may wait before it is dropped; forever if not given.");
    let in_time = in_time(t);
    let types: Option<Entries<Level>> = t.get("types", "The priority of a job by its `type`.");
    let validate = validate(t);
    let accept = t.table(
        "accept",
        "Which requests callers may send; all if not given. Does not apply to requests made from templates.",
        accept,
    );
    let mask = mask(t);
    let retry = t.section("retry", "When a failed job is retried.", retry);
    let cache = t.table("cache", "Which responses are reused.", cache).flatten();
    let (cache_key, cache) = cache.unzip();
    uses.note(LaneUse { mode, upstreams: used, cache: t.place_of("cache") });
    let fairness = fairness(t);
    let dead_letters = dead_letters(t);
    let keep = t.section("keep", "Which finished jobs are kept with their results.", keep);
    let gates = gates(t, "concurrency", "The most jobs of this lane that run at the same time.");
    let tenant_limits = tenant_limits(t);
    if mode == Mode::Direct {
        refuse_queue_keys(t);
    }
    if t.has("chain") && own_chain.is_none() {
        return None;
    }
    let lane = LaneConfig {
        mode,
        chain: own_chain.as_ref().map(|chain| chain.names().to_vec()).unwrap_or_default(),
        chains: chains.clone(),
        types: types.into_iter().flat_map(Entries::valid).map(|(name, level)| (name.value, level)).collect(),
        validate,
        accept: accept.unwrap_or_default(),
        mask,
        cache_key,
        retry,
        concurrency: gates.slots(),
    };
    let chain = own_chain.or_else(|| every_chain(t, chains.as_ref()?))?;
    let (spec, ttl) = (LaneSpec::new(name.clone(), chain), ttl.map(|ttl| ttl.0));
    let spec = LaneSpec { in_time, capacity, ttl, fairness, gates, tenant_limits, ..spec };
    Some((lane, LaneSpec { retry, cache, dead_letters, keep, ..spec }))
}

fn mode(t: &mut Table<'_>) -> Mode {
    t.or(
        "mode",
        Mode::Queue,
        "`queue`: jobs are durable and wait for their turn. `direct`: the caller waits on the connection, and a request that \
         cannot be sent at once is refused.",
    )
}

/// Reads `chain`. Also returns the upstreams that it names, including unknown ones.
fn own_chain(t: &mut Table<'_>, upstreams: &[String]) -> (Option<Chain>, Vec<At<Name>>) {
    let names: Option<Vec<At<Name>>> =
        t.get("chain", "The upstreams that a job may use, in order. Optional if there are `chains`.");
    let used = names.clone().unwrap_or_default();
    let chain = names.and_then(|names| chain(t, "chain", names, upstreams));
    if !t.has("chain") && !t.has("chains") {
        t.wrong("chain", "is missing", "add `chain = [\"NAME\"]`");
    }
    (chain, used)
}

fn in_time(t: &mut Table<'_>) -> bool {
    let admit = t.or(
        "admit",
        Admit::All,
        "`in_time` refuses a job that could not start before it expires at the current pace; `all` accepts it.",
    );
    admit == Admit::InTime
}

fn mask(t: &mut Table<'_>) -> Vec<Field> {
    let fields: Option<Vec<Field>> = t.get(
        "mask",
        "Fields of a job that only admins can see: `query.cpf`, `header.x-id`, `body./email`, `params./email`. Others \
         see `***`. A body that is not JSON is masked completely. Headers that contain secrets are always masked.",
    );
    fields.unwrap_or_default()
}

/// Notes keys that a direct lane cannot have.
fn refuse_queue_keys(t: &Table<'_>) {
    for key in QUEUE_ONLY.into_iter().filter(|key| t.has(key)) {
        let help = "remove it, or write `mode = \"queue\"`";
        t.misplaced(key, "does not apply to a direct lane, where nothing waits", help);
    }
}

fn chain(t: &Table<'_>, key: &str, names: Vec<At<Name>>, upstreams: &[String]) -> Option<Chain> {
    for (at, name) in names.iter().enumerate() {
        if !upstreams.iter().any(|known| known == name.value.as_str()) {
            unknown_name(t, name, upstreams, "an upstream");
        }
        if names[..at].iter().any(|before| before.value == name.value) {
            t.context().wrong(&name.place, "names the same upstream twice", "remove one of them");
            return None;
        }
    }
    match Chain::new(names.into_iter().map(|name| name.value).collect()) {
        Ok(chain) => Some(chain),
        Err(error) => {
            t.wrong(key, &error.problem, "");
            None
        }
    }
}

/// A chain of all upstreams of `chains`, because the engine requires a chain for every lane. No job uses it.
fn every_chain(t: &Table<'_>, chains: &Chains) -> Option<Chain> {
    let mut all: Vec<Name> = Vec::new();
    for name in chains.chains.values().flatten() {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    if all.is_empty() {
        t.wrong("chains", "is empty", "add `VALUE = [\"NAME\"]`, or write `chain = [\"NAME\"]`");
        return None;
    }
    all.truncate(Chain::MAX_LEN);
    t.rule(Chain::new(all))
}

/// Reads `chains` and `chain_by`. All upstreams that they name are added to `used`.
fn chains(t: &mut Table<'_>, upstreams: &[String], mode: Mode, used: &mut Vec<At<Name>>) -> Option<Chains> {
    let by: Option<At<Field>> = t.get(
        "chain_by",
        "The field that selects one of `chains`: `params:/modelId`, `body:/modelId`, `query:NAME` or `header:NAME`.",
    );
    let chains: Option<Entries<Vec<At<Name>>>> = t.get(
        "chains",
        "Chains by the value of `chain_by`. Other values use `chain`; without it, they are refused.",
    );
    match (t.has("chain_by"), t.has("chains")) {
        (true, false) => {
            t.misplaced("chain_by", "needs `chains`", "add `chains = { VALUE = [\"NAME\"] }`");
        }
        (false, true) => {
            t.misplaced("chains", "needs `chain_by`", "add `chain_by = \"body:/modelId\"`");
        }
        _ => {}
    }
    if let Some(At { value: Field::Params(_), place }) = &by
        && mode == Mode::Direct
    {
        let help = "use `body:/…`, `query:NAME` or `header:NAME`";
        t.context().wrong(
            place,
            "names a field of `params`, which requests to a direct lane do not have",
            help,
        );
    }
    let mut valid = BTreeMap::new();
    for (value, names) in chains?.valid() {
        used.extend(names.iter().cloned());
        let chain = chain(t, "chains", names, upstreams)?;
        valid.insert(value.value, chain.names().to_vec());
    }
    Some(Chains { by: by?.value, chains: valid })
}

fn capacity(t: &mut Table<'_>) -> Capacity {
    let default = Capacity::default();
    let jobs = NonZeroU64::new(default.jobs()).unwrap_or(NonZeroU64::MAX);
    let jobs = t.or("capacity", jobs, "The most jobs that may wait, over all priorities.");
    let bytes = t.or("max_bytes", Size(default.bytes()), "The most bytes of payload that may wait.");
    t.rule(Capacity::new(jobs.get(), bytes.0)).unwrap_or(default)
}

fn validate(t: &mut Table<'_>) -> Vec<(Field, Check)> {
    let fields: Option<Entries<Check>> = t.get(
        "validate",
        "Fields that a job must contain, such as `query.cpf`, `header.x-id`, `body./a/b` or `params./a`, each with a check \
         (`cpf`, `cnpj`, `required`). If query, body or params fields are listed, no others are accepted there.",
    );
    let mut valid = Vec::new();
    for (name, check) in fields.into_iter().flat_map(Entries::all) {
        match Field::from_text(&name.value) {
            Ok(field) => valid.extend(check.map(|check| (field, check))),
            Err(wrong) => t.context().wrong(&name.place, &wrong.problem, &wrong.help),
        }
    }
    valid
}

fn retry(t: &mut Table<'_>) -> RetryPolicy {
    let default = RetryPolicy::default();
    let attempts = NonZeroU32::new(default.attempts()).unwrap_or(NonZeroU32::MIN);
    let attempts = t.or("attempts", attempts, "The total number of attempts; 1 means no retry.");
    let base = t
        .or("base", PositiveSpan(default.base()), "The wait after the first failure; it doubles each time.")
        .0;
    let cap = t.or("cap", PositiveSpan(default.cap()), "The longest wait.").0;
    let jitter = t.or(
        "jitter",
        Percent(default.jitter_percent()),
        "The random variation of waits, up and down, from 0 to 1 in steps of 0.01.",
    );
    let on_ambiguous = t.or(
        "on_ambiguous",
        OnAmbiguous::default(),
        "What to do if a request was sent but no response came: `retry`, or `stop` if sending it twice is worse.",
    );
    let budget = t.table(
        "budget",
        "Limits the retries of all jobs of the lane together, so that they do not multiply the load on a failing upstream. A retry \
         beyond the budget waits without spending an attempt; first attempts go ahead of it.",
        budget,
    );
    if cap < base {
        let (key, problem) = if t.has("cap") {
            ("cap", "must not be below `base`")
        } else {
            ("base", "must not be above `cap`")
        };
        t.wrong(key, problem, "`base` is the first wait, `cap` the longest");
        return default;
    }
    let policy = RetryPolicy::new(attempts.get(), base, cap, jitter.0);
    t.rule(policy).unwrap_or_default().on_ambiguous(on_ambiguous).with_budget(budget.flatten())
}

fn budget(t: &mut Table<'_>) -> Option<RetryBudget> {
    let share = t.or(
        "share",
        Percent(20),
        "Retries beyond `min`, as a share of the first attempts of the last ten seconds, from 0 to 1 in steps of 0.01.",
    );
    let min =
        t.or("min", RateValue { count: 10, per: Span::from_secs(1) }, "The retries that are always allowed.");
    let min = t.rule(BucketSpec::new(min.count, min.count, min.per))?;
    t.rule(RetryBudget::new(share.0, min))
}

fn tenant_limits(t: &mut Table<'_>) -> TenantLimits {
    let rate: Option<ByPattern<RateValue>> = t.get(
        "tenant_rate",
        "The rate at which each tenant's calls may start: a bucket per tenant, like `rate` for the lane. One rate for all, or rates \
         by pattern of the tenant's name: `{ \"acme\" = \"10/min\", \"*\" = \"100/min\" }`; the most specific pattern applies. Other tenants \
         overtake a tenant that is at its limit.",
    );
    let concurrency: Option<ByPattern<NonZeroU32>> = t.get(
        "tenant_concurrency",
        "The most concurrent calls of each tenant: one number for all, or numbers by pattern as in `tenant_rate`.",
    );
    let bucket = |rate: &RateValue| t.rule(BucketSpec::new(rate.count, rate.count, rate.per));
    TenantLimits {
        rate: rate.map(|rates| rates.map(bucket)).unwrap_or_default(),
        concurrency: concurrency.map(|limits| limits.map(|slots| Some(*slots))).unwrap_or_default(),
    }
}

fn fairness(t: &mut Table<'_>) -> Option<Fairness> {
    let doc = "How tenants take turns within a priority; `false` means first come, first served.";
    t.switch("fairness", doc, |t| {
        let default = Fairness::default();
        let batch = NonZeroU32::new(default.batch()).unwrap_or(NonZeroU32::MIN);
        let batch = t.or("batch", batch, "The most jobs of a tenant in a row while another tenant waits.");
        let weights: Option<Entries<NonZeroU32>> = t.get(
            "weights",
            "Multiples of `batch`, by pattern of the tenant's name: `{ \"gold-*\" = 3 }`. The most specific pattern applies.",
        );
        let weights = weights.into_iter().flat_map(Entries::valid);
        let weights = weights.map(|(pattern, weight)| (pattern.value, weight.get())).collect();
        t.rule(Fairness::new(batch.get(), weights)).unwrap_or(default)
    })
}

fn dead_letters(t: &mut Table<'_>) -> Option<DeadLetterSpec> {
    let doc = "Which permanently failed jobs are kept; `false` keeps none.";
    t.switch("dead_letters", doc, |t| {
        let default = DeadLetterSpec::default();
        let ttl = t.or("ttl", PositiveSpan(default.ttl()), "How long they are kept.").0;
        let max = NonZeroU64::new(default.max()).unwrap_or(NonZeroU64::MIN);
        let max = t.or("max", max, "The most dead letters to keep per lane.");
        let answers = t.or(
            "answers",
            default.answers(),
            "Whether a 4xx response that the caller waited for (`Prefer: wait`) leaves a dead letter; with `false`, it is just a response.",
        );
        let redrive = t.table("redrive", "Which dead letters are replayed automatically.", redrive).flatten();
        let kept = t.rule(DeadLetterSpec::new(ttl, max.get())).unwrap_or(default);
        kept.with_answers(answers).with_redrive(redrive)
    })
}

fn redrive(t: &mut Table<'_>) -> Option<RedriveSpec> {
    let after = t.or(
        "after",
        PositiveSpan(REDRIVE_AFTER),
        "How long after the last failure, and after a failed canary.",
    );
    let times = t.or("times", REDRIVE_TIMES, "The most replays of each dead letter.");
    let codes: Option<Vec<Code>> = t.need(
        "codes",
        "[421, \"5xx\"]",
        "The codes of the last failure to replay; `5xx` is a class of codes, `none` a failure without a code.",
    );
    let codes = codes?.into_iter().map(|code| code.0.into()).collect();
    t.rule(RedriveSpec::new(after.0, times.get(), codes))
}

fn keep(t: &mut Table<'_>) -> Keep {
    let default = Keep::default();
    Keep {
        span: t.or("for", default.span, "How long they are kept."),
        max: t.or("max", default.max, "The most finished jobs to keep per lane; 0 keeps none."),
    }
}
