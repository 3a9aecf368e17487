//! Authentication and authorization of callers.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use eclusa_core::{Clock, Level, Name};
use http::HeaderMap;
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use subtle::ConstantTimeEq;

use super::problem::{Kind, Problem};
use super::session;
use crate::config::{Config, Key, LaneConfig, Role};
use crate::intake::{DEFAULT_TENANT, Submission};
use crate::rules::CurrentRules;

/// What a role may allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    /// Enqueue jobs, or acquire permits for calls to an upstream.
    Enqueue,
    /// Read a job by its id.
    SeeJob,
    /// Read everything.
    SeeAll,
    /// Pause, cancel, replay, reset.
    Operate,
}

/// The authenticated caller; `None` for any local program when the config has no keys.
#[derive(Debug, Clone)]
pub(super) struct Caller(Option<Arc<Key>>);

impl Caller {
    /// `Ok` if the caller's role has this right.
    pub(super) fn may(&self, right: Right) -> Result<(), Problem> {
        let Some(key) = &self.0 else { return Ok(()) };
        let allowed = match key.role {
            Role::Producer => matches!(right, Right::Enqueue | Right::SeeJob),
            Role::Viewer => matches!(right, Right::SeeJob | Right::SeeAll),
            Role::Operator | Role::Admin => true,
        };
        let role = key.role.as_str();
        let needed = match right {
            Right::Enqueue => "enqueue jobs or make calls: that needs the role producer, operator or admin",
            Right::SeeJob | Right::SeeAll => "read this: that needs the role viewer, operator or admin",
            Right::Operate => "change this: that needs the role operator or admin",
        };
        let problem = || Problem::forbidden(key, format!("Key `{}` ({role}) may not {needed}", key.name));
        if allowed { Ok(()) } else { Err(problem()) }
    }

    /// Whether the caller sees masked fields too. Secrets stay masked.
    pub(super) fn is_admin(&self) -> bool {
        self.0.as_ref().is_none_or(|key| key.role == Role::Admin)
    }

    /// `Ok` if the caller may use this lane.
    pub(super) fn may_use(&self, lane: &Name) -> Result<(), Problem> {
        let bound = self.0.as_ref().and_then(|key| Some((key, key.lanes.as_ref()?)));
        match bound {
            Some((key, lanes)) if !lanes.contains(lane) => {
                let detail =
                    format!("Key `{}` may not use lane `{lane}`: it is not in the key's `lanes`", key.name);
                Err(Problem::forbidden(key, detail))
            }
            _ => Ok(()),
        }
    }

    /// `Ok` if the caller may act for this tenant.
    pub(super) fn may_act_for(&self, tenant: &str) -> Result<(), Problem> {
        let bound = self.0.as_ref().and_then(|key| Some((key, key.tenants.as_ref()?)));
        match bound {
            Some((key, tenants)) if !tenants.iter().any(|pattern| eclusa_core::matches(pattern, tenant)) => {
                let unnamed = if tenant == DEFAULT_TENANT { "; name a tenant (Eclusa-Tenant)" } else { "" };
                let name = &key.name;
                let detail = format!(
                    "Key `{name}` may not act for this tenant: it is not in the key's `tenants`{unnamed}"
                );
                Err(Problem::forbidden(key, detail))
            }
            _ => Ok(()),
        }
    }

    /// The lanes the key is restricted to, if any.
    pub(super) fn lanes(&self) -> Option<Vec<Name>> {
        self.0.as_ref()?.lanes.clone()
    }

    /// The tenant patterns the key is restricted to, if any.
    pub(super) fn tenants(&self) -> Option<Vec<Arc<str>>> {
        let tenants = self.0.as_ref()?.tenants.as_ref()?;
        Some(tenants.iter().map(|tenant| tenant.as_str().into()).collect())
    }

    /// The key's name, for the log.
    pub(super) fn name(&self) -> &str {
        self.0.as_ref().map_or("local", |key| &key.name)
    }

    /// `Ok` if the caller may enqueue at this priority.
    pub(super) fn may_use_priority(&self, level: Level) -> Result<(), Problem> {
        match &self.0 {
            Some(key) if level < key.max_priority => {
                let (name, most, asked) = (&key.name, key.max_priority.as_str(), level.as_str());
                let detail = format!(
                    "Key `{name}` may enqueue at priority `{most}` at most (max_priority), not `{asked}`"
                );
                Err(Problem::forbidden(key, detail))
            }
            _ => Ok(()),
        }
    }

    /// Lowers the default priority of a job that sets none to the highest one the caller may use.
    pub(super) fn cap_default_priority(&self, mut submission: Submission, rules: &LaneConfig) -> Submission {
        let most = self.0.as_ref().map(|key| key.max_priority);
        if submission.priority.is_none() && !submission.type_sets_priority(rules) {
            submission.priority = most.filter(|most| *most > Level::default());
        }
        submission
    }

    /// `Ok` if the caller may see and use this upstream: one of its lanes uses it.
    pub(super) fn may_reach(&self, config: &Config, upstream: &str) -> Result<(), Problem> {
        let Some((key, lanes)) = self.0.as_ref().and_then(|key| Some((key, key.lanes.as_ref()?))) else {
            return Ok(());
        };
        let mut own =
            lanes.iter().filter_map(|lane| config.lanes.get(lane)).flat_map(|lane| lane.upstreams());
        if own.any(|name| name.as_str() == upstream) {
            return Ok(());
        }
        let detail = format!(
            "Key `{}` may not use upstream `{upstream}`: none of the key's `lanes` uses it",
            key.name
        );
        Err(Problem::forbidden(key, detail))
    }

    /// `Ok` if the caller may change the breaker of this upstream. All users of the upstream share it, so the key must
    /// cover all their lanes and tenants.
    pub(super) fn may_change_breaker(&self, config: &Config, upstream: &str) -> Result<(), Problem> {
        self.may_act_for_all_tenants()?;
        let Some((key, lanes)) = self.0.as_ref().and_then(|key| Some((key, key.lanes.as_ref()?))) else {
            return Ok(());
        };
        let uses = |lane: &LaneConfig| lane.upstreams().any(|name| name.as_str() == upstream);
        let mut others = config.lanes.iter().filter(|(name, lane)| !lanes.contains(name) && uses(lane));
        if others.next().is_none() {
            return Ok(());
        }
        let name = &key.name;
        let detail = format!(
            "Key `{name}` is restricted to some lanes, and other lanes use upstream `{upstream}` too"
        );
        Err(Problem::forbidden(key, detail))
    }

    /// `Ok` if the caller's key is not restricted to some tenants.
    pub(super) fn may_act_for_all_tenants(&self) -> Result<(), Problem> {
        match &self.0 {
            Some(key) if key.tenants.is_some() => {
                let detail =
                    format!("Key `{}` is restricted to some tenants, and this affects all of them", key.name);
                Err(Problem::forbidden(key, detail))
            }
            _ => Ok(()),
        }
    }

    /// `Ok` if the caller's key is not restricted to some lanes.
    pub(super) fn may_use_all_lanes(&self) -> Result<(), Problem> {
        match &self.0 {
            Some(key) if key.lanes.is_some() => {
                let detail =
                    format!("Key `{}` is restricted to some lanes, and this affects all of them", key.name);
                Err(Problem::forbidden(key, detail))
            }
            _ => Ok(()),
        }
    }

    /// The default tenant of a caller whose key is restricted to exactly one.
    pub(super) fn own_tenant(&self) -> Option<&str> {
        match self.0.as_ref()?.tenants.as_deref()? {
            [tenant] if !tenant.contains('*') => Some(tenant),
            _ => None,
        }
    }
}

/// Extracted before anything else of the request is read: it is the first argument of each handler.
impl<S: Sync> FromRequestParts<S> for Caller
where
    Arc<CurrentRules>: FromRef<S>,
    Arc<dyn Clock>: FromRef<S>,
{
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let rules = Arc::<CurrentRules>::from_ref(state).get();
        let keys = &rules.config.keys;
        let now = Arc::<dyn Clock>::from_ref(state).now();
        match session::find(&parts.headers, keys, now) {
            Some((key, _)) if bearer(&parts.headers).is_none() => {
                same_origin(parts).map(|()| Caller(Some(Arc::clone(key))))
            }
            _ => Caller::of(parts, keys),
        }
    }
}

impl Caller {
    /// The caller by its key. Cookies do not count here: only the API takes them, not the proxy.
    pub(super) fn of(request: &Parts, keys: &[Arc<Key>]) -> Result<Caller, Problem> {
        if keys.is_empty() {
            return local_host(request).and_then(|()| refuse_foreign_site(request)).map(|()| Caller(None));
        }
        let Some(token) = bearer(&request.headers) else {
            let detail = "Send `Authorization: Bearer <key>` with a key from [[auth.keys]] of the config";
            return Err(Problem::new(Kind::Unauthorized, detail));
        };
        match find(keys, token) {
            Some(key) => Ok(Caller(Some(Arc::clone(key)))),
            None => Err(Problem::new(Kind::Unauthorized, "The key is not in [[auth.keys]] of the config")),
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

/// Compares every key in constant time, so that timing reveals nothing.
pub(super) fn find<'a>(keys: &'a [Arc<Key>], token: &[u8]) -> Option<&'a Arc<Key>> {
    let fits = |key: &&Arc<Key>| bool::from(key.secret.reveal().as_bytes().ct_eq(token));
    let found: Vec<&Arc<Key>> = keys.iter().filter(fits).collect();
    found.first().copied()
}

/// The key that a request was sent with.
pub(super) fn by_bearer<'a>(headers: &HeaderMap, keys: &'a [Arc<Key>]) -> Option<&'a Arc<Key>> {
    find(keys, bearer(headers)?)
}

/// Without keys, a host name that resolves here (DNS rebinding) would let a foreign web page act as a local program.
fn local_host(request: &Parts) -> Result<(), Problem> {
    let header = request.headers.get(HOST).and_then(|host| host.to_str().ok());
    let Some(host) = request.uri.authority().map(Authority::as_str).or(header) else { return Ok(()) };
    let ours = |host: Authority| {
        let name = host.host().trim_matches(['[', ']']);
        name == "localhost" || name.parse::<IpAddr>().is_ok()
    };
    if host.parse().is_ok_and(ours) {
        return Ok(());
    }
    let detail = "Without keys the server answers only to the Host `localhost` and to addresses, such as 127.0.0.1; \
                  use one of these, or add [[auth.keys]] to the config";
    Err(Problem::new(Kind::WrongHost, detail))
}

/// Without keys, a web page open in the user's browser could send requests in the user's name; such requests are
/// refused. Reading is harmless, because the browser hides the response from the page, but anything sent through a lane
/// has an effect.
pub(super) fn refuse_foreign_site(request: &Parts) -> Result<(), Problem> {
    let only_reads = request.method.is_safe() && !request.uri.path().starts_with("/proxy/");
    let cross_site = header(request, "sec-fetch-site") == Some("cross-site");
    if !only_reads && (cross_site || is_own_origin(request) == Some(false)) {
        let detail = "The request comes from a page of another site; without keys only local programs may send requests";
        return Err(Problem::new(Kind::ForeignSite, detail));
    }
    Ok(())
}

/// The browser sends a session's cookie by itself, so a change needs proof that a page of this server asked for it.
fn same_origin(request: &Parts) -> Result<(), Problem> {
    let proven = is_own_origin(request).unwrap_or(header(request, "sec-fetch-site") == Some("same-origin"));
    if request.method.is_safe() || proven {
        return Ok(());
    }
    let detail = "Only pages of this server may change something with a session; send `Authorization: Bearer <key>` instead";
    Err(Problem::new(Kind::ForeignSite, detail))
}

/// Whether the page that sent a request is one of this server; `None` if the request does not say.
fn is_own_origin(request: &Parts) -> Option<bool> {
    let origin = header(request, ORIGIN.as_str())?;
    // HTTP/2 sends the host as `:authority`, not as a header.
    let host = request.uri.authority().map(Authority::as_str).or(header(request, HOST.as_str()));
    Some(origin.split_once("://").map(|(_, host)| host) == host)
}

fn header<'a>(request: &'a Parts, name: &str) -> Option<&'a str> {
    request.headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    fn bound_to(tenants: &str) -> Caller {
        Caller(Some(Arc::new(Key {
            name: "shop".into(),
            role: Role::Producer,
            secret: Secret::new("0123456789abcdef"),
            lanes: None,
            tenants: Some(vec![tenants.into()]),
            max_priority: Level::High,
        })))
    }

    /// A backtracking matcher would not finish.
    #[test]
    fn a_bound_with_many_stars_is_matched_in_linear_time() {
        let tenant = "a".repeat(256);
        assert!(bound_to(&"*a".repeat(50)).may_act_for(&tenant).is_ok());
        assert!(bound_to(&format!("{}b", "*a".repeat(50))).may_act_for(&tenant).is_err());
    }

    #[test]
    fn a_caller_without_a_tenant_is_asked_to_name_one() {
        let caller = bound_to("shop-*");
        let detail = |tenant| caller.may_act_for(tenant).unwrap_err().into_json()["detail"].to_string();
        assert!(caller.may_act_for("shop-7").is_ok());
        assert!(detail(DEFAULT_TENANT).contains("Eclusa-Tenant"));
        assert!(!detail("other").contains("Eclusa-Tenant"));
    }
}
