//! Mail upstreams, and the lanes that use them.

use super::read;
use crate::config::{Config, SmtpAuth, SmtpRules, StartTls, UpstreamConfig, UpstreamKind};

fn upstream(text: &str) -> UpstreamConfig {
    let config = read(&format!("[upstreams.m]\nkind = 'smtp'\n{text}"), &[("PW", "geheim")]);
    config.unwrap().upstreams.into_values().next().unwrap()
}

fn smtp(text: &str) -> SmtpRules {
    match upstream(text).kind {
        UpstreamKind::Smtp(rules) => *rules,
        UpstreamKind::Http(_) | UpstreamKind::Ses(_) => panic!("it takes mail"),
    }
}

/// `line:column problem` of every error in an upstream.
fn problems(text: &str) -> String {
    problems_of(&format!("[upstreams.m]\nkind = 'smtp'\n{text}"))
}

fn problems_of(text: &str) -> String {
    let Err(errors) = read(text, &[("PW", "geheim")]) else { return String::new() };
    let lines = errors.iter().map(|error| {
        let place = error.place.unwrap();
        format!("{}:{} {}", place.line, place.column, error.problem)
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn an_smtp_server_is_read_with_its_defaults() {
    let rules = smtp("url = 'smtp://localhost'");
    assert_eq!((rules.url.to_string().as_str(), rules.url.is_loopback()), ("smtp://localhost:25", true));
    assert_eq!((rules.auth, rules.starttls, rules.max_connections), (None, StartTls::Auto, 10));
    let rules = smtp("url = 'smtps://[2001:db8::1]'\nauth = { user = 'u', password = '${PW}' }");
    assert_eq!(rules.url.to_string(), "smtps://[2001:db8::1]:465");
    assert_eq!(rules.auth.as_ref().map(|auth| auth.user.as_str()), Some("u"));
    let Some(SmtpAuth { password, .. }) = &rules.auth else { panic!("it has a password") };
    assert_eq!(password.reveal(), "geheim");
    assert!(!format!("{rules:?}").contains("geheim"));
    let up = upstream("url = 'smtp://m:587'\nretryable = ['550', '5.7.1']\npermanent = ['4.2.2']");
    assert_eq!(up.codes.retryable, ["550", "5.7.1"]);
}

#[test]
fn invalid_smtp_keys_are_reported_with_their_location() {
    for (text, expected) in [
        ("url = 'smtp://u:p@m'", "3:7 `upstreams.m.url` must not contain a user or a password"),
        ("url = 'smtp://m/inbox'", "3:7 `upstreams.m.url` must end after the host and the port"),
        ("url = 'smtp://m:99999'", "3:7 `upstreams.m.url` has no host or an invalid port"),
        (
            "url = 'smtps://m'\nstarttls = 'auto'",
            "4:1 `upstreams.m.starttls` does not apply to an `smtps://` address, which is encrypted from the start",
        ),
        (
            "url = 'smtp://m'\nstarttls = 'off'\nauth = { user = 'u', password = 'p' }",
            "5:1 `upstreams.m.auth` would send the password unencrypted",
        ),
        ("url = 'smtp://127.0.0.1'\nstarttls = 'off'\nauth = { user = 'u', password = 'p' }", ""),
        ("url = 'smtp://m'\nauth = { user = '' }", "4:8 `upstreams.m.auth.password` is missing"),
        (
            "url = 'smtp://m'\nretryable = ['4.7', 'x']",
            "4:14 `upstreams.m.retryable` is not an SMTP code\n4:21 `upstreams.m.retryable` is not an SMTP code",
        ),
        (
            "url = 'smtp://m'\nheaders = { X = '1' }\nmax_response = '1KiB'",
            "4:1 `upstreams.m.headers` does not apply to an upstream of kind `smtp`\n\
             5:1 `upstreams.m.max_response` does not apply to an upstream of kind `smtp`",
        ),
        (
            "url = 'smtp://m'\n[[upstreams.m.policies]]\nname = 'P'\ncapacity = 1\nrefill = '1/s'",
            "4:15 `upstreams.m.policies` does not apply to an upstream of kind `smtp`",
        ),
    ] {
        assert_eq!(problems(text), expected, "{text}");
    }
}

#[test]
fn a_lane_sends_mail_or_requests() {
    let lane = |lane: &str| {
        problems_of(&format!(
            "[lanes.l]\n{lane}\n[upstreams.m]\nkind = 'smtp'\nurl = 'smtp://m'\n[upstreams.h]\nurl = 'http://h'\n"
        ))
    };
    assert_eq!(lane("chain = ['m']"), "");
    assert_eq!(
        lane("chain = ['m', 'h']"),
        "2:15 `lanes.l.chain` mixes mail and HTTP: `h` is HTTP, the upstreams before it are mail"
    );
    assert_eq!(
        lane("chain = ['h']\nchain_by = 'params:/x'\nchains = { a = ['m'] }"),
        "4:17 `lanes.l.chains.a` mixes mail and HTTP: `m` is mail, the upstreams before it are HTTP"
    );
    assert_eq!(
        lane("mode = 'direct'\nchain = ['m']"),
        "3:10 `lanes.l.chain` names a mail upstream, which a direct lane cannot use: it passes requests through"
    );
    assert_eq!(
        lane("chain = ['m']\ncache = { key = '{params./x}', ttl = '1s' }"),
        "3:1 `lanes.l.cache` does not apply to mail: every message is sent"
    );
}

#[test]
fn the_password_may_be_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("pw"), "geheim\n").unwrap();
    let text = "[upstreams.m]\nkind = 'smtp'\nurl = 'smtp://m'\nauth = { user = 'u', password_file = 'pw' }";
    let name = dir.path().join("eclusa.toml").display().to_string();
    let config = Config::parse(&name, text, &|_| None).unwrap();
    let UpstreamKind::Smtp(rules) = &config.upstreams.values().next().unwrap().kind else {
        panic!("it takes mail")
    };
    assert_eq!(rules.auth.as_ref().unwrap().password.reveal(), "geheim");
}

#[test]
fn a_schedule_may_send_a_message() {
    let job = |message: &str| {
        problems_of(&format!(
            "[lanes.l]\nchain = ['m']\n[upstreams.m]\nkind = 'smtp'\nurl = 'smtp://m'\n\
             [schedules.s]\ncron = '0 3 * * *'\nlane = 'l'\njob = {{ message = {message} }}\n"
        ))
    };
    assert_eq!(job("{ from = 'a@example.com', to = 'b@example.com', text = 'x' }"), "");
    let problem = job("{ from = 'a@example.com', to = 'b', text = 'x' }");
    assert!(
        problem.starts_with("9:7 `schedules.s.job` would be refused: message.to: must be an address"),
        "{problem}"
    );
}
