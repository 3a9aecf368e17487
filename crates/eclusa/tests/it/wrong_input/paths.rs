//! Ambiguous paths: they never reach an upstream.

use serde_json::json;

use super::{assert_problem, start_well, status};

/// Below the lane, as written in the request line.
const BAD: [&str; 24] = [
    "/../secret",
    "/a/../../secret",
    "/..",
    "/.",
    "/./a",
    "/%2e%2e/secret",
    "/%2E%2e/secret",
    "/.%2e/secret",
    "/%252e%252e/secret",
    "/..;/secret",
    "/..%00/secret",
    "//secret",
    "/a//b",
    "/..\\secret",
    "/a\\..\\..\\secret",
    "/..%5csecret",
    "/..%2fsecret",
    "/a%2f..%2fsecret",
    "/a%252f..%252fsecret",
    "/%00",
    "/a%0d%0ab",
    "/%c0%ae%c0%ae/secret",
    "/%zz",
    "/http://evil.example/",
];

/// Sent as raw bytes: a client would normalise them first.
#[tokio::test]
async fn no_path_escapes_the_upstreams_base() {
    let (program, upstream) = start_well().await;
    for path in BAD {
        let request =
            format!("GET /proxy/work{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let answer = program.raw(request.as_bytes()).await;
        assert_eq!(status(&answer), 400, "{path}: {answer}");
    }
    // Paths that name no lane.
    for path in
        ["/proxy/../v1/lanes", "/proxy//work/a", "/proxy/%77ork/a", "/proxy/work%2fa", "/PROXY/work/a"]
    {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert_eq!(status(&program.raw(request.as_bytes()).await), 404, "{path}");
    }
    assert!(upstream.requests().is_empty());
    assert_eq!(program.get("/v1/lanes/work").await.json()["totals"]["accepted"], 0);
}

#[tokio::test]
async fn a_job_as_json_cannot_escape_the_base_path_either() {
    let (program, upstream) = start_well().await;
    for path in
        BAD.into_iter().chain(["http://evil.example/", "https:evil", "//evil.example/a", "/a?b", "/a#b"])
    {
        let answer = program.post("/v1/lanes/work/jobs", &json!({ "request": { "path": path } })).await;
        if path == "https:evil" {
            // Just a name: it stays below the base.
            assert_eq!(answer.status, 202, "{path}");
            continue;
        }
        let problem = assert_problem(&answer, 422, "invalid");
        assert_eq!(problem["errors"][0]["field"], "request.path", "{path}");
    }
    upstream.wait_for(1).await;
    assert_eq!(upstream.requests()[0].path, "/base/https:evil");
    assert_eq!(upstream.requests().len(), 1);
}

/// A valid path is sent unchanged, below the upstream's base.
#[tokio::test]
async fn a_valid_path_is_sent_unchanged() {
    let (program, upstream) = start_well().await;
    for (number, path) in
        ["", "/", "/a/b", "/a%20b", "/%C3%A9", "/a;b=c", "/a:b@c", "/...", "/a..b"].into_iter().enumerate()
    {
        let request =
            format!("GET /proxy/work{path}?q=/../x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert_eq!(status(&program.raw(request.as_bytes()).await), 202, "{path}");
        upstream.wait_for(number as u64 + 1).await;
        let seen = upstream.requests().pop().unwrap();
        assert_eq!((seen.path, seen.query.as_deref()), (format!("/base{path}"), Some("q=/../x")));
    }
}

/// An absolute URL as the request target: its host is ignored; the upstream is the configured one.
#[tokio::test]
async fn an_absolute_url_as_target_goes_to_the_configured_upstream() {
    let (program, upstream) = start_well().await;
    let send = async |host: &str| {
        let request =
            format!("GET http://{host}/proxy/work/a HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        status(&program.raw(request.as_bytes()).await)
    };
    assert_eq!((send("evil.example").await, send("127.0.0.2:9").await), (403, 202));
    upstream.wait_for(1).await;
    let seen = &upstream.requests()[0];
    assert_eq!(
        (seen.path.as_str(), &seen.headers["host"]),
        ("/base/a", &upstream.addr().to_string().parse().unwrap())
    );
    let request = "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert!((400..500).contains(&status(&program.raw(request.as_bytes()).await)));
}
