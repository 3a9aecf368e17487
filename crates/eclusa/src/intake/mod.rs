//! Intake: from what a caller sent to a job that a lane can take, or to everything that is wrong with it.

mod fields;

use std::sync::Arc;

use eclusa_core::{JobId, Level, Name, NewJob, Span};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use xxhash_rust::xxh3::Xxh3;

pub(crate) use self::fields::Fields;
use crate::config::{Lane, Part, Template};
use crate::request::{Content, Envelope, Request};

/// The tenant of those who do not name one.
pub(crate) const DEFAULT_TENANT: &str = "default";
/// Longer tenants, types and keys are refused: they are kept with every job.
const MAX_WORD: usize = 256;

/// What a caller asks for.
#[derive(Debug, Clone)]
pub(crate) struct Submission {
    /// `id` or `Idempotency-Key`.
    pub key: Option<String>,
    /// Whose it is.
    pub tenant: String,
    /// How urgent it is, if the caller said so.
    pub priority: Option<Level>,
    /// Its `type`.
    pub kind: Option<String>,
    /// How long to hold it back.
    pub delay: Span,
    /// How long it may wait, if not as long as the lane says.
    pub ttl: Option<Span>,
    /// `params` as JSON text.
    pub params: Option<String>,
    /// What to send.
    pub request: Request,
}

/// One thing that is wrong with a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Where, such as `query.cpf`.
    pub field: String,
    /// What, and how to mend it; never repeats the value, which may be personal.
    pub problem: String,
}

impl Fault {
    /// `problem` at `field`.
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

impl Submission {
    /// Whether its type gives it a priority.
    pub(crate) fn has_type_of(&self, rules: &Lane) -> bool {
        self.kind.as_ref().is_some_and(|kind| rules.types.contains_key(kind))
    }

    /// How urgent the job will be: as the caller said, or as its type says.
    pub(crate) fn level(&self, rules: &Lane) -> Level {
        let by_type = self.kind.as_ref().and_then(|kind| rules.types.get(kind).copied());
        self.priority.or(by_type).unwrap_or_default()
    }

    /// The job, or everything that is wrong with it.
    pub(crate) fn into_job(self, id: JobId, lane: &Name, rules: &Lane) -> Result<NewJob, Vec<Fault>> {
        let fields = Fields::of(&self.request);
        let mut faults = self.bad_words();
        if self.ttl.is_some_and(Span::is_zero) {
            faults.push(Fault::new("ttl", "must be greater than zero: a job that may not wait cannot start"));
        }
        fields.check(&rules.validate, &mut faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        let chain = chain_for(rules, &fields);
        let cache_key =
            rules.cache_key.as_ref().and_then(|key| render(key, &fields, &self.tenant, &self.request));
        let (level, chain) = (self.level(rules), chain.cloned());
        let fingerprint = fingerprint(&self.tenant, &self.request);
        let content = Content::Http(self.request);
        let envelope = Envelope { kind: self.kind, params: self.params, key: self.key.clone(), content };
        let mut job = NewJob::new(id, lane.clone(), &self.tenant, envelope.to_payload());
        job.level = level;
        job.key = self.key.map(Arc::from);
        job.ttl = self.ttl;
        job.delay = self.delay;
        job.chain = chain;
        job.fingerprint = Some(fingerprint);
        job.cache_key = cache_key.map(Arc::from);
        Ok(job)
    }

    fn bad_words(&self) -> Vec<Fault> {
        let words = [("tenant", Some(&self.tenant)), ("type", self.kind.as_ref()), ("id", self.key.as_ref())];
        let bad = |(field, word): (&str, Option<&String>)| {
            let word = word?;
            if word.is_empty() || word.len() > MAX_WORD {
                return Some(Fault::new(field, format!("must be 1 to {MAX_WORD} bytes long")));
            }
            let control = word.chars().any(char::is_control);
            control.then(|| Fault::new(field, "must not contain control characters"))
        };
        words.into_iter().filter_map(bad).collect()
    }
}

/// The chain that a value of the request picks, if it is not the lane's own.
fn chain_for<'a>(rules: &'a Lane, fields: &Fields<'_>) -> Option<&'a Vec<Name>> {
    let chains = rules.chains.as_ref()?;
    chains.chains.get(&fields.get(&chains.by)?)
}

/// The upstreams that a request may go to.
pub(crate) fn chain_of<'a>(request: &Request, rules: &'a Lane) -> &'a [Name] {
    chain_for(rules, &Fields::of(request)).unwrap_or(&rules.chain)
}

/// The chain for a request that makes no job, or everything that is wrong with it.
pub(crate) fn check<'a>(request: &Request, rules: &'a Lane) -> Result<&'a [Name], Vec<Fault>> {
    let (fields, mut faults) = (Fields::of(request), Vec::new());
    fields.check(&rules.validate, &mut faults);
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(chain_for(rules, &fields).unwrap_or(&rules.chain))
}

/// What the cache calls a job's answer; `None` when a field of the template is not there, or when the answer would depend
/// on more than a key can say: on a range, on what the caller has already, or on having no body.
fn render(template: &Template, fields: &Fields<'_>, tenant: &str, request: &Request) -> Option<String> {
    let conditional = |(name, _): &(String, Vec<u8>)| name == "range" || name.starts_with("if-");
    if request.method == "HEAD" || request.headers.iter().any(conditional) {
        return None;
    }
    let mut key = String::new();
    for part in &template.parts {
        let value = match part {
            Part::Text(text) => {
                key.push_str(text);
                continue;
            }
            Part::Field(field) => fields.get(field)?,
            Part::Tenant => tenant.to_owned(),
            Part::Method => request.method.clone(),
            Part::Path => request.path.clone(),
        };
        // Side by side, values must not run into each other: `a` and `b-c` are not `a-b` and `c`.
        match template.parts.len() {
            1 => key.push_str(&value),
            _ => key.extend(utf8_percent_encode(&value, NON_ALPHANUMERIC)),
        }
    }
    Some(key)
}

/// Tells two requests under one idempotency key apart; a tenant must not get at another's answer with its key. Headers do
/// not count: those of a repeated request differ.
fn fingerprint(tenant: &str, request: &Request) -> u64 {
    let mut hash = Xxh3::new();
    let query = request.query.as_deref().unwrap_or_default();
    let words = [tenant, &request.method, &request.path, query].map(str::as_bytes);
    for part in words.into_iter().chain([request.body.as_slice()]) {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.digest()
}

#[cfg(test)]
mod tests;
