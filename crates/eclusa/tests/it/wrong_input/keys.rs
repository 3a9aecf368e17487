//! Keys: their roles, lanes, tenants and priorities.

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::json;

use super::super::program::{self, Program};
use super::{assert_problem, start};

const PRODUCER: &str = "producer-0123456789";
const VIEWER: &str = "viewer-0123456789ab";
const OPERATOR: &str = "operator-0123456789";

async fn guarded() -> (Program, FakeUpstream) {
    let key = |name: &str, key: &str, more: &str| {
        format!("[[auth.keys]]\nname = \"{name}\"\nrole = \"{name}\"\nkey = \"{key}\"\n{more}\n")
    };
    let bounds = "lanes = [\"other\"]\ntenants = [\"acme\"]\nmax_priority = \"normal\"";
    let keys =
        key("producer", PRODUCER, bounds) + &key("viewer", VIEWER, "") + &key("operator", OPERATOR, "");
    start(Answer::status(200), &keys).await
}

async fn send(
    program: &Program,
    key: &str,
    method: &str,
    path: &str,
    more: &[(&str, &str)],
) -> program::Answer {
    let bearer = format!("Bearer {key}");
    let mut headers = vec![("authorization", bearer.as_str())];
    headers.extend(more);
    program.send(method, path, &headers, "").await
}

#[tokio::test]
async fn without_a_valid_key_nothing_is_revealed() {
    let (program, upstream) = guarded().await;
    for key in [
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        &format!("Basic {VIEWER}"),
        &format!("Bearer {VIEWER}x"),
        &format!("Bearer  {VIEWER}"),
    ] {
        for path in ["/v1/lanes", "/metrics", "/proxy/other/a", "/v1/jobs/x", "/v1/health"] {
            let answer = program.send("GET", path, &[("authorization", key)], "").await;
            assert_problem(&answer, 401, "unauthorized");
            assert!(answer.header("www-authenticate").starts_with("Bearer"), "{answer:?}");
        }
    }
    assert_problem(&program.get("/v1/lanes").await, 401, "unauthorized");
    // Health checks need no key.
    for path in ["/livez", "/readyz"] {
        assert_eq!(program.get(path).await.status, 200);
    }
    assert!(upstream.requests().is_empty());
}

/// A new API call without an authorization check fails here.
#[tokio::test]
async fn every_call_of_the_api_but_probes_webhooks_and_sessions_needs_a_key() {
    let (program, _upstream) = guarded().await;
    let api = program.get("/openapi.json").await.json();
    for (path, methods) in api["paths"].as_object().unwrap() {
        // Webhooks are signed, or have a token; a session begins with a key in the body.
        let open = ["/livez", "/readyz", "/v1/session", "/v1/webhooks/{upstream}/{jobId}"];
        let open = open.contains(&path.as_str());
        let path = path.replace(['{', '}'], "");
        for method in methods.as_object().unwrap().keys() {
            let answer = program.send(&method.to_uppercase(), &path, &[], "").await;
            assert_eq!(answer.status == 401, !open, "{method} {path}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn a_role_may_do_its_own_and_no_more() {
    let (program, upstream) = guarded().await;
    for (key, method, path, status) in [
        (PRODUCER, "GET", "/proxy/other/a", 202),
        (PRODUCER, "GET", "/v1/lanes", 403),
        (PRODUCER, "GET", "/v1/jobs", 403),
        (PRODUCER, "GET", "/metrics", 403),
        (PRODUCER, "GET", "/v1/dead-letters", 403),
        (PRODUCER, "POST", "/v1/lanes/other/pause", 403),
        (PRODUCER, "POST", "/v1/breakers/up/reset", 403),
        (VIEWER, "GET", "/v1/lanes", 200),
        (VIEWER, "GET", "/v1/jobs", 200),
        (VIEWER, "GET", "/metrics", 200),
        (VIEWER, "GET", "/proxy/other/a", 403),
        (VIEWER, "POST", "/v1/lanes/other/jobs", 403),
        (VIEWER, "POST", "/v1/lanes/other/pause", 403),
        (VIEWER, "DELETE", "/v1/jobs/01a1e1d0-c0a3-7980-9917-0dccdd45b6f3", 403),
        (OPERATOR, "POST", "/v1/lanes/other/pause", 200),
        (OPERATOR, "POST", "/v1/lanes/other/resume", 200),
        (OPERATOR, "GET", "/proxy/other/a", 202),
    ] {
        let bearer = format!("Bearer {key}");
        let answer = program.send(method, path, &[("authorization", &bearer)], "{\"request\":{}}").await;
        assert_eq!(answer.status, status, "{key}: {method} {path}: {}", answer.text());
        if status == 403 {
            let problem = assert_problem(&answer, 403, "forbidden");
            assert!(!problem.to_string().contains(key), "{problem}");
        }
    }
    upstream.wait_for(2).await;
    assert_eq!(upstream.requests().len(), 2);
    assert!(upstream.requests().iter().all(|seen| !seen.headers.contains_key("authorization")));
}

#[tokio::test]
async fn a_key_is_bound_to_its_lanes_tenants_and_priority() {
    let (program, _upstream) = guarded().await;
    assert_problem(&send(&program, PRODUCER, "GET", "/proxy/work/a", &[]).await, 403, "forbidden");
    for (name, value) in [
        ("eclusa-tenant", "globex"),
        ("eclusa-tenant", "acme2"),
        ("eclusa-priority", "high"),
        ("eclusa-type", "update"),
    ] {
        let answer = send(&program, PRODUCER, "GET", "/proxy/other/a", &[(name, value)]).await;
        assert_problem(&answer, 403, "forbidden");
    }
    for job in [
        json!({ "request": {}, "tenant": "globex" }),
        json!({ "request": {}, "priority": "high" }),
        json!({ "request": {}, "type": "update" }),
    ] {
        let bearer = format!("Bearer {PRODUCER}");
        let headers = [("authorization", bearer.as_str())];
        let answer = program.send("POST", "/v1/lanes/other/jobs", &headers, &job.to_string()).await;
        assert_problem(&answer, 403, "forbidden");
        let batch = json!([job]).to_string();
        let answer = program.send("POST", "/v1/lanes/other/jobs/batch", &headers, &batch).await;
        assert!(answer.text().contains("urn:eclusa:problem:forbidden"), "{}", answer.text());
    }
    // By default its jobs belong to its own tenant.
    let own = send(&program, PRODUCER, "GET", "/proxy/other/a", &[]).await;
    let own = format!("/v1/jobs/{}", own.json()["jobId"].as_str().unwrap());
    assert_eq!(send(&program, PRODUCER, "GET", &own, &[]).await.json()["tenant"], "acme");
    // It cannot see those of others.
    let foreign = send(&program, OPERATOR, "GET", "/proxy/other/a", &[("eclusa-tenant", "globex")]).await;
    let foreign = format!("/v1/jobs/{}", foreign.json()["jobId"].as_str().unwrap());
    assert_eq!(send(&program, VIEWER, "GET", &foreign, &[]).await.status, 200);
    for path in [foreign.clone(), format!("{foreign}/wait"), format!("{foreign}/why")] {
        assert_problem(&send(&program, PRODUCER, "GET", &path, &[]).await, 404, "not-found");
    }
}

/// The bounds of a key also apply to upstreams, breakers and shared things.
#[tokio::test]
async fn bounds_hold_for_upstreams_and_for_what_concerns_all() {
    let key = |name: &str, role: &str, key: &str, bounds: &str| {
        format!("[[auth.keys]]\nname = \"{name}\"\nrole = \"{role}\"\nkey = \"{key}\"\n{bounds}\n")
    };
    let config = key("some", "operator", OPERATOR, "lanes = [\"one\"]\ntenants = [\"acme\"]")
        + &key("all", "viewer", VIEWER, "")
        + "[lanes.one]\nchain = [\"up\"]\n[lanes.two]\nchain = [\"far\"]\n\
           [upstreams.up]\nurl = \"http://127.0.0.1:9\"\nbreaker = {}\n\
           [upstreams.far]\nurl = \"http://127.0.0.1:9\"\nbreaker = {}\n";
    let program = Program::start(&config, &[]).await;
    for (method, path) in [
        ("GET", "/v1/upstreams/far"),
        ("GET", "/v1/breakers/far"),
        ("POST", "/v1/breakers/far/failure"),
        ("POST", "/v1/breakers/far/reset"),
        ("GET", "/metrics"),
        ("POST", "/v1/lanes/one/pause"),
    ] {
        assert_problem(&send(&program, OPERATOR, method, path, &[]).await, 403, "forbidden");
    }
    // A breaker is shared by all tenants.
    for verb in ["failure", "success", "try-recover", "reset"] {
        let path = format!("/v1/breakers/up/{verb}");
        assert_problem(&send(&program, OPERATOR, "POST", &path, &[]).await, 403, "forbidden");
    }
    for path in ["/v1/upstreams", "/v1/breakers", "/v1/health", "/v1/lanes", "/v1/lanes/three"] {
        let answer = send(&program, OPERATOR, "GET", path, &[]).await;
        assert!(
            !answer.text().contains("far") && !answer.text().contains("two"),
            "{path}: {}",
            answer.text()
        );
    }
    assert_eq!(send(&program, VIEWER, "GET", "/metrics", &[]).await.status, 200);
}

/// A key for some lanes may open and close the breakers that only these lanes use.
#[tokio::test]
async fn a_key_for_some_lanes_changes_no_breaker_that_others_share() {
    let config = format!(
        "[[auth.keys]]\nname = \"some\"\nrole = \"operator\"\nkey = \"{OPERATOR}\"\nlanes = [\"one\"]\n\
         [lanes.one]\nchain = [\"own\", \"shared\"]\n[lanes.two]\nchain = [\"shared\"]\n\
         [upstreams.own]\nurl = \"http://127.0.0.1:9\"\nbreaker = {{}}\n\
         [upstreams.shared]\nurl = \"http://127.0.0.1:9\"\nbreaker = {{}}\n"
    );
    let program = Program::start(&config, &[]).await;
    for verb in ["failure", "success", "try-recover", "reset"] {
        let own = send(&program, OPERATOR, "POST", &format!("/v1/breakers/own/{verb}"), &[]).await;
        assert_eq!(own.status, 200, "{}", own.text());
        let path = format!("/v1/breakers/shared/{verb}");
        assert_problem(&send(&program, OPERATOR, "POST", &path, &[]).await, 403, "forbidden");
    }
    let shared = send(&program, OPERATOR, "GET", "/v1/breakers/shared", &[]).await.json();
    assert_eq!(shared["failures"], 0);
}
