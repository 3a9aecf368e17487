//! The command line. Results go to standard output, everything else to standard error.

mod alerts;
mod breakers;
mod check;
mod client;
mod completions;
mod confirm;
mod demo;
mod dlq;
mod doctor;
mod env_file;
mod events;
mod exit;
mod gates;
mod init;
mod jobs;
mod lanes;
mod letter_filter;
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
mod span;
mod status;
mod tail;
mod top;
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

const AFTER_HELP: &str = "\
Environment:
  ECLUSA_URL      the server's URL (default http://127.0.0.1:8080)
  ECLUSA_KEY      the API key
  ECLUSA_CA_FILE  the CA certificate of the server, if it is not a public one
  ECLUSA_CONFIG   the config file (default eclusa.toml)
  NO_COLOR        if set, output has no colours

Exit codes:
  0 ok, 1 error, 2 usage, 3 not found, 4 not authorized, 5 server not reachable,
  6 invalid config, 7 the awaited job did not complete, 130 interrupted (Ctrl-C)";

/// A gateway and queue between your application and the rate-limited, flaky APIs it calls
#[derive(Debug, Parser)]
#[command(name = "eclusa", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = AFTER_HELP)]
struct Arguments {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
struct GlobalArgs {
    /// The server's URL
    #[arg(long, global = true, env = "ECLUSA_URL", default_value = "http://127.0.0.1:8080")]
    #[arg(value_parser = client::parse_url)]
    url: BaseUrl,
    /// A PEM file with CA certificates to trust in addition to the public ones
    #[arg(long, global = true, env = "ECLUSA_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// The output format
    #[arg(long, short, global = true, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway with fake upstreams and tenants, to try it out
    Demo {
        /// The address to listen on
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
        listen: SocketAddr,
    },
    /// Run the gateway
    Serve {
        /// The config file
        #[arg(long, short, value_name = "FILE", default_value = "eclusa.toml", env = "ECLUSA_CONFIG")]
        config: PathBuf,
        /// A file of variables for the config, one `NAME=value` per line; the environment takes precedence
        #[arg(long, value_name = "FILE")]
        env_file: Option<PathBuf>,
        /// The part of the work that this process does, among those that share its store
        #[arg(long, value_enum, value_name = "ROLE", default_value = "all")]
        role: ProcessRole,
    },
    /// Write an example config
    Init {
        /// The file to create
        #[arg(value_name = "FILE", default_value = "eclusa.toml")]
        file: PathBuf,
    },
    /// Check a config and summarize it
    Check(check::CheckArgs),
    /// Check everything that a config needs: this machine, the store, the upstreams
    Doctor(doctor::DoctorArgs),
    /// Print the JSON Schema of the config, for editors
    Schema,
    /// Print a shell completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Enqueue a job
    Send(Box<send::SendArgs>),
    /// Explain what a job is waiting for
    Why {
        /// The id of the job
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: String,
    },
    /// List, show, await and cancel jobs
    #[command(subcommand)]
    Jobs(jobs::JobsCommand),
    /// List, pause and resume lanes
    #[command(subcommand)]
    Lanes(lanes::LanesCommand),
    /// List upstreams and the results of their codes
    #[command(subcommand)]
    Upstreams(upstreams::UpstreamsCommand),
    /// List and reset breakers
    #[command(subcommand)]
    Breakers(breakers::BreakersCommand),
    /// List balances of policies, and report events that credit tokens
    #[command(subcommand)]
    Policies(policies::PoliciesCommand),
    /// List firing and recently resolved alerts
    Alerts,
    /// Print the state of the system in a sentence, and what needs attention
    Status,
    /// Show lanes, upstreams and the latest events, live on the whole terminal
    Top,
    /// Print events of jobs, gates and alerts as they happen
    Tail(tail::TailArgs),
    /// List, replay, export and purge dead letters
    #[command(subcommand)]
    Dlq(dlq::DlqCommand),
}

/// Runs the command given on the command line.
pub fn main() -> ExitCode {
    run(Arguments::parse()).map_or_else(Exit::report, |()| ExitCode::SUCCESS)
}

fn run(arguments: Arguments) -> Result<(), Exit> {
    let GlobalArgs { url, ca_file, output } = arguments.global;
    let connect = || {
        // Never an argument: every user of the machine can see those.
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
        Command::Status => status::run(&connect()?, output),
        Command::Top => top::run(&connect()?, output),
        Command::Tail(args) => tail::run(&args, &connect()?, output),
        Command::Dlq(args) => dlq::run(&args, &connect()?, output),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    const PAGE: &str = include_str!("../../../../docs/reference/cli.md");

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    /// The commands without subcommands, each with its full name.
    fn leaves(command: &clap::Command, name: &str) -> Vec<(String, clap::Command)> {
        if !command.has_subcommands() {
            return vec![(name.to_owned(), command.clone())];
        }
        command.get_subcommands().flat_map(|sub| leaves(sub, &format!("{name} {}", sub.get_name()))).collect()
    }

    #[test]
    fn the_reference_documents_every_command_with_its_options_and_an_example() {
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
    fn the_reference_documents_global_options_variables_and_exit_codes() {
        let command = Arguments::command();
        for option in command.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(PAGE.contains(&format!("--{option}")), "no --{option}");
        }
        for variable in ["ECLUSA_URL", "ECLUSA_KEY", "ECLUSA_CA_FILE", "ECLUSA_CONFIG", "NO_COLOR"] {
            assert!(PAGE.contains(&format!("| `{variable}` |")), "no {variable}");
            assert!(AFTER_HELP.contains(&format!("\n  {variable} ")), "no {variable} in the help");
        }
        for code in (0..=7).chain([130]) {
            assert!(PAGE.contains(&format!("\n| {code} | ")), "no exit code {code}");
            assert!(AFTER_HELP.contains(&format!(" {code} ")), "no exit code {code} in the help");
        }
    }
}
