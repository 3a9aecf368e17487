//! `/v1/policies`: balances of buckets by scope, and events that give tokens back.

mod credits;
mod lowest;
mod xml;

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use eclusa_core::{BucketPage, BucketQuery, BucketView, Clock, MAX_BATCH, Name, Scope, Store, Tokens};
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

pub(super) use self::credits::{__path_credit, credit};
use super::auth::{Caller, Right};
use super::extract::{Path, Query};
use super::model::iso;
use super::problem::{Kind, Problem};
use super::state::Api;
use super::store_problem::unavailable;
use super::wants_xml;
use crate::config::{Policy, PolicyClass, ScopeSource, UpstreamConfig};
use crate::policy::Scopes;
use crate::rules::{CurrentRules, Rules};
use crate::store::AnyStore;

/// State needed by these calls.
#[derive(FromRequestParts)]
#[from_request(state(Api))]
pub(super) struct Policies {
    #[from_request(via(State))]
    store: Arc<AnyStore>,
    #[from_request(via(State))]
    rules: Arc<CurrentRules>,
    #[from_request(via(State))]
    scopes: Arc<Scopes>,
    #[from_request(via(State))]
    clock: Arc<dyn Clock>,
}

/// The state of one bucket of a policy.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BucketState {
    /// The policy's name.
    pub(crate) name: String,
    /// The upstream the policy belongs to.
    pub(crate) upstream: String,
    /// Whole tokens available now; negative while in debt.
    pub(crate) available_tokens: i64,
    /// Tokens in a full bucket.
    pub(crate) capacity: i64,
    /// Tokens added per `refillPeriodSec`.
    pub(crate) refill_tokens: u32,
    /// Refill period in seconds.
    pub(crate) refill_period_sec: u64,
    /// `upstream`, or the keyed hash of the scope value.
    pub(crate) scope: String,
    /// Its class, if the policy has classes.
    pub(crate) class: Option<String>,
    /// Until when the upstream asked to stop sending, if it did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(format = DateTime)]
    pub(crate) closed_until: Option<String>,
    /// Approximate tokens spent in the last minute; absent if none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) spent_last_minute: Option<f64>,
    /// Approximate tokens that events gave back in the last minute; absent if none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) credited_last_minute: Option<f64>,
    /// Seconds until the bucket is empty at the current rates; absent if it does not run out.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) empty_in_sec: Option<u64>,
}

/// A page of buckets.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct PolicyList {
    /// Buckets shared by a whole upstream, and buckets of scopes that are not full.
    pub(crate) policies: Vec<BucketState>,
    /// The cursor of the next page; absent on the last page. A page may be short or empty without being the last.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) cursor: Option<u64>,
}

/// Which buckets to return.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyQuery {
    /// Buckets of this scope: the value, or its hash as shown in `scope`.
    scope: Option<String>,
    /// The `cursor` of the previous page.
    cursor: Option<u64>,
}

/// Which buckets of all policies to return.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct PoliciesQuery {
    /// Buckets of this scope: the value, or its hash as shown in `scope`.
    scope: Option<String>,
    /// The `cursor` of the previous page.
    cursor: Option<u64>,
    /// Only this many buckets, those closest to empty: debts first, then what runs out soonest, then what has the smallest
    /// share left. Cannot be combined with `scope` and `cursor`.
    #[param(minimum = 1, maximum = 100)]
    lowest: Option<usize>,
}

/// A scope in a query: its value, or a hash shown before.
enum Wanted {
    Value(String, Scope),
    Hash(Scope),
}

impl Wanted {
    fn hash(&self) -> Scope {
        match self {
            Wanted::Value(_, hash) | Wanted::Hash(hash) => *hash,
        }
    }
}

/// A policy and the upstream it belongs to.
type Owned<'a> = (&'a Name, &'a Policy);

impl BucketState {
    fn new((upstream, policy): Owned<'_>, class: &PolicyClass, scope: Option<Scope>) -> Self {
        let whole = class.bucket.capacity().as_micro() / Tokens::ONE.as_micro();
        Self {
            name: policy.name.to_string(),
            upstream: upstream.to_string(),
            available_tokens: whole,
            capacity: whole,
            refill_tokens: class.refill.0,
            refill_period_sec: class.refill.1.as_millis() / 1_000,
            scope: scope.map_or_else(|| "upstream".to_owned(), |scope| scope.to_string()),
            class: class.name.as_ref().map(Name::to_string),
            closed_until: None,
            spent_last_minute: None,
            credited_last_minute: None,
            empty_in_sec: None,
        }
    }

    /// Sets the fields that `view` knows.
    fn with(self, view: &BucketView) -> Self {
        let available_tokens = view.available.as_micro().div_euclid(Tokens::ONE.as_micro());
        let empty_in_sec = view.empty_in().map(|span| span.as_millis() / 1_000);
        Self {
            available_tokens,
            closed_until: view.closed_until.and_then(iso),
            spent_last_minute: shown(view.spent_last_minute),
            credited_last_minute: shown(view.credited_last_minute),
            empty_in_sec,
            ..self
        }
    }
}

/// Tokens to a thousandth, if there are any.
fn shown(tokens: Tokens) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "it is shown to a thousandth")]
    let tokens = (tokens.as_micro() / 1_000) as f64 / 1_000.0;
    (tokens > 0.0).then_some(tokens)
}

/// The bucket of `view`, if its policy and class are still configured.
fn known(rules: &Rules, view: &BucketView) -> Option<BucketState> {
    let (upstream, config) = rules.config.upstreams.get_key_value(&view.id.upstream)?;
    let policy = config.policies().iter().find(|policy| policy.name == view.id.policy)?;
    let class = policy.classes.iter().find(|class| class.name == view.id.class)?;
    Some(BucketState::new((upstream, policy), class, view.id.scope).with(view))
}

impl Policies {
    /// The policies the caller may see, in the order of the config.
    fn owned<'a>(caller: &Caller, rules: &'a Rules) -> Vec<Owned<'a>> {
        let upstreams = rules.config.upstreams.iter();
        let seen = upstreams.filter(|(name, _)| caller.may_reach(&rules.config, name.as_str()).is_ok());
        seen.flat_map(|(name, upstream)| upstream.policies().iter().map(move |policy| (name, policy)))
            .collect()
    }

    async fn page(&self, query: BucketQuery) -> Result<BucketPage, Problem> {
        let query = BucketQuery { max: MAX_BATCH, ..query };
        self.store.buckets(query).await.map_err(|error| unavailable(&error))
    }

    async fn wanted(&self, scope: Option<String>) -> Result<Option<Wanted>, Problem> {
        let Some(scope) = scope else { return Ok(None) };
        if let Ok(hash) = scope.parse() {
            return Ok(Some(Wanted::Hash(hash)));
        }
        let key = self.scopes.key().await.map_err(|error| unavailable(&error))?;
        let hash = key.scope(&scope);
        Ok(Some(Wanted::Value(scope, hash)))
    }

    /// The buckets that all requests under a policy share.
    async fn shared(&self, rules: &Rules, owned: &[Owned<'_>]) -> Result<Vec<BucketState>, Problem> {
        let (mut views, mut after) = (Vec::new(), Some(0));
        while let Some(place) = after {
            let page =
                self.page(BucketQuery { after: place, shared: true, ..BucketQuery::default() }).await?;
            (after, views) = (page.next, [views, page.buckets].concat());
        }
        let known: Vec<_> = views.iter().filter_map(|view| known(rules, view)).collect();
        let shown = |(upstream, policy): &Owned<'_>| {
            let full = BucketState::new((upstream, policy), policy.classes.first()?, None);
            let mut known = known.iter().filter(|known| known.name == full.name && known.class == full.class);
            Some(known.next().map_or(full, Clone::clone))
        };
        let shared = owned.iter().filter(|(_, policy)| policy.scope == ScopeSource::Upstream);
        Ok(shared.filter_map(shown).collect())
    }

    /// The buckets of one scope. For a value: all that apply; for a hash: those that are known.
    async fn of_scope(
        &self,
        rules: &Rules,
        owned: &[Owned<'_>],
        wanted: &Wanted,
    ) -> Result<Vec<BucketState>, Problem> {
        let (hash, query) = (wanted.hash(), BucketQuery::default());
        let page = self.page(BucketQuery { scope: Some(hash), ..query }).await?;
        let known: Vec<_> = page.buckets.iter().filter_map(|view| known(rules, view)).collect();
        let scoped = owned.iter().filter(|(_, policy)| policy.scope != ScopeSource::Upstream);
        let shown = |(upstream, policy): &Owned<'_>| {
            let found = known.iter().find(|known| known.name == policy.name.as_str());
            let full = match wanted {
                Wanted::Value(value, _) => policy.class_of(Some(value)),
                Wanted::Hash(_) => None,
            };
            let full = full.map(|class| BucketState::new((upstream, policy), class, Some(hash)));
            found.cloned().or(full)
        };
        Ok(scoped.filter_map(shown).collect())
    }

    /// A page of scoped buckets.
    async fn scoped(
        &self,
        rules: &Rules,
        owned: &[Owned<'_>],
        query: BucketQuery,
    ) -> Result<PolicyList, Problem> {
        let page = self.page(query).await?;
        let scoped = page.buckets.iter().filter(|view| view.id.scope.is_some());
        let mut policies: Vec<_> = scoped.filter_map(|view| known(rules, view)).collect();
        policies.retain(|state| owned.iter().any(|(_, policy)| policy.name.as_str() == state.name));
        Ok(PolicyList { policies, cursor: page.next })
    }
}

/// List the balances of all policies
///
/// With `Accept: application/xml`, in the format of the DICT API.
#[utoipa::path(get, path = "/v1/policies", tag = "policies", params(PoliciesQuery),
    responses((status = 200, body = PolicyList)))]
pub(super) async fn list(
    policies: Policies,
    caller: Caller,
    Query(query): Query<PoliciesQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.may(Right::SeeAll)?;
    let rules = policies.rules.get();
    let owned = Policies::owned(&caller, &rules);
    if let Some(most) = lowest::asked(&query)? {
        let list = PolicyList { policies: policies.lowest(&rules, &owned, most).await?, cursor: None };
        return Ok(policies.answer(&rules, &headers, list, xml::list));
    }
    let list = match (policies.wanted(query.scope).await?, query.cursor) {
        (Some(wanted), _) => {
            PolicyList { policies: policies.of_scope(&rules, &owned, &wanted).await?, cursor: None }
        }
        (None, Some(after)) => {
            policies.scoped(&rules, &owned, BucketQuery { after, ..BucketQuery::default() }).await?
        }
        (None, None) => {
            let shared = policies.shared(&rules, &owned).await?;
            let scoped = policies.scoped(&rules, &owned, BucketQuery::default()).await?;
            PolicyList { policies: [shared, scoped.policies].concat(), cursor: scoped.cursor }
        }
    };
    Ok(policies.answer(&rules, &headers, list, xml::list))
}

/// The response for one policy.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its description is used")]
enum OneOrPage {
    /// Its only bucket, or the bucket of the given scope.
    One(BucketState),
    /// A page of its scopes.
    Page(PolicyList),
}

/// Get the balance of one policy, or of its scopes
///
/// One object if all requests share a bucket, or if `scope` is given; otherwise a page.
#[utoipa::path(get, path = "/v1/policies/{policy}", tag = "policies",
    params(("policy" = String, Path, description = "The policy"), PolicyQuery),
    responses((status = 200, body = OneOrPage)))]
pub(super) async fn get(
    policies: Policies,
    caller: Caller,
    Path(name): Path<String>,
    Query(query): Query<PolicyQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.may(Right::SeeAll)?;
    let rules = policies.rules.get();
    let mut owned = Policies::owned(&caller, &rules);
    let known: Vec<String> = owned.iter().map(|(_, policy)| policy.name.to_string()).collect();
    owned.retain(|(_, policy)| policy.name.as_str() == name);
    let Some((_, policy)) = owned.first() else {
        let detail = format!("There is no policy `{name}`; the config has {}", known.join(", "));
        return Err(Problem::new(Kind::NotFound, detail));
    };
    let found = match policies.wanted(query.scope).await? {
        _ if policy.scope == ScopeSource::Upstream => policies.shared(&rules, &owned).await?,
        Some(wanted) => policies.of_scope(&rules, &owned, &wanted).await?,
        None => {
            let policy = Some(policy.name.clone());
            let query =
                BucketQuery { policy, after: query.cursor.unwrap_or_default(), ..BucketQuery::default() };
            let list = policies.scoped(&rules, &owned, query).await?;
            return Ok(policies.answer(&rules, &headers, list, xml::list));
        }
    };
    let unknown = || {
        let detail = "No bucket of this scope is known: a value must match a class, and a hash must belong to a bucket that is not full";
        Problem::new(Kind::NotFound, detail)
    };
    let found = found.into_iter().next().ok_or_else(unknown)?;
    Ok(policies.answer(&rules, &headers, found, xml::one))
}

impl Policies {
    /// Responds with JSON, or with the DICT's own format if XML is accepted.
    fn answer<T: Serialize>(
        &self,
        rules: &Rules,
        headers: &HeaderMap,
        found: T,
        as_xml: impl FnOnce(&xml::XmlHead, &T) -> String,
    ) -> Response {
        if !wants_xml(headers) {
            return Json(found).into_response();
        }
        let head = xml::XmlHead { at: iso(self.clock.now()), category: category(rules) };
        ([(http::header::CONTENT_TYPE, "application/xml")], as_xml(&head, &found)).into_response()
    }
}

/// The class that the config sets for the whole upstream, like the DICT's category of a participant.
fn category(rules: &Rules) -> Option<String> {
    let policies = rules.config.upstreams.values().flat_map(UpstreamConfig::policies);
    let mut shared = policies.filter(|policy| policy.scope == ScopeSource::Upstream);
    shared.find_map(|policy| policy.classes.first()?.name.as_ref().map(Name::to_string))
}
