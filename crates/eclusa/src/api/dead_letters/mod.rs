//! `/v1/dead-letters`.

mod bulk;
mod edit;
mod filter;
mod replay;

pub use bulk::{BulkList, BulkReplay, BulkRequest};
pub(super) use bulk::{begin, show, show_all, stop};
pub use filter::FilterBody;
pub(super) use replay::replay;
// Their descriptions are made beside them.
pub(super) use bulk::{__path_begin, __path_show, __path_show_all, __path_stop};
pub(super) use replay::__path_replay;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use eclusa_core::{
    Clock, CountLetters, DeadLetterView, JobId, LetterBy, LetterCursor, LetterFilter, LetterQuery, MAX_BATCH,
    Store, StoreError, Time,
};
use futures_util::stream;
use http::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use super::audit::audit;
use super::auth::{Caller, Right};
use super::extract::{NoQuery, Path, Query};
use super::find::masks;
use super::model::DeadLetter;
use super::problem::{Kind, Problem};
use super::search::read;
use super::state::Api;
use super::submit::{unavailable, unconfirmed};
use crate::config::Field;
use crate::decide::Decider;
use crate::intake::Fault;
use crate::letters::count_letters;
use crate::rules::CurrentRules;
use crate::store::AnyStore;

use self::edit::original_data;
use self::filter::letter_query;

/// How many letters a page shows.
const PAGE: usize = 50;
/// Pages of letters that one call discards.
const PURGED_PAGES: usize = 10;

/// What looking at dead letters needs.
#[derive(Clone, FromRequestParts)]
#[from_request(state(Api))]
pub(super) struct DeadLetters {
    #[from_request(via(State))]
    store: Arc<AnyStore>,
    #[from_request(via(State))]
    rules: Arc<CurrentRules>,
    #[from_request(via(State))]
    clock: Arc<dyn Clock>,
}

letter_query! {
    /// Which letters to show.
    ListQuery {
        /// Where the last page said to go on.
        cursor: Option<String>,
    }
}

letter_query! {
    /// Which letters to export.
    ExportQuery {}
}

letter_query! {
    /// What to count.
    StatsQuery {
        /// `code` (default), `tenant` or `lane`.
        #[param(inline)]
        by: Option<By>,
        /// How many of the largest groups to show; the letters of the others are summed up in `other`.
        limit: Option<usize>,
    }
}

letter_query! {
    /// Which letters to discard.
    PurgeQuery {
        /// Where the last call said to go on.
        cursor: Option<String>,
        /// `true`: only counts.
        dry_run: Option<bool>,
    }
}

/// Some dead letters.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterList {
    /// By lane, oldest first. A page may be short and still not be the last.
    pub dead_letters: Vec<DeadLetter>,
    /// Where to go on; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// What became of letters to discard.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PurgedLetters {
    /// Letters that fitted.
    pub matched: u64,
    /// Those that are gone.
    pub purged: u64,
    /// Whether they were only counted.
    pub dry_run: bool,
    /// Where to go on; absent when all were looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl DeadLetters {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn query(
        &self,
        caller: &Caller,
        filter: FilterBody,
        cursor: Option<String>,
        max: usize,
    ) -> Result<LetterQuery, Problem> {
        let mut faults = Vec::new();
        let parse = |text: &str| {
            text.parse::<LetterCursor>().map_err(|_| "is not a cursor of a previous page".into())
        };
        let after = read("cursor", cursor, parse, &mut faults);
        if !faults.is_empty() {
            return Err(Problem::invalid(&faults));
        }
        Ok(LetterQuery { filter: filter.read(&self.rules, caller, self.now())?, after, max })
    }

    async fn one(&self, caller: &Caller, id: &str) -> Result<DeadLetterView, Problem> {
        let missing = || {
            let detail = "There is no such dead letter: it never was, was replayed with success, or was kept no longer";
            Problem::new(Kind::NotFound, detail)
        };
        let id: JobId = id.parse().map_err(|_| missing())?;
        let view = self.store.dead_letter(id).await.map_err(|error| unavailable(&error))?;
        let may_see = |view: &DeadLetterView| {
            caller.may_use(&view.lane).is_ok() && caller.may_act_for(&view.letter.tenant).is_ok()
        };
        view.filter(may_see).ok_or_else(missing)
    }

    fn masks(&self, caller: &Caller, view: &DeadLetterView) -> Option<Vec<Field>> {
        masks(&self.rules, caller, &view.lane)
    }

    /// A letter with what was to be sent.
    fn whole(&self, caller: &Caller, view: DeadLetterView) -> DeadLetter {
        let data = original_data(&view, self.masks(caller, &view).as_deref());
        DeadLetter { original_data: data, ..view.into() }
    }

    async fn count(
        &self,
        filter: LetterFilter,
        by: LetterBy,
        idle: bool,
    ) -> Result<BTreeMap<String, u64>, Problem> {
        let ask = CountLetters { filter, by, after: None, idle };
        count_letters(&*self.store, ask).await.map_err(|error| unavailable(&error))
    }
}

/// Dead letters, oldest first
///
/// What was to be sent is shown only with a single letter, and in the export.
#[utoipa::path(get, path = "/v1/dead-letters", tag = "dead-letters", params(ListQuery),
    responses((status = 200, body = DeadLetterList)))]
pub(super) async fn list(
    letters: DeadLetters,
    caller: Caller,
    Query(mut query): Query<ListQuery>,
) -> Result<Json<DeadLetterList>, Problem> {
    caller.may(Right::SeeAll)?;
    let ask = letters.query(&caller, query.filter(), query.cursor, PAGE)?;
    let page = letters.store.dead_letters(ask).await.map_err(|error| unavailable(&error))?;
    let dead_letters = page.letters.into_iter().map(DeadLetter::from).collect();
    Ok(Json(DeadLetterList { dead_letters, cursor: page.next.map(|next| next.to_string()) }))
}

/// All dead letters that fit, as lines of JSON
///
/// With what was to be sent, masked as in the view of a single letter. An export that breaks off ends without its last
/// chunk.
#[utoipa::path(get, path = "/v1/dead-letters/export", tag = "dead-letters", params(ExportQuery),
    responses((status = 200, description = "One letter a line", content_type = "application/x-ndjson", body = DeadLetter)))]
pub(super) async fn export(
    letters: DeadLetters,
    caller: Caller,
    Query(mut query): Query<ExportQuery>,
) -> Result<Response, Problem> {
    caller.may(Right::SeeAll)?;
    let ask = letters.query(&caller, query.filter(), None, MAX_BATCH)?;
    let first = page_of_lines(&letters, &caller, ask).await.map_err(|error| unavailable(&error))?;
    let rest = stream::unfold(Some(first), move |page| {
        let (letters, caller) = (letters.clone(), caller.clone());
        async move {
            let (lines, next) = page?;
            let page = match next {
                Some(ask) => match page_of_lines(&letters, &caller, ask).await {
                    Ok(page) => Some(page),
                    // The answer has begun: all that is left is to break it off.
                    Err(error) => return Some((Err(error), None)),
                },
                None => None,
            };
            Some((Ok(lines), page))
        }
    });
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], HttpBody::from_stream(rest)).into_response())
}

/// A page of the export, and what to ask for after it.
async fn page_of_lines(
    letters: &DeadLetters,
    caller: &Caller,
    ask: LetterQuery,
) -> Result<(Bytes, Option<LetterQuery>), StoreError> {
    let page = letters.store.dead_letters(ask.clone()).await?;
    let mut lines = Vec::new();
    for view in page.letters {
        // What the API shows can always be written as JSON.
        lines.extend(serde_json::to_vec(&letters.whole(caller, view)).unwrap_or_default());
        lines.push(b'\n');
    }
    Ok((lines.into(), page.next.map(|next| LetterQuery { after: Some(next), ..ask })))
}

/// One dead letter with what was to be sent
#[utoipa::path(get, path = "/v1/dead-letters/{id}", tag = "dead-letters",
    params(("id" = String, Path, description = "The job that failed")), responses((status = 200, body = DeadLetter)))]
pub(super) async fn get(
    letters: DeadLetters,
    caller: Caller,
    Path(id): Path<String>,
    _: NoQuery,
) -> Result<Json<DeadLetter>, Problem> {
    caller.may(Right::SeeAll)?;
    let view = letters.one(&caller, &id).await?;
    Ok(Json(letters.whole(&caller, view)))
}

/// Discard a dead letter
///
/// It is gone for good. A replay of it that is under way goes on.
#[utoipa::path(delete, path = "/v1/dead-letters/{id}", tag = "dead-letters",
    params(("id" = String, Path, description = "The job that failed")), responses((status = 200, body = DeadLetter)))]
pub(super) async fn discard(
    letters: DeadLetters,
    State(decider): State<Arc<Decider>>,
    caller: Caller,
    Path(id): Path<String>,
    _: NoQuery,
) -> Result<Json<DeadLetter>, Problem> {
    caller.may(Right::Operate)?;
    let view = letters.one(&caller, &id).await?;
    let gone = decider.discard(view.lane.clone(), view.job).await.map_err(|error| unconfirmed(&error))?;
    if gone {
        audit!(caller, "purge", jobId = %view.job, lane = %view.lane, "Dead letter purged");
    }
    Ok(Json(view.into()))
}

/// Discard all dead letters that fit
///
/// Needs at least one filter. One call discards up to 1000 letters; where it says `cursor`, call again with it.
#[utoipa::path(delete, path = "/v1/dead-letters", tag = "dead-letters", params(PurgeQuery),
    responses((status = 200, body = PurgedLetters)))]
pub(super) async fn purge(
    letters: DeadLetters,
    State(decider): State<Arc<Decider>>,
    caller: Caller,
    Query(mut query): Query<PurgeQuery>,
) -> Result<Json<PurgedLetters>, Problem> {
    caller.may(Right::Operate)?;
    let (filter, dry_run) = (query.filter(), query.dry_run.unwrap_or_default());
    if filter.is_empty() {
        let problem =
            "is needed, or another of `tenant`, `code`, `since`, `until`: else every letter would go";
        return Err(Problem::invalid(&[Fault::new("lane", problem)]));
    }
    let mut ask = letters.query(&caller, filter, query.cursor, MAX_BATCH)?;
    if dry_run {
        let matched = letters.count(ask.filter, LetterBy::Lane, false).await?.values().sum();
        return Ok(Json(PurgedLetters { matched, purged: 0, dry_run, cursor: None }));
    }
    let mut purged = 0;
    for _ in 0..PURGED_PAGES {
        let page = decider.discard_all(ask.clone()).await.map_err(|error| unavailable(&error))?;
        purged += page.gone.len() as u64;
        ask.after = page.next;
        if ask.after.is_none() {
            break;
        }
    }
    if purged > 0 {
        let filter = FilterBody::shown(&ask.filter).to_string();
        audit!(caller, "purge", letters = purged, filter, "Dead letters purged");
    }
    let cursor = ask.after.map(|next| next.to_string());
    Ok(Json(PurgedLetters { matched: purged, purged, dry_run, cursor }))
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum By {
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

/// Numbers of dead letters.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Stats {
    /// All of them.
    total: u64,
    /// By what was asked for, the largest first; letters without a code count under `none`.
    #[schema(value_type = BTreeMap<String, u64>)]
    #[serde(serialize_with = "in_order")]
    counts: Vec<(String, u64)>,
    /// Letters of the groups that are not shown.
    other: u64,
}

fn in_order<S: Serializer>(counts: &[(String, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counts.iter().map(|(key, count)| (key, count)))
}

/// Count dead letters, the largest groups first
#[utoipa::path(get, path = "/v1/dead-letters/stats", tag = "dead-letters", params(StatsQuery),
    responses((status = 200, body = Stats)))]
pub(super) async fn stats(
    letters: DeadLetters,
    caller: Caller,
    Query(mut query): Query<StatsQuery>,
) -> Result<Json<Stats>, Problem> {
    caller.may(Right::SeeAll)?;
    let filter = query.filter().read(&letters.rules, &caller, letters.now())?;
    let counts = letters.count(filter, query.by.unwrap_or(By::Code).into(), false).await?;
    let total = counts.values().sum();
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_by(|(a, more), (b, less)| less.cmp(more).then(a.cmp(b)));
    counts.truncate(query.limit.unwrap_or(usize::MAX));
    let shown: u64 = counts.iter().map(|(_, count)| count).sum();
    Ok(Json(Stats { total, counts, other: total - shown }))
}
