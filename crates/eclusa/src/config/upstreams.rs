//! `[upstreams.NAME]`.

use std::num::NonZeroU32;
use std::time::Duration;

use eclusa_core::gate::{BreakerSpec, CooldownSpec, GateSpecs, PaceSpec};
use eclusa_core::retry::ExtraCodes;
use eclusa_core::{Name, Span, UpstreamSpec};
use http::{HeaderName, HeaderValue, Method};

use super::awaited::awaited;
use super::gates::gates;
use super::keys::{headers as keyed_headers, keys, specs};
use super::mail::{not_for, smtp, smtp_keys};
use super::policies::{PolicyNames, policies};
use super::read::{At, Entries, Table, Value};
use super::reconcile::reconcile;
use super::request::{AllowedPlaceholders, RequestTemplate, request};
use super::server::{MAX_BODY, body_size};
use super::ses::{SES_KEYS, ses, ses_keys};
use super::texts::{Code, Protocol, UpstreamUrl};
use super::tls::tls;
use super::types::{BaseUrl, Secret};
use super::units::{PositiveSpan, Size, duration};
use super::upstream_types::{HttpRules, UpstreamConfig, UpstreamKind};

const DEFAULT_FAILURES: NonZeroU32 = NonZeroU32::new(5).unwrap();

/// Headers of the connection or the message framing, which the program sets itself.
const OWN_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
];

/// Keys that only HTTP upstreams have.
const HTTP_KEYS: [&str; 7] = ["headers", "keys", "request", "async", "policies", "reconcile", "max_response"];

/// What the reader of an upstream needs from the rest of the file.
pub(super) struct UpstreamContext {
    pub(super) policy_names: PolicyNames,
    /// All processes on the store share gates.
    pub(super) shared_gates: bool,
    /// `server.public_url` is set.
    pub(super) public_url: bool,
    /// Upstreams of direct lanes.
    pub(super) direct: Vec<Name>,
}

pub(super) fn upstream(
    name: &Name,
    t: &mut Table<'_>,
    context: &UpstreamContext,
) -> Option<(UpstreamConfig, Vec<UpstreamSpec>)> {
    let kind = t.or(
        "kind",
        Protocol::Http,
        "The kind of upstream: `http` for requests, `smtp` and `ses` (Amazon SES) for mail.",
    );
    let url = url(t, kind);
    let (timeout, connect_timeout) = timeouts(t);
    let keys = keys(t);
    let headers = keyed_headers(
        t,
        "Sent with every request, instead of the caller's headers of the same name: `{ Authorization = \"Bearer ${TOKEN}\" }`. Values are never \
         shown.",
        &keys,
    );
    let gates = upstream_gates(t);
    let codes = codes(t, kind);
    let max_response = body_size(t, "max_response", Size(MAX_BODY), "The largest response; at most 8128KiB.");
    let tls = t.section("tls", "Certificates, if the public ones are not enough.", |t| {
        tls(t, "CA certificates to trust in addition to the public ones: a PEM file.")
    });
    let policies = policies(t, &context.policy_names);
    let reconcile = reconcile(t, &policies, context.shared_gates);
    let request = request_template(t, context);
    if !keys.is_empty() && !headers.hold_key {
        keys_are_used(t, request.as_ref());
    }
    let awaited = awaited(t, context.public_url);
    if context.direct.contains(name) {
        not_in_direct_lane(t);
    }
    let smtp_keys = smtp_keys(t, kind);
    let ses_keys = ses_keys(t);
    if kind != Protocol::Ses {
        not_for(t, &SES_KEYS, kind);
    }
    let kind = match (kind, url) {
        (Protocol::Http, Some(UpstreamUrl::Http(url))) => {
            no_tls_with_http(t, &url);
            let (headers, keys) = (headers.shared, headers.keys);
            let rules = HttpRules { url, headers, keys, request, awaited, max_response, policies, reconcile };
            Some(UpstreamKind::Http(Box::new(rules)))
        }
        (Protocol::Smtp, Some(UpstreamUrl::Smtp(url))) => {
            Some(UpstreamKind::Smtp(Box::new(smtp(t, url, smtp_keys))))
        }
        (Protocol::Ses, None) if !t.has("url") => ses(t, None, ses_keys).map(Box::new).map(UpstreamKind::Ses),
        (Protocol::Ses, Some(UpstreamUrl::Http(url))) => {
            no_tls_with_http(t, &url);
            ses(t, Some(url), ses_keys).map(Box::new).map(UpstreamKind::Ses)
        }
        (kind, url) => {
            if url.is_some() {
                wrong_address(t, kind);
            }
            None
        }
    };
    match kind {
        Some(UpstreamKind::Smtp(_)) => not_for(t, &HTTP_KEYS, Protocol::Smtp),
        Some(UpstreamKind::Ses(_)) => not_for(t, &HTTP_KEYS, Protocol::Ses),
        Some(UpstreamKind::Http(_)) | None => {}
    }
    let upstream = UpstreamConfig { timeout, connect_timeout, codes, tls, kind: kind? };
    Some((upstream, specs(name, gates, keys)))
}

fn url(t: &mut Table<'_>, kind: Protocol) -> Option<UpstreamUrl> {
    let doc = "The base URL: `http://` or `https://`, host, port and a path prefix. For `smtp`: `smtp://` (default port 25) \
               or `smtps://` (465), host and port. For `ses`, defaults to the endpoint of its region.";
    match kind {
        Protocol::Http => t.need("url", "\"https://api.example.com\"", doc),
        Protocol::Smtp => t.need("url", "\"smtp://mail.example.com:587\"", doc),
        Protocol::Ses => t.get("url", doc),
    }
}

/// How long a call may take, and how long a connection.
fn timeouts(t: &mut Table<'_>) -> (Duration, Duration) {
    let timeout = t.or(
        "timeout",
        PositiveSpan(Span::from_secs(30)),
        "How long a call may take, from the first byte sent to the last byte received. In direct lanes, where responses stream: how \
         long the upstream may be silent, before its response begins and between two parts of it.",
    );
    let connect_timeout = t.or(
        "connect_timeout",
        PositiveSpan(Span::from_secs(5)),
        "How long establishing a connection may take.",
    );
    (duration(timeout.0), duration(connect_timeout.0))
}

fn upstream_gates(t: &mut Table<'_>) -> GateSpecs {
    let breaker =
        t.table("breaker", "Opens after consecutive failures and admits nothing for a while.", breaker);
    let pace = t.table("pace", "One call per interval, which adapts to the upstream's responses.", pace);
    let cooldown = cooldown(
        t,
        "Pauses after the first, second, … consecutive error; the last one applies to all further errors. A success resets the \
         count, and so do ten minutes without errors.",
    );
    let mut gates = gates(t, "max_concurrent", "The most concurrent calls, over all workers.");
    (gates.breaker, gates.pace, gates.cooldown) = (breaker.flatten(), pace.flatten(), cooldown);
    gates
}

fn not_in_direct_lane(t: &Table<'_>) {
    if t.has("async") {
        let problem = "does not apply to a direct lane, where the caller waits for the response";
        t.misplaced("async", problem, "use it in lanes with a queue only, or remove `async`");
    }
}

fn no_tls_with_http(t: &Table<'_>, url: &BaseUrl) {
    if t.has("tls") && url.scheme == http::uri::Scheme::HTTP {
        t.misplaced("tls", "has no effect with an `http://` address", "write `https://`, or remove `tls`");
    }
}

/// Notes that the scheme of `url` does not fit the upstream's kind.
fn wrong_address(t: &Table<'_>, kind: Protocol) {
    match kind {
        Protocol::Http => {
            let help = "write it like \"https://api.example.com/v1\", or set `kind = \"smtp\"`";
            t.wrong("url", "is not an `http://` or `https://` address", help);
        }
        Protocol::Ses => {
            let help = "write it like \"https://email.us-east-1.amazonaws.com\", or remove it";
            t.wrong("url", "is not an `http://` or `https://` address", help);
        }
        Protocol::Smtp => {
            let help = "write it like \"smtp://mail.example.com:587\"";
            t.wrong("url", "is not an `smtp://` or `smtps://` address", help);
        }
    }
}

/// Checks that the template uses the keys, since `headers` do not. A template that could not be read was noted already.
fn keys_are_used(t: &Table<'_>, request: Option<&RequestTemplate>) {
    if !request.map_or(t.has("request"), RequestTemplate::uses_key) {
        t.misplaced(
            "keys",
            "are not used anywhere",
            "put `{key}` where the key belongs, such as `headers = { Authorization = \"Bearer {key}\" }`",
        );
    }
}

pub(super) fn cooldown(t: &mut Table<'_>, doc: &'static str) -> Option<CooldownSpec> {
    let ladder: Option<Vec<PositiveSpan>> = t.get("cooldown", doc);
    let ladder: Vec<Span> = ladder?.into_iter().map(|rest| rest.0).collect();
    t.rule(CooldownSpec::new(&ladder))
}

fn request_template(t: &mut Table<'_>, context: &UpstreamContext) -> Option<RequestTemplate> {
    let doc = "How a job's `params` become a request to this upstream, so that one job works with several upstreams. Texts may contain \
               `{params./POINTER}`, `{id}`, `{job_id}`, `{tenant}`, `{webhook_url}` and `{key}`. Without it the job's own `request` is sent.";
    let usable =
        AllowedPlaceholders { webhook_url: context.public_url, external_id: false, key: t.has("keys") };
    t.table("request", doc, |t| request(t, Method::POST, usable)).flatten()
}

/// Reads `headers`; `doc` describes them.
pub(super) fn headers(t: &mut Table<'_>, doc: &'static str) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = Vec::new();
    for (name, secret) in header_entries::<Secret>(t, doc) {
        match HeaderValue::from_str(secret.value.reveal()) {
            Ok(mut value) => {
                value.set_sensitive(true);
                headers.push((name, value));
            }
            Err(_) => t.context().wrong(
                &secret.place,
                "cannot be sent in a header",
                "remove line breaks and control characters",
            ),
        }
    }
    headers
}

/// Reads `headers`: each name once, and none that the program sets itself.
pub(super) fn header_entries<T: Value>(t: &mut Table<'_>, doc: &'static str) -> Vec<(HeaderName, At<T>)> {
    let entries: Option<Entries<At<T>>> = t.get("headers", doc);
    let mut headers: Vec<(HeaderName, At<T>)> = Vec::new();
    for (name, value) in entries.into_iter().flat_map(Entries::all) {
        let ctx = t.context();
        let Ok(header) = HeaderName::try_from(&name.value) else {
            ctx.wrong(&name.place, "is not the name of a header", "use letters, digits and `-`");
            continue;
        };
        if OWN_HEADERS.contains(&header.as_str()) {
            ctx.wrong(&name.place, "is a header that Eclusa sets itself", "remove it");
        }
        if headers.iter().any(|(before, _)| *before == header) {
            ctx.wrong(&name.place, "is given twice", "header names are case-insensitive");
        }
        headers.extend(value.map(|value| (header, value)));
    }
    headers
}

fn breaker(t: &mut Table<'_>) -> Option<BreakerSpec> {
    let failures = t.or("failures", DEFAULT_FAILURES, "Consecutive failures that open it.");
    let open_for = t.or("open_for", PositiveSpan(Span::from_secs(30)), "How long it stays open.");
    let probes =
        t.or("probes", NonZeroU32::MIN, "The most concurrent calls that then test whether it may close.");
    t.rule(BreakerSpec::new(failures.get(), open_for.0, probes.get()))
}

fn pace(t: &mut Table<'_>) -> Option<PaceSpec> {
    let initial = t.or("initial", PositiveSpan(Span::from_secs(1)), "The initial interval.").0;
    let min = t.or("min", PositiveSpan(Span::from_millis(50)), "The shortest interval.").0;
    let max = t.or("max", PositiveSpan(Span::from_secs(60)), "The longest interval.").0;
    if max < min {
        let (key, problem) = if t.has("max") {
            ("max", "must not be below `min`")
        } else {
            ("min", "must not be above `max`")
        };
        t.wrong(key, problem, "`min` is the shortest interval, `max` the longest");
        return None;
    }
    if !(min..=max).contains(&initial) {
        let key = ["initial", "min", "max"].into_iter().find(|key| t.has(key)).unwrap_or("initial");
        t.wrong(key, "puts `initial` outside `min` and `max`", "choose an initial interval between the two");
        return None;
    }
    let adaptive = t.or(
        "adaptive",
        false,
        "Finds the rate that the upstream can take: it rises with successes and falls with throttling, failures and latency. \
         `min` is then the interval of the highest rate, `max` of the lowest.",
    );
    Some(t.rule(PaceSpec::new(initial, min, max))?.adaptive(adaptive))
}

fn codes(t: &mut Table<'_>, kind: Protocol) -> ExtraCodes {
    let retryable: Option<Vec<At<Code>>> = t.get(
        "retryable",
        "Additional statuses to retry; for `smtp`, reply codes and enhanced codes (`5.7.1`); for `ses`, error names.",
    );
    let permanent: Option<Vec<At<Code>>> =
        t.get("permanent", "Statuses that are retried by default but must not be.");
    let (retryable, permanent) = (retryable.unwrap_or_default(), permanent.unwrap_or_default());
    for code in retryable.iter().chain(&permanent) {
        if let Err(wrong) = code.value.check(kind) {
            t.context().wrong(&code.place, &wrong.problem, &wrong.help);
        }
    }
    for code in permanent.iter().filter(|code| retryable.iter().any(|other| other.value.0 == code.value.0)) {
        t.context().wrong(&code.place, "names a status that is also `retryable`", "keep it in one list only");
    }
    let plain = |codes: Vec<At<Code>>| codes.into_iter().map(|code| code.value.0).collect();
    ExtraCodes { retryable: plain(retryable), permanent: plain(permanent) }
}
