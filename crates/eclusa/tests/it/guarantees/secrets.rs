//! No secret and no personal identifier in a log line, a metric or an error, at any log level.

use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use serde_json::json;

use super::super::program::Program;

const TOKEN: &str = "upstream-token-5b1d9c";
const KEY: &str = "caller-key-0123456789abcdef";
const CPF: &str = "05227892180";

#[tokio::test]
async fn nothing_secret_or_personal_is_logged() {
    let answers = [
        Answer::status(200).body(format!("{{\"cpf\":\"{CPF}\"}}")),
        Answer::status(404).body(CPF),
        Answer::hang(),
        Answer::reset(),
        Answer::garbage(),
        Answer::status(503).body(CPF),
    ];
    let count = answers.len();
    let upstream = FakeUpstream::start(Behaviour::script(answers)).await.unwrap();
    let config = format!(
        "[log]\nformat = \"json\"\nlevel = \"debug\"\n\
         [[auth.keys]]\nname = \"app\"\nrole = \"admin\"\nkey = \"${{APP_KEY}}\"\n\
         [lanes.score]\nchain = [\"bureau\"]\nvalidate = {{ \"query.cpf\" = \"cpf\" }}\nretry = {{ attempts = 1 }}\n\
         cache = {{ key = \"{{query.cpf}}-{{header.x-n}}\", ttl = \"1s\" }}\n\
         [upstreams.bureau]\nurl = \"{}\"\ntimeout = \"2s\"\n\
         headers = {{ Authorization = \"Bearer ${{BUREAU_TOKEN}}\" }}\n",
        upstream.url()
    );
    let program = Program::start(&config, &[("APP_KEY", KEY), ("BUREAU_TOKEN", TOKEN)]).await;
    let bearer = format!("Bearer {KEY}");
    let call = async |method: &str, path: &str, body: &str| {
        program.send(method, path, &[("authorization", &bearer)], body).await
    };
    let mut reported = Vec::new();
    for number in 0..count {
        let number = number.to_string();
        let headers = [("authorization", bearer.as_str()), ("prefer", "wait=60"), ("x-n", &number)];
        let answer = program.send("GET", &format!("/proxy/score?cpf={CPF}"), &headers, "").await;
        if answer.header("content-type") == "application/problem+json" {
            reported.push(answer.text().to_owned());
        }
    }
    assert_eq!(upstream.requests().len(), count);
    assert!(
        upstream.requests().iter().all(|seen| seen.headers["authorization"] == format!("Bearer {TOKEN}"))
    );

    // Errors of all kinds, caused by requests with these values.
    for (method, path, body) in [
        ("GET", format!("/proxy/score?cpf={CPF}&cpf={CPF}"), String::new()),
        ("GET", "/proxy/score?cpf=05227892181".to_owned(), String::new()),
        (
            "POST",
            "/v1/lanes/score/jobs".to_owned(),
            format!("{{\"request\":{{\"query\":{{\"cpf\":{CPF}1}}}}}}"),
        ),
        ("POST", "/v1/lanes/score/jobs".to_owned(), format!("{{\"cpf\": \"{CPF}\"")),
    ] {
        let answer = call(method, &path, &body).await;
        assert!(answer.status >= 400, "{path}");
        reported.push(answer.text().to_owned());
    }
    let wrong = program.send("GET", "/v1/lanes", &[("authorization", &format!("Bearer {KEY}x"))], "").await;
    assert_eq!(wrong.status, 401);
    reported.push(wrong.text().to_owned());
    for path in ["/metrics", "/v1/jobs", "/v1/dead-letters", "/v1/lanes", "/v1/upstreams", "/v1/health"] {
        let answer = call("GET", path, "").await;
        assert_eq!(answer.status, 200, "{path}");
        reported.push(answer.text().to_owned());
    }
    program.logged("Job failed permanently", &[("errorCode", "503")]).await;
    reported.extend(program.log().iter().map(ToString::to_string));
    for text in reported {
        for secret in [TOKEN, KEY, CPF, "0522789218"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    // A job requested by its id includes the request and the answer.
    let job = json!({ "request": { "query": { "cpf": CPF }, "headers": { "x-n": "later" } } });
    let job = call("POST", "/v1/lanes/score/jobs", &job.to_string()).await;
    assert_eq!(job.status, 202);
}
