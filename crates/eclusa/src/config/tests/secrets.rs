//! No error in a file makes a message show one of its secrets.

use super::read;

/// A file with a literal secret in every key that may have one.
const FILE: &str = r#"
[server]
listen = "0.0.0.0:9000"
[store]
url = "redis://:hunter2@localhost:6379"
[[auth.keys]]
name = "app"
role = "producer"
key = "hunter2-hunter2-hunter2"
lanes = ["a"]
[callbacks]
hosts = ["one.example", "not a host"]
secret = "hunter2-hunter2-callback"
[alerts.webhook]
url = "ftp://ops.example/hunter2"
secret = "hunter2-hunter2-alerts"
[[auth.keys]]
name = "ops"
role = "admin"
key = 'hunter2'
[lanes.a]
chain = ["one", "two"]
[upstreams.one]
url = "https://user:hunter2@one.example"
headers = { Authorization = "Bearer hunter2-hunter2", X-Other = "${NONE:-hunter2}" }
[upstreams.two]
url = "https://two.example"
[upstreams.two.headers]
Authorization = "Basic hunter2-hunter2"
"#;

fn check(text: &str) {
    if let Err(errors) = read(text, &[]) {
        let said = errors.to_string();
        assert!(!said.contains("hunter2"), "{said}\n\nabout\n{text}");
        assert!(!format!("{errors:?}").contains("hunter2"), "{errors:?}");
    }
}

#[test]
fn with_any_character_missing() {
    check(FILE);
    for (at, c) in FILE.char_indices() {
        check(&format!("{}{}", &FILE[..at], &FILE[at + c.len_utf8()..]));
    }
}

#[test]
fn cut_off_anywhere() {
    for at in 0..FILE.len() {
        check(&FILE[..at]);
    }
}

#[test]
fn with_any_two_lines_run_together_or_any_line_missing() {
    let lines: Vec<&str> = FILE.lines().collect();
    for at in 0..lines.len() {
        let (before, after) = (lines[..at].join("\n"), lines[at + 1..].join("\n"));
        check(&format!("{before}\n{after}"));
        check(&format!("{before} {}\n{after}", lines[at]));
    }
}

#[test]
fn colour_only_when_asked() {
    let errors = read(FILE, &[]).map(|_| ()).unwrap_err();
    assert!(errors.render(true).contains("\u{1b}["));
    assert!(!errors.render(false).contains('\u{1b}'));
    assert_eq!(errors.file(), "eclusa.toml");
}
