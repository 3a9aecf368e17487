//! BullMQ on the same server, run by a separate script.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::{Adds, Queue};
use crate::Failed;

pub(crate) struct BullMq {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl BullMq {
    pub(crate) fn start(port: u16) -> Result<Self, Failed> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/bullmq");
        let mut child = Command::new("node")
            .args(["run.js", &port.to_string()])
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("node: {error}; `scripts/setup.sh bench` installs it"))?;
        let commands = child.stdin.take().ok_or("no input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut started = Self { child, commands, answers };
        match started.answer()?.as_str() {
            "ready" => Ok(started),
            other => Err(format!("BullMQ said {other:?}; `scripts/setup.sh bench` installs it").into()),
        }
    }

    /// Sets the payload size of the jobs added from now on.
    pub(crate) fn payload(&mut self, bytes: usize) -> Result<(), Failed> {
        self.ask(&format!("payload {bytes}")).map(drop)
    }

    fn ask(&mut self, command: &str) -> Result<Duration, Failed> {
        writeln!(self.commands, "{command}")?;
        Ok(Duration::from_secs_f64(self.answer()?.parse()?))
    }

    fn answer(&mut self) -> Result<String, Failed> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
}

impl Queue for BullMq {
    fn fill(&mut self, jobs: usize) -> Result<(), Failed> {
        self.ask(&format!("fill {jobs}")).map(drop)
    }

    fn hold(&mut self, jobs: usize) -> Result<(), Failed> {
        self.ask(&format!("hold {jobs}")).map(drop)
    }

    fn run(&mut self, jobs: usize, adds: Adds) -> Result<Duration, Failed> {
        self.ask(&format!("lives {jobs} {}", adds.word()))
    }
}

impl Drop for BullMq {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
