//! Keeps an embedded store busy until it is killed, and reports the store's answers on stdout. The crash tests run it.
//!
//! `under_load DIR fsync|write EPOCH`: enqueues and completes jobs from two threads each. Lines, each after the fact:
//! `accepted ID`, `settling ID` (before the call), `settled ID`, and `stopped CAUSE` when the store gives up.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use eclusa::SystemClock;
use eclusa::store::{Ack, EmbeddedStore};
use eclusa_core::gate::{CallResult, GateSpecs};
use eclusa_core::{
    Chain, Dispatch, JobId, Keep, LaneSpec, Name, NewJob, Outcome, Settlement, Span, Spec, SpecError, Store,
    StoreError, UpstreamSpec,
};
use pollster::block_on;

const THREADS: u64 = 2;
const BATCH: u64 = 5;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, ack, epoch] = args.as_slice() else {
        eprintln!("usage: under_load DIR fsync|write EPOCH");
        return ExitCode::from(2);
    };
    let ack = if ack == "fsync" { Ack::Fsync } else { Ack::Write };
    match run(Path::new(dir), ack, epoch.parse().unwrap_or_default()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("stopped {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(dir: &Path, ack: Ack, epoch: u64) -> Result<(), Box<dyn std::error::Error>> {
    let lane = Name::new("work")?;
    let store = EmbeddedStore::open(dir, ack, &rules()?, Arc::new(SystemClock))?;
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for thread in 0..THREADS {
            let (store, lane) = (&store, &lane);
            threads.push(scope.spawn(move || produce(store, lane, epoch * THREADS + thread)));
            threads.push(scope.spawn(move || consume(store, lane)));
        }
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(ended) => ended.map_err(Into::into),
            Err(_) => Err("a thread panicked".into()),
        })
    })
}

fn rules() -> Result<Spec, SpecError> {
    let upstream = Name::new("api")?;
    let mut lane = LaneSpec::new(Name::new("work")?, Chain::new(vec![upstream.clone()])?);
    lane.keep = Keep { span: Span::from_secs(86_400), max: 1_000_000 };
    Spec::new(vec![lane], vec![UpstreamSpec::new(upstream, GateSpecs::default())])
        .map_err(|mut errors| errors.remove(0))
}

fn produce(store: &EmbeddedStore, lane: &Name, source: u64) -> Result<(), StoreError> {
    for batch in 0_u64.. {
        let ids = (0..BATCH).map(|n| JobId((u128::from(source) << 64) | u128::from(batch * BATCH + n)));
        let job = |id| NewJob::new(id, lane.clone(), &format!("tenant-{}", source % 7), vec![b'x'; 200]);
        block_on(store.enqueue(ids.clone().map(job).collect()))?;
        ids.for_each(|id| say(&format!("accepted {id}")));
    }
    Ok(())
}

fn consume(store: &EmbeddedStore, lane: &Name) -> Result<(), StoreError> {
    loop {
        let ask = Dispatch {
            lane: lane.clone(),
            max: 3,
            lease: Span::from_secs(3_600),
            nonce: 0,
            wait: Span::ZERO,
            denied: None,
        };
        for grant in block_on(store.dispatch(ask))?.grants {
            say(&format!("settling {}", grant.job));
            let (report, outcome) = (CallResult::Success.into(), Outcome::Done);
            let done = Settlement { lease: grant.lease, report, outcome, answer: None, unsent: None };
            block_on(store.settle(vec![done]))?;
            say(&format!("settled {}", grant.job));
        }
    }
}

/// Writes a line in one write, so that a kill does not split it.
fn say(line: &str) {
    let written = io::stdout().write_all(format!("{line}\n").as_bytes());
    if written.is_err() {
        std::process::exit(1);
    }
}
