//! Mistakes in lanes and their limits.

use super::said;

#[test]
fn a_misspelt_key() {
    said(
        r#"
[upstreams.api]
url = "https://api.example.com"
[lanes.score]
chain = ["api"]
capactiy = 100
"#,
        r"
error: unknown key `capactiy` in `lanes.score`
 --> eclusa.toml:5:1
  |
5 | capactiy = 100
  | ^^^^^^^^
  |
  = help: did you mean `capacity`?
",
    );
}

#[test]
fn an_upstream_that_does_not_exist() {
    said(
        r#"
[upstreams.api]
url = "https://api.example.com"
[lanes.score]
chain = ["apy"]
"#,
        r#"
error: `lanes.score.chain` names an upstream that does not exist
 --> eclusa.toml:4:10
  |
4 | chain = ["apy"]
  |          ^^^^^
  |
  = help: did you mean `api`?
"#,
    );
}

#[test]
fn an_unknown_word() {
    said(
        r#"
[upstreams.api]
url = "https://api.example.com"
[lanes.score]
chain = ["api"]
mode = "drect"
"#,
        r#"
error: `lanes.score.mode` is not a known mode
 --> eclusa.toml:5:8
  |
5 | mode = "drect"
  |        ^^^^^^^
  |
  = help: did you mean `direct`? (use `queue`, `direct`)
"#,
    );
}

#[test]
fn a_number_without_a_unit() {
    said(
        r#"
[upstreams.api]
url = "https://api.example.com"
[lanes.score]
chain = ["api"]
ttl = 10
"#,
        r#"
error: `lanes.score.ttl` must be a duration, not a whole number
 --> eclusa.toml:5:7
  |
5 | ttl = 10
  |       ^^
  |
  = help: write a whole number and a unit: "500ms", "10s", "5m", "24h", "7d"
"#,
    );
}

#[test]
fn a_limit_of_zero() {
    said(
        r#"
[upstreams.api]
url = "https://api.example.com"
[lanes.score]
chain = ["api"]
capacity = 0
"#,
        r"
error: `lanes.score.capacity` must be greater than zero
 --> eclusa.toml:5:12
  |
5 | capacity = 0
  |            ^
  |
  = help: a limit of zero would admit nothing
",
    );
}

#[test]
fn a_number_in_quotes() {
    said(
        r#"
[upstreams.api]
url = "https://api.example.com"
[lanes.score]
chain = ["api"]
rpm = "600"
"#,
        r#"
error: `lanes.score.rpm` must be a whole number, not a string
 --> eclusa.toml:5:7
  |
5 | rpm = "600"
  |       ^^^^^
  |
  = help: write it without quotes, unit or fraction
"#,
    );
}

#[test]
fn a_cap_below_its_base() {
    said(
        r#"
[upstreams.api]
url = "https://api.example.com"
[lanes.score]
chain = ["api"]
retry = { base = "10s", cap = "1s" }
"#,
        r#"
error: `lanes.score.retry.cap` must not be below `base`
 --> eclusa.toml:5:31
  |
5 | retry = { base = "10s", cap = "1s" }
  |                               ^^^^
  |
  = help: `base` is the first wait, `cap` the longest
"#,
    );
}

#[test]
fn a_burst_without_a_rate() {
    said(
        r#"
[upstreams.api]
url = "https://api.example.com"
burst = 10
"#,
        r#"
error: `upstreams.api.burst` needs `rate`
 --> eclusa.toml:3:1
  |
3 | burst = 10
  | ^^^^^
  |
  = help: add `rate = "10/s"`, or remove `burst`
"#,
    );
}

#[test]
fn a_direct_lane_with_keys_of_a_queue() {
    said(
        r#"
[upstreams.api]
url = "https://api.example.com"
[lanes.score]
mode = "direct"
chain = ["api"]
ttl = "10s"
retry = { attempts = 3 }
"#,
        r#"
error: `lanes.score.ttl` does not apply to a direct lane, where nothing waits
 --> eclusa.toml:6:1
  |
6 | ttl = "10s"
  | ^^^
  |
  = help: remove it, or write `mode = "queue"`

error: `lanes.score.retry` does not apply to a direct lane, where nothing waits
 --> eclusa.toml:7:1
  |
7 | retry = { attempts = 3 }
  | ^^^^^
  |
  = help: remove it, or write `mode = "queue"`
"#,
    );
}

#[test]
fn a_lane_without_a_chain() {
    said(
        r#"
[upstreams.api]
url = "https://api.example.com"
[lanes.score]
ttl = "10s"
"#,
        r#"
error: `lanes.score.chain` is missing
 --> eclusa.toml:3:1
  |
3 | [lanes.score]
  | ^^^^^^^^^^^^^
  |
  = help: add `chain = ["NAME"]`
"#,
    );
}

#[test]
fn a_variable_with_a_wrong_value_names_the_variable_only() {
    said(
        r#"
[upstreams.api]
url = "https://api.example.com"
[lanes.score]
chain = ["api"]
capacity = "${SECRET}"
ttl = "${SECRET}ms"
"#,
        r#"
error: `lanes.score.capacity` must be a whole number (set by `SECRET`)
 --> eclusa.toml:5:12
  |
5 | capacity = "${SECRET}"
  |            ^^^^^^^^^^^
  |
  = help: write it without unit or fraction

error: `lanes.score.ttl` is not a duration (set by `SECRET`)
 --> eclusa.toml:6:7
  |
6 | ttl = "${SECRET}ms"
  |       ^^^^^^^^^^^^^
  |
  = help: write a whole number and a unit: "500ms", "10s", "5m", "24h", "7d"
"#,
    );
}

#[test]
fn an_unknown_placeholder() {
    said(
        r#"
[upstreams.api]
url = "https://api.example.com"
[lanes.score]
chain = ["api"]
cache = { key = "{cpf}", ttl = "60s" }
"#,
        r#"
error: `lanes.score.cache.key` has an unknown placeholder
 --> eclusa.toml:5:17
  |
5 | cache = { key = "{cpf}", ttl = "60s" }
  |                 ^^^^^^^
  |
  = help: use `{query.NAME}`, `{header.NAME}`, `{body./POINTER}`, `{params./POINTER}`, `{tenant}`, `{method}` or `{path}`; `{{` is a literal brace
"#,
    );
}

#[test]
fn invalid_limits_of_tenants() {
    said(
        r#"
[upstreams.api]
url = "https://api.example.com"
[lanes.score]
chain = ["api"]
tenant_rate = { "acme" = "ten", "*" = "100/min" }
tenant_concurrency = { "acme" = 0 }
retry = { budget = { share = 2, min = "0/s" } }
[lanes.other]
chain = ["api"]
tenant_rate = {}
"#,
        r#"
error: `lanes.score.tenant_rate.acme` is not a rate
 --> eclusa.toml:5:26
  |
5 | tenant_rate = { "acme" = "ten", "*" = "100/min" }
  |                          ^^^^^
  |
  = help: write a whole number per time: "10/s", "1200/min", "5/h", "40/day"

error: `lanes.score.tenant_concurrency.acme` must be greater than zero
 --> eclusa.toml:6:33
  |
6 | tenant_concurrency = { "acme" = 0 }
  |                                 ^
  |
  = help: a limit of zero would admit nothing

error: `lanes.score.retry.budget.share` must be between 0 and 1
 --> eclusa.toml:7:30
  |
7 | retry = { budget = { share = 2, min = "0/s" } }
  |                              ^
  |
  = help: `0.25` is a quarter

error: `lanes.score.retry.budget.min` must be greater than zero
 --> eclusa.toml:7:39
  |
7 | retry = { budget = { share = 2, min = "0/s" } }
  |                                       ^^^^^
  |
  = help: write a whole number per time: "10/s", "1200/min", "5/h", "40/day"

error: `lanes.other.tenant_rate` is empty
  --> eclusa.toml:10:15
   |
10 | tenant_rate = {}
   |               ^^
   |
   = help: write one value for all tenants, or `{ "PATTERN" = … }`
"#,
    );
}
