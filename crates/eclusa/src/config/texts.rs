//! The types that config strings are parsed into.

use std::net::SocketAddr;
use std::path::PathBuf;

use eclusa_core::retry::OnAmbiguous;
use eclusa_core::{Level, Name};
use http::uri::{PathAndQuery, Uri};
use toml::de::DeValue;

use super::awaited::{Encoding, OnFailure, VerifyKind};
use super::cache::KeyScope;
use super::read::{self, FromText, RawValue, Show, Value, Wrong, suggest};
use super::ses::Provision;
use super::types::{Ack, Admit, BaseUrl, Check, LogFormat, Missed, Mode, Role, Secret, StoreUrl, WhenLost};
use super::upstream_types::{SmtpUrl, StartTls, StateFormat};

/// The longest region name; it becomes part of a host name.
const MAX_REGION: usize = 30;

/// Implements [`FromText`] and [`Show`] for an enum that is written as one of a few words.
macro_rules! words {
    ($type:ty, $what:literal, $help:literal, [$($word:literal => $value:expr),+ $(,)?]) => {
        impl FromText for $type {
            const WHAT: &'static str = $what;
            const HELP: &'static str = $help;

            fn kind() -> read::ValueKind {
                read::ValueKind::Words(vec![$($word),+])
            }

            fn from_text(text: &str) -> Result<Self, Wrong> {
                match text {
                    $($word => Ok($value),)+
                    other => Err(unknown_word(other, $what, &[$($word),+])),
                }
            }
        }

        impl Show for $type {
            fn show(&self) -> String {
                let words = [$(($word, $value)),+];
                let word = words.into_iter().find(|(_, value)| value == self).map(|(word, _)| word);
                format!("{:?}", word.unwrap_or_default())
            }
        }
    };
}

words!(Mode, "a mode", "write `\"queue\"` or `\"direct\"`", ["queue" => Mode::Queue, "direct" => Mode::Direct]);
words!(Missed, "a value", "write `\"skip\"`, `\"once\"` or `\"all\"`", [
    "skip" => Missed::Skip, "once" => Missed::Once, "all" => Missed::All,
]);
words!(Admit, "a value", "write `\"all\"` or `\"in_time\"`", ["all" => Admit::All, "in_time" => Admit::InTime]);
words!(KeyScope, "a scope", "write `\"request\"` or `\"all\"`", ["request" => KeyScope::Request, "all" => KeyScope::All]);
words!(LogFormat, "a format", "write `\"auto\"`, `\"json\"` or `\"text\"`", [
    "auto" => LogFormat::Auto, "json" => LogFormat::Json, "text" => LogFormat::Text,
]);
words!(Ack, "a value", "write `\"fsync\"`, `\"write\"` or `\"replicate\"`", [
    "fsync" => Ack::Fsync, "write" => Ack::Write, "replicate" => Ack::Replicate,
]);
words!(WhenLost, "a value", "write `\"share\"` or `\"stop\"`", ["share" => WhenLost::Share, "stop" => WhenLost::Stop]);
words!(Role, "a role", "write `\"producer\"`, `\"viewer\"`, `\"operator\"` or `\"admin\"`", [
    "producer" => Role::Producer, "viewer" => Role::Viewer, "operator" => Role::Operator, "admin" => Role::Admin,
]);
words!(Level, "a priority", "write `\"high\"`, `\"normal\"` or `\"low\"`", [
    "high" => Level::High, "normal" => Level::Normal, "low" => Level::Low,
]);
words!(OnAmbiguous, "a value", "write `\"retry\"` or `\"stop\"`", [
    "retry" => OnAmbiguous::Retry, "stop" => OnAmbiguous::Stop,
]);
words!(Check, "a check", "write `\"cpf\"`, `\"cnpj\"` or `\"required\"`", [
    "cpf" => Check::Cpf, "cnpj" => Check::Cnpj, "required" => Check::Required,
]);

words!(StateFormat, "a format", "write `\"dict-xml\"` or `\"json\"`", [
    "dict-xml" => StateFormat::DictXml, "json" => StateFormat::Json,
]);

words!(OnFailure, "a value", "write `\"next\"` or `\"fail\"`", ["next" => OnFailure::Next, "fail" => OnFailure::Fail]);
words!(Encoding, "an encoding", "write `\"hex\"` or `\"base64\"`", ["hex" => Encoding::Hex, "base64" => Encoding::Base64]);
words!(VerifyKind, "a verification method", "write `\"standard-webhooks\"`, `\"hmac-sha256\"`, `\"ed25519\"` or `\"token\"`", [
    "standard-webhooks" => VerifyKind::StandardWebhooks, "hmac-sha256" => VerifyKind::HmacSha256,
    "ed25519" => VerifyKind::Ed25519, "token" => VerifyKind::Token,
]);

/// `what` includes its article.
fn unknown_word(word: &str, what: &str, known: &[&str]) -> Wrong {
    let choice = format!("use `{}`", known.join("`, `"));
    let help =
        suggest(word, known.iter().copied()).map_or(choice.clone(), |close| format!("{close} ({choice})"));
    let noun = what.split_once(' ').map_or(what, |(_, noun)| noun);
    Wrong::new(format!("is not a known {noun}"), help)
}

impl FromText for String {
    const WHAT: &'static str = "a string";
    const HELP: &'static str = "write it in quotes";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        Ok(text.to_owned())
    }
}

impl Show for String {
    fn show(&self) -> String {
        format!("{self:?}")
    }
}

impl FromText for Secret {
    const WHAT: &'static str = "a string";
    const SECRET: bool = true;
    const HELP: &'static str = "write it in quotes, such as `\"${API_KEY}\"`";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        Ok(Self::new(text))
    }
}

/// A file path, relative to the config file's directory.
#[derive(Debug)]
pub(super) struct FilePath(pub(super) PathBuf);

impl FromText for FilePath {
    const WHAT: &'static str = "a path";
    const HELP: &'static str = "write it in quotes";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        if text.is_empty() {
            return Err(Wrong::new("is empty", "name a file"));
        }
        Ok(Self(text.into()))
    }
}

impl FromText for Name {
    const WHAT: &'static str = "a name";
    const HELP: &'static str = "write it in quotes";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        // The engine's error would repeat the name, which may come from a variable.
        Self::new(text)
            .map_err(|_| Wrong::new("is not a name", "use 1 to 64 letters, digits, `-`, `_` or `.`"))
    }
}

impl FromText for SocketAddr {
    const WHAT: &'static str = "an address";
    const HELP: &'static str = "write an IP address and a port: \"127.0.0.1:8080\" or \"[::1]:8080\"";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let wrong = || Wrong::new("is not a listen address", Self::HELP);
        // `localhost` is the only name that needs no lookup.
        let text =
            text.strip_prefix("localhost:").map_or(text.to_owned(), |port| format!("127.0.0.1:{port}"));
        text.parse().map_err(|_| wrong())
    }
}

impl Show for SocketAddr {
    fn show(&self) -> String {
        format!("\"{self}\"")
    }
}

impl FromText for StoreUrl {
    const WHAT: &'static str = "a store";
    const HELP: &'static str = "write \"embedded:./data\", \"memory:\" or \"redis://127.0.0.1:6379\"";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        match text.split_once(':') {
            Some(("embedded", "")) => Err(Wrong::new("names no directory", "write \"embedded:./data\"")),
            Some(("embedded", path)) => Ok(Self::Embedded(path.into())),
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("redis" | "rediss", _)) if redis::Client::open(text).is_ok() => {
                Ok(Self::Redis(Secret::new(text)))
            }
            Some(("redis" | "rediss", _)) => {
                let help = "write \"redis://HOST:PORT\", or \"rediss://HOST:PORT\" for TLS";
                Err(Wrong { hide: true, ..Wrong::new("is not a Redis URL", help) })
            }
            Some((scheme, _)) if scheme.starts_with("redis") || scheme.starts_with("valkey") => {
                let problem = "is a Redis URL that this version does not support";
                let help = "write \"redis://HOST:PORT\" or \"rediss://HOST:PORT\"; it works for Valkey too";
                Err(Wrong { hide: true, ..Wrong::new(problem, help) })
            }
            _ => Err(Wrong { hide: text.contains('@'), ..Wrong::new("is not a valid store", Self::HELP) }),
        }
    }
}

impl Show for StoreUrl {
    fn show(&self) -> String {
        match self {
            Self::Embedded(path) => format!("\"embedded:{}\"", path.display()),
            Self::Memory => "\"memory:\"".to_owned(),
            Self::Redis(_) => "\"redis://…\"".to_owned(),
        }
    }
}

/// The key `kind`: the protocol of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http,
    Smtp,
    Ses,
}

impl Protocol {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Smtp => "smtp",
            Self::Ses => "ses",
        }
    }
}

words!(Protocol, "a kind of upstream", "write `\"http\"`, `\"smtp\"` or `\"ses\"`", [
    "http" => Protocol::Http, "smtp" => Protocol::Smtp, "ses" => Protocol::Ses,
]);
words!(Provision, "a value", "write `\"environment\"` or `\"instance\"`", [
    "environment" => Provision::Environment, "instance" => Provision::Instance,
]);
words!(StartTls, "a value", "write `\"auto\"`, `\"required\"` or `\"off\"`", [
    "auto" => StartTls::Auto, "required" => StartTls::Required, "off" => StartTls::Off,
]);

/// An upstream's URL, by scheme.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UpstreamUrl {
    Http(BaseUrl),
    Smtp(SmtpUrl),
}

impl FromText for UpstreamUrl {
    const WHAT: &'static str = "an address";
    const HELP: &'static str = BaseUrl::HELP;

    fn from_text(text: &str) -> Result<Self, Wrong> {
        match text.split_once("://") {
            Some(("smtp" | "smtps", _)) => smtp_url(text).map(Self::Smtp),
            _ => BaseUrl::from_text(text).map(Self::Http),
        }
    }
}

fn smtp_url(text: &str) -> Result<SmtpUrl, Wrong> {
    if text.contains('@') {
        let help = "write `auth = { user = \"…\", password = \"${VARIABLE}\" }`";
        return Err(Wrong { hide: true, ..Wrong::new("must not contain a user or a password", help) });
    }
    let wrong = |problem: &str| Wrong::new(problem, "write it like \"smtp://mail.example.com:587\"");
    let uri: Uri = text.parse().map_err(|_| wrong("is not an address"))?;
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() || text.contains('#') {
        return Err(wrong("must end after the host and the port"));
    }
    let implicit_tls = uri.scheme_str() == Some("smtps");
    let host = uri.host().unwrap_or_default();
    let named_port = uri.authority().map_or("", |authority| &authority.as_str()[host.len()..]);
    let port = match (named_port, uri.port_u16()) {
        ("", _) => Some(if implicit_tls { 465 } else { 25 }),
        (_, port) => port.filter(|port| *port > 0),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    match port {
        Some(port) if !host.is_empty() => Ok(SmtpUrl { implicit_tls, host, port }),
        _ => Err(wrong("has no host or an invalid port")),
    }
}

impl FromText for BaseUrl {
    const WHAT: &'static str = "an address";
    const HELP: &'static str = "write it like \"https://api.example.com/v1\"";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        // It may contain a password, or a token in a query.
        let hide = text.contains(['@', '?']);
        let wrong = |problem: &str| Wrong { hide, ..Wrong::new(problem, Self::HELP) };
        let uri: Uri = text.parse().map_err(|_| wrong("is not an address"))?;
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(wrong("is not an `http://` or `https://` address"));
        };
        if !matches!(scheme.as_str(), "http" | "https") {
            return Err(wrong("is not an `http://` or `https://` address"));
        }
        if authority.as_str().contains('@') {
            let help = "send credentials with `headers = { Authorization = \"…\" }`";
            return Err(Wrong { hide: true, ..Wrong::new("must not contain a user or a password", help) });
        }
        let path = parts.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
        if path.query().is_some() || text.contains('#') {
            return Err(wrong("must not have a query or a fragment: those come with each request"));
        }
        let port = &authority.as_str()[authority.host().len()..];
        if authority.host().is_empty() || (!port.is_empty() && authority.port_u16().is_none()) {
            return Err(Wrong { hide: true, ..wrong("has no host or an invalid port") });
        }
        if path.path().split('/').any(|part| matches!(part, "." | "..")) {
            return Err(wrong("must not contain `.` or `..` as a path segment"));
        }
        Ok(Self { scheme, prefix: path.path().trim_end_matches('/').to_owned(), authority })
    }
}

/// A code that `retryable` or `permanent` lists; which ones are valid depends on the protocol.
#[derive(Debug)]
pub(super) struct Code(pub(super) String);

/// Written with or without quotes.
impl Value for Code {
    fn kind() -> read::ValueKind {
        read::ValueKind::Either(
            Box::new(read::ValueKind::Text("a status")),
            Box::new(read::ValueKind::Integer(1)),
        )
    }

    fn read(raw: RawValue<'_>) -> Option<Self> {
        match raw.value() {
            DeValue::Integer(_) => raw.integer(1).map(|code| Self(code.to_string())),
            DeValue::String(_) => Some(Self(raw.text().ok()??.text)),
            _ => {
                raw.mistyped("a status", "write a number or, in quotes, a code: \"418\"");
                None
            }
        }
    }
}

impl Code {
    /// Whether an upstream with this protocol can return it.
    pub(super) fn check(&self, kind: Protocol) -> Result<(), Wrong> {
        let number = |min: u16, max: u16| {
            self.0.len() == 3 && self.0.parse().is_ok_and(|code: u16| (min..=max).contains(&code))
        };
        match kind {
            Protocol::Http if !number(100, 599) => {
                Err(Wrong::new("is not an HTTP status", "write a status such as 418"))
            }
            Protocol::Smtp if !number(200, 599) && !is_enhanced(&self.0) => {
                let help = "write a code or an enhanced code in quotes: \"450\" or \"4.7.0\"";
                Err(Wrong::new("is not an SMTP code", help))
            }
            Protocol::Ses if !number(100, 599) && !is_ses_name(&self.0) => {
                let help = "write an error name such as \"MessageRejected\"";
                Err(Wrong::new("is not an SES error", help))
            }
            Protocol::Http | Protocol::Smtp | Protocol::Ses => Ok(()),
        }
    }
}

/// Whether `text` is an enhanced code (RFC 3463), such as `4.7.0`.
fn is_enhanced(text: &str) -> bool {
    let digits = |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = text.split('.').collect();
    matches!(parts.as_slice(), ["2" | "4" | "5", subject, detail] if digits(subject) && digits(detail))
}

/// Whether `text` could be the name of an SES error.
fn is_ses_name(text: &str) -> bool {
    text.starts_with(|char: char| char.is_ascii_uppercase())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// An AWS region.
#[derive(Debug)]
pub(super) struct Region(pub(super) String);

impl FromText for Region {
    const WHAT: &'static str = "a region";
    const HELP: &'static str = "write it like \"us-east-1\"";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        let part = |part: &str| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        if text.len() <= MAX_REGION && text.contains('-') && text.split('-').all(part) {
            return Ok(Self(text.to_owned()));
        }
        Err(Wrong::new("is not an AWS region", Self::HELP))
    }
}

/// A log level such as `info`, or a filter in the syntax of `RUST_LOG`.
#[derive(Debug)]
pub(super) struct LogFilter(pub(super) String);

impl FromText for LogFilter {
    const WHAT: &'static str = "a level";
    const HELP: &'static str = "write `\"info\"`, or a filter such as `\"info,eclusa=debug\"`";

    fn from_text(text: &str) -> Result<Self, Wrong> {
        const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
        // A single word that is not a level would be taken for a module name and silence everything else.
        let lone_word = !text.contains(['=', ',', '[', ':']);
        if lone_word && !LEVELS.contains(&text) {
            return Err(unknown_word(text, Self::WHAT, &LEVELS));
        }
        match tracing_subscriber::EnvFilter::builder().parse(text) {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(_) => Err(Wrong::new("is not a log filter", Self::HELP)),
        }
    }
}

impl Show for LogFilter {
    fn show(&self) -> String {
        self.0.show()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_are_parsed() {
        let url = |text| BaseUrl::from_text(text).map(|url| (url.authority.to_string(), url.prefix)).unwrap();
        assert_eq!(url("https://api.example.com"), ("api.example.com".into(), String::new()));
        assert_eq!(url("http://[::1]:80/a/b/"), ("[::1]:80".into(), "/a/b".into()));
        let bad = [
            "",
            "api.example.com",
            "/a",
            "ftp://a",
            "https://",
            "https://a?b=1",
            "https://a/#b",
            "https://a:99999",
            "https://a/../b",
            "https://u:p@a",
        ];
        for text in bad {
            assert!(BaseUrl::from_text(text).is_err(), "{text}");
        }
        assert!(BaseUrl::from_text("https://u:p@a").unwrap_err().hide);
    }

    #[test]
    fn unsupported_store_urls_have_their_own_error() {
        assert_eq!(StoreUrl::from_text("embedded:./data"), Ok(StoreUrl::Embedded("./data".into())));
        assert_eq!(StoreUrl::from_text("memory:"), Ok(StoreUrl::Memory));
        for text in ["redis://:pw@h", "rediss://h:6380"] {
            assert_eq!(StoreUrl::from_text(text), Ok(StoreUrl::Redis(Secret::new(text))));
        }
        for (text, problem) in [
            ("redis://:pw@h:port", "is not a Redis URL"),
            ("redis+cluster://a,b", "is a Redis URL that this version does not support"),
        ] {
            let wrong = StoreUrl::from_text(text).unwrap_err();
            assert_eq!((wrong.problem.as_str(), wrong.hide), (problem, true), "{text}");
        }
        assert_eq!(StoreUrl::from_text("./data").unwrap_err().problem, "is not a valid store");
        assert_eq!(StoreUrl::from_text("embedded:").unwrap_err().problem, "names no directory");
    }

    #[test]
    fn a_misspelt_log_level_is_not_taken_for_a_module() {
        assert!(LogFilter::from_text("info").is_ok());
        assert!(LogFilter::from_text("warn,eclusa=debug").is_ok());
        assert!(LogFilter::from_text("inof").unwrap_err().help.starts_with("did you mean `info`?"));
        assert!(LogFilter::from_text("eclusa=loud").is_err());
    }

    #[test]
    fn localhost_is_the_only_name_to_listen_on() {
        let listen = |text| SocketAddr::from_text(text).map(|addr| addr.to_string());
        assert_eq!(listen("localhost:80"), Ok("127.0.0.1:80".into()));
        assert_eq!(listen("[::1]:0"), Ok("[::1]:0".into()));
        assert!(listen("example.com:80").is_err() && listen(":8080").is_err() && listen("8080").is_err());
    }
}
