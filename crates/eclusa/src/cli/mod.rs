//! The command line: what each command prints goes to standard output, everything else to standard error.

mod demo;
mod exit;
mod serve;

pub use exit::Exit;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Stands between an application and the rate-limited, flaky APIs it calls
#[derive(Debug, Parser)]
#[command(name = "eclusa", version, propagate_version = true, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway with fake upstreams and tenants, to look around
    Demo {
        /// Where to listen
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
        listen: SocketAddr,
    },
    /// Run the gateway
    Serve {
        /// The config file
        #[arg(long, short, value_name = "FILE", default_value = "eclusa.toml", env = "ECLUSA_CONFIG")]
        config: PathBuf,
    },
}

/// Runs the command that was asked for.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.command {
        Command::Demo { listen } => demo::run(listen),
        Command::Serve { config } => serve::run(&config),
    };
    done.map_or_else(Exit::tell, |()| ExitCode::SUCCESS)
}
