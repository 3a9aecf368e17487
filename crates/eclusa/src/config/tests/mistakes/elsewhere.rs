//! Mistakes in the rest of the file.

use super::said;

#[test]
fn the_score_proxy_requires_its_url() {
    said(
        include_str!("../../../../../../examples/score-proxy.toml"),
        r#"
error: `upstreams.bureau.url` needs the environment variable `UPSTREAM_URL`, which is not set: set the bureau's address
  --> eclusa.toml:26:8
   |
26 | url = "${UPSTREAM_URL:?set the bureau's address}"
   |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
   |
   = help: set `UPSTREAM_URL` before starting eclusa
"#,
    );
}

#[test]
fn an_unknown_key_unlike_any_known_one() {
    said(
        r#"
[upstreams.api]
url = "https://api.example.com"
[store]
where = "here"
"#,
        r#"
error: unknown key `where` in `store`
 --> eclusa.toml:4:1
  |
4 | where = "****"
  | ^^^^^
  |
  = help: known keys: `url`, `prefix`, `ack`, `when_lost`, `shared_gates`, `timeout`, `term`, `forget_within`, `tls`
"#,
    );
}

#[test]
fn a_time_to_forget_in_that_cannot_be_kept() {
    said(
        r#"
[upstreams.api]
url = "https://api.example.com"
[store]
forget_within = "9s"
"#,
        r#"
error: `store.forget_within` is too short to be kept
 --> eclusa.toml:4:17
  |
4 | forget_within = "9s"
  |                 ^^^^
  |
  = help: write at least "10s"
"#,
    );
}

#[test]
fn a_variable_that_is_not_set() {
    said(
        r#"
[upstreams.api]
url = "https://${HOST}/${PATH_PREFIX}"
"#,
        r#"
error: `upstreams.api.url` needs the environment variable `HOST`, which is not set
 --> eclusa.toml:2:16
  |
2 | url = "https://${HOST}/${PATH_PREFIX}"
  |                ^^^^^^^
  |
  = help: set `HOST`, or give a default: `${HOST:-…}`

error: `upstreams.api.url` needs the environment variable `PATH_PREFIX`, which is not set
 --> eclusa.toml:2:24
  |
2 | url = "https://${HOST}/${PATH_PREFIX}"
  |                        ^^^^^^^^^^^^^^
  |
  = help: set `PATH_PREFIX`, or give a default: `${PATH_PREFIX:-…}`
"#,
    );
}

#[test]
fn an_unsupported_store() {
    said(
        r#"
[store]
url = "redis+cluster://:hunter2@localhost:6379"
"#,
        r#"
error: `store.url` is a Redis URL that this version does not support
 --> eclusa.toml:2:7
  |
2 | url = "***************************************"
  |       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  |
  = help: write "redis://HOST:PORT" or "rediss://HOST:PORT"; it works for Valkey too
"#,
    );
}

#[test]
fn a_public_listener_without_keys() {
    said(
        r#"
[server]
listen = "0.0.0.0:8080"
"#,
        r#"
error: `server.listen` is reachable from other machines, but there are no keys
 --> eclusa.toml:2:10
  |
2 | listen = "0.0.0.0:8080"
  |          ^^^^^^^^^^^^^^
  |
  = help: add `[[auth.keys]]` with `name`, `role` and `key`, or listen on 127.0.0.1
"#,
    );
}

#[test]
fn a_key_that_is_too_short_is_not_shown() {
    said(
        r#"
[[auth.keys]]
name = "app"
role = "productor"
key = "hunter2"
"#,
        r#"
error: `auth.keys.role` is not a known role
 --> eclusa.toml:3:8
  |
3 | role = "productor"
  |        ^^^^^^^^^^^
  |
  = help: did you mean `producer`? (use `producer`, `viewer`, `operator`, `admin`)

error: `auth.keys.key` is too short to be safe
 --> eclusa.toml:4:7
  |
4 | key = "*******"
  |       ^^^^^^^^^
  |
  = help: use at least 16 characters, for example from `openssl rand -hex 16`
"#,
    );
}

#[test]
fn callbacks_without_hosts_and_reserved_names() {
    said(
        r#"
[callbacks]
hosts = ["https://app.example.com/"]
secret = "whsec_not base64 at all"
[lanes._mine]
chain = ["api"]
[upstreams.api]
url = "https://api.example.com"
"#,
        r#"
error: `callbacks.hosts` is not a host
 --> eclusa.toml:2:10
  |
2 | hosts = ["https://app.example.com/"]
  |          ^^^^^^^^^^^^^^^^^^^^^^^^^^
  |
  = help: write it like `app.example.com` or `10.0.0.7`, without `https://`, port and path

error: `callbacks.secret` cannot be sent in a header
 --> eclusa.toml:3:10
  |
3 | secret = "***********************"
  |          ^^^^^^^^^^^^^^^^^^^^^^^^^
  |
  = help: use printable ASCII characters without spaces

error: `lanes._mine` begins with `_`, which is reserved for Eclusa
 --> eclusa.toml:4:8
  |
4 | [lanes._mine]
  |        ^^^^^
  |
  = help: choose another name
"#,
    );
}

#[test]
fn alerts_with_wrong_thresholds_and_addresses() {
    said(
        r#"
[alerts]
dead_letters = true
redis_memory = [0.9, 0.8]
dead_letter_rate = { share = 2 }
oldest_wait = "0s"
tenants = { acme = { url = "acme.example/hook" } }
"#,
        r#"
error: `alerts.dead_letters` must be a whole number, not a boolean
 --> eclusa.toml:2:16
  |
2 | dead_letters = true
  |                ^^^^
  |
  = help: write it without quotes, unit or fraction

error: `alerts.redis_memory` must be two shares, the lower first
 --> eclusa.toml:3:16
  |
3 | redis_memory = [0.9, 0.8]
  |                ^^^^^^^^^^
  |
  = help: write two shares, such as `[0.8, 0.9]`, or `false`

error: `alerts.dead_letter_rate.share` must be between 0 and 1
 --> eclusa.toml:4:30
  |
4 | dead_letter_rate = { share = 2 }
  |                              ^
  |
  = help: `0.02` is two percent

error: `alerts.oldest_wait` must be longer than zero
 --> eclusa.toml:5:15
  |
5 | oldest_wait = "0s"
  |               ^^^^
  |
  = help: write a whole number and a unit: "500ms", "10s", "5m", "24h", "7d"

error: `alerts.tenants.acme.secret` is missing
 --> eclusa.toml:6:20
  |
6 | tenants = { acme = { url = "*****************" } }
  |                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  |
  = help: add `secret = "${VARIABLE}"` or `secret_file = "path"`

error: `alerts.tenants.acme.url` is not an address
 --> eclusa.toml:6:28
  |
6 | tenants = { acme = { url = "*****************" } }
  |                            ^^^^^^^^^^^^^^^^^^^
  |
  = help: write it like "https://ops.example.com/hook"
"#,
    );
}

#[test]
fn a_misspelt_secret_is_not_shown() {
    said(
        r#"
[upstreams.api]
url = "https://api.example.com"
hedaers = { Authorization = "Bearer hunter2" }
"#,
        r#"
error: unknown key `hedaers` in `upstreams.api`
 --> eclusa.toml:3:1
  |
3 | hedaers = { Authorization = "**************" }
  | ^^^^^^^
  |
  = help: did you mean `headers`?
"#,
    );
}

#[test]
fn a_table_that_is_not_closed() {
    said(
        r#"
[server
listen = "127.0.0.1:8080"
"#,
        r"
error: invalid TOML: unclosed table, expected `]`
 --> eclusa.toml:1:8
  |
1 | [server
  |        ^
  |
  = help: a line is `key = value` or `[table]`; strings need quotes
",
    );
}

#[test]
fn a_string_that_is_not_closed() {
    said(
        r#"
[[auth.keys]]
name = "app"
role = "admin"
key = "hunter2
lanes = []
"#,
        r#"
error: invalid TOML: invalid basic string, expected `"`
 --> eclusa.toml:4:15
  |
4 | key = "*******
  |               ^
  |
  = help: strings need quotes, as in `listen = "127.0.0.1:8080"`
"#,
    );
}

#[test]
fn a_duplicate_key() {
    said(
        r#"
[server]
max_wait = "1s"
max_wait = "2s"
"#,
        r#"
error: invalid TOML: duplicate key
 --> eclusa.toml:3:1
  |
3 | max_wait = "**"
  | ^^^^^^^^
  |
  = help: a key may appear only once in a table: remove one of them
"#,
    );
}

#[test]
fn all_errors_at_once_in_file_order() {
    said(
        r#"
[lanes.score]
chain = ["api"]
capacity = -1
[upstreams.api]
rate = "10"
foo = 1
[server]
max_body = "9MiB"
"#,
        r#"
error: `lanes.score.capacity` must be greater than zero
 --> eclusa.toml:3:12
  |
3 | capacity = -1
  |            ^^
  |
  = help: a limit of zero would admit nothing

error: `upstreams.api.url` is missing
 --> eclusa.toml:4:1
  |
4 | [upstreams.api]
  | ^^^^^^^^^^^^^^^
  |
  = help: add `url = "https://api.example.com"`

error: `upstreams.api.rate` is not a rate
 --> eclusa.toml:5:8
  |
5 | rate = "10"
  |        ^^^^
  |
  = help: write a whole number per time: "10/s", "1200/min", "5/h", "40/day"

error: unknown key `foo` in `upstreams.api`
 --> eclusa.toml:6:1
  |
6 | foo = 1
  | ^^^
  |
  = help: known keys: `kind`, `url`, `timeout`, `connect_timeout`, `keys`, `headers`, `breaker`, `pace`, `cooldown`, `rpm`, `rate`, `burst`, `max_concurrent`, `retryable`, `permanent`, `max_response`, `tls`, `policies`, `reconcile`, `request`, `async`, `auth`, `starttls`, `max_connections`, `region`, `credentials`, `credentials_file`, `profile`, `configuration_set`

error: `server.max_body` is more than a job can hold
 --> eclusa.toml:8:12
  |
8 | max_body = "9MiB"
  |            ^^^^^^
  |
  = help: write at most "8128KiB"
"#,
    );
}
