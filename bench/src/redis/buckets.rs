//! Bytes of Redis memory per bucket, with a bucket for each of a million users.

use eclusa::store::{RedisSettings, RedisStore};
use eclusa_core::Store;
use futures_util::future::try_join_all;
use tokio::runtime::Runtime;

use super::server::RedisServer;
use crate::Failed;
use crate::buckets::{Policy, USERS};

/// Users who ask at the same time.
const AT_ONCE: usize = 500;

pub(crate) fn bytes(server: &RedisServer) -> Result<f64, Failed> {
    let policy = Policy::new()?;
    let store = RedisStore::open(&server.url(), &RedisSettings::default(), &policy.spec)?;
    Runtime::new()?.block_on(async {
        store.upstreams().await?;
        let before = server.used_memory()?;
        for users in (0..USERS).step_by(AT_ONCE) {
            let holds = (users..users + AT_ONCE).map(|user| policy.hold(user));
            let asks = holds.map(|hold| hold.map(|hold| policy.ask(&hold))).collect::<Result<Vec<_>, _>>()?;
            try_join_all(asks.into_iter().map(|ask| store.admit(ask))).await?;
        }
        Ok((server.used_memory()? - before) / USERS as f64)
    })
}
