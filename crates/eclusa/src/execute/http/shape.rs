//! Makes the request of a job from a template.
//!
//! The place of a value decides what it may be: as a whole JSON value anything, within a text only what has one obvious
//! form. Error texts never quote a value: it may be personal or secret.

use eclusa_core::{JobId, Name};
use http::{HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::target;
use crate::config::{
    BaseUrl, JsonTemplate, Placeholder, RequestTemplate, Targets, TextPart, TextTemplate, UpstreamKeyConfig,
    Verify,
};
use crate::request::Request;
use crate::verify::token;

/// All characters except those that are unreserved in an address (RFC 3986).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The values for the placeholders of a template.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    /// The job's `params`; null if it has none.
    pub params: &'a Value,
    /// Eclusa's id of the job.
    pub job_id: &'a str,
    /// The id that the caller gave the job.
    pub id: Option<&'a str>,
    /// Whose job it is.
    pub tenant: &'a str,
    /// See [`webhook_url`].
    pub webhook_url: Option<&'a str>,
    /// The upstream's id for the job.
    pub external_id: Option<&'a str>,
    /// The key with which the call is made.
    pub key: Option<&'a str>,
}

/// The values of a job, for the templates of all upstreams.
#[derive(Clone, Copy)]
pub struct JobValues<'a> {
    /// Its `params`; null if it has none.
    pub params: &'a Value,
    /// Its id.
    pub job: JobId,
    /// The id that the caller gave it.
    pub id: Option<&'a str>,
    /// Whose it is.
    pub tenant: &'a str,
}

/// A request made from a template.
pub struct Shaped {
    /// The request, with the headers of the template.
    pub request: Request,
    /// The headers of the template again: they come from the config, so they are sent whatever their names.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// Why a template does not fit a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// The placeholder that the job cannot fill, such as `params./input`.
    pub field: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

/// The address at which `upstream` reports the result of the job.
pub fn webhook_url(public_url: &BaseUrl, upstream: &Name, verify: Option<&Verify>, job: JobId) -> String {
    let url = format!("{public_url}/v1/webhooks/{upstream}/{job}");
    match verify {
        Some(Verify::Token(key)) => format!("{url}?token={}", token(key, upstream, job)),
        _ => url,
    }
}

/// The request that the template of `upstream` makes of a job; `None` if it has no template.
pub fn for_upstream(
    targets: Targets<'_>,
    upstream: &Name,
    job: &JobValues<'_>,
    key: Option<&UpstreamKeyConfig>,
) -> Option<Result<Shaped, Vec<Unfit>>> {
    let rules = targets.upstreams.get(upstream)?.http()?;
    let template = rules.request.as_ref()?;
    let webhook = rules.awaited.as_ref().and_then(|awaited| awaited.webhook.as_ref());
    let verify = webhook.map(|webhook| &webhook.verify);
    let webhook_url = targets.public_url.map(|url| webhook_url(url, upstream, verify, job.job));
    let JobValues { params, job, id, tenant } = *job;
    let job_id = job.to_string();
    let (webhook_url, key) = (webhook_url.as_deref(), key.map(|key| key.secret.reveal()));
    Some(shape(
        template,
        &Values { params, job_id: &job_id, id, tenant, webhook_url, external_id: None, key },
    ))
}

/// The request, or all placeholders that the job cannot fill.
pub fn shape(template: &RequestTemplate, values: &Values<'_>) -> Result<Shaped, Vec<Unfit>> {
    let mut renderer = Renderer { values, unfit: Vec::new() };
    let path = renderer.path(&template.path);
    let query = template.query.as_ref().map(|query| renderer.text(query, Place::Address));
    let headers = renderer.headers(&template.headers);
    let body = template.body.as_ref().map(|body| renderer.json(body));
    if !renderer.unfit.is_empty() {
        return Err(renderer.unfit);
    }
    let pair =
        |(name, value): &(HeaderName, HeaderValue)| (name.as_str().to_owned(), value.as_bytes().to_vec());
    let mut pairs: Vec<(String, Vec<u8>)> = headers.iter().map(pair).collect();
    let body = match body {
        None => Vec::new(),
        Some(Value::String(text)) => text.into_bytes(),
        Some(json) => {
            if !pairs.iter().any(|(name, _)| name == "content-type") {
                pairs.push(("content-type".into(), b"application/json".to_vec()));
            }
            json.to_string().into_bytes()
        }
    };
    let request = Request { method: template.method.to_string(), path, query, headers: pairs, body };
    Ok(Shaped { request, headers })
}

/// Where a text is inserted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In a path or a query, where values are percent-encoded.
    Address,
    /// Anywhere else.
    Text,
}

struct Renderer<'a> {
    values: &'a Values<'a>,
    unfit: Vec<Unfit>,
}

impl Renderer<'_> {
    fn miss(&mut self, placeholder: &Placeholder, problem: &'static str) {
        let unfit = Unfit { field: placeholder.to_string(), problem };
        if !self.unfit.contains(&unfit) {
            self.unfit.push(unfit);
        }
    }

    /// The value of a placeholder as JSON.
    fn value(&mut self, placeholder: &Placeholder) -> Option<Value> {
        let Values { params, job_id, id, tenant, webhook_url, external_id, key } = *self.values;
        let text = match placeholder {
            Placeholder::Params(pointer) => {
                let value = params.pointer(pointer).cloned();
                if value.is_none() {
                    self.miss(placeholder, "is missing");
                }
                return value;
            }
            Placeholder::JobId => Some(job_id),
            Placeholder::Id => id,
            Placeholder::Tenant => Some(tenant),
            Placeholder::WebhookUrl => webhook_url,
            Placeholder::ExternalId => external_id,
            Placeholder::Key => key,
        };
        if text.is_none() {
            self.miss(placeholder, "is missing");
        }
        text.map(|text| Value::String(text.to_owned()))
    }

    /// The value of a placeholder as text.
    fn word(&mut self, placeholder: &Placeholder) -> Option<String> {
        match self.value(placeholder)? {
            Value::String(text) => Some(text),
            value @ (Value::Number(_) | Value::Bool(_)) => Some(value.to_string()),
            Value::Null => {
                self.miss(placeholder, "must not be null: it is put into a text");
                None
            }
            Value::Array(_) | Value::Object(_) => {
                self.miss(placeholder, "must be a string, a number or a boolean: it is put into a text");
                None
            }
        }
    }

    fn text(&mut self, template: &TextTemplate, place: Place) -> String {
        let mut text = String::new();
        for part in &template.parts {
            match part {
                TextPart::Text(plain) => text.push_str(plain),
                TextPart::Value(placeholder) => {
                    let word = self.word(placeholder).unwrap_or_default();
                    match place {
                        Place::Address => text.extend(utf8_percent_encode(&word, ENCODED)),
                        Place::Text => text.push_str(&word),
                    }
                }
            }
        }
        text
    }

    /// The path as it is sent. The text between the values was checked, so any fault comes from a value.
    fn path(&mut self, template: &TextTemplate) -> String {
        let before = self.unfit.len();
        let path = self.text(template, Place::Address);
        if self.unfit.len() > before {
            return path;
        }
        let is_empty = |placeholder: &Placeholder| self.encoded(placeholder).is_empty();
        let problem = match target::normalise(&path) {
            // Without its last segment a path may address everything below it.
            Ok(path) if !template.placeholders().any(is_empty) => return path,
            Err(target::BadPath::TooLong) => "makes the path too long",
            _ => {
                "cannot be a part of a path: it must not be empty, `.` or `..`, nor hold a slash, a backslash or a control \
                 character"
            }
        };
        let is_bad = |placeholder: &&Placeholder| {
            is_empty(placeholder) || target::normalise(&format!("/{}", self.encoded(placeholder))).is_err()
        };
        let bad: Vec<&Placeholder> = template.placeholders().filter(is_bad).collect();
        let bad = if bad.is_empty() { template.placeholders().collect() } else { bad };
        bad.into_iter().for_each(|placeholder| self.miss(placeholder, problem));
        path
    }

    /// The value as it appears in a path, if it can.
    fn encoded(&self, placeholder: &Placeholder) -> String {
        let word = Renderer { values: self.values, unfit: Vec::new() }.word(placeholder).unwrap_or_default();
        utf8_percent_encode(&word, ENCODED).to_string()
    }

    fn headers(&mut self, templates: &[(HeaderName, TextTemplate)]) -> Vec<(HeaderName, HeaderValue)> {
        let mut headers = Vec::with_capacity(templates.len());
        for (name, template) in templates {
            let text = self.text(template, Place::Text);
            match HeaderValue::from_bytes(text.as_bytes()) {
                Ok(mut value) => {
                    value.set_sensitive(true);
                    headers.push((name.clone(), value));
                }
                Err(_) => {
                    for placeholder in template.placeholders() {
                        let word = self.word(placeholder).unwrap_or_default();
                        if HeaderValue::from_bytes(word.as_bytes()).is_err() {
                            self.miss(
                                placeholder,
                                "must not contain control characters: it is sent in a header",
                            );
                        }
                    }
                }
            }
        }
        headers
    }

    fn json(&mut self, template: &JsonTemplate) -> Value {
        match template {
            JsonTemplate::Plain(value) => value.clone(),
            JsonTemplate::Text(text) => match text.lone() {
                Some(placeholder) => self.value(placeholder).unwrap_or_default(),
                None => Value::String(self.text(text, Place::Text)),
            },
            JsonTemplate::List(items) => items.iter().map(|item| self.json(item)).collect(),
            JsonTemplate::Object(members) => {
                members.iter().map(|(name, item)| (name.clone(), self.json(item))).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::Config;

    fn template(request: &str) -> RequestTemplate {
        let text = format!(
            "[server]\npublic_url = 'https://gw'\n[upstreams.u]\nurl = 'https://u'\nrequest = {request}"
        );
        let config = Config::parse("test.toml", &text, &|_| None).unwrap();
        config.upstreams.into_values().next().unwrap().http().unwrap().request.clone().unwrap()
    }

    fn shaped(request: &str, params: &Value) -> Result<Shaped, Vec<Unfit>> {
        let values = Values {
            params,
            job_id: "j-1",
            id: None,
            tenant: "acme",
            webhook_url: Some("https://gw/v1/webhooks/u/j-1"),
            external_id: None,
            key: None,
        };
        shape(&template(request), &values)
    }

    fn unfit(request: &str, params: &Value) -> Vec<String> {
        let unfit = shaped(request, params).err().unwrap_or_default();
        unfit.into_iter().map(|unfit| format!("{} {}", unfit.field, unfit.problem)).collect()
    }

    #[test]
    fn a_lone_placeholder_keeps_its_type_and_others_become_text() {
        let body = |body: &str, params: &Value| {
            let shaped = shaped(&format!("{{ path = '/', body = {body} }}"), params)
                .unwrap_or_else(|_| panic!("{body}"));
            serde_json::from_slice::<Value>(&shaped.request.body).unwrap()
        };
        let params = json!({ "input": { "prompt": "a cat", "n": 2 }, "seed": 7, "hd": true, "none": null });
        assert_eq!(
            body(
                "{ input = '{params./input}', seed = '{params./seed}', none = '{params./none}', list = ['{params:/hd}', 1.5] }",
                &params
            ),
            json!({ "input": { "prompt": "a cat", "n": 2 }, "seed": 7, "none": null, "list": [true, 1.5] })
        );
        assert_eq!(
            body("{ text = 'seed {params./seed}: {params./hd}, {{x}}', hook = '{webhook_url}' }", &params),
            json!({ "text": "seed 7: true, {x}", "hook": "https://gw/v1/webhooks/u/j-1" })
        );
        assert_eq!(body("'{params./input}'", &params), params["input"]);
    }

    #[test]
    fn a_json_body_gets_a_content_type_unless_the_template_has_one() {
        let sent = |request: &str| {
            shaped(request, &json!({ "p": "hé" })).unwrap_or_else(|_| panic!("{request}")).request
        };
        let json = ("content-type".to_owned(), b"application/json".to_vec());
        assert_eq!(sent("{ path = '/', body = { a = 1 } }").headers, [json]);
        let own =
            sent("{ path = '/', body = { a = 1 }, headers = { Content-Type = 'application/x' } }").headers;
        assert_eq!(own, [("content-type".to_owned(), b"application/x".to_vec())]);
        let text = sent("{ path = '/', body = 'say {params./p}' }");
        assert_eq!((text.body.as_slice(), text.headers.len()), ("say hé".as_bytes(), 0));
        let none = sent("{ method = 'GET', path = '/a' }");
        assert_eq!((none.method.as_str(), none.body.len(), none.query), ("GET", 0, None));
    }

    #[test]
    fn values_in_an_address_are_encoded() {
        let params = json!({ "model": "flux pro?x=1", "n": 3 });
        let sent =
            shaped("{ path = '/v1/{params./model}/{tenant}?n={params./n}&hook={webhook_url}' }", &params)
                .unwrap_or_else(|_| panic!());
        assert_eq!(sent.request.path, "/v1/flux%20pro%3Fx%3D1/acme");
        assert_eq!(
            sent.request.query.as_deref(),
            Some("n=3&hook=https%3A%2F%2Fgw%2Fv1%2Fwebhooks%2Fu%2Fj-1")
        );
        for bad in ["a/b", "..", ".", "", "a\nb", "\\"] {
            let unfit =
                unfit("{ path = '/v1/{params./n}/{params./model}' }", &json!({ "model": bad, "n": 1 }));
            assert!(
                unfit.len() == 1 && unfit[0].starts_with("params./model cannot be a part of a path"),
                "{bad}: {unfit:?}"
            );
        }
        let both = unfit("{ path = '/v1/{params./a}{params./b}' }", &json!({ "a": ".", "b": "." }));
        assert_eq!(both.len(), 2, "{both:?}");
    }

    #[test]
    fn every_missing_value_is_named_once() {
        let request = "{ path = '/{params./a}', headers = { X = '{params./b}', Y = '{id}' }, body = { c = '{params./c/0}', a = '{params./a}' } }";
        assert_eq!(
            unfit(request, &json!({ "c": [] })),
            ["params./a is missing", "params./b is missing", "id is missing", "params./c/0 is missing"]
        );
        assert_eq!(
            unfit(request, &json!({ "a": {}, "b": "x\r\ny", "c": [1] })),
            [
                "params./a must be a string, a number or a boolean: it is put into a text",
                "params./b must not contain control characters: it is sent in a header",
                "id is missing"
            ]
        );
        assert_eq!(unfit(request, &Value::Null).len(), 4);
    }
}
