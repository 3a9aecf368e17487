//! `GET /v1/events`: what changes, as it changes, on every kind of store.

use eclusa::fake::{Answer, FakeUpstream, Latch};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::program::{PATIENCE, Program};
use super::redis_server::RedisServer;

/// An open stream of events.
struct Stream {
    lines: tokio::io::Lines<BufReader<TcpStream>>,
    status: u16,
    /// The last cursor.
    id: String,
}

/// An event: its name and data.
type LiveEvent = (String, Value);

impl Stream {
    async fn open(program: &Program, path: &str, headers: &[(&str, &str)]) -> Self {
        let address = program.url().replace("http://", "");
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let headers: String =
            headers.iter().map(|(name, value)| [name, ": ", value, "\r\n"].concat()).collect();
        let request = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next_line().await.unwrap().unwrap();
        let status = first.split(' ').nth(1).unwrap().parse().unwrap();
        while lines.next_line().await.unwrap().is_some_and(|line| !line.is_empty()) {}
        Self { lines, status, id: String::new() }
    }

    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<LiveEvent> {
        let (mut name, mut data) = (String::new(), None);
        let read = async {
            while let Some(line) = self.lines.next_line().await.ok().flatten() {
                let (field, value) = line.split_once(':').unwrap_or((&line, ""));
                match (field, value.trim_start()) {
                    ("id", id) => id.clone_into(&mut self.id),
                    ("event", event) => event.clone_into(&mut name),
                    ("data", json) => data = Some(serde_json::from_str(json).unwrap()),
                    ("", "") if line.is_empty() && data.is_some() => {
                        return data.take().map(|data| (name, data));
                    }
                    _ => {}
                }
            }
            None
        };
        tokio::time::timeout(PATIENCE, read).await.unwrap()
    }

    /// Reads until an event fits; all that were read, that one last.
    async fn until(&mut self, fits: impl Fn(&str, &Value) -> bool) -> Vec<LiveEvent> {
        let mut all = Vec::new();
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("the stream ended after {all:?}"));
            let found = fits(&event.0, &event.1);
            all.push(event);
            if found {
                return all;
            }
        }
    }
}

/// The words for what happened to a job, in order.
fn words(all: &[LiveEvent], job: &str) -> Vec<String> {
    let jobs = all.iter().filter(|(name, _)| name == "jobs").flat_map(|(_, data)| data.as_array().unwrap());
    let own = jobs.filter(|change| change["jobId"] == job);
    own.map(|change| change["event"].as_str().unwrap().to_owned()).collect()
}

fn ended(job: &str) -> impl Fn(&str, &Value) -> bool {
    let job = job.to_owned();
    move |name, data| {
        name == "jobs"
            && data.as_array().unwrap().iter().any(|one| one["jobId"] == *job && one["status"] == "completed")
    }
}

fn rules(upstream: &FakeUpstream) -> String {
    format!(
        "[lanes.work]\nchain = [\"up\"]\nkeep = {{ max = 0 }}\n[lanes.other]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"{}\"\n",
        upstream.url()
    )
}

/// A job from its beginning to its end, as `api` tells it.
async fn check(api: &Program, upstream: &FakeUpstream, gate: &Latch) {
    let mut stream = Stream::open(api, "/v1/events", &[]).await;
    assert_eq!(stream.status, 200);
    let (name, snapshot) = stream.next().await.unwrap();
    assert_eq!(name, "snapshot");
    let cursor = stream.id.clone();
    assert!(snapshot["at"].is_string());
    let names = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(names(&snapshot["lanes"]).contains(&"work".to_owned()), "{snapshot}");
    assert_eq!(names(&snapshot["upstreams"]), ["up"]);
    assert_eq!(snapshot["alerts"]["alerts"], json!([]));
    assert!(snapshot["fleet"]["instances"].is_array() && snapshot["fleet"]["store"]["kind"].is_string());
    let shown = api.get("/v1/lanes/work").await.json();
    let lane = snapshot["lanes"].as_array().unwrap().iter().find(|lane| lane["name"] == "work").unwrap();
    let keys = |lane: &Value| lane.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(lane), keys(&shown), "a lane is what the other call answers");

    let id =
        api.enqueue("work", &json!({ "id": "mine", "tenant": "acme", "request": { "path": "/a" } })).await;
    upstream.wait_for(1).await;
    let processing = |name: &str, data: &Value| {
        name == "lanes"
            && data.as_array().unwrap().iter().any(|lane| lane["name"] == "work" && lane["processing"] == 1)
    };
    let mut all = stream.until(processing).await;
    gate.open();
    all.append(&mut stream.until(ended(&id)).await);
    assert_eq!(words(&all, &id), ["accepted", "started", "completed"]);
    let last = all.last().unwrap().1.as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["id"], &last["lane"], &last["tenant"]),
        (&json!("mine"), &json!("work"), &json!("acme"))
    );
    assert_eq!((&last["event"], &last["priority"]), (&json!("completed"), &json!("normal")));

    let mut resumed = Stream::open(api, "/v1/events?topics=jobs", &[("last-event-id", &cursor)]).await;
    let all = resumed.until(ended(&id)).await;
    assert!(all.iter().all(|(name, _)| name == "jobs"), "nothing was missed: {all:?}");
    assert_eq!(words(&all, &id), ["accepted", "started", "completed"]);

    let elsewhere = format!("/v1/events?topics=lanes&lane=other&cursor={}", "1-1");
    let mut anew = Stream::open(api, &elsewhere, &[]).await;
    assert_eq!(anew.next().await.unwrap(), ("gap".to_owned(), json!({})));
    let (name, snapshot) = anew.next().await.unwrap();
    assert_eq!((name.as_str(), names(&snapshot["lanes"])), ("snapshot", vec!["other".to_owned()]));
    assert!(snapshot.get("upstreams").is_none() && snapshot.get("fleet").is_none());
}

#[tokio::test]
async fn everything_is_followed_on_a_store_of_its_own() {
    let gate = Latch::default();
    let upstream = FakeUpstream::start(Answer::status(200).after(&gate)).await.unwrap();
    let program = Program::start(&rules(&upstream), &[]).await;
    check(&program, &upstream, &gate).await;
    assert_eq!(program.get("/v1/events?topics=tenants").await.status, 422);
    assert_eq!(program.get("/v1/events?lane=none").await.status, 404);
}

#[tokio::test]
async fn everything_is_followed_from_a_process_that_does_not_decide_and_after_a_takeover() {
    let redis = RedisServer::start();
    let gate = Latch::default();
    let upstream = FakeUpstream::start(Answer::status(200).after(&gate)).await.unwrap();
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{}\"\nterm = \"500ms\"\n{}",
        redis.url(),
        rules(&upstream)
    );
    let owner = Program::start_as("worker", &config).await;
    owner.until("/readyz", |answer| answer.status == 200).await;
    let api = Program::start_as("api", &config).await;
    api.until("/readyz", |answer| answer.status == 200).await;
    check(&api, &upstream, &gate).await;

    let mut stream = Stream::open(&api, "/v1/events?topics=lanes,jobs,fleet", &[]).await;
    stream.until(|name, _| name == "snapshot").await;
    owner.kill().await;
    let all = stream.until(|name, data| name == "snapshot" && data["fleet"]["owner"]["id"].is_string()).await;
    assert!(all.iter().any(|(name, _)| name == "gap"), "the new owner does not know what was sent: {all:?}");
    let id = api.enqueue("work", &json!({ "request": { "path": "/b" } })).await;
    let all = stream.until(|name, data| name == "jobs" && data[0]["jobId"] == *id).await;
    assert_eq!(words(&all, &id), ["accepted"]);
}

#[tokio::test]
async fn a_bounded_key_receives_only_what_it_may_see() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let config = format!(
        "{}[upstreams.hidden]\nurl = \"{}\"\n[lanes.secret]\nchain = [\"hidden\"]\n\
         [[auth.keys]]\nname = \"all\"\nrole = \"admin\"\nkey = \"{}\"\n\
         [[auth.keys]]\nname = \"some\"\nrole = \"viewer\"\nkey = \"{}\"\nlanes = [\"work\"]\ntenants = [\"acme\"]\n\
         [[auth.keys]]\nname = \"in\"\nrole = \"producer\"\nkey = \"{}\"\n",
        rules(&upstream),
        upstream.url(),
        "a".repeat(32),
        "s".repeat(32),
        "p".repeat(32)
    );
    let program = Program::start(&config, &[]).await;
    let bearer = |letter: &str| format!("Bearer {}", letter.repeat(32));
    let (admin, some, producer) = (bearer("a"), bearer("s"), bearer("p"));
    assert_eq!(program.send("GET", "/v1/events", &[], "").await.status, 401);
    let refused = Stream::open(&program, "/v1/events", &[("authorization", &producer)]).await;
    assert_eq!(refused.status, 403);
    let other = program.send("GET", "/v1/events?lane=secret", &[("authorization", &some)], "").await;
    assert_eq!(other.status, 403);

    let mut stream = Stream::open(&program, "/v1/events", &[("authorization", &some)]).await;
    let (_, snapshot) = stream.next().await.unwrap();
    let names = |list: &str| -> Vec<&str> {
        snapshot[list].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
    };
    assert_eq!((names("lanes"), names("upstreams")), (vec!["work"], vec!["up"]));
    let put = async |lane: &str, tenant: &str| {
        let job = json!({ "tenant": tenant, "request": { "path": "/" } }).to_string();
        let path = format!("/v1/lanes/{lane}/jobs");
        let headers = [("authorization", admin.as_str()), ("content-type", "application/json")];
        let answer = program.send("POST", &path, &headers, &job).await;
        answer.json()["jobId"].as_str().unwrap().to_owned()
    };
    put("secret", "acme").await;
    put("work", "globex").await;
    let own = put("work", "acme").await;
    let all = stream.until(ended(&own)).await;
    let jobs = all.iter().filter(|(name, _)| name == "jobs").flat_map(|(_, data)| data.as_array().unwrap());
    assert!(jobs.clone().count() > 0);
    assert!(jobs.into_iter().all(|job| job["jobId"] == *own), "{all:?}");
}

#[tokio::test]
async fn streams_are_bounded_and_end_with_the_process() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    // A stream that the process does not end holds it up for longer than the test waits.
    let config = format!("[server]\nlisten = \"127.0.0.1:0\"\nshutdown_grace = \"1h\"\n{}", rules(&upstream));
    let program = Program::start(&config, &[]).await;
    let mut streams = Vec::new();
    for _ in 0..200 {
        streams.push(Stream::open(&program, "/v1/events?topics=fleet", &[]).await);
    }
    assert_eq!(Stream::open(&program, "/v1/events", &[]).await.status, 503);
    let refused = program.get("/v1/events").await;
    assert!(refused.text().contains("too-many-streams"), "{refused:?}");
    let mut last = streams.pop().unwrap();
    last.until(|name, _| name == "snapshot").await;
    drop(streams);
    program.signal("TERM");
    while last.next().await.is_some() {}
}

/// `lane` and `tenant` narrow a stream; a reload ends it, because the key may have changed.
#[tokio::test]
async fn a_stream_is_narrowed_by_lane_and_tenant_and_ends_with_a_reload() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&rules(&upstream), &[]).await;
    let mut stream = Stream::open(&program, "/v1/events?topics=jobs&lane=work&tenant=acme", &[]).await;
    stream.until(|name, _| name == "snapshot").await;
    let job = |tenant: &str| json!({ "tenant": tenant, "request": { "path": "/" } });
    program.enqueue("work", &job("globex")).await;
    program.enqueue("other", &job("acme")).await;
    let own = program.enqueue("work", &job("acme")).await;
    let all = stream.until(ended(&own)).await;
    let jobs = all.iter().filter(|(name, _)| name == "jobs").flat_map(|(_, data)| data.as_array().unwrap());
    assert!(jobs.into_iter().all(|job| job["jobId"] == *own), "{all:?}");
    program.reload(&format!("{}rpm = 60\n", rules(&upstream)));
    while stream.next().await.is_some() {}
}
