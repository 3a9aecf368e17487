//! `eclusa demo`: the product with its embedded store, fake upstreams, three tenants that send requests, and a story.

mod client;
mod story;
mod tenants;
mod upstreams;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use eclusa_core::Clock;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::story::Story;
use self::upstreams::DemoUpstreams;
use crate::config::{Config, ConfigErrors};
use crate::peers::ProcessRole;
use crate::serve::{ServeError, serve};

/// Why the demo could not run.
#[derive(Debug, Error)]
pub enum DemoError {
    /// The fake upstreams could not listen.
    #[error("the fake upstreams could not be started: {0}")]
    Upstreams(io::Error),
    /// The demo's config is invalid, which is a bug.
    #[error("the demo's config is invalid:\n{0}")]
    Config(ConfigErrors),
    /// The server failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Runs until `stops` fires; `ready` receives the address, `print` a line for each scene of the story.
pub async fn run(
    listen: SocketAddr,
    clock: Arc<dyn Clock>,
    ready: impl FnOnce(SocketAddr),
    print: impl Fn(&str) + Send + 'static,
    stops: mpsc::Receiver<()>,
) -> Result<(), DemoError> {
    let upstreams =
        DemoUpstreams::start(Story::beginning(clock.now())).await.map_err(DemoError::Upstreams)?;
    let data = Scratch::new();
    let config = config(listen, &data, &upstreams).map_err(DemoError::Config)?;
    let stopped = CancellationToken::new();
    let producing = stopped.clone();
    let begin = |address| {
        ready(address);
        tenants::start(address, &clock, &producing);
        let playing = story::play(address, clock.clone(), print);
        tokio::spawn(producing.run_until_cancelled_owned(playing));
    };
    // The demo's config is never reloaded.
    let (_, reloads) = mpsc::channel(1);
    let ended = serve(config, ProcessRole::All, clock.clone(), reloads, begin, stops).await;
    stopped.cancel();
    Ok(ended?)
}

fn config(listen: SocketAddr, data: &Scratch, upstreams: &DemoUpstreams) -> Result<Config, ConfigErrors> {
    let values = |name: &str| match name {
        "LISTEN" => Some(listen.to_string()),
        "DATA" => Some(data.0.display().to_string()),
        other => upstreams.url(other),
    };
    Config::parse("demo.toml", include_str!("demo.toml"), &values)
}

/// A directory that is removed with the demo.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("eclusa-demo-{}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // On failure, the system cleans its temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
