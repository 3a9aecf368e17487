//! Serve: the whole program from start to end.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use eclusa_core::Clock;
use thiserror::Error;
use tokio::net::TcpListener;

use crate::config::Config;
use crate::gateway::{Duty, Gateway, StartError};
use crate::{api, server, work};

/// How long to wait for what was let go at the end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Why the program could not start or go on.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The store or an upstream's certificates cannot be used.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; is another process using the port? Choose another: `server.listen`, or `--listen` of the demo"
    )]
    Listen {
        /// Which.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The store failed while running.
    #[error("the store failed; what was acknowledged is safe. Mend the cause told above and start again")]
    Broken,
}

/// Runs until `stop`, then ends in order: takes in nothing more, finishes what runs or lets it go, and returns when
/// everything is written. `ready` is told where it listens.
pub async fn serve(
    config: Config,
    duty: Duty,
    clock: Arc<dyn Clock>,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let address = config.server.listen;
    let failed = |source| ServeError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let listening = listener.local_addr().map_err(failed)?;
    let gateway = Gateway::open(config, duty, clock)?;
    let mut loops = work::start(&gateway);
    let (grace, max) = (gateway.config.server.shutdown_grace, gateway.config.server.max_connections);
    let serving =
        server::serve(listener, api::router(&gateway), max, gateway.stopping.clone(), grace + LAST_WORDS);
    let serving = tokio::spawn(serving);
    ready(listening);
    tokio::select! {
        () = stop => tracing::info!("Stopping"),
        () = gateway.broken.cancelled() => {}
        // They end only after `stopping`: one that ends before has failed, and its lane would stand still.
        _ = loops.begin.join_next() => gateway.broken.cancel(),
        _ = loops.keep.join_next() => gateway.broken.cancel(),
    }
    gateway.stopping.cancel();
    // Nothing is begun any more once these have ended: what runs then is all there is to wait for.
    while loops.begin.join_next().await.is_some() {}
    let_finish(&gateway, grace).await;
    let _ = serving.await;
    // Answers that streamed until now have given back their leases in tasks of their own.
    let _ = tokio::time::timeout(LAST_WORDS, gateway.running.wait()).await;
    gateway.finished.cancel();
    while loops.keep.join_next().await.is_some() {}
    if gateway.broken.is_cancelled() { Err(ServeError::Broken) } else { Ok(()) }
}

/// Lets running calls finish within `grace`; what is still running then goes back to its line.
async fn let_finish(gateway: &Gateway, grace: Duration) {
    gateway.running.close();
    if tokio::time::timeout(grace, gateway.running.wait()).await.is_err() {
        tracing::warn!(running = gateway.running.len(), "Letting go of jobs that are still running");
        gateway.aborting.cancel();
        let _ = tokio::time::timeout(LAST_WORDS, gateway.running.wait()).await;
    }
}
