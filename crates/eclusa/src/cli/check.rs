//! `eclusa check`.

use std::path::PathBuf;

use clap::Args;
use eclusa_core::Name;
use serde_json::{Value, json};

use super::doctor::{self, Finding, Level};
use super::exit::note;
use super::output::{Format, count, section, table};
use super::probe::{self, Probed, address};
use super::{Exit, serve};
use crate::config::{Config, Mode};

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// The config file
    #[arg(value_name = "FILE", default_value = "eclusa.toml", env = "ECLUSA_CONFIG")]
    file: PathBuf,
    /// A file of variables for the config, one `NAME=value` per line; the environment takes precedence
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
    /// Also check the store, and connect to each upstream without sending anything; `eclusa doctor` does more
    #[arg(long)]
    probe: bool,
}

/// Reads the config as `serve` does, and summarizes it.
pub(super) fn run(args: &CheckArgs, format: Format) -> Result<(), Exit> {
    let config = match (serve::read(&args.file, args.env_file.as_deref()), format) {
        (Ok(config), _) => config,
        (Err(errors), Format::Text) => return Err(serve::invalid(&errors)),
        (Err(errors), _) => {
            format.one(&errors.to_json(), || Ok(String::new()))?;
            return Err(Exit::InvalidConfig(String::new()));
        }
    };
    let warnings = config.warnings();
    if format == Format::Text {
        warnings.iter().for_each(|warning| note(&serve::warning(warning)));
    }
    let probed = if args.probe { Some(probe::upstreams(&config)?) } else { None };
    let probed = probed.as_deref();
    let store = if args.probe { doctor::examine_store(&config) } else { Vec::new() };
    let mut summary = summary(&config, probed);
    summary["warnings"] = json!(warnings);
    if args.probe {
        summary["store"] = store.iter().map(Finding::json).collect();
    }
    format.one(&summary, || Ok(text(&config, probed) + &section("store", &doctor::text(&store))))?;
    let failed = probed.into_iter().flatten().filter(|probed| probed.is_err()).count();
    if failed > 0 {
        let all = count(config.upstreams.len(), "upstream");
        return Err(Exit::Error(format!("{failed} of {all} cannot be reached from here")));
    }
    if store.iter().any(|finding| finding.level == Level::Error) {
        return Err(Exit::Error("the store cannot be used".into()));
    }
    Ok(())
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Queue => "queue",
        Mode::Direct => "direct",
    }
}

fn probe_at(probed: Option<&[Probed]>, at: usize) -> Option<&Probed> {
    probed.and_then(|probed| probed.get(at))
}

fn words(chain: &[Name]) -> Vec<&str> {
    chain.iter().map(Name::as_str).collect()
}

fn summary(config: &Config, probed: Option<&[Probed]>) -> Value {
    let lanes: Vec<Value> = config
        .lanes
        .iter()
        .map(|(name, lane)| {
            let mut shown =
                json!({ "name": name.as_str(), "mode": mode(lane.mode), "chain": words(&lane.chain) });
            if let Some(chains) = &lane.chains {
                let chains = chains.chains.iter().map(|(value, chain)| (value.clone(), words(chain).into()));
                shown["chains"] = Value::Object(chains.collect());
            }
            shown
        })
        .collect();
    let upstreams: Vec<Value> = config
        .upstreams
        .iter()
        .enumerate()
        .map(|(at, (name, upstream))| {
            let mut shown = json!({ "name": name.as_str(), "address": address(upstream) });
            if let Some(probed) = probe_at(probed, at) {
                shown["reachable"] = probed.is_ok().into();
                shown["problem"] = probed.as_ref().err().cloned().into();
            }
            shown
        })
        .collect();
    json!({ "ok": true, "listen": config.server.listen.to_string(), "lanes": lanes, "upstreams": upstreams })
}

fn text(config: &Config, probed: Option<&[Probed]>) -> String {
    let lanes = config.lanes.iter().map(|(name, lane)| {
        let own = Some(&lane.chain).filter(|chain| !chain.is_empty()).map(|chain| words(chain).join(", "));
        let others = lane.chains.iter().flat_map(|chains| &chains.chains);
        let others = others.map(|(value, chain)| format!("{value}: {}", words(chain).join(", ")));
        vec![
            name.to_string(),
            mode(lane.mode).into(),
            own.into_iter().chain(others).collect::<Vec<_>>().join("; "),
        ]
    });
    let upstreams = config.upstreams.iter().enumerate().map(|(at, (name, upstream))| {
        let mut row = vec![name.to_string(), address(upstream)];
        row.extend(probe_at(probed, at).map(|probed| match probed {
            Ok(()) => "reachable".to_owned(),
            Err(problem) => format!("not reachable: {problem}"),
        }));
        row
    });
    let head: &[&str] = if probed.is_some() { &["NAME", "ADDRESS", "PROBE"] } else { &["NAME", "ADDRESS"] };
    let said = format!(
        "ok: {} and {}; listens on {}\n",
        count(config.lanes.len(), "lane"),
        count(config.upstreams.len(), "upstream"),
        config.server.listen
    );
    let lanes = section("lanes", &table(&["NAME", "MODE", "CHAIN"], lanes.collect()));
    said + &lanes + &section("upstreams", &table(head, upstreams.collect()))
}
