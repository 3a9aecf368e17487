//! Serve: the whole program from start to end.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use eclusa_core::Clock;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::config::Config;
use crate::gateway::{Gateway, StartError};
use crate::peers::Duty;
use crate::{api, reload, server, work};

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
/// everything is written. Configs that come by `reloads` are put in force. `ready` is told where it listens.
pub async fn serve(
    config: Config,
    duty: Duty,
    clock: Arc<dyn Clock>,
    mut reloads: mpsc::Receiver<Config>,
    ready: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let address = config.server.listen;
    let failed = |source| ServeError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let listening = listener.local_addr().map_err(failed)?;
    let gateway = Gateway::open(config, duty, clock)?;
    let mut loops = work::start(&gateway);
    let rules = gateway.rules.get();
    let (grace, max) = (rules.config.server.shutdown_grace, rules.config.server.max_connections);
    let serving = server::serve(
        listener,
        api::router(&gateway),
        max,
        gateway.life.stopping.clone(),
        grace + LAST_WORDS,
    );
    let serving = tokio::spawn(serving);
    ready(listening);
    let reloading = async {
        while let Some(config) = reloads.recv().await {
            reload::reload(&gateway, config).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = stop => tracing::info!("Stopping"),
        () = gateway.life.broken.cancelled() => {}
        () = reloading => {}
        // They end only after `stopping`: one that ends before has failed, and its lane would stand still.
        _ = loops.begin.join_next() => gateway.life.broken.cancel(),
        _ = loops.keep.join_next() => gateway.life.broken.cancel(),
    }
    gateway.life.stopping.cancel();
    // Nothing is begun any more once these have ended: what runs then is all there is to wait for.
    while loops.begin.join_next().await.is_some() {}
    let_finish(&gateway, grace).await;
    let _ = serving.await;
    // Answers that streamed until now have given back their leases in tasks of their own.
    let _ = tokio::time::timeout(LAST_WORDS, gateway.life.running.wait()).await;
    gateway.life.finished.cancel();
    while loops.keep.join_next().await.is_some() {}
    if gateway.life.broken.is_cancelled() { Err(ServeError::Broken) } else { Ok(()) }
}

/// Lets running calls finish within `grace`; what is still running then goes back to its line.
async fn let_finish(gateway: &Gateway, grace: Duration) {
    gateway.life.running.close();
    if tokio::time::timeout(grace, gateway.life.running.wait()).await.is_err() {
        tracing::warn!(running = gateway.life.running.len(), "Letting go of jobs that are still running");
        gateway.life.aborting.cancel();
        let _ = tokio::time::timeout(LAST_WORDS, gateway.life.running.wait()).await;
    }
}
