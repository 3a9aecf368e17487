//! The command line: what each command prints goes to standard output, everything else to standard error.

mod alerts;
mod breakers;
mod cancel;
mod check;
mod client;
mod completions;
mod confirm;
mod demo;
mod dlq;
mod doctor;
mod env_file;
mod exit;
mod gates;
mod init;
mod jobs;
mod lanes;
mod output;
mod pages;
mod policies;
mod probe;
mod progress;
mod purge;
mod replay;
mod replay_all;
mod schema;
mod send;
mod serve;
mod upstreams;
mod watch;
mod why;

pub use exit::Exit;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Parser, Subcommand};

use self::client::{Client, ServerAddress};
use self::output::Format;
use crate::config::BaseUrl;
use crate::peers::ProcessRole;

const EXIT_CODES: &str = "\
Environment:
  ECLUSA_URL      where the server is, if not at http://127.0.0.1:8080
  ECLUSA_KEY      the key to send to it
  ECLUSA_CA_FILE  the certificate of the authority that vouches for it, if not a public one
  ECLUSA_CONFIG   the config file, if not eclusa.toml

Exit codes:
  0 ok, 1 error, 2 usage, 3 not found, 4 no key or not allowed, 5 server not reachable,
  6 invalid config, 7 the job that was waited for did not complete";

/// Stands between an application and the rate-limited, flaky APIs it calls
#[derive(Debug, Parser)]
#[command(name = "eclusa", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = EXIT_CODES)]
struct Arguments {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
struct GlobalArgs {
    /// Where the server is
    #[arg(long, global = true, env = "ECLUSA_URL", default_value = "http://127.0.0.1:8080")]
    #[arg(value_parser = client::parse_url)]
    url: BaseUrl,
    /// Trust the authority of this PEM file too, where the server has a certificate of its own
    #[arg(long, global = true, env = "ECLUSA_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// How data is printed
    #[arg(long, short, global = true, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Format,
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
        /// Variables for the config, a `NAME=value` on each line; the environment goes before them
        #[arg(long, value_name = "FILE")]
        env_file: Option<PathBuf>,
        /// What this process does of what all that share a store do together
        #[arg(long, value_enum, value_name = "ROLE", default_value = "all")]
        role: ProcessRole,
    },
    /// Write a config to begin with
    Init {
        /// Where to
        #[arg(value_name = "FILE", default_value = "eclusa.toml")]
        file: PathBuf,
    },
    /// Check a config and say what it holds
    Check(check::CheckArgs),
    /// Look at everything that a config needs: this machine, the store, the upstreams
    Doctor(doctor::DoctorArgs),
    /// Print the JSON Schema of the config, for editors
    Schema,
    /// Print what lets a shell complete this command
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Enqueue a job
    Send(Box<send::SendArgs>),
    /// Say what a job waits for
    Why {
        /// The job
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
    },
    /// Look at jobs, wait for them, cancel them
    #[command(subcommand)]
    Jobs(jobs::JobsCommand),
    /// Look at lanes, pause and resume them
    #[command(subcommand)]
    Lanes(lanes::LanesCommand),
    /// Look at upstreams
    #[command(subcommand)]
    Upstreams(upstreams::UpstreamsCommand),
    /// Look at breakers, reset them
    #[command(subcommand)]
    Breakers(breakers::BreakersCommand),
    /// Look at limits by scope, tell of events that give tokens back
    #[command(subcommand)]
    Policies(policies::PoliciesCommand),
    /// Print the alerts that fire, and those that resolved last
    Alerts,
    /// Look at dead letters, replay them
    #[command(subcommand)]
    Dlq(dlq::DlqCommand),
}

/// Runs the command that was asked for.
pub fn main() -> ExitCode {
    run(Arguments::parse()).map_or_else(Exit::report, |()| ExitCode::SUCCESS)
}

fn run(arguments: Arguments) -> Result<(), Exit> {
    let GlobalArgs { url, ca_file, output } = arguments.global;
    let connect = || {
        // Never an argument: those can be seen by everybody on the machine.
        let key = std::env::var("ECLUSA_KEY").ok().filter(|key| !key.is_empty());
        Client::new(&ServerAddress { url, key, ca_file })
    };
    match arguments.command {
        Command::Demo { listen } => demo::run(listen),
        Command::Serve { config, env_file, role } => serve::run(&config, env_file, role),
        Command::Init { file } => init::run(&file),
        Command::Check(args) => check::run(&args, output),
        Command::Doctor(args) => doctor::run(&args, output),
        Command::Schema => schema::run(),
        Command::Completions { shell } => completions::run(shell),
        Command::Send(args) => send::run(&args, &connect()?, output),
        Command::Why { id } => why::run(&id, &connect()?, output),
        Command::Jobs(args) => jobs::run(&args, &connect()?, output),
        Command::Lanes(args) => lanes::run(&args, &connect()?, output),
        Command::Upstreams(args) => upstreams::run(&args, &connect()?, output),
        Command::Breakers(args) => breakers::run(&args, &connect()?, output),
        Command::Policies(args) => policies::run(&args, &connect()?, output),
        Command::Alerts => alerts::run(&connect()?, output),
        Command::Dlq(args) => dlq::run(&args, &connect()?, output),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    const PAGE: &str = include_str!("../../../../docs/reference/cli.md");

    #[test]
    fn the_arguments_are_sound() {
        Arguments::command().debug_assert();
    }

    /// The commands that do something, each with its whole name.
    fn leaves(command: &clap::Command, name: &str) -> Vec<(String, clap::Command)> {
        if !command.has_subcommands() {
            return vec![(name.to_owned(), command.clone())];
        }
        command.get_subcommands().flat_map(|sub| leaves(sub, &format!("{name} {}", sub.get_name()))).collect()
    }

    #[test]
    fn the_reference_has_every_command_with_its_options_and_an_example() {
        let all = leaves(&Arguments::command(), "eclusa");
        for (name, command) in &all {
            let start = PAGE.split_once(&format!("### `{name}`\n"));
            let (_, rest) = start.unwrap_or_else(|| panic!("no section `{name}`"));
            let section = rest.split_once("\n## ").map_or(rest, |(section, _)| section);
            let section = section.split_once("\n### ").map_or(section, |(section, _)| section);
            assert!(section.contains(&format!("$ {name}")), "no example of `{name}`");
            for option in command.get_arguments().filter_map(clap::Arg::get_long) {
                assert!(section.contains(&format!("--{option}")), "no --{option} under `{name}`");
            }
        }
        let sections = PAGE.lines().filter(|line| line.starts_with("### ")).count();
        assert_eq!(sections, all.len(), "a section is about no command");
    }

    #[test]
    fn the_reference_has_what_holds_for_every_command() {
        let command = Arguments::command();
        for option in command.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(PAGE.contains(&format!("--{option}")), "no --{option}");
        }
        for variable in ["ECLUSA_URL", "ECLUSA_KEY", "ECLUSA_CA_FILE", "ECLUSA_CONFIG"] {
            assert!(PAGE.contains(&format!("| `{variable}` |")), "no {variable}");
        }
        for code in 0..=7 {
            assert!(PAGE.contains(&format!("\n| {code} | ")), "no exit code {code}");
        }
    }
}
