//! Limits by scope: from a request to the buckets it takes tokens from.
//!
//! Several policies may apply to one request, and all of them count. A request that matches a policy but has no scope
//! value (no header, no class for the value) is refused; otherwise it would get around the limit.

mod matching;
mod state;
mod usage;

use std::collections::BTreeMap;
use std::sync::Arc;

use eclusa_core::{BucketId, Correlation, HashKey, Hold, Name, Scope, Store, StoreError, Tokens};
use tokio::sync::OnceCell;

pub(crate) use self::state::{ReportedBalance, read_state};
pub(crate) use self::usage::{UsageMeter, amount, read_usage};
use crate::config::{Field, HoldRule, Policy, PolicyClass, ScopeSource, UpstreamConfig};
use crate::ids::Ids;
use crate::intake::{Fault, Fields};
use crate::request::{Request, RequestView};
use crate::store::AnyStore;

/// What a request takes from the buckets of policies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Takes {
    /// One hold per policy, at each upstream it may go to.
    pub(crate) holds: Vec<Hold>,
    /// Connects a later event to this request.
    pub(crate) correlation: Option<Correlation>,
}

impl Takes {
    /// The holds at these upstreams.
    pub(crate) fn at(&self, chain: &[Name]) -> Vec<Hold> {
        self.holds.iter().filter(|hold| chain.contains(hold.upstream())).cloned().collect()
    }
}

/// What policies match against.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    /// The request to every upstream that is not in `shaped`.
    pub(crate) request: Option<RequestView<'a>>,
    /// Requests made by templates, by upstream.
    pub(crate) shaped: &'a [(Name, Request)],
    pub(crate) tenant: &'a str,
    /// The scope value, if it is given separately from the request.
    pub(crate) scope: Option<&'a str>,
    /// The tokens to take, in place of what the policies say.
    pub(crate) hold: Option<Tokens>,
}

impl<'a> Subject<'a> {
    /// A request by `tenant`.
    pub(crate) fn new(request: impl Into<RequestView<'a>>, tenant: &'a str) -> Self {
        Self { request: Some(request.into()), shaped: &[], tenant, scope: None, hold: None }
    }

    /// A job of `tenant`; `shaped` holds the requests that templates make of it for some upstreams.
    pub(crate) fn of_job(
        request: Option<&'a Request>,
        shaped: &'a [(Name, Request)],
        tenant: &'a str,
    ) -> Self {
        Self { request: request.map(Into::into), shaped, tenant, scope: None, hold: None }
    }
}

/// Hashes scope values with the store's key, which it asks for once.
pub(crate) struct Scopes {
    store: Arc<AnyStore>,
    ids: Arc<Ids>,
    key: OnceCell<HashKey>,
}

impl Scopes {
    pub(crate) fn new(store: Arc<AnyStore>, ids: Arc<Ids>) -> Self {
        Self { store, ids, key: OnceCell::new() }
    }

    /// The store's key.
    pub(crate) async fn key(&self) -> Result<HashKey, StoreError> {
        self.key.get_or_try_init(|| self.store.hash_key(self.ids.hash_key())).await.copied()
    }

    /// What a request takes at the upstreams of `chain`, or all faults of the request.
    pub(crate) async fn takes(
        &self,
        upstreams: &BTreeMap<Name, UpstreamConfig>,
        chain: &[Name],
        subject: Subject<'_>,
    ) -> Result<Result<Takes, Vec<Fault>>, StoreError> {
        let limited = limited(upstreams, chain);
        if limited.is_empty() {
            return Ok(Ok(Takes::default()));
        }
        Ok(takes(&limited, subject, self.key().await?))
    }
}

/// The upstreams of `chain` that have policies.
fn limited<'a>(
    upstreams: &'a BTreeMap<Name, UpstreamConfig>,
    chain: &'a [Name],
) -> Vec<(&'a Name, &'a [Policy])> {
    let all = chain.iter().filter_map(|name| Some((name, upstreams.get(name)?.policies())));
    all.filter(|(_, policies)| !policies.is_empty()).collect()
}

/// `Ok` if the policies at the upstreams of `chain` find in a request what they count by.
pub(crate) fn check(
    upstreams: &BTreeMap<Name, UpstreamConfig>,
    chain: &[Name],
    subject: Subject<'_>,
) -> Result<(), Vec<Fault>> {
    // Which bucket it is does not matter, so any key will do.
    takes(&limited(upstreams, chain), subject, HashKey::new(0)).map(drop)
}

/// What a request takes, with the hash key given.
fn takes(limited: &[(&Name, &[Policy])], subject: Subject<'_>, key: HashKey) -> Result<Takes, Vec<Fault>> {
    let own = Fields::new(subject.request, None);
    let (mut takes, mut faults) = (Takes::default(), Vec::new());
    for (upstream, policies) in limited {
        let shaped = subject.shaped.iter().find(|(name, _)| name == *upstream);
        let shaped = shaped.map(|(_, request)| Fields::of(request));
        let fields = shaped.as_ref().unwrap_or(&own);
        for policy in policies.iter().filter(|policy| policy.applies_to(fields)) {
            match hold(upstream, policy, fields, subject, key) {
                Ok(hold) => takes.holds.push(hold),
                // Two policies may lack the same field.
                Err(fault) if faults.contains(&fault) => {}
                Err(fault) => faults.push(fault),
            }
            let id = policy.correlation.as_ref().and_then(|field| fields.get(field));
            let id = id.filter(|id| !id.is_empty()).map(|id| key.correlation(&id));
            takes.correlation = takes.correlation.or(id);
        }
    }
    if faults.is_empty() { Ok(takes) } else { Err(faults) }
}

fn hold(
    upstream: &Name,
    policy: &Policy,
    fields: &Fields<'_>,
    subject: Subject<'_>,
    key: HashKey,
) -> Result<Hold, Fault> {
    let value = scope_value(policy, fields, subject)?;
    let class = policy.class_of(value.as_deref()).ok_or_else(|| {
        let known: Vec<_> = policy.classes.iter().filter_map(|class| class.name.as_ref()).collect();
        let known: Vec<&str> = known.into_iter().map(Name::as_str).collect();
        let problem = format!("fits no class of policy {} ({})", policy.name, known.join(", "));
        Fault::new(policy.scope.place(), problem)
    })?;
    let tokens = match subject.hold {
        Some(tokens) => ("hold".to_owned(), tokens),
        None => policy.tokens(fields)?,
    };
    let bucket = policy.bucket(upstream, class, value.map(|value| key.scope(&value))).key();
    let (place, tokens) = tokens;
    let hold = Hold::new(upstream.clone(), &bucket, class.bucket, tokens).map_err(|_| {
        let capacity = class.bucket.capacity().as_micro() / Tokens::ONE.as_micro();
        let problem =
            format!("must be above 0 and at most {capacity}, the capacity of policy {}", policy.name);
        Fault::new(place, problem)
    })?;
    Ok(hold.under(class.terms.clone()))
}

/// The scope value of a request; `None` if all requests share one bucket.
fn scope_value(policy: &Policy, fields: &Fields<'_>, subject: Subject<'_>) -> Result<Option<String>, Fault> {
    if policy.scope == ScopeSource::Upstream {
        return Ok(None);
    }
    if let Some(scope) = subject.scope {
        return Ok(Some(scope.to_owned()));
    }
    let value = match &policy.scope {
        ScopeSource::Upstream => None,
        ScopeSource::Tenant => Some(subject.tenant.to_owned()),
        ScopeSource::Field(field) => fields.get(field),
    };
    let problem = || format!("is missing: policy {} counts by it", policy.name);
    let value = value.filter(|value| !value.is_empty());
    value.map(Some).ok_or_else(|| Fault::new(policy.scope.place(), problem()))
}

impl ScopeSource {
    /// The name of the field with the value, for error messages.
    fn place(&self) -> String {
        match self {
            ScopeSource::Upstream => "upstream".to_owned(),
            ScopeSource::Tenant => "tenant".to_owned(),
            ScopeSource::Field(field) => field.to_string(),
        }
    }
}

impl Policy {
    /// The class of a scope value.
    pub(crate) fn class_of(&self, value: Option<&str>) -> Option<&PolicyClass> {
        let fits = |class: &&PolicyClass| match (&class.scope, value) {
            (None, _) => true,
            (Some(pattern), Some(value)) => pattern.fits(value),
            (Some(_), None) => false,
        };
        self.classes.iter().find(fits)
    }

    /// The id of the bucket for a scope.
    pub(crate) fn bucket(&self, upstream: &Name, class: &PolicyClass, scope: Option<Scope>) -> BucketId {
        BucketId { upstream: upstream.clone(), policy: self.name.clone(), class: class.name.clone(), scope }
    }

    /// The tokens that a request takes at admission, and the field that determines them.
    fn tokens(&self, fields: &Fields<'_>) -> Result<(String, Tokens), Fault> {
        let field = match &self.hold {
            HoldRule::Tokens(tokens) => return Ok(("hold".to_owned(), *tokens)),
            HoldRule::Body(field) => field,
        };
        let Field::Body(pointer) = field else { return Ok((field.to_string(), Tokens::ONE)) };
        match fields.body().and_then(|body| body.pointer(pointer)) {
            None | Some(serde_json::Value::Null) => Ok((field.to_string(), Tokens::ONE)),
            Some(value) => amount(value).map(|tokens| (field.to_string(), tokens)).ok_or_else(|| {
                Fault::new(
                    field.to_string(),
                    format!("must be a number: policy {} takes as many tokens", self.name),
                )
            }),
        }
    }
}

#[cfg(test)]
mod tests;
