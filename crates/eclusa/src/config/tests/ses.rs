//! Amazon SES upstreams.

use super::read;
use crate::config::{
    Config, ContainerToken, CredentialSource, MetadataSource, Secret, SesRules, UpstreamKind,
};

const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", "geheim")];

fn rules(config: &Config) -> SesRules {
    match &config.upstreams.values().next().unwrap().kind {
        UpstreamKind::Ses(rules) => (**rules).clone(),
        other => panic!("not SES: {other:?}"),
    }
}

fn ses(text: &str, variables: &[(&str, &str)]) -> SesRules {
    let config = read(&format!("[upstreams.s]\nkind = 'ses'\nregion = 'eu-west-1'\n{text}"), variables);
    rules(&config.unwrap())
}

/// `line:column problem` of every error in an upstream.
fn problems(text: &str, variables: &[(&str, &str)]) -> String {
    let Err(errors) = read(&format!("[upstreams.s]\nkind = 'ses'\n{text}"), variables) else {
        return String::new();
    };
    let lines = errors.iter().map(|error| {
        let place = error.place.unwrap();
        format!("{}:{} {}", place.line, place.column, error.problem)
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_region_is_enough_where_the_environment_has_credentials() {
    let rules = ses("", &KEYS);
    assert_eq!(rules.url.to_string(), "https://email.eu-west-1.amazonaws.com");
    assert_eq!((rules.region.as_str(), rules.configuration_set), ("eu-west-1", None));
    let CredentialSource::Fixed(credentials) = &rules.credentials else { panic!("{:?}", rules.credentials) };
    assert_eq!(credentials.secret_access_key.reveal(), "geheim");
    assert!(!format!("{:?}", rules.credentials).contains("geheim"));
    let rules = ses("url = 'http://localhost:4566/aws'\nconfiguration_set = 'c'", &KEYS);
    assert_eq!(
        (rules.url.to_string().as_str(), rules.configuration_set.as_deref()),
        ("http://localhost:4566/aws", Some("c"))
    );
    let china = read("[upstreams.s]\nkind = 'ses'\nregion = 'cn-north-1'", &KEYS).unwrap();
    assert_eq!(self::rules(&china).url.to_string(), "https://email.cn-north-1.amazonaws.com.cn");
}

#[test]
fn the_environment_of_a_container_says_where_its_credentials_are() {
    let container = |variables: &[(&str, &str)]| match ses("", variables).credentials {
        CredentialSource::Metadata(MetadataSource::Container { url, token }) => (url.to_string(), token),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        container(&[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/1")]),
        ("http://169.254.170.2/v2/credentials/1".into(), None)
    );
    let full = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials");
    let token = |name: &'static str| container(&[full, (name, "t")]).1;
    assert_eq!(token("AWS_CONTAINER_AUTHORIZATION_TOKEN"), Some(ContainerToken::Text(Secret::new("t"))));
    assert_eq!(token("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"), Some(ContainerToken::File("t".into())));
    // Explicit credentials take precedence over the container's.
    assert!(matches!(ses("", &[KEYS[0], KEYS[1], full]).credentials, CredentialSource::Fixed(_)));
}

#[test]
fn invalid_ses_keys_are_reported_with_their_location() {
    for (text, expected) in [
        ("", "1:1 `upstreams.s.region` is missing"),
        ("region = 'Frankfurt'", "3:10 `upstreams.s.region` is not an AWS region"),
        ("region = 'eu-west-1.evil.example'", "3:10 `upstreams.s.region` is not an AWS region"),
        (
            "region = 'eu-west-1'\nurl = 'smtp://m'",
            "4:7 `upstreams.s.url` is not an `http://` or `https://` address",
        ),
        ("region = 'eu-west-1'\nprofile = 'p'", "4:1 `upstreams.s.profile` needs `credentials_file`"),
        (
            "region = 'eu-west-1'\nauth = { user = 'u', password = 'p' }\nheaders = { X = '1' }",
            "4:1 `upstreams.s.auth` does not apply to an upstream of kind `ses`\n\
             5:1 `upstreams.s.headers` does not apply to an upstream of kind `ses`",
        ),
        ("region = 'eu-west-1'\nretryable = ['AccountSuspended', '503']", ""),
        ("region = 'eu-west-1'\nretryable = ['5.7.1']", "4:14 `upstreams.s.retryable` is not an SES error"),
        (
            "region = 'eu-west-1'\nurl = 'http://h'\ntls = {}",
            "5:1 `upstreams.s.tls` has no effect with an `http://` address",
        ),
    ] {
        assert_eq!(problems(text, &KEYS), expected, "{text}");
    }
    assert_eq!(
        read("[upstreams.h]\nurl = 'http://h'\nregion = 'eu-west-1'", &[])
            .unwrap_err()
            .iter()
            .next()
            .unwrap()
            .problem,
        "`upstreams.h.region` does not apply to an upstream of kind `http`"
    );
    let container = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", "geheim")];
    let problem = problems("region = 'eu-west-1'", &container);
    assert!(problem.ends_with("it is not a URL") && !problem.contains("geheim"), "{problem}");
}
