//! nginx as an upstream and as a proxy to compare with, stopped when dropped.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{fs, io};

use crate::Failed;

/// The part of its config that is always the same; no access log, as in Eclusa.
const CONFIG: &str = r"
daemon off;
pid nginx.pid;
error_log stderr notice;
worker_processes WORKERS;
events { worker_connections 4096; }
http {
  access_log off;
  keepalive_requests 100000000;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  SERVERS
}
";

pub(super) struct Nginx {
    child: Child,
    dir: PathBuf,
    pub(super) address: String,
}

impl Nginx {
    /// Answers everything at once with a little JSON.
    pub(super) fn upstream(dir: &Path) -> Result<Self, Failed> {
        Self::start(dir, 1, |port| {
            format!(
                r#"server {{
                    listen 127.0.0.1:{port};
                    default_type application/json;
                    location / {{ return 200 '{{"score":700}}'; }}
                }}"#
            )
        })
    }

    /// Passes everything on to `upstream`, on connections that are kept.
    pub(super) fn proxy(dir: &Path, upstream: &str) -> Result<Self, Failed> {
        Self::start(dir, 2, |port| {
            format!(
                r#"upstream up {{ server {upstream}; keepalive 128; keepalive_requests 100000000; }}
                server {{
                    listen 127.0.0.1:{port};
                    location / {{ proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection ""; }}
                }}"#
            )
        })
    }

    fn start(dir: &Path, workers: usize, servers: impl FnOnce(u16) -> String) -> Result<Self, Failed> {
        fs::create_dir_all(dir)?;
        let dir = dir.canonicalize()?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let config =
            CONFIG.replace("WORKERS", &workers.to_string()).replace("SERVERS", &servers(address.port()));
        fs::write(dir.join("nginx.conf"), config)?;
        let mut child = command(&dir)
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("nginx: {error}; `scripts/setup.sh bench` installs it"))?;
        let mut log = BufReader::new(child.stderr.take().ok_or("no output")?);
        let mut line = String::new();
        while log.read_line(&mut line)? > 0 {
            if line.contains("start worker processes") {
                std::thread::spawn(move || io::copy(&mut log, &mut io::sink()));
                return Ok(Self { child, dir, address: address.to_string() });
            }
        }
        Err(format!("nginx did not start: {line}").into())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master ends its workers; a kill would leave them.
        let _ = command(&self.dir).args(["-s", "stop"]).stderr(Stdio::null()).status();
        let _ = self.child.wait();
    }
}

fn command(dir: &Path) -> Command {
    let mut command = Command::new("nginx");
    command.arg("-p").arg(dir).args(["-c", "nginx.conf", "-e", "stderr"]);
    command
}
