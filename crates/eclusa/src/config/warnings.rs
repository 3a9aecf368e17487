//! Warnings about a valid configuration that probably does not do what was intended.

use std::fmt;

use eclusa_core::{LaneSpec, Name, Span, UpstreamSpec};
use serde::Serialize;

use super::read::Show;
use super::types::{Config, Mode};

/// Something that is allowed but cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// The key it concerns; empty if it concerns the whole file.
    pub key: String,
    /// What will happen.
    pub problem: String,
    /// How to fix it.
    pub help: String,
}

/// Without the help.
impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => f.write_str(&self.problem),
            key => write!(f, "`{key}` {}", self.problem),
        }
    }
}

impl Config {
    /// Everything that is allowed but cannot work.
    pub fn warnings(&self) -> Vec<Warning> {
        if self.lanes.is_empty() && self.upstreams.is_empty() {
            return vec![Warning {
                key: String::new(),
                problem: "the file has no lanes and no upstreams, so nothing can be sent".into(),
                help: "add `[lanes.NAME]` and `[upstreams.NAME]`; `eclusa init` writes an example".into(),
            }];
        }
        let lanes = self.lanes.iter().filter(|(_, lane)| lane.mode == Mode::Queue);
        let specs = lanes.filter_map(|(name, _)| self.spec.lanes().iter().find(|spec| spec.name == *name));
        specs.flat_map(|spec| self.about_ttl(spec)).collect()
    }

    /// Jobs that expire before their turn can come.
    fn about_ttl(&self, lane: &LaneSpec) -> Vec<Warning> {
        let Some(ttl) = lane.ttl else { return Vec::new() };
        let (name, mut warnings) = (&lane.name, Vec::new());
        let (key, shown) = (format!("lanes.{name}.ttl"), written(ttl));
        if let Some((upstream, pace)) = self.slowest_chain(lane, |spec| Some(spec.gates.pace?.initial()))
            && pace > ttl
        {
            let pace = written(pace);
            warnings.push(Warning {
                key: key.clone(),
                problem: format!(
                    "is {shown}, but `upstreams.{upstream}.pace` starts one call every {pace}: a job that has to wait for its \
                     turn expires first"
                ),
                help: format!("make it longer than {pace}, or the pace faster"),
            });
        }
        let stale = lane.cache.is_some_and(|cache| !cache.stale_if_error().is_zero());
        if let Some((upstream, open)) = self.slowest_chain(lane, |spec| Some(spec.gates.breaker?.open_for()))
            && open > ttl
            && !stale
        {
            let open = written(open);
            warnings.push(Warning {
                key,
                problem: format!(
                    "is {shown}, but `upstreams.{upstream}.breaker` stays open for {open}: jobs that arrive right after it opens all \
                     expire"
                ),
                help: format!(
                    "make it longer than {open}, make `open_for` shorter, or answer from the cache meanwhile (`stale_if_error`)"
                ),
            });
        }
        warnings
    }

    /// The shortest of these spans in each chain of the lane, if every upstream of the chain has one; of these, the longest.
    fn slowest_chain(
        &self,
        lane: &LaneSpec,
        span: impl Fn(&UpstreamSpec) -> Option<Span>,
    ) -> Option<(Name, Span)> {
        let lane = self.lanes.get(&lane.name)?;
        let others = lane.chains.iter().flat_map(|chains| chains.chains.values());
        let shortest = |chain: &Vec<Name>| {
            let spans = chain.iter().map(|name| Some((span(self.spec.upstream(name)?)?, name.clone())));
            spans.collect::<Option<Vec<_>>>()?.into_iter().min()
        };
        let (span, name) = std::iter::once(&lane.chain).chain(others).filter_map(shortest).max()?;
        Some((name, span))
    }
}

/// Writes a span in the config's notation, without quotes.
fn written(span: Span) -> String {
    span.show().trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::INIT;

    fn warnings(text: &str) -> Vec<String> {
        let env = |name: &str| (name == "UPSTREAM_URL").then(|| "http://a.example".to_owned());
        let config = Config::parse("eclusa.toml", text, &env).unwrap();
        let said = |warning: Warning| format!("{} {}", warning.key, warning.problem);
        config.warnings().into_iter().map(said).collect()
    }

    #[test]
    fn what_cannot_work_has_a_warning() {
        let file = |lane: &str, upstream: &str| {
            format!(
                "[lanes.a]\nchain = [\"one\", \"two\"]\n{lane}\n[upstreams.one]\nurl = \"http://a.example\"\n{upstream}\n\
                 [upstreams.two]\nurl = \"http://b.example\"\n{upstream}\n"
            )
        };
        let pace = "pace = { initial = \"2s\", min = \"1s\", max = \"60s\" }";
        assert_eq!(
            warnings(&file("ttl = \"1s\"", pace)),
            [
                "lanes.a.ttl is 1s, but `upstreams.one.pace` starts one call every 2s: a job that has to wait for its turn \
              expires first"
            ]
        );
        assert_eq!(warnings(&file("ttl = \"2s\"", pace)), [""; 0]);
        assert_eq!(warnings(&file("", pace)), [""; 0]);
        let breaker = "breaker = { open_for = \"30s\" }";
        assert_eq!(
            warnings(&file("ttl = \"10s\"", breaker)),
            [
                "lanes.a.ttl is 10s, but `upstreams.one.breaker` stays open for 30s: jobs that arrive right after it opens all \
              expire"
            ]
        );
        assert_eq!(warnings(&file("ttl = \"1m\"", breaker)), [""; 0]);
        let stale = "ttl = \"10s\"\ncache = { key = \"{path}\", ttl = \"1s\", stale_if_error = \"1m\" }";
        assert_eq!(warnings(&file(stale, breaker)), [""; 0]);
        // The other upstream of the chain can serve.
        let one = "[lanes.a]\nchain = [\"one\", \"two\"]\nttl = \"10s\"\n[upstreams.one]\nurl = \"http://a.example\"\n\
                   breaker = { open_for = \"30s\" }\n[upstreams.two]\nurl = \"http://b.example\"\n";
        assert_eq!(warnings(one), [""; 0]);
    }

    #[test]
    fn each_chain_of_a_lane_must_work() {
        let file = |one: &str, slow: &str| {
            format!(
                "[lanes.a]\n{one}chain_by = \"body:/model\"\nchains = {{ b = [\"two\"], c = [\"two\", \"slow\"], d = [{slow}] }}\n\
                 ttl = \"10s\"\n[upstreams.one]\nurl = \"http://a.example\"\n[upstreams.two]\nurl = \"http://b.example\"\n\
                 [upstreams.slow]\nurl = \"http://c.example\"\nbreaker = {{ open_for = \"30s\" }}\n"
            )
        };
        let warned = "lanes.a.ttl is 10s, but `upstreams.slow.breaker` stays open for 30s: jobs that arrive right after it opens \
                      all expire";
        for one in ["chain = [\"one\"]\n", ""] {
            assert_eq!(warnings(&file(one, "\"slow\"")), [warned], "{one}");
            assert_eq!(warnings(&file(one, "\"slow\", \"one\"")), [""; 0], "{one}");
        }
    }

    #[test]
    fn an_empty_file_has_a_warning_and_limits_without_lanes_do_not() {
        assert_eq!(warnings(""), [" the file has no lanes and no upstreams, so nothing can be sent"]);
        assert_eq!(warnings("[upstreams.a]\nurl = \"http://a.example\"\nrpm = 60\n"), [""; 0]);
    }

    #[test]
    fn our_own_examples_have_no_warnings() {
        assert_eq!(warnings(INIT), [""; 0]);
        assert_eq!(warnings(include_str!("../../../../examples/score-proxy.toml")), [""; 0]);
    }
}
