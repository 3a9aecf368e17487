//! A fake upstream with scripted behaviour.
//!
//! It is a real HTTP server on a local port. It is part of the program because the demo uses it, as do tests and
//! benchmarks. It supports HTTP/1.1 and HTTP/2 with prior knowledge.

mod answer;
mod serve;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use eclusa_core::Time;
use http::{HeaderMap, Method, Version};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use answer::{Answer, Latch};

/// The most requests that are remembered; older ones are forgotten, so that a demo can run for days.
const REMEMBERED: usize = 10_000;

/// A received request.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// Its method.
    pub method: Method,
    /// Its path, undecoded.
    pub path: String,
    /// Its query, undecoded.
    pub query: Option<String>,
    /// Its HTTP version.
    pub version: Version,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its whole body.
    pub body: Bytes,
    /// When it was received completely.
    pub at: Time,
    /// The number of its connection, from 1.
    pub connection: u64,
}

type Rule = Box<dyn Fn(&ReceivedRequest) -> Answer + Send + Sync>;

/// What a [`FakeUpstream`] answers.
pub struct Behaviour {
    script: VecDeque<Answer>,
    then: Rule,
}

impl Behaviour {
    /// Gives these answers in order, and 200 after them.
    pub fn script(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self { script: answers.into_iter().collect(), ..Self::by(|_| Answer::status(200)) }
    }

    /// Computes each answer with `rule`.
    pub fn by(rule: impl Fn(&ReceivedRequest) -> Answer + Send + Sync + 'static) -> Self {
        Self { script: VecDeque::new(), then: Box::new(rule) }
    }

    /// Sets the answer for requests after the script.
    #[must_use]
    pub fn then(self, answer: Answer) -> Self {
        Self { then: Box::new(move |_| answer.clone()), ..self }
    }
}

impl From<Answer> for Behaviour {
    fn from(answer: Answer) -> Self {
        Self::script([]).then(answer)
    }
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct FakeUpstream {
    addr: SocketAddr,
    shared: Arc<FakeServer>,
    server: JoinHandle<()>,
}

impl FakeUpstream {
    /// Starts on a free port of 127.0.0.1.
    pub async fn start(behaviour: impl Into<Behaviour>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let addr = listener.local_addr()?;
        let Behaviour { script, then } = behaviour.into();
        let state = FakeState { script, seen: VecDeque::new() };
        let (come, _) = watch::channel(0);
        let (generation, _) = watch::channel(0);
        let shared = Arc::new(FakeServer { then, state: Mutex::new(state), come, generation });
        let server = tokio::spawn(serve::run(listener, Arc::clone(&shared)));
        Ok(Self { addr, shared, server })
    }

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The received requests, in order.
    ///
    /// # Panics
    ///
    /// If more requests came than are remembered, because counting them would be wrong. Count in a [`Behaviour::by`] then.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        let come = *self.shared.come.borrow();
        assert!(come <= REMEMBERED as u64, "{come} requests came, and {REMEMBERED} are remembered");
        self.shared.state().seen.iter().cloned().collect()
    }

    /// Waits until `count` requests have come since the start.
    pub async fn wait_for(&self, count: u64) {
        // The sender lives in `self`.
        let _ = self.shared.come.subscribe().wait_for(|come| *come >= count).await;
    }

    /// Closes every connection, as servers do with idle ones, and returns when they are closed.
    pub async fn close_connections(&self) {
        self.shared.generation.send_modify(|generation| *generation += 1);
        // Each connection holds a receiver until it is closed.
        self.shared.generation.closed().await;
    }
}

impl Drop for FakeUpstream {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// What the connections of a server share.
struct FakeServer {
    then: Rule,
    state: Mutex<FakeState>,
    come: watch::Sender<u64>,
    generation: watch::Sender<u64>,
}

struct FakeState {
    script: VecDeque<Answer>,
    seen: VecDeque<ReceivedRequest>,
}

impl FakeServer {
    fn state(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a request and returns the answer to it.
    fn answer(&self, seen: &ReceivedRequest) -> Answer {
        let scripted = {
            let mut state = self.state();
            if state.seen.len() == REMEMBERED {
                state.seen.pop_front();
            }
            state.seen.push_back(seen.clone());
            state.script.pop_front()
        };
        self.come.send_modify(|come| *come += 1);
        scripted.unwrap_or_else(|| (self.then)(seen))
    }
}

impl std::fmt::Debug for FakeServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("come", &*self.come.borrow()).finish_non_exhaustive()
    }
}
