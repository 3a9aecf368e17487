//! Files that are wrong, and exactly what is said about them.

use super::read;

const UPSTREAM: &str = "[upstreams.api]\nurl = 'https://api.example.com'\n";

/// What is said about `text`, in which `SECRET` is `hunter2`.
fn said(text: &str) -> String {
    let errors = read(text, &[("SECRET", "hunter2")]).map(|_| ()).unwrap_err();
    let said = errors.to_string();
    assert!(!said.contains("hunter2"), "{said}");
    format!("{said}\n")
}

#[test]
fn the_score_proxy_asks_for_its_address() {
    let said = said(include_str!("../../../../../examples/score-proxy.toml"));
    assert_eq!(
        said,
        "\
error: `upstreams.bureau.url` needs the environment variable `UPSTREAM_URL`, which is not set: set the bureau's address
  --> eclusa.toml:25:8
   |
25 | url = \"${UPSTREAM_URL:?set the bureau's address}\"
   |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
   |
   = help: set `UPSTREAM_URL` before you start eclusa
"
    );
}

#[test]
fn a_misspelt_key() {
    let text = format!("{UPSTREAM}[lanes.score]\nchain = ['api']\ncapactiy = 100\n");
    assert_eq!(
        said(&text),
        "\
error: unknown key `capactiy` in `lanes.score`
 --> eclusa.toml:5:1
  |
5 | capactiy = 100
  | ^^^^^^^^
  |
  = help: did you mean `capacity`?
"
    );
}
