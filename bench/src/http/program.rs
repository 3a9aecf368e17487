//! Child processes that serve, stopped when dropped.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{env, fs};

use crate::Failed;

/// A process that serves at an address.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
}

impl Server {
    /// This program as a peer.
    pub(crate) fn peer(arguments: &[&str]) -> Result<Self, Failed> {
        let mut child = Command::new(env::current_exe()?).args(arguments).stdout(Stdio::piped()).spawn()?;
        let mut address = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut address)?;
        Ok(Self { child, address: address.trim().to_owned() })
    }

    /// Eclusa itself with this config, its store below `dir`.
    pub(crate) fn eclusa(dir: &Path, config: &str) -> Result<Self, Failed> {
        fs::create_dir_all(dir)?;
        fs::write(dir.join("eclusa.toml"), config)?;
        let program = env::current_exe()?.with_file_name("eclusa");
        let mut command = Command::new(&program);
        command.args(["serve", "--config", "eclusa.toml"]).current_dir(dir).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("{}: {error}; `make bench` builds it", program.display()))?;
        let mut log = BufReader::new(child.stderr.take().ok_or("no output")?);
        let mut line = String::new();
        while log.read_line(&mut line)? > 0 {
            let logged: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(address) = logged["address"].as_str() {
                let address = address.to_owned();
                // The rest of the output is not read, so the program must not write much.
                std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
                return Ok(Self { child, address });
            }
            line.clear();
        }
        Err("eclusa did not start".into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
