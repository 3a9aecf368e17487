//! `/v1/session`: signing in to the dashboard with a key; the browser then keeps a cookie.
//!
//! The cookie names the key and its expiry, signed with the key's own secret. So every process with the same config accepts
//! it, nothing is stored, and removing or replacing a key ends its sessions.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use eclusa_core::{Clock, Span, Time};
use http::header::{COOKIE, SET_COOKIE};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use ring::hmac;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::auth;
use super::extract::{Body, NoQuery};
use super::model::iso;
use super::model::vocabulary::{KeyRole, Priority};
use super::problem::{Kind, Problem};
use super::state::Api;
use crate::config::{Key, Role};
use crate::rules::CurrentRules;

/// The cookie's name.
pub(super) const NAME: &str = "eclusa_session";
/// How long a session lasts.
const LASTS: Span = Span::from_secs(12 * 60 * 60);

/// Who is signed in, and what they may do.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Session {
    /// Whether the config has keys. Without keys every local caller may do everything.
    required: bool,
    /// The name of the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    name: Option<String>,
    /// What the key may do; absent if nobody is signed in.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<KeyRole>, nullable = false)]
    role: Option<&'static str>,
    /// The only lanes that the key may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    lanes: Option<Vec<String>>,
    /// The only tenants that the key may act for; `*` matches any text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    tenants: Option<Vec<String>>,
    /// The highest priority that the key may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Priority>, nullable = false)]
    max_priority: Option<&'static str>,
    /// When the session ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, nullable = false)]
    expires_at: Option<String>,
}

impl Session {
    fn of(key: &Key, expires: Option<Time>) -> Self {
        Self {
            required: true,
            name: Some(key.name.clone()),
            role: Some(key.role.as_str()),
            lanes: key.lanes.as_ref().map(|lanes| lanes.iter().map(ToString::to_string).collect()),
            tenants: key.tenants.clone(),
            max_priority: Some(key.max_priority.as_str()),
            expires_at: expires.and_then(iso),
        }
    }

    /// Without keys in the config.
    fn everybody() -> Self {
        Self { role: Some(Role::Admin.as_str()), ..Self::default() }
    }
}

/// What these calls need.
#[derive(FromRequestParts)]
#[from_request(state(Api))]
pub(super) struct SignIn {
    #[from_request(via(State))]
    rules: Arc<CurrentRules>,
    #[from_request(via(State))]
    clock: Arc<dyn Clock>,
}

/// The key to sign in with.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Credentials {
    /// A key of the config's `[[auth.keys]]`.
    key: String,
}

/// Show who is signed in
#[utoipa::path(get, path = "/v1/session", tag = "session", responses((status = 200, body = Session)))]
pub(super) async fn show(here: SignIn, headers: HeaderMap, _: NoQuery) -> Json<Session> {
    let rules = here.rules.get();
    let keys = &rules.config.keys;
    if keys.is_empty() {
        return Json(Session::everybody());
    }
    let by_key = auth::by_bearer(&headers, keys).map(|key| Session::of(key, None));
    let by_cookie =
        || find(&headers, keys, here.clock.now()).map(|(key, expires)| Session::of(key, Some(expires)));
    Json(by_key.or_else(by_cookie).unwrap_or(Session { required: true, ..Session::default() }))
}

/// Sign in
///
/// Sets a cookie that is valid on every process with the same config, until it expires or the key is removed.
#[utoipa::path(post, path = "/v1/session", tag = "session", request_body = Credentials,
    responses((status = 200, body = Session, headers(("set-cookie" = String, description = "The session")))))]
pub(super) async fn begin(here: SignIn, _: SameOrigin, _: NoQuery, body: Body) -> Result<Response, Problem> {
    let Credentials { key } = body.object()?;
    let rules = here.rules.get();
    if rules.config.keys.is_empty() {
        return Ok(Json(Session::everybody()).into_response());
    }
    let Some(key) = auth::find(&rules.config.keys, key.as_bytes()) else {
        return Err(Problem::new(Kind::Unauthorized, "The key is not one of the config's [[auth.keys]]"));
    };
    let expires = here.clock.now() + LASTS;
    let cookie = set_cookie(&value(key, expires), LASTS, rules.config.server.tls.is_some());
    tracing::info!(target: "audit", audit = "sign_in", by = key.name, "Signed in");
    Ok(([(SET_COOKIE, cookie)], Json(Session::of(key, Some(expires)))).into_response())
}

/// Sign out
#[utoipa::path(delete, path = "/v1/session", tag = "session",
    responses((status = 204, description = "The cookie is removed")))]
pub(super) async fn end(here: SignIn, _: SameOrigin, headers: HeaderMap, _: NoQuery) -> Response {
    let rules = here.rules.get();
    if let Some((key, _)) = find(&headers, &rules.config.keys, here.clock.now()) {
        tracing::info!(target: "audit", audit = "sign_out", by = key.name, "Signed out");
    }
    let cookie = set_cookie("", Span::ZERO, rules.config.server.tls.is_some());
    (StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)]).into_response()
}

/// A request that no page of another site sent.
pub(super) struct SameOrigin;

impl<S: Sync> FromRequestParts<S> for SameOrigin {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        auth::refuse_foreign_site(parts).map(|()| Self)
    }
}

/// The key of a request's session, and when that ends.
pub(super) fn find<'a>(headers: &HeaderMap, keys: &'a [Arc<Key>], now: Time) -> Option<(&'a Arc<Key>, Time)> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(name, _)| *name == NAME)?;
    let (expires, rest) = value.split_once('.')?;
    let (name, tag) = rest.split_once('.')?;
    let (name, tag) = (URL_SAFE_NO_PAD.decode(name).ok()?, URL_SAFE_NO_PAD.decode(tag).ok()?);
    let expires = Time::from_millis(expires.parse().ok()?);
    let key = keys.iter().find(|key| key.name.as_bytes() == name)?;
    let signed = hmac::verify(&signing_key(key), &message(key, expires), &tag).is_ok();
    (signed && now < expires).then_some((key, expires))
}

fn value(key: &Key, expires: Time) -> String {
    let tag = hmac::sign(&signing_key(key), &message(key, expires));
    let [name, tag] = [key.name.as_bytes(), tag.as_ref()].map(|bytes| URL_SAFE_NO_PAD.encode(bytes));
    format!("{}.{name}.{tag}", expires.as_millis())
}

fn signing_key(key: &Key) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, key.secret.reveal().as_bytes())
}

fn message(key: &Key, expires: Time) -> Vec<u8> {
    format!("eclusa session\n{}\n{}", expires.as_millis(), key.name).into_bytes()
}

fn set_cookie(value: &str, lasts: Span, tls: bool) -> String {
    let (seconds, secure) = (lasts.as_millis() / 1_000, if tls { "; Secure" } else { "" });
    format!("{NAME}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={seconds}{secure}")
}

#[cfg(test)]
mod tests {
    use eclusa_core::Level;
    use http::HeaderValue;

    use super::*;
    use crate::config::Secret;

    fn key(name: &str, secret: &str) -> Arc<Key> {
        Arc::new(Key {
            name: name.into(),
            role: Role::Viewer,
            secret: Secret::new(secret),
            lanes: None,
            tenants: None,
            max_priority: Level::High,
        })
    }

    fn sent(value: &str) -> HeaderMap {
        let cookie = HeaderValue::try_from(format!("theme=dark; {NAME}={value}")).unwrap();
        HeaderMap::from_iter([(COOKIE, cookie)])
    }

    #[test]
    fn a_session_is_valid_until_it_expires_and_only_for_its_key() {
        let (ops, shop) = (key("ops.1", "0123456789abcdef"), key("shop", "fedcba9876543210"));
        let expires = Time::from_millis(5_000);
        let cookie = value(&ops, expires);
        let found = |cookie: &str, keys: &[Arc<Key>], now| {
            find(&sent(cookie), keys, Time::from_millis(now)).map(|(key, _)| key.name.clone())
        };
        let keys = [shop.clone(), ops.clone()];
        assert_eq!(found(&cookie, &keys, 4_999).as_deref(), Some("ops.1"));
        assert_eq!(found(&cookie, &keys, 5_000), None, "it expired");
        assert_eq!(found(&cookie, std::slice::from_ref(&shop), 0), None, "the key was removed");
        assert_eq!(found(&cookie, &[key("ops.1", "another secret!!")], 0), None, "the key was replaced");
        let forged = cookie.replacen("5000", "9000", 1);
        assert_eq!(found(&forged, &keys, 0), None, "the expiry is signed");
        let twin = key("twin", "0123456789abcdef");
        let renamed =
            format!("5000.{}.{}", URL_SAFE_NO_PAD.encode("twin"), cookie.rsplit_once('.').unwrap().1);
        assert_eq!(found(&renamed, &[twin], 0), None, "the name is signed");
        for broken in ["", ".", "..", "5000", "x.y.z", "5000.@.@"] {
            assert_eq!(found(broken, &keys, 0), None, "{broken}");
        }
    }

    #[test]
    fn the_cookie_is_secure_only_where_the_listener_is() {
        assert!(set_cookie("v", LASTS, true).ends_with("Max-Age=43200; Secure"));
        assert!(set_cookie("v", LASTS, false).ends_with("SameSite=Strict; Path=/; Max-Age=43200"));
    }
}
