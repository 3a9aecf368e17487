//! The dashboard's files, and signing in to it.

use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use serde_json::json;

use crate::program::{Answer, Program};

const CONFIG: &str = r#"
[server]
listen = "127.0.0.1:0"
[store]
url = "memory:"
[lanes.work]
chain = ["up"]
[lanes.other]
chain = ["up"]
[upstreams.up]
url = "http://127.0.0.1:9"
"#;

fn with_keys(store: &str) -> String {
    let key = |role: &str, more: &str| {
        format!(
            "[[auth.keys]]\nname = \"{role}\"\nrole = \"{role}\"\nkey = \"{role}-0123456789abcdef\"\n{more}\n"
        )
    };
    let keys = key("operator", "lanes = [\"work\"]") + &key("viewer", "");
    format!("{}{keys}", CONFIG.replace("memory:", store))
}

async fn sign_in(program: &Program, key: &str) -> Answer {
    program.post("/v1/session", &json!({ "key": key })).await
}

/// The cookie that an answer sets, as it is sent back.
fn cookie(answer: &Answer) -> String {
    answer.header("set-cookie").split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn the_page_and_its_files_come_from_the_program_alone() {
    let program = Program::start(CONFIG, &[]).await;
    let page = program.get("/").await;
    assert_eq!(page.status, 200);
    assert_eq!(page.header(CONTENT_TYPE.as_str()), "text/html; charset=utf-8");
    assert_eq!(page.header(CACHE_CONTROL.as_str()), "no-cache");
    assert!(
        page.header(CONTENT_SECURITY_POLICY.as_str()).starts_with("default-src 'none'; script-src 'self';")
    );
    let assets: Vec<&str> = page.text().split('"').filter(|text| text.starts_with("/assets/")).collect();
    assert!(assets.len() >= 2, "{}", page.text());
    for asset in assets {
        let compressed = program.send("GET", asset, &[("accept-encoding", "gzip, br")], "").await;
        assert_eq!((compressed.status, compressed.header(CONTENT_ENCODING.as_str())), (200, "br"), "{asset}");
        assert!(compressed.header(CACHE_CONTROL.as_str()).contains("immutable"));
        let plain = program.get(asset).await;
        assert_eq!(plain.header(CONTENT_ENCODING.as_str()), "");
        assert!(plain.body.len() > compressed.body.len());
        assert!(!plain.text().contains("https://cdn"), "{asset}");
    }
    assert_eq!(program.get("/assets/none.js").await.status, 404);
}

#[tokio::test]
async fn without_keys_nobody_needs_to_sign_in() {
    let program = Program::start(CONFIG, &[]).await;
    let session = program.get("/v1/session").await;
    assert_eq!(session.json(), json!({ "required": false, "role": "admin" }));
}

#[tokio::test]
async fn a_session_has_the_role_and_the_bounds_of_its_key() {
    let program = Program::start(&with_keys("memory:"), &[]).await;
    assert_eq!(program.get("/v1/session").await.json(), json!({ "required": true }));
    assert_eq!(program.get("/v1/lanes").await.status, 401);
    assert_eq!(sign_in(&program, "operator-wrong").await.status, 401);

    let signed_in = sign_in(&program, "operator-0123456789abcdef").await;
    assert_eq!(signed_in.status, 200, "{}", signed_in.text());
    let set = signed_in.header("set-cookie");
    assert!(set.contains("; HttpOnly; SameSite=Strict; Path=/; Max-Age=43200"), "{set}");
    assert!(!set.contains("0123456789abcdef"), "the key itself is not in it: {set}");
    let session = signed_in.json();
    assert_eq!((&session["role"], &session["lanes"]), (&json!("operator"), &json!(["work"])));

    let (cookie, own) = (cookie(&signed_in), program.url());
    let get = async |path: &str| program.send("GET", path, &[("cookie", &cookie)], "").await;
    let lanes = get("/v1/lanes").await.json();
    assert_eq!(lanes.as_array().unwrap().iter().map(|lane| &lane["name"]).collect::<Vec<_>>(), ["work"]);
    assert_eq!(get("/v1/session").await.json()["name"], "operator");

    let post = async |path: &str, headers: &[(&str, &str)]| {
        let mut sent = vec![("cookie", cookie.as_str())];
        sent.extend_from_slice(headers);
        program.send("POST", path, &sent, "").await.status
    };
    let pause = "/v1/lanes/work/pause";
    assert_eq!(post(pause, &[]).await, 403, "nothing says that its own page asks");
    assert_eq!(post(pause, &[("origin", "http://evil.example")]).await, 403);
    assert_eq!(post(pause, &[("origin", "null")]).await, 403);
    assert_eq!(post(pause, &[("sec-fetch-site", "same-site")]).await, 403);
    let both = [("origin", "http://evil.example"), ("sec-fetch-site", "same-origin")];
    assert_eq!(post(pause, &both).await, 403, "the origin decides");
    assert_eq!(post(pause, &[("sec-fetch-site", "same-origin")]).await, 200);
    assert_eq!(post(pause, &[("origin", &own)]).await, 200);
    assert_eq!(post("/v1/lanes/other/pause", &[("origin", &own)]).await, 403, "its key is for another lane");
    assert_eq!(post("/proxy/work/a", &[("origin", &own)]).await, 401, "the proxy takes keys only");
    program.logged("Lane paused", &[("audit", "pause"), ("by", "operator")]).await;
    program.logged("Signed in", &[("audit", "sign_in"), ("by", "operator")]).await;

    let foreign = [("cookie", cookie.as_str()), ("origin", "http://evil.example")];
    assert_eq!(program.send("DELETE", "/v1/session", &foreign, "").await.status, 403);
    let out = program.send("DELETE", "/v1/session", &[("cookie", &cookie), ("origin", &own)], "").await;
    assert_eq!((out.status, out.header("set-cookie").contains("Max-Age=0")), (204, true));
    program.logged("Signed out", &[("audit", "sign_out"), ("by", "operator")]).await;
}

#[tokio::test]
async fn a_viewers_session_changes_nothing() {
    let program = Program::start(&with_keys("memory:"), &[]).await;
    let cookie = cookie(&sign_in(&program, "viewer-0123456789abcdef").await);
    let own = program.url();
    let headers = [("cookie", cookie.as_str()), ("origin", own.as_str())];
    assert_eq!(program.send("GET", "/v1/lanes", &headers, "").await.status, 200);
    assert_eq!(program.send("POST", "/v1/lanes/work/pause", &headers, "").await.status, 403);
}

#[tokio::test]
async fn a_session_is_valid_on_every_process_and_ends_with_its_key() {
    let first = Program::start(&with_keys("memory:"), &[]).await;
    let cookie = cookie(&sign_in(&first, "viewer-0123456789abcdef").await);
    let second = Program::start(&with_keys("memory:"), &[]).await;
    let headers = [("cookie", cookie.as_str())];
    assert_eq!(second.send("GET", "/v1/lanes", &headers, "").await.status, 200);
    let replaced = with_keys("memory:").replace("viewer-0123456789abcdef", "viewer-another-secret");
    let third = Program::start(&replaced, &[]).await;
    assert_eq!(third.send("GET", "/v1/lanes", &headers, "").await.status, 401);
}

#[tokio::test]
async fn a_page_of_another_site_cannot_sign_in() {
    let program = Program::start(&with_keys("memory:"), &[]).await;
    let body = json!({ "key": "viewer-0123456789abcdef" }).to_string();
    let foreign = program.send("POST", "/v1/session", &[("origin", "http://evil.example")], &body).await;
    assert_eq!((foreign.status, foreign.header("set-cookie")), (403, ""));
}
