//! Valid files.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use eclusa_core::gate::{BreakerSpec, BucketSpec, CooldownSpec, GateSpecs, PaceSpec, WindowSpec};
use eclusa_core::retry::{ExtraCodes, OnAmbiguous, RetryBudget, RetryPolicy};
use eclusa_core::{
    AlertLimits, CacheSpec, Capacity, Chain, DeadLetterRate, DeadLetterSpec, Fairness, Keep, LaneSpec, Level,
    Name, Patterns, RedriveSpec, Span, Spec, UpstreamSpec,
};

use super::read;
use crate::config::*;
use crate::store::{Ack, WhenLost};

const SCORE_PROXY: &str = include_str!("../../../../../examples/score-proxy.toml");

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Rules have no equality, so their debug output is compared.
fn same_rules(left: &Spec, right: &Spec) {
    assert_eq!(format!("{left:#?}"), format!("{right:#?}"));
}

#[test]
fn the_score_proxy_has_the_values_of_its_source() {
    let config = read(SCORE_PROXY, &[("UPSTREAM_URL", "https://bureau.example/v2/")]).unwrap();
    let lane = &config.lanes[&name("score")];
    assert_eq!(lane.mode, Mode::Queue);
    assert_eq!(lane.chain, [name("bureau")]);
    assert_eq!(lane.types["update"], Level::High);
    assert_eq!(lane.validate, [(Field::Query("cpf".into()), Check::Cpf)]);
    assert_eq!(lane.retry.attempts(), 1);
    let key = lane.cache_key.as_ref().unwrap();
    assert_eq!(key.template.parts, [TemplatePart::Field(Field::Query("cpf".into()))]);
    let upstream = &config.upstreams[&name("bureau")];
    let url = &upstream.http().unwrap().url;
    assert_eq!((url.authority.as_str(), url.prefix.as_str()), ("bureau.example", "/v2"));
    assert_eq!(upstream.timeout, Duration::from_secs(5));

    let mut gates = GateSpecs::default();
    gates.breaker = Some(BreakerSpec::new(5, Span::from_secs(30), 1).unwrap());
    gates.pace = Some(PaceSpec::new(Span::from_secs(1), Span::from_millis(50), Span::from_secs(60)).unwrap());
    let mut lane = LaneSpec::new(name("score"), Chain::new(vec![name("bureau")]).unwrap());
    lane.capacity = Capacity::new(100, Capacity::default().bytes()).unwrap();
    lane.ttl = Some(Span::from_secs(10));
    lane.cache = Some(CacheSpec::new(Span::from_secs(60), Span::from_secs(600)).unwrap());
    lane.retry = RetryPolicy::new(1, Span::from_secs(1), Span::from_secs(60), 25).unwrap();
    same_rules(&config.spec, &Spec::new(vec![lane], vec![UpstreamSpec::new(name("bureau"), gates)]).unwrap());
}

#[test]
fn the_score_proxy_takes_every_variable_of_its_source() {
    let variables = [
        ("UPSTREAM_URL", "http://127.0.0.1:1"),
        ("QUEUE_MAX_SIZE", "7"),
        ("JOB_TTL_MS", "1234"),
        ("REQUEST_TIMEOUT_MS", "250"),
        ("BREAKER_FAILURE_THRESHOLD", "2"),
        ("BREAKER_OPEN_WINDOW_MS", "400"),
        ("SCHEDULER_INITIAL_INTERVAL_MS", "60"),
        ("CACHE_TTL_SEC", "5"),
    ];
    let config = read(SCORE_PROXY, &variables).unwrap();
    assert_eq!(config.upstreams[&name("bureau")].timeout, Duration::from_millis(250));
    let rules = format!("{:?}", config.spec);
    for expected in [
        "jobs: 7,",
        "ttl: Some(Span(1234))",
        "CacheSpec { ttl: Span(5000)",
        "failures: 2, open_for: Span(400)",
        "initial: Span(60)",
    ] {
        assert!(rules.contains(expected), "{expected} in {rules}");
    }
}

#[test]
fn the_init_config_is_valid_without_variables() {
    let config = read(INIT, &[]).unwrap();
    assert_eq!(config.upstreams[&name("api")].http().unwrap().url.authority, "api.example.com");
}

#[test]
fn an_empty_file_has_the_defaults() {
    let config = read("", &[]).unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.server.max_body, 1 << 20);
    assert_eq!(config.server.max_wait, Duration::from_mins(1));
    assert_eq!(config.server.max_connections, 10_000);
    assert_eq!(config.server.shutdown_grace, Duration::from_secs(30));
    let client = ClientBounds { total: Duration::from_mins(10), min_rate: 1 << 10 };
    assert_eq!(config.server.client, client);
    assert_eq!(config.store.url, StoreUrl::Embedded("./data".into()));
    assert_eq!(config.store.ack, Ack::Fsync);
    assert_eq!((config.workers.concurrency, config.workers.lease), (256, Duration::from_secs(10)));
    assert_eq!((config.log.filter.as_str(), config.log.format), ("info", LogFormat::Auto));
    assert!(!config.log.access && config.traces.is_none());
    assert!(config.keys.is_empty() && config.lanes.is_empty() && config.upstreams.is_empty());
}

#[test]
fn the_defaults_of_a_lane_are_those_of_the_engine() {
    let text = "[lanes.a]\nchain = ['b']\n[upstreams.b]\nurl = 'http://b'";
    let lane = LaneSpec::new(name("a"), Chain::new(vec![name("b")]).unwrap());
    let upstream = UpstreamSpec::new(name("b"), GateSpecs::default());
    same_rules(&read(text, &[]).unwrap().spec, &Spec::new(vec![lane], vec![upstream]).unwrap());
    let spelled_out =
        format!("{text}\n[lanes.a.retry]\n[lanes.a.fairness]\n[lanes.a.dead_letters]\n[lanes.a.keep]");
    let again = read(&spelled_out, &[]).unwrap();
    same_rules(&again.spec, &read(text, &[]).unwrap().spec);
}

/// Every key, each with a value that is not its default.
const EVERYTHING: &str = r#"
[server]
listen = "0.0.0.0:9000"
max_body = "512KiB"
max_bodies = "64MiB"
max_wait = "2m"
max_connections = 5
shutdown_grace = "0s"
client = { total = "1m", min_rate = "2KB/s" }
public_url = "https://gw.example/eclusa/"
tls = { cert_file = "server.pem", key_file = "server.key" }
drain = "7s"
[store]
url = "rediss://cache.internal:6380"
prefix = "ours:"
ack = "write"
when_lost = "stop"
shared_gates = true
timeout = "3s"
term = "4s"
forget_within = "30m"
tls = { cert_file = "client.pem", key_file = "client.key", ca_file = "client.pem" }
[workers]
concurrency = 3
lease = "2s"
[log]
level = "warn,eclusa=debug"
format = "json"
access = true
[traces]
otlp = "http://127.0.0.1:4318/otel"
headers = { X-Team = "pay" }
sample = 0.25
[callbacks]
hosts = ["App.example.com", "10.0.0.7"]
secret = "${APP_KEY}"
[alerts]
dead_letters = 7
dead_letter_rate = { share = 0.005, over = "30m", min = 9 }
tenant_dead_letters = false
redis_memory = [0.5, 0.75]
oldest_wait = "1h"
breaker_open = false
redis_rejected_connections = false
redis_aof_off = false
redis_eviction = false
store_lost_data = false
for = "0s"
keep_firing_for = "1m"
webhook = { url = "https://ops.example/hook?t=1", secret = "${APP_KEY}" }
tenants = { "a c:me" = { url = "http://10.0.0.8/hook", secret_file = "ops.key" } }
[[auth.keys]]
name = "app"
role = "producer"
key = "${APP_KEY}"
lanes = ["images"]
tenants = ["gold-*"]
max_priority = "normal"
[[auth.keys]]
name = "ops"
role = "admin"
key_file = "ops.key"
[lanes.images]
admit = "in_time"
mode = "queue"
chain = ["one"]
chain_by = "body:/modelId"
chains = { "flux.pro" = ["two", "one"] }
capacity = 0x10
max_bytes = 2_000
ttl = "1m"
types = { update = "high", bulk = "low" }
validate = { "query.cpf" = "cpf", "header.X-Org" = "cnpj", "body./a" = "required" }
mask = ["header.X-Org", "params:/email"]
retry = { attempts = 2, base = "2s", cap = "3s", jitter = 0.5, on_ambiguous = "stop", budget = { share = 0.3, min = "5/min" } }
tenant_rate = { "acme" = "10/min", "*" = "100/min" }
tenant_concurrency = 7
accept = { methods = ["POST"], paths = ["/", "/v1/{model}"] }
cache = { key = "{tenant}-{body./a}", key_scope = "all", methods = ["POST"], ttl = "1s", stale_if_error = "2s", max = 3, max_bytes = "4KiB" }
fairness = { batch = 2, weights = { "gold-*" = 3 } }
dead_letters = { ttl = "1d", max = 9, answers = false, redrive = { after = "5m", times = 2, codes = ["421", "5xx"] } }
keep = { for = "5m", max = 0 }
rpm = 10
rate = "5/h"
burst = 6
concurrency = 4
[lanes.straight]
mode = "direct"
chain = ["two"]
[lanes.plain]
chain = ["two"]
fairness = false
dead_letters = "${DEAD_LETTERS:-false}"
[upstreams.one]
kind = "http"
url = "https://one.example"
timeout = "3s"
connect_timeout = "1s"
request = { method = "PUT", path = "/p/{params./a}?t={tenant}", headers = { X-Id = "{id}" }, body = "{params./b}" }
headers = { Authorization = "Bearer ${TOKEN}", X-Price = "$$1" }
async = { id = "body:/id", timeout = "10m", on_failure = "next", poll = { method = "POST", path = "/p/{external_id}", headers = { X-A = "{job_id}" }, body = "?", after = "30s", every = "10s", status = "/s", success = ["a"], failure = ["b"] }, cancel = { method = "DELETE", path = "/p/{external_id}", headers = { X-A = "b" }, body = "!" }, webhook = { verify = "hmac-sha256", header = "X-Signature", encoding = "base64", signed = "{header.x-id}.{body}", secret_file = "ops.key", status = "/s", success = ["a"], failure = ["b"] } }
breaker = { failures = 7, open_for = "8s", probes = 2 }
pace = { initial = "2s", min = "1s", max = "4s", adaptive = true }
cooldown = ["1s", "2s"]
max_concurrent = 6
rpm = 600
rate = "10/s"
burst = 20
retryable = ["418"]
permanent = ["503"]
max_response = 1000
tls = { cert_file = "client.pem", key_file = "client.key", ca_file = "client.pem" }
reconcile = { path = "/balances", every = "1m", headers = { X-A = "b" }, format = "json" }
[[upstreams.one.policies]]
name = "USERS"
match = { method = ["GET"], path = "/users/{id}", vars = { id = '^a' }, query = { q = true }, headers = { X-A = 'b' } }
scope = "header:X-User"
class = "PF"
classes = [{ name = "PF", scope = '^\d{11}$', capacity = 100, refill = "2/min", credit = { payment = 1 } }]
cost = { "200" = 1, "5xx" = 0, default = 2 }
hold = "worst"
correlation = "header:X-Id"
credit = { payment = 2 }
credit_within = "1h"
alert_below = 0.5
[[upstreams.one.policies]]
name = "ALL"
capacity = "${CAPACITY:-10}"
refill = "40/day"
[upstreams.two]
keys = [{ name = "a", key = "${TOKEN}", max_concurrent = 2, rpm = 30, cooldown = ["5s"] }, { name = "b", key_file = "ops.key", rate = "1/s", burst = 2 }]
cooldown = ["3s"]
headers = { Authorization = "Bearer {key}", X-Plain = "{a}" }
url = "http://two"
rate = "40/day"
[upstreams.mail]
kind = "smtp"
url = "smtp://mail.example.com:587"
auth = { user = "u", password = "${TOKEN}" }
starttls = "required"
max_connections = 3
[upstreams.post]
kind = "smtp"
url = "smtps://mail.example.com"
auth = { user = "u", password_file = "ops.key" }
[upstreams.ses]
kind = "ses"
region = "sa-east-1"
credentials_file = "aws.ini"
profile = "mail"
configuration_set = "tracking"
[upstreams.role]
kind = "ses"
region = "us-east-1"
credentials = "instance"
[schedules.nightly]
cron = "0 3 * * *"
tz = "America/Sao_Paulo"
lane = "plain"
job = { params = { a = [1, 2.5, true, "${TOKEN}"] }, request = { path = "/run" } }
missed = "all"
[upstreams.three]
url = "http://three"
async = { id = "body:/id", webhook = { verify = "token", secret = "${APP_KEY}" } }
[upstreams.four]
url = "http://four"
async = { id = "body:/id", webhook = { verify = "ed25519", public_key = "1111111111111111111111111111111111111111111111111111111111111111", header = "X-Signature" } }
"#;

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
const PRIVATE_KEY: &str = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";

/// Reads [`EVERYTHING`] with the files it names.
fn everything() -> Config {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("ops.key", "0123456789abcdef\n");
    let made = rcgen::generate_simple_self_signed(["gw.example".to_owned()]).unwrap();
    write("server.pem", &made.cert.pem());
    write("server.key", &made.signing_key.serialize_pem());
    write("client.pem", CERTIFICATE);
    write("client.key", PRIVATE_KEY);
    write("aws.ini", "[mail]\naws_access_key_id = AKID\naws_secret_access_key = hunter2\n");
    write("eclusa.toml", EVERYTHING);
    let env = |name: &str| match name {
        "APP_KEY" => Some("hunter2-hunter2-hunter2".to_owned()),
        "TOKEN" => Some("hunter2".to_owned()),
        _ => None,
    };
    Config::load(&dir.path().join("eclusa.toml"), &env).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The paths of all keys in a file, without the names that the user chose.
fn keys_written(table: &toml::Table, path: &str, paths: &mut BTreeSet<String>) {
    const FREE: [&str; 11] = [
        "chains",
        "types",
        "validate",
        "headers",
        "weights",
        "vars",
        "query",
        "cost",
        "credit",
        "job",
        "tenant_rate",
    ];
    for (key, value) in table {
        let chosen = matches!(path, "lanes" | "upstreams" | "schedules" | "alerts.tenants");
        let path = if chosen {
            format!("{path}.*")
        } else {
            format!("{path}.{key}").trim_start_matches('.').to_owned()
        };
        if !chosen {
            paths.insert(path.clone());
        }
        match value {
            toml::Value::Table(table) if !FREE.contains(&key.as_str()) => keys_written(table, &path, paths),
            toml::Value::Array(items) => {
                items
                    .iter()
                    .filter_map(|item| item.as_table())
                    .for_each(|table| keys_written(table, &path, paths));
            }
            _ => {}
        }
    }
}

/// The paths of all keys in a schema.
fn keys_in_schema(schema: &serde_json::Value, path: &str, paths: &mut BTreeSet<String>) {
    for (key, value) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{key}").trim_start_matches('.').to_owned();
        paths.insert(path.clone());
        keys_in_schema(value, &path, paths);
    }
    keys_in_schema_of(&schema["items"], path, paths);
    keys_in_schema_of(&schema["additionalProperties"], &format!("{path}.*"), paths);
    schema["anyOf"]
        .as_array()
        .into_iter()
        .flatten()
        .for_each(|choice| keys_in_schema_of(choice, path, paths));
}

fn keys_in_schema_of(schema: &serde_json::Value, path: &str, paths: &mut BTreeSet<String>) {
    if schema.get("properties").is_some() {
        keys_in_schema(schema, path, paths);
    }
}

/// The file is read without errors, so the readers know all its keys; here it is compared with the schema.
#[test]
fn the_schema_has_every_key_that_is_read_and_no_other() {
    let (mut written, mut described) = (BTreeSet::new(), BTreeSet::new());
    keys_written(&EVERYTHING.parse().unwrap(), "", &mut written);
    // The alternative to `secret`.
    for key in ["callbacks.secret_file", "alerts.webhook.secret_file", "alerts.tenants.*.secret"] {
        written.insert(key.into());
    }
    keys_in_schema(&schema(), "", &mut described);
    assert_eq!(written, described);
    assert!(written.contains("lanes.*.retry.on_ambiguous") && written.contains("auth.keys.key_file"));
}

#[test]
fn every_key_of_alerts_is_read() {
    let alerts = everything().alerts;
    let rate = DeadLetterRate { share_micros: 5_000, over: Span::from_secs(1_800), min: 9 };
    let limits = AlertLimits {
        dead_letters: Some(7),
        tenant_dead_letters: None,
        dead_letter_rate: Some(rate),
        oldest_wait: Some(Span::from_secs(3_600)),
        breaker_open: false,
        redis_rejected_connections: false,
        store_lost_data: false,
        hold: Span::ZERO,
        clear: Span::from_secs(60),
    };
    assert_eq!((alerts.limits, alerts.redis_memory), (limits, Some([500_000, 750_000])));
    assert!(!alerts.redis_aof_off && !alerts.redis_eviction);
    let webhook = alerts.webhook.unwrap();
    assert_eq!(webhook.url.0.to_string(), "https://ops.example/hook?t=1");
    assert_eq!(webhook.secret.reveal(), "hunter2-hunter2-hunter2");
    assert_eq!(alerts.tenants["a c:me"].url.0.host(), Some("10.0.0.8"));

    let alerts = read("", &[]).unwrap().alerts;
    assert_eq!((alerts.limits.dead_letters, alerts.limits.tenant_dead_letters), (Some(100), Some(50)));
    let rate = DeadLetterRate { share_micros: 20_000, over: Span::from_secs(3_600), min: 50 };
    assert_eq!(
        (alerts.limits.dead_letter_rate, alerts.limits.oldest_wait),
        (Some(rate), Some(Span::from_secs(300)))
    );
    assert_eq!(alerts.redis_memory, Some([800_000, 900_000]));
    assert!(alerts.webhook.is_none() && alerts.tenants.is_empty() && alerts.redis_aof_off);
    let alerts = read("[alerts]\ndead_letter_rate = false\nredis_memory = false\noldest_wait = false", &[])
        .unwrap()
        .alerts;
    assert_eq!(
        (alerts.limits.dead_letter_rate, alerts.limits.oldest_wait, alerts.redis_memory),
        (None, None, None)
    );
}

/// A webhook is enough to create the lane that delivers it.
#[test]
fn a_webhook_of_alerts_needs_no_callbacks() {
    let text = "[alerts.webhook]\nurl = 'http://127.0.0.1:9/'\nsecret = '0123456789abcdef'\n";
    let config = read(text, &[]).unwrap();
    assert!(config.callbacks.is_none() && config.spec.lane(&name("_callbacks")).is_some());
    assert!(read("", &[]).unwrap().spec.lane(&name("_callbacks")).is_none());
}

#[test]
fn every_key_is_read() {
    let config = everything();
    let hosts = [Host::Name("app.example.com".into()), Host::Address([10, 0, 0, 7].into())];
    let callbacks = config.callbacks.unwrap();
    assert_eq!((&*callbacks.hosts, callbacks.secret.reveal()), (&hosts[..], "hunter2-hunter2-hunter2"));
    assert_eq!(config.server.listen.to_string(), "0.0.0.0:9000");
    assert_eq!((config.server.max_body, config.server.max_bodies), (512 << 10, 64 << 20));
    assert_eq!(config.server.max_connections, 5);
    assert_eq!(
        (config.server.max_wait, config.server.shutdown_grace),
        (Duration::from_mins(2), Duration::ZERO)
    );
    assert_eq!(config.server.drain, Duration::from_secs(7));
    assert!(config.server.tls.unwrap().cert_file.ends_with("server.pem"));
    assert_eq!(config.server.client, ClientBounds { total: Duration::from_mins(1), min_rate: 2_000 });
    assert_eq!(config.server.public_url.as_ref().unwrap().to_string(), "https://gw.example/eclusa");
    assert_eq!(config.store.url, StoreUrl::Redis(Secret::new("rediss://cache.internal:6380")));
    assert_eq!((config.store.prefix.as_str(), config.store.ack), ("ours:", Ack::Write));
    assert_eq!(config.store.tls.ca.as_deref(), Some(CERTIFICATE.as_bytes()));
    assert!(config.store.tls.client.is_some());
    assert_eq!((config.store.when_lost, config.store.shared_gates), (WhenLost::Stop, true));
    assert_eq!([config.store.timeout, config.store.term], [3, 4].map(Duration::from_secs));
    assert_eq!(config.store.forget_within, Duration::from_mins(30));
    assert_eq!((config.workers.concurrency, config.workers.lease), (3, Duration::from_secs(2)));
    assert_eq!((config.log.filter.as_str(), config.log.format), ("warn,eclusa=debug", LogFormat::Json));
    assert!(config.log.access);
    let traces = config.traces.as_ref().unwrap();
    assert_eq!(traces.endpoint, "http://127.0.0.1:4318/otel/v1/traces");
    assert_eq!((traces.sample_micros, traces.headers.len()), (250_000, 1));
    let [app, ops] = config.keys.as_slice() else { panic!("two keys") };
    assert_eq!((app.name.as_str(), app.role, app.max_priority), ("app", Role::Producer, Level::Normal));
    assert_eq!(app.secret.reveal(), "hunter2-hunter2-hunter2");
    assert_eq!(
        (app.lanes.clone(), app.tenants.clone()),
        (Some(vec![name("images")]), Some(vec!["gold-*".into()]))
    );
    assert_eq!((ops.name.as_str(), ops.role, ops.max_priority), ("ops", Role::Admin, Level::High));
    assert_eq!((ops.secret.reveal(), &ops.lanes, &ops.tenants), ("0123456789abcdef", &None, &None));
}

#[test]
fn every_key_of_a_lane_is_read() {
    let config = everything();
    let lane = &config.lanes[&name("images")];
    let chains = lane.chains.as_ref().unwrap();
    assert_eq!(chains.by, Field::Body("/modelId".into()));
    assert_eq!(chains.chains["flux.pro"], [name("two"), name("one")]);
    assert_eq!((lane.types["update"], lane.types["bulk"]), (Level::High, Level::Low));
    assert_eq!(lane.mask, [Field::Header("x-org".into()), Field::Params("/email".into())]);
    let schedule = &config.schedules[&name("nightly")];
    assert_eq!((&schedule.lane, schedule.missed), (&name("plain"), Missed::All));
    assert_eq!(schedule.job["params"]["a"], serde_json::json!([1, 2.5, true, "hunter2"]));
    let fields: Vec<_> = lane.validate.iter().map(|(field, _)| field.clone()).collect();
    let expected = [Field::Query("cpf".into()), Field::Header("x-org".into()), Field::Body("/a".into())];
    assert_eq!(fields, expected);
    let key = vec![
        TemplatePart::Tenant,
        TemplatePart::Text("-".into()),
        TemplatePart::Field(Field::Body("/a".into())),
    ];
    let (template, methods) = (Template { parts: key }, vec!["POST".to_owned()]);
    assert_eq!(lane.cache_key, Some(CacheKey { template, scope: KeyScope::All, methods }));
    assert_eq!((&lane.accept.methods[..], lane.accept.paths.len()), (&["POST".to_owned()][..], 2));
    assert_eq!(lane.concurrency, Some(4));
    assert_eq!(config.lanes[&name("straight")].mode, Mode::Direct);
}

#[test]
fn every_key_of_an_upstream_is_read() {
    let config = everything();
    let upstream = &config.upstreams[&name("one")];
    let rules = upstream.http().unwrap();
    assert_eq!(rules.url.scheme, http::uri::Scheme::HTTPS);
    assert_eq!(
        (upstream.timeout, upstream.connect_timeout),
        (Duration::from_secs(3), Duration::from_secs(1))
    );
    let headers: Vec<_> =
        rules.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    assert_eq!(headers, [("authorization", &b"Bearer hunter2"[..]), ("x-price", b"$1")]);
    let two = &config.upstreams[&name("two")];
    assert_eq!(
        (two.http().unwrap().headers.len(), two.keys().len()),
        (1, 2),
        "what holds no key is sent as it is"
    );
    assert_eq!(two.key("a").unwrap().headers[0].1.as_bytes(), b"Bearer hunter2");
    assert_eq!(two.key("b").unwrap().headers[0].1.as_bytes(), b"Bearer 0123456789abcdef");
    assert_eq!(upstream.codes, ExtraCodes { retryable: vec!["418".into()], permanent: vec!["503".into()] });
    assert_eq!(rules.max_response, 1000);
    let request = rules.request.as_ref().unwrap();
    let b = TextTemplate { parts: vec![TextPart::Value(Placeholder::Params("/b".into()))] };
    assert_eq!((&request.method, &request.body), (&http::Method::PUT, &Some(JsonTemplate::Text(b))));
    let used: Vec<&Placeholder> =
        request.path.placeholders().chain(request.headers[0].1.placeholders()).collect();
    assert_eq!(used, [&Placeholder::Params("/a".into()), &Placeholder::Id]);
    assert_eq!(request.query.as_ref().unwrap().parts[1], TextPart::Value(Placeholder::Tenant));
    assert_eq!(upstream.tls.ca.as_deref(), Some(CERTIFICATE.as_bytes()));
    let (certificate, key) = upstream.tls.client.as_ref().unwrap();
    assert_eq!((certificate.as_slice(), key.reveal()), (CERTIFICATE.as_bytes(), PRIVATE_KEY));
}

#[test]
fn every_rule_reaches_the_engine() {
    let secs = Span::from_secs;
    let mut images = LaneSpec::new(name("images"), Chain::new(vec![name("one")]).unwrap());
    images.capacity = Capacity::new(16, 2_000).unwrap();
    images.ttl = Some(secs(60));
    images.fairness = Some(Fairness::new(2, vec![("gold-*".into(), 3)]).unwrap());
    images.gates.window = Some(WindowSpec::per_minute(10).unwrap());
    images.gates.bucket = Some(BucketSpec::new(6, 5, secs(3_600)).unwrap());
    images.gates = images.gates.with_slots("concurrency", 4).unwrap();
    let budget = RetryBudget::new(30, BucketSpec::new(5, 5, secs(60)).unwrap()).unwrap();
    let retry = RetryPolicy::new(2, secs(2), secs(3), 50).unwrap().on_ambiguous(OnAmbiguous::Stop);
    images.retry = retry.with_budget(Some(budget));
    let rate = |count| BucketSpec::new(count, count, secs(60)).unwrap();
    images.tenant_limits.rate =
        [("acme".to_owned(), rate(10)), ("*".to_owned(), rate(100))].into_iter().collect();
    images.tenant_limits.concurrency = Patterns::of_all(7.try_into().unwrap());
    images.cache = Some(CacheSpec::new(secs(1), secs(2)).unwrap().bounded(3, 4096).unwrap());
    let redrive = RedriveSpec::new(secs(300), 2, vec!["421".into(), "5xx".into()]).unwrap();
    let letters = DeadLetterSpec::new(secs(86_400), 9).unwrap();
    images.dead_letters = Some(letters.with_answers(false).with_redrive(Some(redrive)));
    images.keep = Keep { span: secs(300), max: 0 };
    images.in_time = true;
    let mut plain = LaneSpec::new(name("plain"), Chain::new(vec![name("two")]).unwrap());
    (plain.fairness, plain.dead_letters) = (None, None);
    let straight = LaneSpec::new(name("straight"), Chain::new(vec![name("two")]).unwrap());
    let mut gates = GateSpecs::default();
    gates.breaker = Some(BreakerSpec::new(7, secs(8), 2).unwrap());
    gates.pace = Some(PaceSpec::new(secs(2), secs(1), secs(4)).unwrap().adaptive(true));
    gates.cooldown = Some(CooldownSpec::new(&[secs(1), secs(2)]).unwrap());
    gates.window = Some(WindowSpec::per_minute(600).unwrap());
    gates.bucket = Some(BucketSpec::new(20, 10, secs(1)).unwrap());
    let one = UpstreamSpec::new(name("one"), gates.with_slots("max_concurrent", 6).unwrap());
    let mut two = UpstreamSpec::new(name("two"), GateSpecs::default());
    // Without `burst`, the capacity is the number in `rate`.
    two.gates.bucket = Some(BucketSpec::new(40, 40, secs(86_400)).unwrap());
    let (_, _, callbacks, called) = crate::config::callbacks::lane().unwrap();
    // Each key has its own cooldown: keys without one use the upstream's.
    let ladder = |rest| Some(CooldownSpec::new(&[secs(rest)]).unwrap());
    let mut a = GateSpecs::default().with_slots("max_concurrent", 2).unwrap();
    (a.window, a.cooldown) = (Some(WindowSpec::per_minute(30).unwrap()), ladder(5));
    let mut b = GateSpecs::default();
    (b.bucket, b.cooldown) = (Some(BucketSpec::new(2, 1, secs(1)).unwrap()), ladder(3));
    let key = |key, gates| UpstreamSpec::new(name("two").with_key(&name(key)), gates);
    let plainly = |text| UpstreamSpec::new(name(text), GateSpecs::default());
    let upstreams = vec![
        one,
        two,
        key("a", a),
        key("b", b),
        plainly("mail"),
        plainly("post"),
        plainly("ses"),
        plainly("role"),
        plainly("three"),
        plainly("four"),
        called,
    ];
    same_rules(&everything().spec, &Spec::new(vec![images, straight, plain, callbacks], upstreams).unwrap());
}

#[test]
fn debug_output_of_a_config_hides_secrets() {
    let shown = format!("{:?}", everything());
    assert!(!shown.contains("hunter2") && !shown.contains("0123456789abcdef"), "{shown}");
    assert!(!shown.contains("MAA="), "{shown}");
    assert!(shown.contains("Secret(…)") && shown.contains("Sensitive"), "{shown}");
}

#[test]
fn a_missing_file_is_reported_with_help() {
    let errors = Config::load(Path::new("nowhere/eclusa.toml"), &|_| None).unwrap_err();
    let shown = errors.to_string();
    assert!(shown.starts_with("error: nowhere/eclusa.toml: cannot be read: No such file"), "{shown}");
    assert!(shown.ends_with("help: create one with `eclusa init`"), "{shown}");
    assert_eq!(errors.iter().next().unwrap().place, None);
}
