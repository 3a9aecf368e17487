//! Serve: the whole program from start to end.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use eclusa_core::Clock;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::api::Parts;
use crate::config::Config;
use crate::life::Life;
use crate::peers::Duty;
use crate::process::{self, Process, StartError};
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
    let grace = config.server.shutdown_grace;
    let Process { api, workers, exporter } = process::open(config, duty, clock)?;
    let Parts { store, scopes, ids, rules, peers, life, metrics, rates, .. } = &*api.0;
    let mut loops = work::start(duty, workers, (store, scopes, ids.clone()), (rates.clone(), peers.clone()));
    if let Some(exporter) = exporter {
        loops.keep.spawn(exporter.run(life.finished.clone()));
    }
    let service = Arc::new(api::Service::new(&api, duty));
    let serving = server::serve(listener, service, rules.clone(), life.stopping.clone(), grace + LAST_WORDS);
    let serving = tokio::spawn(serving);
    ready(listening);
    let reloading = async {
        while let Some(config) = reloads.recv().await {
            reload::reload(rules, peers, metrics, config).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = stop => tracing::info!("Stopping"),
        () = life.broken.cancelled() => {}
        () = reloading => {}
        // They end only after `stopping`: one that ends before has failed, and its lane would stand still.
        _ = loops.begin.join_next() => life.broken.cancel(),
        _ = loops.keep.join_next() => life.broken.cancel(),
    }
    life.stopping.cancel();
    // Nothing is begun any more once these have ended: what runs then is all there is to wait for.
    while loops.begin.join_next().await.is_some() {}
    let_finish(life, grace).await;
    let _ = serving.await;
    // Answers that streamed until now have given back their leases in tasks of their own.
    let _ = tokio::time::timeout(LAST_WORDS, life.running.wait()).await;
    life.finished.cancel();
    while loops.keep.join_next().await.is_some() {}
    if life.broken.is_cancelled() { Err(ServeError::Broken) } else { Ok(()) }
}

/// Lets running calls finish within `grace`; what is still running then goes back to its line.
async fn let_finish(life: &Life, grace: Duration) {
    life.running.close();
    if tokio::time::timeout(grace, life.running.wait()).await.is_err() {
        tracing::warn!(running = life.running.len(), "Letting go of jobs that are still running");
        life.aborting.cancel();
        let _ = tokio::time::timeout(LAST_WORDS, life.running.wait()).await;
    }
}
