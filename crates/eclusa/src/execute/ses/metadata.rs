//! Credentials from the metadata service of the machine or container: Amazon ECS and EKS, and EC2 (`IMDSv2`).

use std::time::Duration;

use eclusa_core::Time;
use eclusa_core::retry::ExtraCodes;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use serde::Deserialize;

use crate::config::{
    AwsCredentials, ContainerToken, HttpRules, MetadataSource, Secret, Tls, UpstreamConfig, UpstreamKind,
};
use crate::execute::http::{HttpUpstream, TlsError};
use crate::execute::{CallContext, CallEnd};
use crate::request::Request;

/// Short, because the service is on the same machine.
const TIMEOUT: Duration = Duration::from_secs(2);
const MAX_ANSWER: usize = 64 * 1024;
const TOKEN_PATH: &str = "/latest/api/token";
const ROLES_PATH: &str = "/latest/meta-data/iam/security-credentials/";
const TOKEN: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token");
const TOKEN_TTL: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");

/// A client of a metadata service.
pub(super) struct Metadata {
    client: HttpUpstream,
    source: MetadataSource,
}

/// The answer of a metadata service.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Given {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
    expiration: Option<String>,
}

impl Metadata {
    pub(super) fn new(source: &MetadataSource) -> Result<Self, TlsError> {
        let url = match source {
            MetadataSource::Container { url, .. } | MetadataSource::Instance { url } => url.clone(),
        };
        let rules = HttpRules::plain(url, MAX_ANSWER);
        let upstream = UpstreamConfig {
            timeout: TIMEOUT,
            connect_timeout: TIMEOUT,
            codes: ExtraCodes::default(),
            tls: Tls::default(),
            kind: UpstreamKind::Http(Box::new(rules.clone())),
        };
        Ok(Self { client: HttpUpstream::new(&upstream, &rules)?, source: source.clone() })
    }

    /// Credentials and when they expire, or why there are none.
    pub(super) async fn ask(
        &self,
        context: &CallContext<'_>,
    ) -> Result<(AwsCredentials, Option<Time>), String> {
        let answer = match &self.source {
            MetadataSource::Container { token, .. } => {
                let token = token.as_ref().map(container_token).transpose()?;
                let headers = token.map(|token| (AUTHORIZATION, token));
                self.call("GET", "", headers.as_slice(), context).await?
            }
            MetadataSource::Instance { .. } => {
                let ttl = [(TOKEN_TTL, HeaderValue::from_static("300"))];
                let token = header(self.call("PUT", TOKEN_PATH, &ttl, context).await?.trim())?;
                let token = [(TOKEN, token)];
                let roles = self.call("GET", ROLES_PATH, &token, context).await?;
                let role = roles.lines().next().map(str::trim).filter(|role| !role.is_empty());
                let role = role.ok_or("the instance has no role")?;
                self.call("GET", &format!("{ROLES_PATH}{role}"), &token, context).await?
            }
        };
        let given: Given = serde_json::from_str(&answer)
            .map_err(|_| "the metadata service did not answer with credentials")?;
        let expires = given.expiration.and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let expires = expires.and_then(|at| u64::try_from(at.as_millisecond()).ok()).map(Time::from_millis);
        let credentials = AwsCredentials {
            access_key_id: given.access_key_id,
            secret_access_key: Secret::new(given.secret_access_key),
            session_token: given.token.map(Secret::new),
        };
        Ok((credentials, expires))
    }

    async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        context: &CallContext<'_>,
    ) -> Result<String, String> {
        let (method, path, query) = (method.to_owned(), path.to_owned(), None);
        let request = Request { method, path, query, headers: Vec::new(), body: Vec::new() };
        let called = self.client.call(&request, &CallContext { headers, ..*context }).await;
        let body = called.answer.and_then(|answer| String::from_utf8(answer.body).ok());
        match (called.end, body) {
            (CallEnd::Answered(200..=299), Some(body)) => Ok(body),
            (end, _) => Err(format!("the metadata service: {}", end.judge(&ExtraCodes::default()).reason)),
        }
    }
}

fn container_token(token: &ContainerToken) -> Result<HeaderValue, String> {
    match token {
        ContainerToken::Text(token) => header(token.reveal()),
        // The file is replaced from time to time, so it is read each time.
        ContainerToken::File(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| format!("the container's token cannot be read: {error}"))?;
            header(text.trim())
        }
    }
}

fn header(token: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(token).map_err(|_| "the token cannot be sent in a header")?;
    value.set_sensitive(true);
    Ok(value)
}
