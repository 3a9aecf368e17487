//! Intake: converts a caller's request to a job that a lane accepts, or reports everything that is wrong with it.

mod fields;
pub(crate) mod mail_address;

use std::sync::Arc;

use eclusa_core::{JobId, Level, Name, NewJob, Span};
use http::HeaderMap;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use xxhash_rust::xxh3::Xxh3;

pub(crate) use self::fields::Fields;
use self::fields::listed;
use crate::config::{Accept, CacheKey, Field, KeyScope, LaneConfig, Targets, Template, TemplatePart};
use crate::execute::http::shape::{JobValues, Unfit, for_upstream};
use crate::request::{Content, Envelope, JobTrace, Mail, Request, RequestView, TraceContext, trace_state};

/// The tenant of callers that name none.
pub(crate) const DEFAULT_TENANT: &str = "default";
/// Maximum bytes of tenants, types and keys: they are stored with every job.
const MAX_NAME_BYTES: usize = 256;

/// What a caller submits.
#[derive(Debug, Clone)]
pub(crate) struct Submission {
    /// `id` or `Idempotency-Key`.
    pub key: Option<String>,
    /// The tenant it belongs to.
    pub tenant: String,
    /// The priority, if the caller set one.
    pub priority: Option<Level>,
    /// The caller's `type`.
    pub kind: Option<String>,
    /// How long to wait before it may start.
    pub delay: Span,
    /// How long it may wait, if not the lane's `ttl`.
    pub ttl: Option<Span>,
    /// `params` as JSON text.
    pub params: Option<String>,
    /// The request to send; `None` if templates of upstreams build it.
    pub request: Option<Request>,
    /// The message to send. Its `Message-ID` is set when the job is made.
    pub message: Option<Mail>,
    /// The `callbackUrl`.
    pub callback: Option<String>,
    /// The trace it belongs to.
    pub trace: Option<JobTrace>,
}

/// One fault of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The field, such as `query.cpf`.
    pub field: String,
    /// What is wrong and how to fix it. Never repeats the value, which may be personal.
    pub problem: String,
}

impl Fault {
    /// A fault at `field`.
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

impl Submission {
    /// Makes the job part of the trace of the span of `context`. A `traceparent` among the headers to send is sent unchanged; a `tracestate`
    /// without one is removed.
    pub(crate) fn trace_under(&mut self, context: Option<TraceContext>, headers: &HeaderMap) {
        let own =
            self.request.iter().flat_map(|request| &request.headers).any(|(name, _)| name == "traceparent");
        if let Some(request) = self.request.as_mut().filter(|_| !own) {
            request.headers.retain(|(name, _)| name != "tracestate");
        }
        self.trace = context.filter(|_| !own).map(|context| JobTrace::under(context, trace_state(headers)));
    }

    /// Whether its type has a priority in the lane's `types`.
    pub(crate) fn type_sets_priority(&self, rules: &LaneConfig) -> bool {
        self.kind.as_ref().is_some_and(|kind| rules.types.contains_key(kind))
    }

    /// The job's priority: the caller's, else that of its type.
    pub(crate) fn level(&self, rules: &LaneConfig) -> Level {
        let by_type = self.kind.as_ref().and_then(|kind| rules.types.get(kind).copied());
        self.priority.or(by_type).unwrap_or_default()
    }

    /// Validates the submission, or reports everything that is wrong with it.
    pub(crate) fn check(
        self,
        id: JobId,
        rules: &LaneConfig,
        targets: Targets<'_>,
    ) -> Result<Checked, Vec<Fault>> {
        let mut faults = self.bad_names();
        if self.ttl.is_some_and(Span::is_zero) {
            faults.push(Fault::new("ttl", "must be greater than zero: a job that may not wait cannot start"));
        }
        let params = self.params.as_deref().map(serde_json::from_str::<Value>).transpose();
        let params = params.unwrap_or_else(|_| {
            faults.push(Fault::new("params", "must not be nested more than 127 levels deep"));
            None
        });
        let fields = Fields::new(self.request.as_ref().map(Into::into), params.as_ref());
        fields.check(&rules.validate, &mut faults);
        faults.extend(self.request.iter().flat_map(|request| not_accepted(request.into(), &rules.accept)));
        let chain = chain_for(rules, &fields).map_err(|fault| faults.push(fault)).unwrap_or_default();
        let (nothing, id_given) = (Value::Null, self.key.as_deref());
        let job = JobValues {
            params: params.as_ref().unwrap_or(&nothing),
            job: id,
            id: id_given,
            tenant: &self.tenant,
        };
        let (has_params, has_request) = (params.is_some(), self.request.is_some());
        let mut shaped = Vec::new();
        let mail = targets.take_mail(chain);
        faults.extend(self.wrong_content(mail));
        if !mail && self.message.is_none() && (has_params || !has_request) {
            shaped = shape_all(targets, chain, &job, has_request, &mut faults);
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let request = self.request.as_ref();
        let cache_key = rules.cache_key.as_ref().and_then(|key| render(key, &fields, &self.tenant, request));
        let picked = rules.chain != chain;
        Ok(Checked {
            id,
            chain: chain.to_vec(),
            picked,
            shaped,
            cache_key,
            level: self.level(rules),
            submission: self,
        })
    }

    /// The content must be of the kind its upstreams accept.
    fn wrong_content(&self, mail: bool) -> Option<Fault> {
        let fault = |field: &str, problem: &str| Some(Fault::new(field, problem));
        match (mail, &self.request, &self.message) {
            (_, Some(_), Some(_)) => fault("message", "cannot be combined with `request`: send one of them"),
            (true, Some(_), None) => {
                fault("request", "is not accepted by this lane, which sends mail: send `message`")
            }
            (true, None, None) => fault("message", "is missing: this lane sends mail"),
            (false, None, Some(_)) => {
                fault("message", "is not accepted by this lane, which sends HTTP requests: send `request`")
            }
            (true, None, Some(_)) | (false, _, None) => None,
        }
    }

    fn bad_names(&self) -> Vec<Fault> {
        let words = [("tenant", Some(&self.tenant)), ("type", self.kind.as_ref()), ("id", self.key.as_ref())];
        words.into_iter().filter_map(|(field, word)| bad_name(field, word?)).collect()
    }
}

/// The fault in a tenant, type or key, if any.
pub(crate) fn bad_name(field: &str, word: &str) -> Option<Fault> {
    if word.is_empty() || word.len() > MAX_NAME_BYTES {
        return Some(Fault::new(field, format!("must be 1 to {MAX_NAME_BYTES} bytes long")));
    }
    let control = word.chars().any(char::is_control);
    control.then(|| Fault::new(field, "must not contain control characters"))
}

/// A valid submission.
pub(crate) struct Checked {
    submission: Submission,
    id: JobId,
    level: Level,
    /// The upstreams it may use.
    pub(crate) chain: Vec<Name>,
    /// Whether the chain was selected by `chain_by`.
    picked: bool,
    /// The requests built by templates, by upstream.
    pub(crate) shaped: Vec<(Name, Request)>,
    cache_key: Option<String>,
}

impl Checked {
    pub(crate) fn tenant(&self) -> &str {
        &self.submission.tenant
    }

    /// The request for upstreams without a template.
    pub(crate) const fn request(&self) -> Option<&Request> {
        self.submission.request.as_ref()
    }

    pub(crate) fn into_job(self, lane: &Name) -> NewJob {
        let Submission { key, tenant, kind, delay, ttl, params, request, message, callback, trace, .. } =
            self.submission;
        let fingerprint = fingerprint(&tenant, params.as_deref(), request.as_ref(), message.as_ref());
        let content = match (request, message) {
            (Some(request), _) => Content::Http(request),
            (None, Some(mail)) => Content::Mail(Box::new(mail.with_id(self.id))),
            (None, None) => Content::Templates,
        };
        let trace = trace.map(Box::new);
        let envelope = Envelope { kind, params, key: key.clone(), content, trace };
        let mut job = NewJob::new(self.id, lane.clone(), &tenant, envelope.to_payload());
        job.level = self.level;
        job.key = key.map(Arc::from);
        job.ttl = ttl;
        job.delay = delay;
        job.chain = self.picked.then_some(self.chain);
        job.fingerprint = Some(fingerprint);
        job.cache_key = self.cache_key.map(Arc::from);
        job.callback = callback.map(Arc::from);
        job
    }
}

/// The upstreams that a job or request may use: those selected by `chain_by`, else the lane's `chain`.
fn chain_for<'a>(rules: &'a LaneConfig, fields: &Fields<'_>) -> Result<&'a [Name], Fault> {
    let Some(chains) = &rules.chains else { return Ok(&rules.chain) };
    let value = fields.get(&chains.by);
    let fault = match value.as_ref().map(|value| chains.chains.get(value)) {
        Some(Some(chain)) => return Ok(chain),
        _ if !rules.chain.is_empty() => return Ok(&rules.chain),
        Some(None) => "has a value without a chain",
        None => "is missing: it selects the upstreams",
    };
    let known = listed(chains.chains.keys());
    Err(Fault::new(chains.by.to_string(), format!("{fault}; send one of {known}")))
}

/// The requests that the templates of `chain` build, or why they cannot. Upstreams without a template need the job's
/// own.
fn shape_all(
    targets: Targets<'_>,
    chain: &[Name],
    job: &JobValues<'_>,
    has_request: bool,
    faults: &mut Vec<Fault>,
) -> Vec<(Name, Request)> {
    let mut shaped = Vec::new();
    for upstream in chain {
        // The key is chosen later, and does not affect whether the job is valid.
        let key = targets.upstreams.get(upstream).and_then(|rules| rules.keys().first());
        match for_upstream(targets, upstream, job, key) {
            Some(Ok(made)) => shaped.push((upstream.clone(), made.request)),
            Some(Err(unfit)) => faults.extend(unfit.into_iter().map(|Unfit { field, problem }| {
                Fault::new(field, format!("{problem}, but upstream `{upstream}` needs it"))
            })),
            None if has_request => {}
            None => {
                let problem =
                    format!("is missing: upstream `{upstream}` has no template that builds it from `params`");
                faults.push(Fault::new("request", problem));
            }
        }
    }
    shaped
}

/// The chain for a direct request, or everything that is wrong with it.
pub(crate) fn check<'a>(request: RequestView<'_>, rules: &'a LaneConfig) -> Result<&'a [Name], Vec<Fault>> {
    let (fields, mut faults) = (Fields::of(request), Vec::new());
    fields.check(&rules.validate, &mut faults);
    faults.extend(not_accepted(request, &rules.accept));
    match chain_for(rules, &fields) {
        Ok(chain) if faults.is_empty() => return Ok(chain),
        chain => faults.extend(chain.err()),
    }
    Err(faults)
}

/// Faults in the method and path of a request.
fn not_accepted(request: RequestView<'_>, accept: &Accept) -> Vec<Fault> {
    let Accept { methods, paths } = accept;
    let mut faults = Vec::new();
    if !methods.is_empty() && !methods.iter().any(|method| method == request.method) {
        faults.push(Fault::new("method", format!("is not accepted by this lane: use {}", listed(methods))));
    }
    if !paths.is_empty() && !paths.iter().any(|path| path.variables(request.path).is_some()) {
        let problem = "is not accepted by this lane: see `accept` in its config";
        faults.push(Fault::new("path", problem));
    }
    faults
}

/// The cache key of a job; `None` if a field of the template is missing or repeated, or if the response must not be
/// cached.
fn render(key: &CacheKey, fields: &Fields<'_>, tenant: &str, request: Option<&Request>) -> Option<String> {
    let CacheKey { template, scope, methods } = key;
    if request.is_some_and(|request| {
        !methods.contains(&request.method) || depends_on_more_than_key(template, request)
    }) {
        return None;
    }
    let mut key = match (scope, request) {
        (KeyScope::Request, Some(Request { method, path, .. })) => format!("{method} {path} "),
        // No method begins with a space, so a job without a request never shares a key with one that has it.
        (KeyScope::Request, None) => " ".to_owned(),
        (KeyScope::All, _) => String::new(),
    };
    for part in &template.parts {
        let value = match part {
            TemplatePart::Text(text) => {
                key.push_str(text);
                continue;
            }
            TemplatePart::Field(field) if fields.is_repeated(field) => return None,
            TemplatePart::Field(field) => fields.get(field)?,
            TemplatePart::Tenant => tenant.to_owned(),
            TemplatePart::Method => request?.method.clone(),
            TemplatePart::Path => request?.path.clone(),
        };
        // Adjacent values must stay distinct: `a` and `b-c` are not `a-b` and `c`.
        match template.parts.len() {
            1 => key.push_str(&value),
            _ => key.extend(utf8_percent_encode(&value, NON_ALPHANUMERIC)),
        }
    }
    Some(key)
}

/// Whether the response depends on more than the key: on a range, on a condition, on having no body, or on a body of a
/// `GET` that is not in the key.
fn depends_on_more_than_key(template: &Template, request: &Request) -> bool {
    let conditional = |(name, _): &(String, Vec<u8>)| name == "range" || name.starts_with("if-");
    let of_body = |part: &TemplatePart| matches!(part, TemplatePart::Field(Field::Body(_)));
    request.method == "HEAD"
        || request.headers.iter().any(conditional)
        || request.method == "GET" && !request.body.is_empty() && !template.parts.iter().any(of_body)
}

/// Distinguishes jobs with the same idempotency key. It covers the tenant, so that no tenant gets another's answer.
/// Headers are excluded: those of a repeated request differ.
fn fingerprint(tenant: &str, params: Option<&str>, request: Option<&Request>, mail: Option<&Mail>) -> u64 {
    let mut hash = Xxh3::new();
    let mut add = |part: &[u8]| {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    add(tenant.as_bytes());
    if let Some(Request { method, path, query, body, .. }) = request {
        [method, path, query.as_deref().unwrap_or_default()].iter().for_each(|part| add(part.as_bytes()));
        add(body);
    }
    if let Some(params) = params {
        add(params.as_bytes());
    }
    if let Some(mail) = mail {
        // Writing into a vector cannot fail, and postcard can serialize every message.
        add(&postcard::to_extend(mail, Vec::new()).unwrap_or_default());
    }
    hash.digest()
}

#[cfg(test)]
mod tests;
