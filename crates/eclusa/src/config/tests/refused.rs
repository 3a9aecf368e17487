//! All other errors, with their location and text.

use super::read;
use crate::config::Config;

/// `line:column problem` of every error in `text`.
fn problems(text: &str) -> Vec<String> {
    let Err(errors) = read(text, &[("KEY", "0123456789abcdef")]) else { return Vec::new() };
    errors.iter().map(place_and_problem).collect()
}

fn place_and_problem(error: &crate::config::ConfigError) -> String {
    let place = error.place.unwrap();
    format!("{}:{} {}", place.line, place.column, error.problem)
}

/// The errors of one line in an upstream.
fn of_upstream(line: &str) -> Vec<String> {
    problems(&format!("[upstreams.u]\nurl = 'https://u'\n{line}"))
}

/// The errors of one line in a lane.
fn of_lane(line: &str) -> Vec<String> {
    problems(&format!("[upstreams.u]\nurl = 'https://u'\n[lanes.l]\nchain = ['u']\n{line}"))
}

fn all<const N: usize>(errors: fn(&str) -> Vec<String>, cases: [(&str, &str); N]) {
    for (text, expected) in cases {
        assert_eq!(errors(text).join("\n"), expected, "{text}");
    }
}

#[test]
fn errors_in_server_store_workers_and_log() {
    all(
        problems,
        [
            ("server = 1", "1:10 `server` must be a table, not a whole number"),
            ("[server]\nlisten = 'example.com:80'", "2:10 `server.listen` is not a listen address"),
            ("[server]\nlisten = '[::ffff:127.0.0.1]:80'", ""),
            ("[server]\nmax_connections = 0", "2:19 `server.max_connections` must be greater than zero"),
            (
                "[server]\nmax_connections = 1.5",
                "2:19 `server.max_connections` must be a whole number, not a number with a fraction",
            ),
            ("[server]\nmax_body = '0B'", "2:12 `server.max_body` must be greater than zero"),
            ("[server]\nmax_body = true", "2:12 `server.max_body` must be a size, not a boolean"),
            ("[server]\nclient = { total = '0s' }", "2:20 `server.client.total` must be longer than zero"),
            (
                "[server]\nclient = { min_rate = '1KiB' }",
                "2:23 `server.client.min_rate` is not a number of bytes per second",
            ),
            (
                "[server]\nclient = { min_rate = '0B/s' }",
                "2:23 `server.client.min_rate` is not a number of bytes per second",
            ),
            ("[store]\nack = 'replicate'", "2:7 `store.ack` works only with Redis"),
            ("[store]\ntls = {}", "2:1 `store.tls` has no effect with this `url`"),
            ("[store]\nack = 'maybe'", "2:7 `store.ack` is not a known value"),
            ("[store]\nwhen_lost = 'wait'", "2:13 `store.when_lost` is not a known value"),
            ("[store]\nshared_gates = 'no'", "2:16 `store.shared_gates` must be true or false, not a string"),
            ("[workers]\nlease = '999ms'", "2:9 `workers.lease` is too short to be renewed in time"),
            ("[workers]\nconcurrency = 99999999999999999999", "2:15 `workers.concurrency` is too large"),
            ("[log]\nlevel = 'inof'", "2:9 `log.level` is not a known level"),
            ("[log]\nformat = ''", "2:10 `log.format` is not a known format"),
        ],
    );
}

#[test]
fn errors_in_auth_keys() {
    let key = |rest: &str| format!("[[auth.keys]]\nname = 'a'\nrole = 'admin'\n{rest}");
    let open = "[server]\nlisten = '0.0.0.0:1'\n[auth]\nkeys = []";
    let twice = format!("{}\n{}", key("key = '${KEY}'"), key("key = '${KEY}'"));
    all(
        problems,
        [
            (open, "2:10 `server.listen` is reachable from other machines, but there are no keys"),
            (&key(""), "1:1 `auth.keys.key` is missing"),
            (
                &key("key = '${KEY}'\nkey_file = 'x'"),
                "5:1 `auth.keys.key_file` cannot be used with `key`\n\
            5:12 `auth.keys.key_file` names a file that cannot be read: No such file or directory (os error 2)",
            ),
            (&key("key = '${KEY} ${KEY}'"), "4:7 `auth.keys.key` cannot be sent in a header (set by `KEY`)"),
            (
                &key("key = '${KEY}'\nlanes = ['x']"),
                "5:10 `auth.keys.lanes` names a lane that does not exist",
            ),
            (
                &key("key = '${KEY}'\nmax_priority = 'urgent'"),
                "5:16 `auth.keys.max_priority` is not a known priority",
            ),
            (
                &twice,
                "6:8 `auth.keys.name` is also the name of another key\n\
            6:8 `auth.keys.name` has the same `key` as another key",
            ),
            (
                "[[auth.keys]]",
                "1:1 `auth.keys.name` is missing\n1:1 `auth.keys.role` is missing\n1:1 `auth.keys.key` is missing",
            ),
        ],
    );
}

#[test]
fn errors_in_lanes() {
    all(
        of_lane,
        [
            ("ttl = '0s'", "5:7 `lanes.l.ttl` must be longer than zero"),
            ("ttl = '-1s'", "5:7 `lanes.l.ttl` is not a duration"),
            ("mask = ['params.email']", "5:9 `lanes.l.mask` is not a field of a request"),
            ("mask = ['query.cpf', 'cookie.a']", "5:22 `lanes.l.mask` is not a field of a request"),
            (
                "mode = 'direct'\nmask = ['query.cpf']",
                "6:1 `lanes.l.mask` does not apply to a direct lane, where nothing waits",
            ),
            ("max_bytes = -5", "5:13 `lanes.l.max_bytes` must be greater than zero"),
            ("rpm = 5000000000", "5:7 `lanes.l.rpm` is too large"),
            ("rate = '0/s'", "5:8 `lanes.l.rate` must be greater than zero"),
            ("chain_by = 'body:/m'", "5:1 `lanes.l.chain_by` needs `chains`"),
            ("chains = { a = ['u'] }", "5:1 `lanes.l.chains` needs `chain_by`"),
            (
                "chain_by = 'cookie'\nchains = { a = ['x', 'u', 'u'] }",
                "5:12 `lanes.l.chain_by` is not a field of a request\n\
            6:17 `lanes.l.chains.a` names an upstream that does not exist\n\
            6:27 `lanes.l.chains.a` names the same upstream twice",
            ),
            ("types = { update = 'hihg' }", "5:20 `lanes.l.types.update` is not a known priority"),
            (
                "validate = { cpf = 'cpf', 'query.x' = 'cfp' }",
                "5:14 `lanes.l.validate.cpf` is not a field of a request\n\
            5:39 `lanes.l.validate.\"query.x\"` is not a known check",
            ),
            (
                "retry = { attempts = 0, base = '0s' }",
                "5:22 `lanes.l.retry.attempts` must be greater than zero\n\
            5:32 `lanes.l.retry.base` must be longer than zero",
            ),
            ("retry = { base = '2m' }", "5:18 `lanes.l.retry.base` must not be above `cap`"),
            ("retry = { jitter = 1.001 }", "5:20 `lanes.l.retry.jitter` must be between 0 and 1"),
            ("retry = { on_ambiguous = 'wait' }", "5:26 `lanes.l.retry.on_ambiguous` is not a known value"),
            ("cache = {}", "5:9 `lanes.l.cache.key` is missing\n5:9 `lanes.l.cache.ttl` is missing"),
            ("fairness = 'no'", "5:12 `lanes.l.fairness` must be false or a table, not a string"),
            ("fairness = '${KEY}'", "5:12 `lanes.l.fairness` must be `true` or `false` (set by `KEY`)"),
            (
                "fairness = { batch = 0, weights = { a = 0 } }",
                "5:22 `lanes.l.fairness.batch` must be greater than zero\n\
            5:41 `lanes.l.fairness.weights.a` must be greater than zero",
            ),
            ("fairness = true\ndead_letters = true", ""),
            ("dead_letters = { max = 0 }", "5:24 `lanes.l.dead_letters.max` must be greater than zero"),
            ("keep = { for = '0s', max = -1 }", "5:28 `lanes.l.keep.max` must not be negative"),
        ],
    );
    let every = "mode = 'direct'\ncapacity = 1\nmax_bytes = 1\nttl = '1s'\ntypes = {}\nretry = {}\nfairness = false\n\
                 dead_letters = false\nkeep = {}\ncache = { key = 'x', ttl = '1s' }";
    assert_eq!(of_lane(every).len(), 9);
    assert!(of_lane(every).iter().all(|problem| problem.contains("does not apply to a direct lane")));
}

#[test]
fn errors_in_names_and_chains() {
    all(
        problems,
        [
            (
                "[lanes.'a b']\nchain = []",
                "1:8 `lanes.\"a b\"` is not a name\n\
            2:9 `lanes.\"a b\".chain` is empty: name at least one upstream",
            ),
            ("[lanes]\na = 1", "2:5 `lanes.a` must be a table, not a whole number"),
            ("lanes = []", "1:9 `lanes` must be a table, not a list"),
            ("[auth]\nkeys = {}", "2:8 `auth.keys` must be a list, not a table"),
            ("[lanes.a]\nchain = ['${KEY}!']", "2:10 `lanes.a.chain` is not a name (set by `KEY`)"),
            ("[lane.a]", "1:2 unknown key `lane`"),
        ],
    );
}

#[test]
fn errors_in_upstreams() {
    all(
        of_upstream,
        [
            ("kind = 'imap'", "3:8 `upstreams.u.kind` is not a known kind of upstream"),
            ("kind = 'smtp'", "2:7 `upstreams.u.url` is not an `smtp://` or `smtps://` address"),
            (
                "auth = { user = 'u', password = 'p' }\nstarttls = 'off'\nmax_connections = 1",
                "3:1 `upstreams.u.auth` does not apply to an upstream of kind `http`\n\
            4:1 `upstreams.u.starttls` does not apply to an upstream of kind `http`\n\
            5:1 `upstreams.u.max_connections` does not apply to an upstream of kind `http`",
            ),
            ("timeout = '0s'", "3:11 `upstreams.u.timeout` must be longer than zero"),
            (
                "headers = { 'a b' = 'x', Connection = 'x', X-A = \"a\\nb\", x-a = '1', X-a = '2' }",
                "3:13 `upstreams.u.headers.\"a b\"` is not the name of a header\n\
            3:26 `upstreams.u.headers.Connection` is a header that Eclusa sets itself\n\
            3:50 `upstreams.u.headers.X-A` cannot be sent in a header\n\
            3:58 `upstreams.u.headers.x-a` is given twice\n\
            3:69 `upstreams.u.headers.X-a` is given twice",
            ),
            ("headers = 'x'", "3:11 `upstreams.u.headers` must be a table, not a string"),
            (
                "breaker = { failures = 0, probes = 0 }",
                "3:24 `upstreams.u.breaker.failures` must be greater than zero\n\
            3:36 `upstreams.u.breaker.probes` must be greater than zero",
            ),
            ("pace = { max = '10ms' }", "3:16 `upstreams.u.pace.max` must not be below `min`"),
            ("pace = { min = '2m' }", "3:16 `upstreams.u.pace.min` must not be above `max`"),
            (
                "pace = { initial = '10ms' }",
                "3:20 `upstreams.u.pace.initial` puts `initial` outside `min` and `max`",
            ),
            (
                "cooldown = []",
                "3:12 `upstreams.u.cooldown` needs at least one duration, such as [\"10s\", \"30s\"]",
            ),
            (
                "cooldown = ['1s', 2, '0s']",
                "3:19 `upstreams.u.cooldown` must be a duration, not a whole number\n\
            3:22 `upstreams.u.cooldown` must be longer than zero",
            ),
            (
                "retryable = ['418', '600', 'x']",
                "3:21 `upstreams.u.retryable` is not an HTTP status\n\
            3:28 `upstreams.u.retryable` is not an HTTP status",
            ),
            (
                "retryable = ['503']\npermanent = ['503']",
                "4:14 `upstreams.u.permanent` names a status that is also `retryable`",
            ),
            ("max_response = '8MiB'", "3:16 `upstreams.u.max_response` is more than a job can hold"),
            ("max_concurrent = 0", "3:18 `upstreams.u.max_concurrent` must be greater than zero"),
        ],
    );
    let plain = "[upstreams.u]\nurl = 'http://u'\ntls = {}";
    assert_eq!(problems(plain), ["3:1 `upstreams.u.tls` has no effect with an `http://` address"]);
}

#[test]
fn errors_in_chains() {
    let lane = |line: &str| problems(&format!("[upstreams.u]\nurl = 'https://u'\n[lanes.l]\n{line}"));
    all(
        lane,
        [
            ("chain_by = 'params:/m'\nchains = { a = ['u'] }", ""),
            ("", "3:1 `lanes.l.chain` is missing"),
            ("chain_by = 'params:/m'\nchains = {}", "5:10 `lanes.l.chains` is empty"),
            (
                "chain_by = 'params:/m'\nchains = { a = ['v'] }",
                "5:17 `lanes.l.chains.a` names an upstream that does not exist",
            ),
            (
                "chain_by = 'params:m'\nchains = { a = ['u'] }",
                "4:12 `lanes.l.chain_by` is not a field of a request",
            ),
            (
                "mode = 'direct'\nchain_by = 'params:/m'\nchains = { a = ['u'] }",
                "5:12 `lanes.l.chain_by` names a field of `params`, which requests to a direct lane do not have",
            ),
        ],
    );
}

#[test]
fn errors_in_upstream_keys() {
    let with = "headers = { Authorization = 'Bearer {key}' }\nkeys = ";
    let keys = |line: &str| of_upstream(&format!("{with}{line}"));
    assert_eq!(keys("[{ name = 'a', key = 'x' }, { name = 'b', key = '${KEY}', rpm = 3 }]"), [""; 0]);
    for (line, expected) in [
        ("[{ key = 'x' }]", "4:9 `upstreams.u.keys.name` is missing"),
        ("[{ name = 'a b', key = 'x' }]", "4:18 `upstreams.u.keys.name` is not a name"),
        ("[{ name = 'a' }]", "4:9 `upstreams.u.keys.key` is missing"),
        ("[{ name = 'a', key = '' }]", "4:29 `upstreams.u.keys.key` is empty"),
        (
            "[{ name = 'a', key = \"x\\ny\" }]",
            "3:29 `upstreams.u.headers.Authorization` cannot be sent in a header",
        ),
        (
            "[{ name = 'a', key = 'x', key_file = 'y' }]",
            "4:34 `upstreams.u.keys.key_file` cannot be used with `key`\n4:45 `upstreams.u.keys.key_file` names a file that cannot be read: No such file or directory (os error 2)",
        ),
        (
            "[{ name = 'a', key = 'x' }, { name = 'a', key = 'y', rpm = 0 }]",
            "4:45 `upstreams.u.keys.name` is also the name of another key\n4:67 `upstreams.u.keys.rpm` must be greater than zero",
        ),
    ] {
        assert_eq!(keys(line).join("\n"), expected, "{line}");
    }
    all(
        of_upstream,
        [
            ("keys = []\nheaders = { X = '{key}' }", "3:8 `upstreams.u.keys` is empty"),
            ("keys = [{ name = 'a', key = 'x' }]", "3:1 `upstreams.u.keys` are not used anywhere"),
            ("keys = [{ name = 'a', key = 'x' }]\nrequest = { path = '/', body = { k = ['{key}'] } }", ""),
            (
                "headers = { Authorization = 'Bearer {key}' }",
                "3:29 `upstreams.u.headers.Authorization` uses `{key}`, but the upstream has no `keys`",
            ),
            (
                "keys = [{ name = 'a', key = 'x' }]\nheaders = { X = '{key}-{tenant}' }",
                "4:17 `upstreams.u.headers.X` may use only the placeholder `{key}`",
            ),
        ],
    );
}

#[test]
fn errors_in_request_templates() {
    all(
        of_upstream,
        [
            ("request = {}", "3:11 `upstreams.u.request.path` is missing"),
            ("request = { path = 'v1' }", "3:20 `upstreams.u.request.path` must start with `/`"),
            ("request = { path = '/a//b' }", "3:20 `upstreams.u.request.path` is not a path"),
            ("request = { path = '/../{tenant}' }", "3:20 `upstreams.u.request.path` is not a path"),
            (
                "request = { path = '/{param./a}' }",
                "3:20 `upstreams.u.request.path` has an unknown placeholder",
            ),
            (
                "request = { path = '/{params.a}' }",
                "3:20 `upstreams.u.request.path` has an invalid JSON pointer: it must begin with `/`",
            ),
            (
                "request = { path = '/', method = 'TRACE' }",
                "3:34 `upstreams.u.request.method` is not an allowed method",
            ),
            (
                "request = { path = '/', method = 'post' }",
                "3:34 `upstreams.u.request.method` is not a method",
            ),
            (
                "request = { path = '/', headers = { 'a b' = 'x', Host-X = '{params./a', Z = \"a\\nb\" } }",
                "3:37 `upstreams.u.request.headers.\"a b\"` is not the name of a header\n\
            3:59 `upstreams.u.request.headers.Host-X` has a `{` that is not closed\n\
            3:77 `upstreams.u.request.headers.Z` cannot be sent in a header",
            ),
            (
                "request = { path = '/', body = { a = [{ b = '{x}' }], c = 1979-05-27, d = nan } }",
                "3:45 `upstreams.u.request.body.a.b` has an unknown placeholder\n\
            3:59 `upstreams.u.request.body.c` must be a JSON value, not a date\n\
            3:75 `upstreams.u.request.body.d` is a number that JSON cannot represent",
            ),
            (
                "request = { path = '/{external_id}', headers = { X = '{key}' }, body = { a = 'to {webhook_url}' } }",
                "3:20 `upstreams.u.request.path` uses `{external_id}`, which is unknown before the upstream has responded\n\
            3:54 `upstreams.u.request.headers.X` uses `{key}`, but the upstream has no `keys`\n\
            3:78 `upstreams.u.request.body.a` uses `{webhook_url}`, but `server.public_url` is not set",
            ),
        ],
    );
    assert_eq!(problems("[server]\npublic_url = 'gw.example'").len(), 1);
    let policy = "policies = [{ name = 'P', capacity = 1, refill = '1/s', scope = 'params:/a', correlation = 'params:/b' }]";
    assert_eq!(
        of_upstream(policy),
        [
            "3:65 `upstreams.u.policies.scope` is not a valid scope",
            "3:78 `upstreams.u.policies.correlation` has no effect without `credit`",
            "3:92 `upstreams.u.policies.correlation` names a field of `params`, which is not sent to the upstream"
        ]
    );
}

#[test]
fn files_are_read_relative_to_the_config_directory() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("short"), "hunter2\n").unwrap();
    std::fs::write(dir.path().join("bytes"), [0xff; 20]).unwrap();
    std::fs::write(dir.path().join("huge"), vec![b'x'; (1 << 20) + 1]).unwrap();
    let name = dir.path().join("eclusa.toml").display().to_string();
    let errors_of = |text: &str| {
        let errors = Config::parse(&name, text, &|_| None).map(|_| ()).unwrap_err();
        assert!(!errors.to_string().contains("hunter2"));
        errors.iter().map(place_and_problem).collect::<Vec<_>>().join("\n")
    };
    let key =
        |file: &str| errors_of(&format!("[[auth.keys]]\nname = 'a'\nrole = 'admin'\nkey_file = '{file}'"));
    assert_eq!(key("short"), "4:12 `auth.keys.key_file` is too short to be safe");
    assert_eq!(key("bytes"), "4:12 `auth.keys.key_file` names a file that is not UTF-8 text");
    assert_eq!(key("huge"), "4:12 `auth.keys.key_file` names a file of more than 1 MiB");
    assert_eq!(key(""), "4:12 `auth.keys.key_file` is empty");
    let tls = |tls: &str| errors_of(&format!("[upstreams.u]\nurl = 'https://u'\ntls = {{ {tls} }}"));
    assert_eq!(
        tls("cert_file = 'short'"),
        "3:9 `upstreams.u.tls.cert_file` needs `key_file`\n\
         3:21 `upstreams.u.tls.cert_file` names a file without PEM certificates"
    );
    assert_eq!(
        tls("key_file = 'short', ca_file = 'bytes'"),
        "3:9 `upstreams.u.tls.key_file` needs `cert_file`\n\
         3:20 `upstreams.u.tls.key_file` names a file without a PEM private key\n\
         3:39 `upstreams.u.tls.ca_file` names a file without PEM certificates"
    );
}

/// The errors of one line in a schedule of a lane that requires `query.cpf`.
fn of_schedule(line: &str) -> Vec<String> {
    let lanes = "[lanes.l]\nchain = ['u']\nvalidate = { 'query.cpf' = 'required' }\n[lanes.d]\nmode = 'direct'\nchain = ['u']";
    problems(&format!("[upstreams.u]\nurl = 'https://u'\n{lanes}\n[schedules.s]\n{line}"))
}

#[test]
fn errors_in_schedules() {
    let right = "job = { request = { query = { cpf = '1' } } }";
    assert_eq!(of_schedule(&format!("cron = '0 3 * * *'\nlane = 'l'\n{right}")).join("\n"), "");
    for (line, expected) in [
        ("cron = 'daily'\nlane = 'l'", "10:8 `schedules.s.cron` is not a cron expression: "),
        ("cron = '0 0 30 2 *'\nlane = 'l'", "10:8 `schedules.s.cron` never matches"),
        ("cron = '0 3 * * *'\ntz = 'Brazil'\nlane = 'l'", "11:6 `schedules.s.tz` is not a known time zone"),
        ("cron = '0 3 * * *'\nlane = 'x'", "11:8 `schedules.s.lane` names a lane that does not exist"),
        ("cron = '0 3 * * *'\nlane = 'd'", "11:8 `schedules.s.lane` names a direct lane, which has no queue"),
        (
            "cron = '0 3 * * *'\nlane = 'l'\nmissed = 'never'",
            "12:10 `schedules.s.missed` is not a known value",
        ),
    ] {
        let found = of_schedule(&format!("{line}\n{right}")).join("\n");
        assert!(found.starts_with(expected) && found.lines().count() == 1, "{line}: {found}");
    }
    for (job, expected) in [
        ("{ request = {} }", "12:7 `schedules.s.job` would be refused: query.cpf: is missing"),
        ("{ request = { query = { cpf = '1' } }, id = 'x' }", "would be refused: id: is set by the schedule"),
        (
            "{ request = { query = { cpf = '1' } }, priority = 'now' }",
            "would be refused: priority: must be one of",
        ),
        ("{ reqest = {} }", "would be refused: unknown field `reqest`"),
        ("{ request = { query = { cpf = 1979-05-27 } } }", "must be a JSON value, not a date"),
    ] {
        let found = of_schedule(&format!("cron = '0 3 * * *'\nlane = 'l'\njob = {job}")).join("\n");
        assert!(found.contains(expected) && found.lines().count() == 1, "{job}: {found}");
    }
    let missing = of_schedule("").join("\n");
    assert_eq!(missing.lines().count(), 3, "{missing}");
}

/// The errors of one line with an `async`, without locations.
fn of_callback(line: &str) -> Vec<String> {
    let problem = |problem: String| problem.split_once(" `upstreams.u.async.").unwrap().1.to_owned();
    of_upstream(line).into_iter().map(|text| format!("`{}", problem(text))).collect()
}

#[test]
fn errors_in_async_upstreams() {
    all(
        of_callback,
        [
            (
                "async = {}",
                "`id` is missing\n\
                 `webhook` and `poll` are both missing: the result of a job would never arrive",
            ),
            (
                "async = { id = '/id', on_failure = 'retry', webhook = { verify = 'hmac' } }",
                "`id` is not a field of a response body\n\
                 `on_failure` is not a known value\n\
                 `webhook.verify` is not a known verification method",
            ),
            (
                "async = { id = 'body:/id', webhook = { verify = 'standard-webhooks', secret = 'whsec_not base64 at all', header = 'X' } }",
                "`webhook.secret` is not a Standard Webhooks secret\n\
                 `webhook.header` is for `hmac-sha256` and `ed25519`",
            ),
            (
                "async = { id = 'body:/id', webhook = { verify = 'hmac-sha256', secret = 'short', signed = '{header.x}' } }",
                "`webhook.header` is missing\n\
                 `webhook.secret` is too short to be safe\n\
                 `webhook.signed` does not include the body, which anybody could then replace",
            ),
            (
                "async = { id = 'body:/id', webhook = { verify = 'ed25519', public_key = 'ab', header = 'X', secret = '${KEY}' } }",
                "`webhook.public_key` is not a 32-byte key\n\
                 `webhook.secret` has no effect with `ed25519`, which uses `public_key`",
            ),
            (
                "async = { id = 'body:/id', webhook = { verify = 'token', secret = '${KEY}', success = ['x'] } }",
                "`webhook.success` has no effect without `status`",
            ),
            (
                "async = { id = 'body:/id', poll = { path = '/p/{external_id}' } }",
                "`poll.status` is missing: the response cannot be interpreted",
            ),
            (
                "async = { id = 'body:/id', poll = { path = '/p', status = '/s', success = ['a'], failure = ['a'] } }",
                "`poll.failure` has `a`, which `success` also has",
            ),
            (
                "async = { id = 'body:/id', poll = { path = '/p', status = 's' } }",
                "`poll.success` is missing or empty\n\
                 `poll.status` is not a JSON pointer",
            ),
            (
                "async = { id = 'body:/id', cancel = { path = '/{webhook_url}' }, webhook = { verify = 'token', secret = '${KEY}' } }",
                "`cancel.path` uses `{webhook_url}`, but `server.public_url` is not set",
            ),
            ("async = { id = 'body:/id', poll = { path = '/p', status = '/s', success = ['a'] } }", ""),
        ],
    );
    let direct = "async = { id = 'body:/id', webhook = { verify = 'token', secret = '${KEY}' } }\n\
                  [lanes.l]\nmode = 'direct'\nchain = ['u']";
    assert_eq!(
        of_upstream(direct),
        ["3:1 `upstreams.u.async` does not apply to a direct lane, where the caller waits for the response"]
    );
}
