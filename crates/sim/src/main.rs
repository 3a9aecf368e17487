//! `sim --seeds N` runs worlds and prints those that fail; `sim --seed S` prints the trace of one; `--bug Name` plants
//! a bug, `--bug Name --without` makes the same worlds without it. `sim --search --processes N --appends N …` searches
//! a small fleet and prints a shortest trace to each violation.

use std::process::ExitCode;

use sim::{Bounds, Bug, World};

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
    if args.iter().any(|arg| arg == "--search") {
        return search(&number, bug.filter(|_| planted));
    }
    let Some(seeds) = number("--seeds") else {
        eprintln!(
            "usage: sim --seeds N [--from S] | --seed S | --search, each with [--bug Name [--without]]"
        );
        eprintln!(
            "--search: [--processes N] [--appends N] [--regressions N] [--kills N] [--starts N] [--stops N]"
        );
        eprintln!("          [--step-downs N] [--troubles N] [--most STATES]");
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

fn search(number: &dyn Fn(&str) -> Option<u64>, bug: Option<Bug>) -> ExitCode {
    let count = |name: &str| number(name).and_then(|count| u8::try_from(count).ok()).unwrap_or(0);
    let bounds = Bounds {
        processes: usize::from(count("--processes").max(1)),
        appends: count("--appends"),
        regressions: count("--regressions"),
        kills: count("--kills"),
        starts: count("--starts"),
        stops: count("--stops"),
        step_downs: count("--step-downs"),
        troubles: count("--troubles"),
    };
    let most = number("--most").and_then(|most| usize::try_from(most).ok()).unwrap_or(20_000_000);
    let found = sim::search(bounds, most, bug);
    println!("{} states, {} steps, complete: {}", found.states, found.steps, found.complete);
    let Some((violation, trace)) = found.violation else { return ExitCode::SUCCESS };
    trace.iter().for_each(|line| println!("{line}"));
    println!("{} {}", violation.invariant, violation.what);
    ExitCode::FAILURE
}
