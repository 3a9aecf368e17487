//! Runs the whole program, from start to stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use eclusa_core::{Clock, LaneView, Store};
use futures_util::FutureExt;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::api::ApiState;
use crate::config::{CertificateError, Config};
use crate::life::Life;
use crate::peers::ProcessRole;
use crate::process::{self, Process, StartError};
use crate::rules::Rules;
use crate::server::{Certificate, Threads};
use crate::store::AnyStore;
use crate::work::Loops;
use crate::{api, reload, server, work};

/// How long to wait for tasks that still release what they hold.
const LAST_TASKS_WAIT: Duration = Duration::from_secs(5);
/// How long the start report waits for the store to answer.
const STORE_ANSWERS: Duration = Duration::from_secs(10);
/// Pause before the store is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Why the program could not start or continue.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The store or an upstream's certificates cannot be used.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The listener's certificate cannot be used.
    #[error("server.tls: {0}")]
    Certificate(#[from] CertificateError),
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; is another process using the port? Choose another: `server.listen`, or `--listen` of the demo"
    )]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The threads that serve connections could not be started.
    #[error("cannot start the threads that serve connections: {0}")]
    Threads(std::io::Error),
    /// The store failed while running.
    #[error("the store failed. Fix the cause reported above and start again")]
    Broken,
}

/// The result of stopping a process.
struct Stopped {
    /// Calls that ended within the grace period.
    finished: usize,
    /// Jobs returned to their line.
    handed_back: usize,
    /// Jobs that became dead letters because their lane does not send twice.
    dead_lettered: usize,
    /// Direct calls that had not ended.
    cut_off: usize,
    /// Jobs that remain in the store; `None` if it did not answer.
    kept: Option<u64>,
    broken: bool,
}

/// Runs until `stops` receives a message, then stops in order: serves for `server.drain`, accepts nothing more,
/// finishes or releases what runs, and returns when everything is written. A second message ends the drain; after that
/// the receiver is dropped. Configs received from `reloads` are put in force. `ready` gets the address.
pub async fn serve(
    config: Config,
    role: ProcessRole,
    clock: Arc<dyn Clock>,
    reloads: mpsc::Receiver<Config>,
    ready: impl FnOnce(SocketAddr),
    stops: mpsc::Receiver<()>,
) -> Result<(), ServeError> {
    // The store is closed, and ownership handed over, when this returns.
    let Stopped { finished, handed_back, dead_lettered, cut_off, kept, broken } =
        run(config, role, clock, reloads, ready, stops).await?;
    tracing::info!(
        finished,
        handedBack = handed_back,
        deadLettered = dead_lettered,
        cutOff = cut_off,
        kept,
        "Stopped"
    );
    if broken { Err(ServeError::Broken) } else { Ok(()) }
}

async fn run(
    config: Config,
    role: ProcessRole,
    clock: Arc<dyn Clock>,
    mut reloads: mpsc::Receiver<Config>,
    ready: impl FnOnce(SocketAddr),
    mut stops: mpsc::Receiver<()>,
) -> Result<Stopped, ServeError> {
    let address = config.server.listen;
    let failed = |source| ServeError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let listening = listener.local_addr().map_err(failed)?;
    let certificate = config.server.tls.as_ref().map(Certificate::new).transpose()?;
    let tls = certificate.as_ref().map(Certificate::acceptor).transpose()?;
    let (grace, drain_for) = (config.server.shutdown_grace, config.server.drain);
    let Process { api, workers, exporter } = process::open(config, role, clock)?;
    let ApiState { store, scopes, ids, rules, peers, life, metrics, rates, .. } = &*api.0;
    // An embedded store answers at once, before a worker takes a job.
    let found = store.lanes().now_or_never().and_then(Result::ok).map(|lanes| jobs(&lanes));
    let mut loops = work::start(role, workers, (store, scopes, ids.clone()), (rates.clone(), peers.clone()));
    if let Some(exporter) = exporter {
        loops.keep.spawn(exporter.run(life.finished.clone()));
    }
    let service = Arc::new(api::Service::new(&api, role));
    let stopping = life.stopping.clone();
    // What requests started ends with these, after all else.
    let threads = Arc::new(Threads::start().map_err(ServeError::Threads)?);
    let deadline = grace + LAST_TASKS_WAIT;
    let serving =
        server::serve((listener, tls), threads.clone(), service, rules.clone(), stopping.clone(), deadline);
    let serving = tokio::spawn(serving);
    if let Some(certificate) = certificate {
        tokio::spawn(stopping.clone().run_until_cancelled_owned(certificate.follow(rules.clone())));
    }
    ready(listening);
    tokio::spawn(stopping.run_until_cancelled_owned(report_start(store.clone(), role, rules.get(), found)));
    let reloading = async {
        while let Some(config) = reloads.recv().await {
            reload::reload(rules, peers, metrics, config).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = stops.recv() => drain(life, store, drain_for, stops).await,
        () = life.broken.cancelled() => {}
        () = reloading => {}
        // They end only after `stopping`. One that ends before has failed, and its lane would stop.
        _ = loops.begin.join_next() => life.broken.cancel(),
        _ = loops.keep.join_next() => life.broken.cancel(),
    }
    Ok(stop(&api.0, loops, serving, grace).await)
}

/// Starts nothing more, and finishes or releases what runs.
async fn stop(api: &ApiState, mut loops: Loops, serving: JoinHandle<()>, grace: Duration) -> Stopped {
    let ApiState { store, leases, life, .. } = api;
    life.stopping.cancel();
    // When these have ended, nothing new begins: what runs now is all there is to wait for.
    while loops.begin.join_next().await.is_some() {}
    let running = leases.ids().len();
    finish_running(life, grace).await;
    let _ = serving.await;
    // Responses that streamed until now release their leases in separate tasks.
    let last = Instant::now() + LAST_TASKS_WAIT;
    let _ = timeout_at(last, life.running.wait()).await;
    let kept = timeout_at(last, store.lanes()).await.ok().and_then(Result::ok);
    life.finished.cancel();
    while loops.keep.join_next().await.is_some() {}
    let (let_go, cut_off) = (life.let_go.load(Ordering::Relaxed), life.direct.len());
    Stopped {
        finished: running.saturating_sub(let_go + cut_off),
        handed_back: life.handed_back.load(Ordering::Relaxed),
        dead_lettered: life.dead_lettered.load(Ordering::Relaxed),
        cut_off,
        kept: kept.map(|lanes| jobs(&lanes)),
        broken: life.broken.is_cancelled(),
    }
}

/// Logs what this process is and what it found, as soon as the store answers.
async fn report_start(store: Arc<AnyStore>, role: ProcessRole, rules: Arc<Rules>, found: Option<u64>) {
    let answers = async {
        loop {
            match store.lanes().await {
                Ok(lanes) => return jobs(&lanes),
                Err(_) => tokio::time::sleep(ASK_AGAIN).await,
            }
        }
    };
    let jobs = match found {
        Some(jobs) => Some(jobs),
        None => timeout(STORE_ANSWERS, answers).await.ok(),
    };
    let config = &rules.config;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        store = %config.store.url,
        role = role.as_str(),
        lanes = config.lanes.len(),
        upstreams = config.upstreams.len(),
        // Absent if the store does not answer.
        jobs,
        "Started"
    );
}

/// Jobs that wait or run.
fn jobs(lanes: &[LaneView]) -> u64 {
    lanes.iter().map(|lane| lane.queued.iter().sum::<u64>() + lane.pending + lane.processing).sum()
}

/// Serves as usual for `time`, so that load balancers see at `/readyz` that this process stops before it refuses
/// requests. Meanwhile another process takes over ownership. The next message of `stops` ends it.
async fn drain(life: &Life, store: &AnyStore, time: Duration, mut stops: mpsc::Receiver<()>) {
    if time.is_zero() {
        drop(stops);
        tracing::info!("Stopping");
        return;
    }
    life.draining.cancel();
    store.step_down();
    tracing::info!(drain = ?time, "Stopping; requests are served as usual until the drain ends");
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        _ = stops.recv() => tracing::info!("The drain was cut short"),
        () = life.broken.cancelled() => {}
    }
}

/// Lets running calls finish within `grace`; jobs still running then return to their line.
async fn finish_running(life: &Life, grace: Duration) {
    life.running.close();
    if timeout(grace, life.running.wait()).await.is_err() {
        tracing::warn!(running = life.running.len(), "Releasing jobs that are still running");
        life.aborting.cancel();
        let _ = timeout(LAST_TASKS_WAIT, life.running.wait()).await;
    }
}
