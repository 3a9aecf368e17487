//! Amazon SES upstreams.

use std::path::PathBuf;

use super::aws_credentials::{AwsCredentials, credentials_of_profile};
use super::read::{At, FromText, Table};
use super::texts::{FilePath, Region};
use super::types::{BaseUrl, Secret};

/// Keys that only SES upstreams have.
pub(super) const SES_KEYS: [&str; 5] =
    ["region", "credentials", "credentials_file", "profile", "configuration_set"];

/// The credentials service of containers, for relative URIs.
const CONTAINER_HOST: &str = "http://169.254.170.2";
/// The metadata service of EC2 instances.
const INSTANCE_HOST: &str = "http://169.254.169.254";

/// The rules of an SES upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct SesRules {
    /// Such as `eu-west-1`.
    pub region: String,
    /// The URL of the API.
    pub url: BaseUrl,
    /// Where the AWS credentials come from.
    pub credentials: CredentialSource,
    /// The configuration set to send with.
    pub configuration_set: Option<String>,
}

/// Where AWS credentials come from.
#[derive(Debug, Clone, PartialEq)]
pub enum CredentialSource {
    /// From the environment.
    Fixed(AwsCredentials),
    /// From a file in the format of AWS's tools, read again when it changes.
    File {
        /// The path of the file.
        path: PathBuf,
        /// The profile in it.
        profile: String,
    },
    /// From a metadata service, renewed before they expire.
    Metadata(MetadataSource),
}

/// A service that issues credentials.
#[derive(Debug, Clone, PartialEq)]
pub enum MetadataSource {
    /// In a container of Amazon ECS or EKS.
    Container {
        /// The full URL.
        url: BaseUrl,
        /// Sent as `Authorization`.
        token: Option<ContainerToken>,
    },
    /// On an Amazon EC2 instance (`IMDSv2`).
    Instance {
        /// Scheme, host and port.
        url: BaseUrl,
    },
}

/// The token that authenticates the container to the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerToken {
    /// The token itself.
    Text(Secret),
    /// A file that contains it and is replaced from time to time.
    File(PathBuf),
}

/// The key `credentials`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provision {
    Environment,
    Instance,
}

/// The keys of an SES upstream, besides its URL.
pub(super) struct SesKeys {
    region: Option<String>,
    credentials: Provision,
    file: Option<At<FilePath>>,
    profile: String,
    configuration_set: Option<String>,
}

/// Reads the SES keys; all are optional here.
pub(super) fn ses_keys(t: &mut Table<'_>) -> SesKeys {
    let region: Option<Region> = t.get("region", "The AWS region, for `ses`: `eu-west-1`.");
    let credentials = t.or(
        "credentials",
        Provision::Environment,
        "Where the credentials of `ses` come from: the environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, \
         `AWS_SESSION_TOKEN`, or in a container of ECS or EKS `AWS_CONTAINER_CREDENTIALS_…`), or the role of the EC2 instance \
         (`instance`).",
    );
    let file = t.get(
        "credentials_file",
        "A credentials file in the format of AWS's tools, instead of `credentials`. Read again when it changes.",
    );
    let profile = t.or("profile", "default".to_owned(), "The profile in `credentials_file`.");
    let configuration_set = t.get("configuration_set", "The configuration set of `ses` to send with.");
    SesKeys { region: region.map(|region| region.0), credentials, file, profile, configuration_set }
}

/// The rules of an SES upstream; `None` if a mistake was noted.
pub(super) fn ses(t: &Table<'_>, url: Option<BaseUrl>, keys: SesKeys) -> Option<SesRules> {
    if !t.has("region") {
        t.wrong("region", "is missing", "add `region = \"us-east-1\"`");
    }
    if t.has("profile") && !t.has("credentials_file") {
        t.misplaced("profile", "needs `credentials_file`", "add `credentials_file = \"path\"`");
    }
    if t.has("credentials") && t.has("credentials_file") {
        t.misplaced("credentials", "cannot be used with `credentials_file`", "keep one of them");
    }
    let credentials = match (&keys.file, keys.credentials) {
        (Some(file), _) => from_file(t, file, keys.profile),
        (None, Provision::Environment) => from_environment(t),
        (None, Provision::Instance) => instance(t),
    };
    let region = keys.region?;
    let url =
        url.or_else(|| BaseUrl::from_text(&format!("https://email.{region}.{}", domain(&region))).ok())?;
    Some(SesRules { region, url, credentials: credentials?, configuration_set: keys.configuration_set })
}

/// Regions in China have a separate domain.
fn domain(region: &str) -> &'static str {
    if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" }
}

fn from_file(t: &Table<'_>, file: &At<FilePath>, profile: String) -> Option<CredentialSource> {
    let bytes = t.context().file(file)?;
    let read = String::from_utf8(bytes).map_err(|_| "is not text".to_owned());
    if let Err(problem) = read.and_then(|text| credentials_of_profile(&text, &profile)) {
        let help = "name a file with `aws_access_key_id` and `aws_secret_access_key`, and its `profile`";
        t.wrong("credentials_file", &format!("names a file that {problem}"), help);
        return None;
    }
    Some(CredentialSource::File { path: t.context().path(file), profile })
}

fn from_environment(t: &Table<'_>) -> Option<CredentialSource> {
    let variable = |name: &str| t.context().variable(name).filter(|value| !value.is_empty());
    let missing = |problem: &str, help: &str| t.missing(problem, help);
    match (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) {
        (Some(access_key_id), Some(secret)) => Some(CredentialSource::Fixed(AwsCredentials {
            access_key_id,
            secret_access_key: Secret::new(secret),
            session_token: variable("AWS_SESSION_TOKEN").map(Secret::new),
        })),
        (None, None) => {
            let container = container(&variable);
            match container {
                Some(Ok(source)) => return Some(source),
                Some(Err(name)) => {
                    let problem = format!("cannot use the environment variable `{name}`: it is not a URL");
                    missing(&problem, "write `http://HOST/PATH`");
                }
                None => missing(
                    "has no AWS credentials: `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` are not set",
                    "set them, or add `credentials_file = \"path\"` or `credentials = \"instance\"`",
                ),
            }
            None
        }
        (id, _) => {
            let (there, gone) = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
            let (there, gone) = if id.is_some() { (there, gone) } else { (gone, there) };
            missing(
                &format!("has incomplete AWS credentials: `{there}` is set, `{gone}` is not"),
                "set both",
            );
            None
        }
    }
}

/// The credentials service that a container's environment names, or the name of the variable that is invalid.
fn container(variable: &dyn Fn(&str) -> Option<String>) -> Option<Result<CredentialSource, &'static str>> {
    const RELATIVE: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
    const FULL: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    let (name, address) = match (variable(RELATIVE), variable(FULL)) {
        (Some(path), _) => (RELATIVE, format!("{CONTAINER_HOST}{path}")),
        (None, Some(address)) => (FULL, address),
        (None, None) => return None,
    };
    let file =
        variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").map(|path| ContainerToken::File(path.into()));
    let text =
        || variable("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(|text| ContainerToken::Text(Secret::new(text)));
    let token = file.or_else(text);
    let url = BaseUrl::from_text(&address).map_err(|_| name);
    Some(url.map(|url| CredentialSource::Metadata(MetadataSource::Container { url, token })))
}

fn instance(t: &Table<'_>) -> Option<CredentialSource> {
    const ENDPOINT: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
    let named = t.context().variable(ENDPOINT).filter(|value| !value.is_empty());
    let Ok(url) = BaseUrl::from_text(named.as_deref().unwrap_or(INSTANCE_HOST)) else {
        t.wrong(
            "credentials",
            &format!("cannot use the environment variable `{ENDPOINT}`: it is not a URL"),
            "",
        );
        return None;
    };
    Some(CredentialSource::Metadata(MetadataSource::Instance { url }))
}
