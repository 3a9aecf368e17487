//! Decisions of the shared limiter, requested as by `RateLimiter::acquire`, compared with a script of the same message size
//! that does nothing. A granted lease is settled, as by every caller: two questions, compared with two calls of the script.

use std::sync::Arc;
use std::time::Duration;

use eclusa::store::{RedisSettings, RedisStore};
use eclusa_core::gate::{BucketSpec, GateSpecs};
use eclusa_core::{Admission, Admit, Name, Span, Spec, Store, UpstreamSpec};
use redis::Client;
use tokio::runtime::Runtime;

use super::server::{RedisServer, Spent};
use crate::Failed;
use crate::timing::now;
use crate::workload::done;

/// Concurrent callers; each asks again after its answer.
const CALLERS: usize = 100;
const DECISIONS: usize = 200_000;
/// Rounds alternate between ours and the script; the figures are those of the median round.
const ROUNDS: usize = 5;

/// Returns as many bytes as a decision.
const NOTHING: &str = "return string.rep('x', 60)";

/// Decisions per second, and what each costs the server.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct Decisions {
    pub(crate) per_second: f64,
    pub(crate) cpu_us: f64,
    pub(crate) commands: f64,
}

impl Decisions {
    fn new(took: Duration, spent: Spent) -> Self {
        let count = DECISIONS as f64;
        Self {
            per_second: count / took.as_secs_f64(),
            cpu_us: spent.cpu_us / count,
            commands: spent.commands / count,
        }
    }
}

/// All kinds of decisions, `admitted` or denied, with or without a lease, and as many calls of a script that does nothing.
pub(crate) fn measure(server: &RedisServer, leased: bool, admitted: bool) -> Result<[Decisions; 2], Failed> {
    let runtime = Runtime::new()?;
    let settings = RedisSettings { prefix: "limiter:".to_owned(), ..RedisSettings::default() };
    let store = Arc::new(RedisStore::open(&server.url(), &settings, &spec(admitted)?)?);
    let upstream = Name::new("upstream")?;
    let lease = if leased { Span::from_secs(60) } else { Span::ZERO };
    let ask = Admit {
        lane: None,
        tenant: None,
        chain: vec![upstream],
        holds: Vec::new(),
        correlation: None,
        lease,
        nonce: 1,
        after: None,
        probe: true,
    };
    let ours = |count| {
        runtime.block_on(at_once(count, async || {
            let asked = store.admit(Admit { nonce: fastrand::u64(..), ..ask.clone() }).await?.admission;
            match asked {
                Admission::Granted { lease, .. } if leased => {
                    store.settle(vec![done(lease)]).await?;
                    Ok(())
                }
                Admission::Granted { .. } | Admission::Denied { .. } => Ok(()),
                other => Err(format!("{other:?}").into()),
            }
        }))
    };
    let client = Client::open(server.url())?;
    let script: String =
        redis::cmd("SCRIPT").arg("LOAD").arg(NOTHING).query(&mut client.get_connection()?)?;
    let connection = runtime.block_on(client.get_multiplexed_async_connection())?;
    let question = [0_u8; 40];
    let bare = |count| {
        runtime.block_on(at_once(count, async || {
            for _ in 0..if leased && admitted { 2 } else { 1 } {
                let mut call = redis::cmd("EVALSHA");
                call.arg(&script).arg(1).arg("limiter:{main}");
                call.arg("").arg("0123456789abcdef").arg("limiter:{main}:").arg(&question);
                let _: Vec<u8> = call.query_async(&mut connection.clone()).await?;
            }
            Ok(())
        }))
    };
    // Scripts are loaded, connections opened and the bucket emptied before.
    ours(DECISIONS / 10)?;
    bare(DECISIONS / 10)?;
    let mut rounds = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let (took, spent) = server.spent(|| ours(DECISIONS))?;
        rounds[0].push(Decisions::new(took, spent));
        let (took, spent) = server.spent(|| bare(DECISIONS))?;
        rounds[1].push(Decisions::new(took, spent));
    }
    Ok(rounds.map(|mut rounds| {
        rounds.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
        rounds[ROUNDS / 2]
    }))
}

fn spec(admitted: bool) -> Result<Spec, Failed> {
    let rate = if admitted { 1_000_000 } else { 1 };
    let mut gates = GateSpecs::default();
    gates.bucket = Some(BucketSpec::new(rate, rate, Span::from_secs(if admitted { 1 } else { 3_600 }))?);
    let upstream = UpstreamSpec::new(Name::new("upstream")?, gates);
    Spec::new(Vec::new(), vec![upstream]).map_err(|errors| format!("{errors:?}").into())
}

/// Asks `count` times, [`CALLERS`] at a time; returns how long it took.
async fn at_once(count: usize, ask: impl AsyncFn() -> Result<(), Failed>) -> Result<Duration, Failed> {
    let started = now();
    let caller = async || {
        for _ in 0..count / CALLERS {
            ask().await?;
        }
        Ok::<_, Failed>(())
    };
    futures_util::future::try_join_all((0..CALLERS).map(|_| caller())).await?;
    Ok(now() - started)
}
