//! The API from outside: its OpenAPI document, the clients of this repository and generated clients.

mod generated;
mod own;
mod schemathesis;

use std::path::{Path, PathBuf};

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::Value;
use tokio::process::Command;

use crate::program::Program;
use crate::tools::{repository, succeeds};

const KEY: &str = "admin-0123456789abcdef";
const SECRET: &str = "callback-0123456789abcdef";

/// Where `scripts/setup.sh test` installs the Python tools.
fn python() -> PathBuf {
    repository().join("target/clients-venv/bin/python")
}

fn node_package(path: &str) -> PathBuf {
    repository().join("clients/typescript/node_modules").join(path)
}

/// A server with a lane that works, one that fails and one that is paused, and an upstream for one call at a time.
struct Server {
    program: Program,
    _upstreams: [FakeUpstream; 2],
}

impl Server {
    async fn start() -> Self {
        let answer = |status| {
            Answer::status(status).header("content-type", "application/json").body("{\"done\":true}")
        };
        let works = FakeUpstream::start(answer(200)).await.unwrap();
        let fails = FakeUpstream::start(answer(500)).await.unwrap();
        let config = format!(
            "[[auth.keys]]\nname = \"admin\"\nrole = \"admin\"\nkey = \"{KEY}\"\n\
             [callbacks]\nhosts = [\"127.0.0.1\"]\nsecret = \"{SECRET}\"\n\
             [lanes.work]\nchain = [\"works\"]\nttl = \"1h\"\n\
             [lanes.held]\nchain = [\"works\"]\nttl = \"1h\"\n\
             [lanes.direct]\nmode = \"direct\"\nchain = [\"works\"]\n\
             [lanes.broken]\nchain = [\"fails\"]\nttl = \"1h\"\nretry = {{ attempts = 1 }}\ndead_letters = {{}}\n\
             [upstreams.works]\nurl = \"{}\"\nbreaker = {{ failures = 1000 }}\n\
             [upstreams.fails]\nurl = \"{}\"\n\
             [upstreams.limited]\nurl = \"{}\"\nmax_concurrent = 1\n\
             [[upstreams.limited.policies]]\nname = \"ALL\"\ncapacity = 1000000\nrefill = \"1/s\"\n",
            works.url(),
            fails.url(),
            works.url(),
        );
        let program = Program::start(&config, &[]).await;
        let server = Self { program, _upstreams: [works, fails] };
        server.post("/v1/lanes/held/pause", "").await;
        server
    }

    async fn post(&self, path: &str, body: &str) -> Value {
        let key = format!("Bearer {KEY}");
        let answer = self.program.send("POST", path, &[("authorization", &key)], body).await;
        assert!(answer.status < 300, "{path}: {}", answer.text());
        answer.json()
    }

    /// A job that has become a dead letter.
    async fn failed_job(&self) -> String {
        let accepted = self.post("/v1/lanes/broken/jobs", "{\"request\":{}}").await;
        let job = accepted["jobId"].as_str().unwrap().to_owned();
        self.program.logged("Job failed permanently", &[("jobId", &job)]).await;
        job
    }

    /// Saves the OpenAPI document.
    async fn save_document(&self, folder: &Path) -> PathBuf {
        let document = self.program.get("/openapi.json").await;
        let path = folder.join("openapi.json");
        std::fs::write(&path, &document.body).unwrap();
        path
    }

    /// A command that finds the server.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("ECLUSA_URL", self.program.url())
            .env("ECLUSA_KEY", KEY)
            .env("CALLBACK_SECRET", SECRET)
            .env("no_proxy", "*")
            .env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}
