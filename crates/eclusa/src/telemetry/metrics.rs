//! Counters, updated as things happen.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use eclusa_core::gate::{CallResult, Reason};
use eclusa_core::{DropReason, End, Ended, Fallback, Level, Name, ServedBy, Time, Tokens};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::answers::AnswerMeter;
use super::exposition::Exposition;
use super::process::ProcessMetrics;
use super::quoted::Quoted;
use super::snapshot::Snapshot;
use crate::config::Config;
use crate::execute::Judgement;

/// Buckets of all histograms, in seconds.
const BUCKETS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];
/// Attempts above this share a label.
const MAX_ATTEMPT_LABEL: u32 = 20;
/// Maximum error names with their own label; further ones are counted as `other`.
const MAX_NAMED_CODES: usize = 200;

macro_rules! labels {
    ($($name:ident { $($field:ident),+ })+) => {
        $(
            #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
            pub(super) struct $name {
                $(pub(super) $field: String,)+
            }
        )+
    };
}

labels! {
    OfLane { lane }
    OfUpstream { upstream }
    JobEnd { lane, status }
    FallbackOf { lane, motivo }
    ErrorOf { upstream, code }
    CallOf { upstream, status }
    Attempt { lane, attempt }
    Drop { lane, reason, priority }
    Wait { lane, reason }
    EtaError { lane, side }
    Denial { lane, upstream, reason }
    Trimmed { lane, reason }
    DroppedSpans { reason }
    OfPolicy { upstream, policy }
    Reconciled { upstream, result }
}

/// All counters of a process.
pub struct Metrics {
    jobs: Family<JobEnd, Counter>,
    fallbacks: Family<FallbackOf, Counter>,
    cache_hits: Family<OfLane, Counter>,
    avoided: Family<OfUpstream, Counter>,
    timeouts: Family<OfUpstream, Counter>,
    errors: Family<ErrorOf, Counter>,
    /// Codes that are not numbers and have their own label.
    named_codes: Mutex<BTreeSet<String>>,
    statuses: Family<CallOf, Counter>,
    penalties: Family<OfUpstream, Counter>,
    retries: Family<Attempt, Counter>,
    backoff: Family<OfLane, Histogram>,
    attempts: Family<Attempt, Counter>,
    successes: Family<Attempt, Counter>,
    success_rate: Family<Attempt, Gauge<f64, std::sync::atomic::AtomicU64>>,
    letters: Family<OfLane, Counter>,
    trimmed: Family<Trimmed, Counter>,
    debits_dropped: Counter,
    spans_exported: Counter,
    spans_dropped: Family<DroppedSpans, Counter>,
    drops: Family<Drop, Counter>,
    waits: Family<Wait, Histogram>,
    eta_errors: Family<EtaError, Histogram>,
    denials: Family<Denial, Counter>,
    calls: Family<OfUpstream, Histogram>,
    lives: Family<OfLane, Histogram>,
    reconciled: Family<Reconciled, Counter>,
    drift: Family<OfPolicy, Gauge<f64, std::sync::atomic::AtomicU64>>,
    /// Responses of direct lanes.
    pub(crate) answers: AnswerMeter,
    /// How far starts were from the estimates at intake, in the last hour.
    pub(crate) quoted: Quoted,
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            jobs: Family::default(),
            fallbacks: Family::default(),
            cache_hits: Family::default(),
            avoided: Family::default(),
            timeouts: Family::default(),
            errors: Family::default(),
            named_codes: Mutex::default(),
            statuses: Family::default(),
            penalties: Family::default(),
            retries: Family::default(),
            backoff: Family::new_with_constructor(histogram),
            attempts: Family::default(),
            successes: Family::default(),
            success_rate: Family::default(),
            letters: Family::default(),
            trimmed: Family::default(),
            debits_dropped: Counter::default(),
            spans_exported: Counter::default(),
            spans_dropped: Family::default(),
            drops: Family::default(),
            waits: Family::new_with_constructor(histogram),
            eta_errors: Family::new_with_constructor(histogram),
            denials: Family::default(),
            calls: Family::new_with_constructor(histogram),
            lives: Family::new_with_constructor(histogram),
            reconciled: Family::default(),
            drift: Family::default(),
            answers: AnswerMeter::default(),
            quoted: Quoted::default(),
        }
    }
}

impl Metrics {
    /// Initialises known label sets to zero: a rate needs the zero.
    pub fn expect(&self, config: &Config) {
        for reason in ["queue_full", "refused", "unreachable"] {
            let _ = self.spans_dropped.get_or_create(&DroppedSpans { reason: reason.into() });
        }
        for (lane, rules) in config.lanes.iter().map(|(lane, rules)| (lane.to_string(), rules)) {
            for status in ["processed", "failed", "dropped", "fallback", "cancelled"] {
                let _ = self.jobs.get_or_create(&JobEnd { lane: lane.clone(), status: status.into() });
            }
            for why in Fallback::ALL {
                let label = FallbackOf { lane: lane.clone(), motivo: why.as_str().into() };
                let _ = self.fallbacks.get_or_create(&label);
            }
            let reasons =
                [DropReason::TtlExpired, DropReason::Preempted, DropReason::QueueFull, DropReason::NotInTime];
            for reason in reasons {
                for level in Level::ALL {
                    let (reason, priority) = (reason.as_str().into(), level.as_str().into());
                    let _ = self.drops.get_or_create(&Drop { lane: lane.clone(), reason, priority });
                }
            }
            for attempt in 2..=rules.retry.attempts().min(MAX_ATTEMPT_LABEL) {
                let _ =
                    self.retries.get_or_create(&Attempt { lane: lane.clone(), attempt: attempt.to_string() });
            }
            let _ = self.cache_hits.get_or_create(&OfLane { lane: lane.clone() });
            let _ = self.letters.get_or_create(&OfLane { lane });
        }
        for upstream in config.upstreams.keys().map(ToString::to_string) {
            for code in ["timeout", "connect_failed", "connection_broken"] {
                let _ = self.errors.get_or_create(&ErrorOf { upstream: upstream.clone(), code: code.into() });
            }
            let _ = self.timeouts.get_or_create(&OfUpstream { upstream: upstream.clone() });
            let _ = self.penalties.get_or_create(&OfUpstream { upstream: upstream.clone() });
            let _ = self.avoided.get_or_create(&OfUpstream { upstream });
        }
        for (upstream, _) in config.upstreams.iter().filter(|(_, rules)| rules.reconcile().is_some()) {
            for result in ["compared", "failed"] {
                let (upstream, result) = (upstream.to_string(), result.into());
                let _ = self.reconciled.get_or_create(&Reconciled { upstream, result });
            }
        }
    }

    /// All metrics as text, including those read from the store.
    pub fn encode(&self, snapshot: Snapshot, format: Exposition) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::default();
        let mut add = |name: &str, help: &str, metric: &dyn Fn(&mut Registry, &str, &str)| {
            metric(&mut registry, name, help);
        };
        macro_rules! register {
            ($($name:literal, $field:ident, $help:literal;)+) => {
                $(add($name, $help, &|registry, name, help| registry.register(name, help, self.$field.clone()));)+
            };
        }
        register! {
            "proxy_jobs", jobs, "Jobs that ended, by status: processed, failed, dropped, fallback, cancelled";
            "proxy_fallbacks", fallbacks, "Answers from a stale cache entry, by reason";
            "eclusa_calls_avoided", avoided, "Calls that an open breaker prevented, without a stale answer to return instead";
            "proxy_timeouts", timeouts, "Calls that were not answered in time";
            "proxy_upstream_errors", errors, "Calls that failed, by code";
            "eclusa_upstream_calls", statuses, "Calls that ended, by status";
            "proxy_rate_limit_penalties", penalties, "Responses by which an upstream asked to slow down or to stop";
            "retry_attempts", retries, "Retries scheduled, by the next attempt";
            "retry_backoff_delay_seconds", backoff, "How long retries wait";
            "retry_success_rate", success_rate, "Share of attempts that succeeded, by attempt";
            "dlq_entries", letters, "Dead letters created";
            "eclusa_dead_letters_removed", trimmed, "Dead letters removed, by reason: their ttl, or the lane's max";
            "eclusa_debits_dropped", debits_dropped, "Calls forgotten before an event could credit them";
            "eclusa_spans_exported", spans_exported, "Spans accepted by the trace collector";
            "eclusa_spans_dropped", spans_dropped, "Spans dropped, by reason";
            "eclusa_cache_hits", cache_hits, "Requests and jobs answered from a fresh cache entry or an equal call";
            "eclusa_drops", drops, "Jobs dropped, by reason and priority";
            "eclusa_eta_error_seconds", eta_errors, "Difference between the start quoted at intake and the actual start";
            "eclusa_wait_seconds", waits, "How long a lane with jobs started none, by reason";
            "eclusa_gate_denials", denials, "Dispatches denied by a gate, by reason";
            "eclusa_upstream_seconds", calls, "Duration of calls";
            "eclusa_job_seconds", lives, "Time from intake to the end of a job";
            "eclusa_reconciliations", reconciled, "Comparisons with an upstream's own balances, by result: compared, failed";
            "eclusa_policy_drift", drift, "Tokens by which the last comparison corrected a balance";
        }
        registry.register_collector(Box::new(snapshot));
        registry.register_collector(Box::new(self.answers.snapshot()));
        registry.register_collector(Box::new(ProcessMetrics));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(format.write(text))
    }

    /// Counts a job that ended at `now`.
    pub fn count_end(&self, ended: &Ended, now: Time) {
        let lane = ended.lane.to_string();
        let status = match &ended.end {
            End::Completed | End::Served(ServedBy::Cache | ServedBy::Coalesced) => "processed",
            End::Served(ServedBy::Stale(_)) => "fallback",
            End::Failed { .. } => "failed",
            End::Dropped(_) => "dropped",
            End::Cancelled => "cancelled",
        };
        self.jobs.get_or_create(&JobEnd { lane: lane.clone(), status: status.into() }).inc();
        if let Some(upstream) = &ended.avoided {
            self.count_avoided(upstream);
        }
        let lived = Duration::from_millis(now.since(ended.created_at).as_millis());
        self.lives.get_or_create(&OfLane { lane: lane.clone() }).observe(lived.as_secs_f64());
        match &ended.end {
            End::Served(ServedBy::Stale(why)) => self.count_fallback(&ended.lane, *why),
            End::Served(_) => {
                self.cache_hits.get_or_create(&OfLane { lane }).inc();
            }
            End::Completed => self.count_attempt(&ended.lane, ended.attempts, true),
            End::Failed { dead_letter, .. } => {
                self.count_attempt(&ended.lane, ended.attempts, false);
                if *dead_letter {
                    self.letters.get_or_create(&OfLane { lane }).inc();
                }
            }
            End::Dropped(reason) => {
                let (reason, priority) = (reason.as_str().into(), ended.level.as_str().into());
                self.drops.get_or_create(&Drop { lane, reason, priority }).inc();
            }
            End::Cancelled => {}
        }
    }

    fn count_fallback(&self, lane: &Name, why: Fallback) {
        let (lane, motivo) = (lane.to_string(), why.as_str().into());
        self.fallbacks.get_or_create(&FallbackOf { lane, motivo }).inc();
    }

    /// Counts an answer from the cache at intake; `stale` if from a stale entry.
    pub fn count_cached(&self, lane: &Name, stale: Option<Fallback>) {
        match stale {
            None => {
                self.cache_hits.get_or_create(&OfLane { lane: lane.to_string() }).inc();
            }
            Some(why) => {
                let (lane_label, status) = (lane.to_string(), "fallback".into());
                self.jobs.get_or_create(&JobEnd { lane: lane_label, status }).inc();
                self.count_fallback(lane, why);
            }
        }
    }

    /// Counts the end of a call; `told_until` if the response said when to retry.
    pub fn count_call(&self, upstream: &Name, judgement: &Judgement, told_until: bool) {
        let label = OfUpstream { upstream: upstream.to_string() };
        if judgement.result == CallResult::TimedOut {
            self.timeouts.get_or_create(&label).inc();
        }
        if told_until || judgement.result == CallResult::Throttled {
            self.penalties.get_or_create(&label).inc();
        }
        let code = self.code_label(judgement.code.as_deref().unwrap_or("none"));
        self.statuses.get_or_create(&CallOf { upstream: label.upstream.clone(), status: code.clone() }).inc();
        if judgement.verdict.is_some() {
            self.errors.get_or_create(&ErrorOf { upstream: label.upstream, code }).inc();
        }
    }

    /// Statuses are few, but an upstream can return any number of error names.
    fn code_label(&self, code: &str) -> String {
        if code.parse::<u16>().is_ok() {
            return code.into();
        }
        let mut named = self.named_codes.lock().unwrap_or_else(PoisonError::into_inner);
        if named.len() < MAX_NAMED_CODES {
            named.insert(code.into());
        }
        if named.contains(code) { code.into() } else { "other".into() }
    }

    /// Records the duration of a call.
    pub fn time_call(&self, upstream: &Name, took: Duration) {
        self.calls.get_or_create(&OfUpstream { upstream: upstream.to_string() }).observe(took.as_secs_f64());
    }

    /// Counts a scheduled retry: attempt `next`, after `delay`. The attempt before it failed.
    pub fn count_retry(&self, lane: &Name, next: u32, delay: Duration) {
        let attempt = next.min(MAX_ATTEMPT_LABEL).to_string();
        self.retries.get_or_create(&Attempt { lane: lane.to_string(), attempt }).inc();
        self.backoff.get_or_create(&OfLane { lane: lane.to_string() }).observe(delay.as_secs_f64());
        self.count_attempt(lane, next.saturating_sub(1), false);
    }

    fn count_attempt(&self, lane: &Name, attempt: u32, success: bool) {
        let attempt = attempt.min(MAX_ATTEMPT_LABEL).to_string();
        let label = Attempt { lane: lane.to_string(), attempt };
        let attempts = self.attempts.get_or_create(&label).inc() + 1;
        let counter = self.successes.get_or_create(&label);
        if success {
            counter.inc();
        }
        #[expect(clippy::cast_precision_loss, reason = "a share needs no more precision")]
        let rate = counter.get() as f64 / attempts as f64;
        self.success_rate.get_or_create(&label).set(rate);
    }

    /// Counts a comparison with the balances of `upstream`.
    pub fn count_reconciled(&self, upstream: &Name, compared: bool) {
        let result = if compared { "compared" } else { "failed" }.into();
        self.reconciled.get_or_create(&Reconciled { upstream: upstream.to_string(), result }).inc();
    }

    /// Sets the drift of a policy's balance.
    pub fn set_drift(&self, upstream: &Name, policy: &Name, drift: Tokens) {
        let (upstream, policy) = (upstream.to_string(), policy.to_string());
        #[expect(clippy::cast_precision_loss, reason = "a drift needs no more precision")]
        let drift = drift.as_micro() as f64 / Tokens::ONE.as_micro() as f64;
        self.drift.get_or_create(&OfPolicy { upstream, policy }).set(drift);
    }

    /// Counts a dead letter that was removed without a replay.
    pub fn count_trimmed_letter(&self, lane: &Name, reason: &str) {
        self.trimmed.get_or_create(&Trimmed { lane: lane.to_string(), reason: reason.into() }).inc();
    }

    /// Counts exported spans.
    pub(crate) fn count_exported_spans(&self, count: u64) {
        self.spans_exported.inc_by(count);
    }

    /// Counts dropped spans.
    pub(crate) fn count_dropped_spans(&self, reason: &str, count: u64) {
        if count > 0 {
            self.spans_dropped.get_or_create(&DroppedSpans { reason: reason.into() }).inc_by(count);
        }
    }

    /// Counts forgotten calls that could have earned tokens back.
    pub fn count_dropped_debits(&self, count: u64) {
        self.debits_dropped.inc_by(count);
    }

    /// Counts a denial of a lane's jobs by a gate: of `upstream`, or of the lane itself.
    pub fn count_denial(&self, lane: Option<&Name>, upstream: Option<&Name>, reason: Reason) {
        let [lane, upstream] = [lane, upstream].map(|name| name.map(ToString::to_string).unwrap_or_default());
        let reason = reason.as_str().into();
        self.denials.get_or_create(&Denial { lane, upstream, reason }).inc();
    }

    /// Counts a denial of a call whose caller waits, in a direct lane or `acquire`.
    pub fn count_refusal(&self, lane: Option<&Name>, upstream: Option<&Name>, reason: Reason) {
        self.count_denial(lane, upstream, reason);
        if let (Some(upstream), Reason::CircuitOpen) = (upstream, reason) {
            self.count_avoided(upstream);
        }
    }

    fn count_avoided(&self, upstream: &Name) {
        self.avoided.get_or_create(&OfUpstream { upstream: upstream.to_string() }).inc();
    }

    /// Records the difference between the quoted start `eta` and the actual one.
    pub fn compare_eta(&self, lane: &Name, eta: Time, now: Time) {
        let side = if now > eta { "late" } else { "early" };
        let off = Duration::from_millis(now.as_millis().abs_diff(eta.as_millis()));
        let of = EtaError { lane: lane.to_string(), side: side.into() };
        self.eta_errors.get_or_create(&of).observe(off.as_secs_f64());
        self.quoted.note(lane, off, Instant::now());
    }

    /// Records how long a lane with jobs started none.
    pub fn time_wait(&self, lane: &Name, reason: Reason, took: Duration) {
        let (lane, reason) = (lane.to_string(), reason.as_str().into());
        self.waits.get_or_create(&Wait { lane, reason }).observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The code and two pages must agree.
    #[test]
    fn the_documentation_lists_every_reason_for_a_stale_answer() {
        let pages = [
            include_str!("../../../../docs/how-to/cache.md"),
            include_str!("../../../../docs/reference/metrics.md"),
        ];
        for page in pages {
            for why in Fallback::ALL {
                assert!(page.contains(&format!("`{}`", why.as_str())), "{}", why.as_str());
            }
            assert!(page.contains("a 5xx but 501") && page.contains("429") && page.contains("calls_avoided"));
        }
    }

    #[test]
    fn error_names_are_bounded_and_statuses_do_not_count() {
        let metrics = Metrics::default();
        for n in 0..MAX_NAMED_CODES {
            assert_eq!(metrics.code_label(&format!("Error{n}")), format!("Error{n}"));
        }
        assert_eq!(metrics.code_label("OneMore"), "other");
        assert_eq!(
            (metrics.code_label("Error7"), metrics.code_label("503")),
            ("Error7".into(), "503".into())
        );
    }
}
