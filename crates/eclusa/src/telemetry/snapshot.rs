//! State read from the store at each scrape: sizes, states, and totals shared by all processes.

use std::collections::BTreeMap;

use eclusa_core::gate::BreakerState;
use eclusa_core::{
    Alert, CountLetters, LaneView, LetterAges, LetterBy, LetterFilter, Name, Span, Store, StoreError,
    TenantQuery, TenantView, Time, UpstreamView,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::policies::PolicyLevel;
use crate::letters::count_letters;
use crate::words::{counted, starts_per_second};

/// Tenants with their own label; the rest are summed as `other`.
const TOP_TENANTS: usize = 200;
/// Maximum tenants of a lane read for one scrape.
const MAX_LOOKED_AT: usize = 10_000;
/// Tenants read per query, so that other callers are not delayed.
const STEP: usize = 1_000;

/// The state of the store at one moment; empty if it cannot be read.
#[derive(Debug, Default)]
pub struct Snapshot {
    store_answers: bool,
    /// Whether this process is the owner. Only the owner reports shared state; otherwise sums over processes would
    /// count it several times.
    owned: bool,
    /// How often the store lost data that it had acknowledged to this process; known also while it cannot be read.
    losses: u64,
    /// Callers that wait for the end of a job at this process, if it is the owner.
    waits: u64,
    now: Time,
    lanes: Vec<LaneView>,
    upstreams: Vec<UpstreamView>,
    tenants: BTreeMap<Name, Vec<TenantView>>,
    letters: BTreeMap<Name, Letters>,
    policies: Vec<PolicyLevel>,
    /// Firing alerts, if this process is the owner.
    alerts: Vec<Alert>,
}

/// Counts of dead letters of one lane.
#[derive(Debug, Default)]
struct Letters {
    by_code: BTreeMap<String, u64>,
    by_tenant: BTreeMap<String, u64>,
}

impl Snapshot {
    /// Reads the store.
    pub async fn take(store: &impl Store, now: Time) -> Result<Self, StoreError> {
        let (lanes, mut upstreams) = (store.lanes().await?, store.upstreams().await?);
        upstreams.retain(|view| view.name.key().is_none());
        let (mut tenants, mut letters) = (BTreeMap::new(), BTreeMap::new());
        for lane in &lanes {
            tenants.insert(lane.name.clone(), tenants_of(store, &lane.name).await?);
            letters.insert(lane.name.clone(), letters_of(store, &lane.name).await?);
        }
        Ok(Self {
            store_answers: true,
            owned: true,
            losses: 0,
            waits: 0,
            now,
            lanes,
            upstreams,
            tenants,
            letters,
            policies: Vec::new(),
            alerts: Vec::new(),
        })
    }

    /// The snapshot of a process that is not the owner.
    pub fn of_asker(store_answers: bool) -> Self {
        Self { store_answers, ..Self::default() }
    }

    /// Sets `policies`.
    pub fn with_policies(self, policies: Vec<PolicyLevel>) -> Self {
        Self { policies, ..self }
    }

    /// Sets `alerts`.
    pub fn with_alerts(self, alerts: Vec<Alert>) -> Self {
        Self { alerts, ..self }
    }

    /// Sets the losses of the store, and the callers that wait for the end of a job.
    pub fn with_counts(self, losses: u64, waits: u64) -> Self {
        Self { losses, waits, ..self }
    }
}

async fn tenants_of(store: &impl Store, lane: &Name) -> Result<Vec<TenantView>, StoreError> {
    let (mut all, mut after) = (Vec::new(), Some(0));
    while let Some(place) = after.filter(|_| all.len() < MAX_LOOKED_AT) {
        let page =
            store.tenants(TenantQuery { after: place, ..TenantQuery::new(lane.clone(), STEP) }).await?;
        all.extend(page.tenants);
        after = page.next;
    }
    all.sort_by(|a, b| b.total_processed.cmp(&a.total_processed).then_with(|| a.tenant.cmp(&b.tenant)));
    Ok(all)
}

async fn letters_of(store: &impl Store, lane: &Name) -> Result<Letters, StoreError> {
    let filter = LetterFilter { lanes: Some(vec![lane.clone()]), ..LetterFilter::default() };
    let by = |by| CountLetters { filter: filter.clone(), by, after: None, idle: false, trend_until: None };
    let by_code = count_letters(store, by(LetterBy::Code)).await?.counts;
    Ok(Letters { by_code, by_tenant: count_letters(store, by(LetterBy::Tenant)).await?.counts })
}

/// One value with its labels.
type Sample<'a, V> = (Vec<(&'static str, &'a str)>, V);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let up = vec![(Vec::new(), u64::from(self.store_answers))];
        gauges(&mut encoder, "eclusa_store_up", "1 while the store answers", up)?;
        let help = "How often the store was found to have lost data that it had acknowledged to this process";
        counters(&mut encoder, "eclusa_store_losses", help, vec![(Vec::new(), self.losses)])?;
        if !self.owned {
            return Ok(());
        }
        let waits = vec![(Vec::new(), self.waits)];
        gauges(&mut encoder, "eclusa_waits", "Callers waiting for the end of a job", waits)?;
        self.lanes(&mut encoder)?;
        self.upstreams(&mut encoder)?;
        self.policies(&mut encoder)?;
        self.alerts(&mut encoder)?;
        self.tenants(&mut encoder)?;
        self.letters(&mut encoder)
    }
}

impl Snapshot {
    fn policies(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        fn labels(level: &PolicyLevel) -> Vec<(&'static str, &str)> {
            vec![("upstream", level.upstream.as_str()), ("policy", level.policy.as_str())]
        }
        let shared = self.policies.iter().filter_map(|level| Some((labels(level), level.tokens?)));
        let help = "Whole tokens in the bucket that all requests under a policy share";
        gauges(encoder, "eclusa_policy_tokens", help, shared.collect())?;
        let used = self.policies.iter().map(|level| (labels(level), level.used)).collect();
        gauges(encoder, "eclusa_policy_buckets", "Buckets of a policy that are not full", used)?;
        let low = self.policies.iter().map(|level| (labels(level), level.low)).collect();
        gauges(encoder, "eclusa_policy_low", "Buckets of a policy below its `alert_below`", low)
    }

    fn alerts(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let labels = |alert: &Alert| {
            let key = &alert.condition.key;
            let all = [
                ("alert", Some(key.rule.as_str())),
                ("severity", Some(key.severity.as_str())),
                ("lane", key.lane.as_ref().map(Name::as_str)),
                ("upstream", key.upstream.as_ref().map(Name::as_str)),
                ("policy", key.policy.as_ref().map(Name::as_str)),
                ("companyId", key.tenant.as_deref()),
            ];
            all.into_iter().filter_map(|(label, value)| Some((label, value?.to_owned()))).collect::<Vec<_>>()
        };
        let labelled: Vec<_> = self.alerts.iter().map(labels).collect();
        let firing = labelled
            .iter()
            .map(|labels| (labels.iter().map(|(label, value)| (*label, value.as_str())).collect(), 1_u64));
        gauges(
            encoder,
            "eclusa_alert_firing",
            "1 while an alert fires; reported by the owner",
            firing.collect(),
        )
    }

    fn lanes(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let waiting = |lane: &LaneView| lane.queued.iter().sum::<u64>() + lane.pending;
        let each = |value: &dyn Fn(&LaneView) -> u64| -> Vec<Sample<'_, u64>> {
            self.lanes.iter().map(|lane| (vec![("lane", lane.name.as_str())], value(lane))).collect()
        };
        gauges(encoder, "proxy_queue_size", "Waiting jobs", each(&waiting))?;
        gauges(encoder, "eclusa_processing", "Jobs being processed", each(&|lane| lane.processing))?;
        gauges(encoder, "eclusa_waiting_bytes", "Bytes of waiting jobs", each(&|lane| lane.waiting_bytes))?;
        gauges(
            encoder,
            "eclusa_lane_paused",
            "1 while a lane is paused",
            each(&|lane| u64::from(lane.paused)),
        )?;
        gauges(encoder, "dlq_size", "Dead letters", each(&|lane| lane.dead_letters))?;
        let age =
            |lane: &LaneView| lane.oldest_dead_letter.map_or(0, |at| self.now.since(at).as_millis() / 1_000);
        gauges(encoder, "dlq_oldest_age_seconds", "Age of the oldest dead letter", each(&age))?;
        let ages = self
            .lanes
            .iter()
            .map(|lane| (vec![("lane", lane.name.as_str())], AgeHistogram(lane.letter_ages)));
        encode(encoder, "dlq_age_seconds", "Age of dead letters when they were removed", ages)?;
        let waited =
            |lane: &LaneView| lane.oldest_waiting.map_or(0, |at| self.now.since(at).as_millis() / 1_000);
        gauges(
            encoder,
            "eclusa_oldest_wait_seconds",
            "How long the oldest waiting job has waited",
            each(&waited),
        )?;
        let capacity =
            self.lanes.iter().filter_map(|lane| Some((vec![("lane", lane.name.as_str())], lane.capacity?)));
        gauges(encoder, "eclusa_lane_capacity", "Maximum waiting jobs", capacity.collect())
    }

    fn upstreams(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let breakers =
            || self.upstreams.iter().filter_map(|view| Some((view.name.as_str(), view.breaker.as_ref()?)));
        let state = |state: BreakerState| match state {
            BreakerState::Closed => 0,
            BreakerState::Open => 1,
            BreakerState::HalfOpen => 2,
        };
        let states =
            breakers().map(|(name, breaker)| (vec![("upstream", name)], state(breaker.state))).collect();
        gauges(encoder, "proxy_circuit_state", "The breaker: 0 closed, 1 open, 2 half open", states)?;
        let opened = breakers().map(|(name, breaker)| (vec![("upstream", name)], breaker.opened)).collect();
        counters(encoder, "proxy_circuit_open", "How often the breaker opened, over all processes", opened)?;
        let closed = breakers().map(|(name, breaker)| (vec![("upstream", name)], breaker.closed)).collect();
        counters(encoder, "proxy_circuit_close", "How often the breaker closed, over all processes", closed)?;
        let half =
            breakers().map(|(name, breaker)| (vec![("upstream", name)], breaker.half_opened)).collect();
        let help = "How often the breaker admitted a probe, over all processes";
        counters(encoder, "proxy_circuit_half_open", help, half)?;
        let in_flight = self.upstreams.iter();
        let in_flight =
            in_flight.map(|view| (vec![("upstream", view.name.as_str())], u64::from(view.in_flight)));
        gauges(encoder, "eclusa_in_flight", "Calls in progress", in_flight.collect())?;
        let rates = self.upstreams.iter().filter_map(|view| {
            Some((vec![("upstream", view.name.as_str())], starts_per_second(view.pace.as_ref()?)))
        });
        gauges(encoder, "eclusa_pace_rate", "Starts per second that the pace allows", rates.collect())?;
        let levels = self.upstreams.iter().flat_map(|view| {
            let labels = |reason| vec![("upstream", view.name.as_str()), ("gate", reason)];
            view.gates.iter().map(move |gate| (labels(gate.reason.as_str()), counted(gate, gate.level)))
        });
        gauges(
            encoder,
            "eclusa_gate_level",
            "What a gate counts: tokens left, starts, calls, milliseconds",
            levels.collect(),
        )
    }

    fn tenants(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        // The tenants with the most jobs by name; the rest merged by `combine`.
        let each = |value: fn(&TenantView) -> i64, combine: fn(i64, i64) -> i64| -> Vec<Sample<'_, i64>> {
            let lanes = self.tenants.iter().flat_map(|(lane, all)| {
                let sample =
                    move |tenant, value| (vec![("lane", lane.as_str()), ("companyId", tenant)], value);
                let top = all.iter().take(TOP_TENANTS).map(move |one| sample(&*one.tenant, value(one)));
                let rest = all.iter().skip(TOP_TENANTS).map(value).reduce(combine);
                top.chain(rest.map(move |rest| sample("other", rest)))
            });
            lanes.collect()
        };
        let processed =
            each(|tenant| i64::try_from(tenant.total_processed).unwrap_or(i64::MAX), i64::saturating_add);
        gauges(encoder, "tenant_jobs_processed", "Jobs of a tenant started so far", processed)?;
        let priority = each(|tenant| tenant.current_priority, i64::min);
        gauges(encoder, "tenant_current_priority", "Priority of a tenant; 1 is the most urgent", priority)?;
        let batch = each(|tenant| i64::from(tenant.consecutive_batch), i64::max);
        gauges(encoder, "tenant_consecutive_batch", "Jobs of a tenant started in a row", batch)?;
        let rounds = each(|tenant| tenant.rounds_without_processing, i64::max);
        gauges(
            encoder,
            "tenant_rounds_without_processing",
            "Turns of other tenants since a tenant's own",
            rounds,
        )
    }

    fn letters(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let by_code = self.letters.iter().flat_map(|(lane, letters)| {
            let labels = |code| vec![("lane", lane.as_str()), ("code", code)];
            top_counts(&letters.by_code).into_iter().map(move |(code, count)| (labels(code), count))
        });
        gauges(
            encoder,
            "dlq_by_error_code",
            "Dead letters by the code of their last failure",
            by_code.collect(),
        )?;
        let by_tenant = self.letters.iter().flat_map(|(lane, letters)| {
            let labels = |tenant| vec![("lane", lane.as_str()), ("companyId", tenant)];
            top_counts(&letters.by_tenant).into_iter().map(move |(tenant, count)| (labels(tenant), count))
        });
        gauges(encoder, "dlq_by_company", "Dead letters by tenant", by_tenant.collect())
    }
}

/// The ages of removed dead letters.
struct AgeHistogram(LetterAges);

impl EncodeMetric for AgeHistogram {
    #[expect(clippy::cast_precision_loss, reason = "ages need no more precision")]
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let seconds = |span: Span| span.as_millis() as f64 / 1_000.0;
        let bounds = LetterAges::BOUNDS.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(self.0.counts).collect();
        let count = self.0.counts.iter().sum();
        encoder.encode_histogram::<[(&str, &str); 0]>(seconds(self.0.total), count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// The largest counts by name, the rest as `other`.
fn top_counts(counts: &BTreeMap<String, u64>) -> Vec<(&str, u64)> {
    let mut all: Vec<(&str, u64)> = counts.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let rest: u64 = all.iter().skip(TOP_TENANTS).map(|(_, count)| count).sum();
    all.truncate(TOP_TENANTS);
    all.extend((rest > 0).then_some(("other", rest)));
    all
}

pub(super) fn gauges<V>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: Vec<Sample<'_, V>>,
) -> Result<(), std::fmt::Error>
where
    ConstGauge<V>: EncodeMetric,
{
    encode(encoder, name, help, samples.into_iter().map(|(labels, value)| (labels, ConstGauge::new(value))))
}

pub(super) fn counters<V>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: Vec<Sample<'_, V>>,
) -> Result<(), std::fmt::Error>
where
    ConstCounter<V>: EncodeMetric,
{
    encode(encoder, name, help, samples.into_iter().map(|(labels, value)| (labels, ConstCounter::new(value))))
}

fn encode<'a, M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl Iterator<Item = (Vec<(&'static str, &'a str)>, M)>,
) -> Result<(), std::fmt::Error> {
    let mut samples = samples.peekable();
    let Some((_, first)) = samples.peek() else { return Ok(()) };
    let kind = first.metric_type();
    // The registry ends help texts the same way.
    let mut family = encoder.encode_descriptor(name, &format!("{help}."), None, kind)?;
    for (labels, metric) in samples {
        if labels.is_empty() {
            return metric.encode(family);
        }
        metric.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}
