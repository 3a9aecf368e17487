//! Mistakes in policies.

use super::said;

#[test]
fn a_misspelt_key_and_a_policy_without_numbers() {
    said(
        r#"
[upstreams.dict]
url = "https://dict.example"
[[upstreams.dict.policies]]
name = "READS"
scop = "tenant"
"#,
        r#"
error: `upstreams.dict.policies.capacity` is missing
 --> eclusa.toml:3:1
  |
3 | [[upstreams.dict.policies]]
  | ^^^^^^^^^^^^^^^^^^^^^^^^^^^
  |
  = help: add it, or `classes`; such as `capacity = 100`

error: `upstreams.dict.policies.refill` is missing
 --> eclusa.toml:3:1
  |
3 | [[upstreams.dict.policies]]
  | ^^^^^^^^^^^^^^^^^^^^^^^^^^^
  |
  = help: add it, or `classes`; such as `refill = "2/min"`

error: unknown key `scop` in `upstreams.dict.policies`
 --> eclusa.toml:5:1
  |
5 | scop = "******"
  | ^^^^
  |
  = help: did you mean `scope`?
"#,
    );
}

#[test]
fn two_policies_of_one_name_in_two_upstreams() {
    said(
        r#"
[upstreams.a]
url = "https://a.example"
[[upstreams.a.policies]]
name = "READS"
capacity = 1
refill = "1/s"
[upstreams.b]
url = "https://b.example"
[[upstreams.b.policies]]
name = "READS"
capacity = 1
refill = "1/s"
"#,
        r#"
error: `upstreams.b.policies.name` is also the name of another policy
  --> eclusa.toml:10:8
   |
10 | name = "READS"
   |        ^^^^^^^
   |
   = help: give each policy in the file a different name
"#,
    );
}

#[test]
fn invalid_patterns_and_fields() {
    said(
        r#"
[upstreams.dict]
url = "https://dict.example"
[[upstreams.dict.policies]]
name = "READS"
match = { method = ["get"], path = "/entries/{key}", vars = { kye = '^a', key = '(' }, query = { a = 1 } }
scope = "header"
capacity = 10
refill = "2/m"
cost = { "20" = 1, "404" = "body:/a", from = 3 }
hold = "most"
"#,
        r#"
error: `upstreams.dict.policies.match.method` is not a method
 --> eclusa.toml:5:21
  |
5 | match = { method = ["get"], path = "/entries/{key}", vars = { kye = '^a', key = '(' }, query = { a = 1 } }
  |                     ^^^^^
  |
  = help: write it in capitals: "GET"

error: `upstreams.dict.policies.match.vars.kye` is not a variable of `path`
 --> eclusa.toml:5:63
  |
5 | match = { method = ["get"], path = "/entries/{key}", vars = { kye = '^a', key = '(' }, query = { a = 1 } }
  |                                                               ^^^
  |
  = help: write it as `{NAME}` in `path`, or remove it

error: `upstreams.dict.policies.match.vars.key` is not a regular expression
 --> eclusa.toml:5:81
  |
5 | match = { method = ["get"], path = "/entries/{key}", vars = { kye = '^a', key = '(' }, query = { a = 1 } }
  |                                                                                 ^^^
  |
  = help: unclosed group; write it in single quotes, such as `'^\d{11}$'`

error: `upstreams.dict.policies.match.query.a` must be a regular expression or a boolean, not a whole number
 --> eclusa.toml:5:102
  |
5 | match = { method = ["get"], path = "/entries/{key}", vars = { kye = '^a', key = '(' }, query = { a = 1 } }
  |                                                                                                      ^
  |
  = help: write a regular expression in quotes, `true` (present) or `false` (absent)

error: `upstreams.dict.policies.scope` is not a valid scope
 --> eclusa.toml:6:9
  |
6 | scope = "header"
  |         ^^^^^^^^
  |
  = help: write `"upstream"`, `"tenant"`, `"header:NAME"`, `"query:NAME"` or `"body:/POINTER"`

error: `upstreams.dict.policies.refill` is not a rate
 --> eclusa.toml:8:10
  |
8 | refill = "2/m"
  |          ^^^^^
  |
  = help: write a whole number per time: "10/s", "1200/min", "5/h", "40/day"

error: `upstreams.dict.policies.cost.20` is not a status
 --> eclusa.toml:9:10
  |
9 | cost = { "20" = 1, "404" = "body:/a", from = 3 }
  |          ^^^^
  |
  = help: write a status ("404"), a class of them ("5xx"), `default` or `from`

error: `upstreams.dict.policies.cost.404` must be a number of tokens
 --> eclusa.toml:9:28
  |
9 | cost = { "20" = 1, "404" = "body:/a", from = 3 }
  |                            ^^^^^^^^^
  |
  = help: only `from` names a field

error: `upstreams.dict.policies.cost.from` must be a field of the response body
 --> eclusa.toml:9:46
  |
9 | cost = { "20" = 1, "404" = "body:/a", from = 3 }
  |                                              ^
  |
  = help: write `from = "body:/usage/total_tokens"`

error: `upstreams.dict.policies.hold` is not a valid hold
  --> eclusa.toml:10:8
   |
10 | hold = "most"
   |        ^^^^^^
   |
   = help: write a number of tokens, `"worst"`, or `"body:/POINTER"`
"#,
    );
}

#[test]
fn an_unknown_class_and_a_hold_above_the_capacity() {
    said(
        r#"
[upstreams.dict]
url = "https://dict.example"
[[upstreams.dict.policies]]
name = "READS"
class = "${SECRET}"
classes = [{ name = "A", capacity = 10, refill = "2/min" }]
[[upstreams.dict.policies]]
name = "WRITES"
scope = "tenant"
classes = [{ name = "A", scope = '^a', capacity = 10, refill = "2/min" }, { name = "B", capacity = 20, refill = "1/s" }]
cost = { "404" = 15 }
hold = "worst"
[[upstreams.dict.policies]]
name = "LISTS"
classes = [{ name = "A", capacity = 10, refill = "2/min" }]
"#,
        r#"
error: `upstreams.dict.policies.class` is not one of the classes (set by `SECRET`)
 --> eclusa.toml:5:9
  |
5 | class = "${SECRET}"
  |         ^^^^^^^^^^^
  |
  = help: `classes` has `A`

error: `upstreams.dict.policies.hold` is more than the capacity of class `A`, so no call could ever be admitted
  --> eclusa.toml:12:8
   |
12 | hold = "worst"
   |        ^^^^^^^
   |
   = help: write a smaller `hold`, or a larger `capacity`

error: `upstreams.dict.policies.classes` cannot be told apart: with scope `upstream` there is only one bucket
  --> eclusa.toml:15:11
   |
15 | classes = [{ name = "A", capacity = 10, refill = "2/min" }]
   |           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
   |
   = help: add `class = "NAME"`, or a `scope` with different values
"#,
    );
}

#[test]
fn credit_without_correlation() {
    said(
        r#"
[upstreams.dict]
url = "https://dict.example"
[[upstreams.dict.policies]]
name = "A"
capacity = 10
refill = "1/s"
credit = { payment = 1 }
[[upstreams.dict.policies]]
name = "B"
capacity = 10
refill = "1/s"
credit = { payment = 1 }
correlation = "header:X-Id"
[[upstreams.dict.policies]]
name = "C"
capacity = 10
refill = "1/s"
credit = { payment = 1 }
correlation = "header:X-Other"
[[upstreams.dict.policies]]
name = "D"
capacity = 10
refill = "1/s"
credit_within = "1h"
hold = "worst"
"#,
        r#"
error: `upstreams.dict.policies.credit` needs `correlation`
 --> eclusa.toml:7:10
  |
7 | credit = { payment = 1 }
  |          ^^^^^^^^^^^^^^^
  |
  = help: add `correlation = "header:NAME"`: it links the event to the call

error: `upstreams.dict.policies.correlation` differs from another policy's
  --> eclusa.toml:19:15
   |
19 | correlation = "header:X-Other"
   |               ^^^^^^^^^^^^^^^^
   |
   = help: use the same field in all policies of this upstream

error: `upstreams.dict.policies.credit_within` has no effect without `credit`
  --> eclusa.toml:24:1
   |
24 | credit_within = "1h"
   | ^^^^^^^^^^^^^
   |
   = help: add `credit = { EVENT = 1 }`, or remove it

error: `upstreams.dict.policies.hold` is `worst`, but `cost` has no number above zero
  --> eclusa.toml:25:8
   |
25 | hold = "worst"
   |        ^^^^^^^
   |
   = help: add `cost = { "200" = 1, … }`, or write a number
"#,
    );
}

#[test]
fn an_invalid_reconcile() {
    said(
        r#"
[store]
url = "redis://127.0.0.1"
shared_gates = false
[upstreams.dict]
url = "https://dict.example"
reconcile = { path = "../policies", every = "0s", headers = { "a b" = "c" }, format = "xml" }
[[upstreams.dict.policies]]
name = "READS"
scope = "tenant"
capacity = 1
refill = "1/s"
[upstreams.other]
url = "https://other.example"
reconcile = {}
[[upstreams.other.policies]]
name = "WRITES"
capacity = 1
refill = "1/s"
"#,
        r#"
error: `upstreams.dict.reconcile` has nothing to compare: no policy has the scope `upstream`
 --> eclusa.toml:6:1
  |
6 | reconcile = { path = "../policies", every = "0s", headers = { "a b" = "*" }, format = "xml" }
  | ^^^^^^^^^
  |
  = help: add `[[upstreams.NAME.policies]]` without `scope`, or remove it

error: `upstreams.dict.reconcile` needs shared gates (`store.shared_gates`)
 --> eclusa.toml:6:1
  |
6 | reconcile = { path = "../policies", every = "0s", headers = { "a b" = "*" }, format = "xml" }
  | ^^^^^^^^^
  |
  = help: remove `shared_gates = false`, or `reconcile`

error: `upstreams.dict.reconcile.path` is not a path
 --> eclusa.toml:6:22
  |
6 | reconcile = { path = "../policies", every = "0s", headers = { "a b" = "*" }, format = "xml" }
  |                      ^^^^^^^^^^^^^
  |
  = help: write a path below the upstream's `url`, such as `/policies/`

error: `upstreams.dict.reconcile.every` must be longer than zero
 --> eclusa.toml:6:45
  |
6 | reconcile = { path = "../policies", every = "0s", headers = { "a b" = "*" }, format = "xml" }
  |                                             ^^^^
  |
  = help: write a whole number and a unit: "500ms", "10s", "5m", "24h", "7d"

error: `upstreams.dict.reconcile.headers."a b"` is not the name of a header
 --> eclusa.toml:6:63
  |
6 | reconcile = { path = "../policies", every = "0s", headers = { "a b" = "*" }, format = "xml" }
  |                                                               ^^^^^
  |
  = help: use letters, digits and `-`

error: `upstreams.dict.reconcile.format` is not a known format
 --> eclusa.toml:6:87
  |
6 | reconcile = { path = "../policies", every = "0s", headers = { "a b" = "*" }, format = "xml" }
  |                                                                                       ^^^^^
  |
  = help: use `dict-xml`, `json`

error: `upstreams.other.reconcile` needs shared gates (`store.shared_gates`)
  --> eclusa.toml:14:1
   |
14 | reconcile = {}
   | ^^^^^^^^^
   |
   = help: remove `shared_gates = false`, or `reconcile`

error: `upstreams.other.reconcile.path` is missing
  --> eclusa.toml:14:13
   |
14 | reconcile = {}
   |             ^^
   |
   = help: add `path = "/policies/"`

error: `upstreams.other.reconcile.format` is missing
  --> eclusa.toml:14:13
   |
14 | reconcile = {}
   |             ^^
   |
   = help: add `format = "dict-xml"`
"#,
    );
}
