//! `eclusa serve`.

use std::error::Error;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::{Exit, env_file};
use crate::config::{Config, ConfigErrors, Warning};
use crate::life::LAST_THREADS_WAIT;
use crate::peers::ProcessRole;
use crate::reload::log_warnings;
use crate::{SystemClock, serve, telemetry};

/// Runs the gateway until it is stopped.
pub(super) fn run(path: &Path, env_file: Option<PathBuf>, role: ProcessRole) -> Result<(), Exit> {
    let config = read(path, env_file.as_deref()).map_err(|errors| invalid(&errors))?;
    let clock = Arc::new(SystemClock);
    telemetry::start(&config.log, clock.clone())
        .map_err(|error| Exit::InvalidConfig(format!("error: {error}")))?;
    log_warnings(&config);
    let file = path.to_owned();
    let (reload, reloads) = mpsc::channel(1);
    let scheme = if config.server.tls.is_some() { "https" } else { "http" };
    run_until_stopped(|stops| {
        // Handled before the store is opened, which may take a while: an unhandled SIGHUP would end the process.
        let hangup = signal(SignalKind::hangup());
        let ready = move |address| {
            if let Ok(hangup) = hangup {
                reload_on_hangup(hangup, file, env_file, reload);
            }
            tracing::info!(address = %address, "Listening on {scheme}://{address}");
        };
        serve::serve(config, role, clock, reloads, ready, stops)
    })
}

/// Reloads the config on each SIGHUP. An invalid config changes nothing.
fn reload_on_hangup(
    mut hangup: Signal,
    path: PathBuf,
    env_file: Option<PathBuf>,
    reload: mpsc::Sender<Config>,
) {
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            match read(&path, env_file.as_deref()) {
                Ok(config) => drop(reload.send(config).await),
                Err(errors) => {
                    tracing::error!(errors = %errors, "The config is invalid; the old one stays in force");
                }
            }
        }
    });
}

/// Reads the config in `path`, or returns all its errors. Variables come from the environment, then from `env_file`.
pub(super) fn read(path: &Path, env_file: Option<&Path>) -> Result<Config, ConfigErrors> {
    let given = env_file.map(env_file::read).transpose()?.unwrap_or_default();
    let variable = |name: &str| std::env::var(name).ok().or_else(|| given.get(name).cloned());
    Config::load(path, &variable)
}

/// The error for an invalid config.
pub(super) fn invalid(errors: &ConfigErrors) -> Exit {
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    Exit::InvalidConfig(errors.render(colour))
}

/// A warning for people.
pub(super) fn warning(warning: &Warning) -> String {
    format!("warning: {warning}\n  = help: {}\n", warning.help)
}

/// Runs a server that receives each stop signal. A signal that it no longer listens for ends the process at once.
pub(super) fn run_until_stopped<F, E>(run: impl FnOnce(mpsc::Receiver<()>) -> F) -> Result<(), Exit>
where
    F: Future<Output = Result<(), E>>,
    E: Error,
{
    let runtime = tokio::runtime::Runtime::new();
    let runtime = runtime.map_err(|error| Exit::Error(format!("cannot start the async runtime: {error}")))?;
    let inside = runtime.enter();
    let signals = stop_signals().map_err(|error| Exit::Error(format!("cannot handle signals: {error}")))?;
    let (stop, stops) = mpsc::channel(1);
    runtime.spawn(pass_on(signals, stop));
    let ended = runtime.block_on(run(stops));
    drop(inside);
    runtime.shutdown_timeout(LAST_THREADS_WAIT);
    telemetry::flush();
    ended.map_err(|error| Exit::Error(error.to_string()))
}

/// Registers the stop signals once: between two registrations, a signal would be lost. From here on, no signal ends the
/// process on its own.
fn stop_signals() -> std::io::Result<(Signal, Signal)> {
    Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
}

async fn pass_on(mut signals: (Signal, Signal), stop: mpsc::Sender<()>) {
    loop {
        next(&mut signals).await;
        if stop.try_send(()).is_err() {
            // Nothing acknowledged is lost: it is in the journal.
            telemetry::flush();
            std::process::exit(130);
        }
    }
}

async fn next((interrupt, terminate): &mut (Signal, Signal)) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
