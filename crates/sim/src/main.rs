//! `sim --seeds N` runs worlds and prints those that fail; `sim --seed S` prints the trace of one; `--bug Name` plants a
//! bug, `--bug Name --without` makes the same worlds without it.

use std::process::ExitCode;

use sim::{Bug, World};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1).cloned()
    };
    let number = |name: &str| value(name).and_then(|text| text.parse::<u64>().ok());
    let bug = value("--bug").and_then(|name| Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name));
    let planted = !args.iter().any(|arg| arg == "--without");
    if let Some(seed) = number("--seed") {
        let outcome = World::new(seed, bug, bug.filter(|_| planted), true).run();
        println!("{outcome:?}");
        return if outcome.violation.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let Some(seeds) = number("--seeds") else {
        eprintln!("usage: sim --seeds N [--from S] | --seed S, each with [--bug Name [--without]]");
        eprintln!(
            "--search: [--processes N] [--appends N] [--regressions N] [--kills N] [--starts N] [--stops N]"
        );
        eprintln!("          [--troubles N] [--most STATES]");
        return ExitCode::FAILURE;
    };
    let from = number("--from").unwrap_or(0);
    let mut failed = false;
    for seed in from..from + seeds {
        let outcome = bug.map_or_else(|| sim::run(seed), |bug| sim::run_for(seed, bug, planted));
        if let Some(violation) = outcome.violation {
            println!("seed {seed}: {} {}", violation.invariant, violation.what);
            let of = bug.map_or_else(String::new, |bug| format!(" --bug {bug:?}"));
            let without = if bug.is_some() && !planted { " --without" } else { "" };
            println!("replay: cargo run --release -p sim -- --seed {seed}{of}{without}");
            failed = true;
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
