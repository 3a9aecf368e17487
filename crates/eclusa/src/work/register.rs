//! Register: says to a shared store that this process lives, and hears who else does.

use std::sync::Arc;
use std::time::Duration;

use crate::gateway::{Gateway, Instance};
use crate::store::RedisStore;

/// A process that was not heard of for ten seconds is gone.
const EVERY: Duration = Duration::from_secs(2);

pub(super) async fn run(gateway: Arc<Gateway>, store: Arc<RedisStore>) {
    let own = gateway.instance(store.rules_version());
    loop {
        match store.register(&own.id, &own.about()).await {
            Ok(alive) => {
                let alive = alive.into_iter().map(|(id, about)| Instance::read(id, &about)).collect();
                gateway.meet(alive);
            }
            Err(error) => {
                gateway.bear(&error).await;
            }
        }
        tokio::select! {
            () = gateway.finished.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}
