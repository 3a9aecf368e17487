//! Listen: hears from a shared store what other processes do, and wakes who waits for that here.

use std::sync::Arc;

use crate::gateway::Gateway;
use crate::store::{News, RedisStore};

pub(super) async fn run(gateway: Arc<Gateway>, store: Arc<RedisStore>) {
    let tell = |news| match news {
        News::Ended(job) => gateway.waiters.wake_at(job),
        News::Arrived(lane) => gateway.bells.ring_arrival(&lane),
    };
    loop {
        let heard = async {
            if let Err(error) = store.listen(tell).await {
                gateway.bear(&error).await;
            }
        };
        tokio::select! {
            () = gateway.finished.cancelled() => return,
            () = heard => {}
        }
    }
}
