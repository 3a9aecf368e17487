//! Pages of other sites: without keys, they could make a browser on this machine send any request.

use super::{assert_problem, start_well};

#[tokio::test]
async fn a_page_of_another_site_cannot_change_or_send_anything() {
    let (program, upstream) = start_well().await;
    for header in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("origin", "http://127.0.0.1:1"),
        ("sec-fetch-site", "cross-site"),
    ] {
        for (method, path) in [
            ("POST", "/v1/lanes/work/jobs"),
            ("POST", "/v1/lanes/work/pause"),
            ("POST", "/proxy/work/a"),
            ("GET", "/proxy/work/a"),
            ("HEAD", "/proxy/work/a"),
        ] {
            let answer = program.send(method, path, &[header], "{\"request\":{}}").await;
            assert_eq!(answer.status, 403, "{header:?} {method} {path}");
            if method != "HEAD" {
                assert_problem(&answer, 403, "foreign-site");
            }
        }
    }
    let lane = program.get("/v1/lanes/work").await.json();
    assert_eq!((&lane["totals"]["accepted"], &lane["paused"]), (&0.into(), &false.into()));
    assert!(upstream.requests().is_empty());
}

/// With DNS rebinding, a foreign name resolves to this machine and its pages look like ours.
#[tokio::test]
async fn a_foreign_name_for_this_machine_is_not_answered_to() {
    let (program, upstream) = start_well().await;
    for (method, path) in [("POST", "/proxy/work/a"), ("GET", "/v1/jobs"), ("GET", "/metrics")] {
        let headers = [("host", "evil.example"), ("origin", "http://evil.example")];
        let problem = assert_problem(&program.send(method, path, &headers, "").await, 403, "wrong-host");
        assert_eq!(problem["title"], "The server does not answer to this Host");
        assert!(problem["detail"].as_str().unwrap().contains("Host"), "{problem}");
        assert!(!problem["title"].as_str().unwrap().contains("key"), "there are no keys: {problem}");
    }
    for host in ["localhost", "localhost:8080", "127.0.0.1", "[::1]:8080"] {
        assert_eq!(program.send("GET", "/v1/jobs", &[("host", host)], "").await.status, 200, "{host}");
    }
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn its_own_pages_and_programs_may_ask() {
    let (program, _upstream) = start_well().await;
    let own = program.url();
    for headers in [
        vec![],
        vec![("origin", own.as_str()), ("sec-fetch-site", "same-origin")],
        vec![("sec-fetch-site", "none")],
    ] {
        assert_eq!(program.send("POST", "/proxy/work/a", &headers, "").await.status, 202, "{headers:?}");
        assert_eq!(program.send("GET", "/proxy/work/a", &headers, "").await.status, 202, "{headers:?}");
    }
    // Reading is harmless: the browser does not show the response to the page.
    assert_eq!(program.send("GET", "/livez", &[("sec-fetch-site", "cross-site")], "").await.status, 200);
}
