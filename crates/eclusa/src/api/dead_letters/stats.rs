//! `/v1/dead-letters/stats`: how many there are, and when they were written.

use axum::Json;
use eclusa_core::{LetterBy, TREND_HOURS};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use super::DeadLetters;
use super::filter::letter_query;
use crate::api::auth::{Caller, Right};
use crate::api::extract::Query;
use crate::api::model::iso;
use crate::api::problem::Problem;
use crate::letters::Counted;

letter_query! {
    /// What to count.
    StatsQuery {
        /// `code` (default), `tenant` or `lane`.
        #[param(inline)]
        by: Option<By>,
        /// How many of the largest groups to return; the rest are summed in `other`.
        limit: Option<usize>,
    }
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::api) enum By {
    /// By the code of the last failure.
    Code,
    /// By tenant.
    Tenant,
    /// By lane.
    Lane,
}

impl From<By> for LetterBy {
    fn from(by: By) -> Self {
        match by {
            By::Code => LetterBy::Code,
            By::Tenant => LetterBy::Tenant,
            By::Lane => LetterBy::Lane,
        }
    }
}

/// Counts of dead letters.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct Stats {
    /// All letters that match.
    total: u64,
    /// Counts by group, largest first; letters without a code are under `none`.
    #[schema(value_type = BTreeMap<String, u64>)]
    #[serde(serialize_with = "in_order")]
    counts: Vec<(String, u64)>,
    /// Letters of the groups not listed.
    other: u64,
    /// When they were written.
    trend: Trend,
}

/// When the letters of each group were written. Letters that are gone, because they were replayed, purged or expired, are not
/// counted.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::api) struct Trend {
    /// The end of the last step.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, nullable = false)]
    until: Option<String>,
    /// The length of a step, in seconds.
    step_sec: u64,
    /// For each of the 100 largest groups listed: letters per step, oldest first.
    #[schema(value_type = BTreeMap<String, Vec<u64>>)]
    #[serde(serialize_with = "in_order")]
    counts: Vec<(String, Vec<u64>)>,
}

/// Groups with a trend.
const TRENDS: usize = 100;

fn in_order<V: Serialize, S: Serializer>(counts: &[(String, V)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counts.iter().map(|(key, count)| (key, count)))
}

/// Count dead letters, largest groups first
#[utoipa::path(get, path = "/v1/dead-letters/stats", tag = "dead-letters", params(StatsQuery),
    responses((status = 200, body = Stats)))]
pub(in crate::api) async fn stats(
    letters: DeadLetters,
    caller: Caller,
    Query(mut query): Query<StatsQuery>,
) -> Result<Json<Stats>, Problem> {
    caller.may(Right::SeeAll)?;
    let now = letters.now();
    let filter = query.filter().read(&letters.rules, &caller, now)?;
    let by = query.by.unwrap_or(By::Code).into();
    let Counted { counts, mut trends } = letters.count(filter, by, false, Some(now)).await?;
    let total = counts.values().sum();
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_by(|(a, more), (b, less)| less.cmp(more).then(a.cmp(b)));
    counts.truncate(query.limit.unwrap_or(usize::MAX));
    let shown: u64 = counts.iter().map(|(_, count)| count).sum();
    let mut trend_of = |key: &String| trends.remove(key).unwrap_or_else(|| vec![0; TREND_HOURS]);
    let trends = counts.iter().take(TRENDS).map(|(key, _)| (key.clone(), trend_of(key))).collect();
    let trend = Trend { until: iso(now), step_sec: 3_600, counts: trends };
    Ok(Json(Stats { total, counts, other: total - shown, trend }))
}
