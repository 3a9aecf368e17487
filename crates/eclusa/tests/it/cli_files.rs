//! Commands that need no server: config files, schema and completions.

use eclusa::fake::{Answer, FakeUpstream};
use serde_json::Value;
use tempfile::tempdir;

use crate::cli::run_with;
use crate::http_upstream::free_port;
use crate::program::eclusa;

async fn run(arguments: &[&str]) -> crate::cli::Ran {
    run_with(arguments, &[], "").await
}

#[tokio::test]
async fn init_writes_a_config_that_check_takes_and_never_overwrites() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("new.toml");
    let name = file.to_str().unwrap();
    let ran = run(&["init", name]).await;
    assert!(ran.err.starts_with(&format!("Wrote {name}. Next: `eclusa check {name}`")), "{ran:?}");
    assert_eq!(ran.ok(), "");
    let said = run(&["check", name]).await.ok();
    assert!(said.starts_with("ok: 1 lane and 1 upstream; listens on 127.0.0.1:8080\n"), "{said}");
    std::fs::write(&file, "mine").unwrap();
    let err = run(&["init", name]).await.failed(1);
    assert!(err.contains("already exists and was not changed"), "{err}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[tokio::test]
async fn init_and_check_default_to_eclusa_toml() {
    let dir = tempdir().unwrap();
    for (command, out) in [("init", ""), ("check", "ok: 1 lane")] {
        let ended = eclusa().arg(command).current_dir(dir.path()).output().await.unwrap();
        assert!(ended.status.success());
        assert!(String::from_utf8(ended.stdout).unwrap().starts_with(out));
    }
    assert!(dir.path().join("eclusa.toml").exists());
}

#[tokio::test]
async fn init_says_when_it_cannot_write() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("no/such/folder.toml");
    let err = run(&["init", file.to_str().unwrap()]).await.failed(1);
    assert!(err.starts_with("error: cannot write "), "{err}");
}

#[tokio::test]
async fn check_shows_every_mistake_with_its_place() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("bad.toml");
    let text = "[lanes.a]\nchain = [\"nobody\"]\nttl = \"soon\"\n[upstreams.api]\nurl = \"http://x\"\ntimeut = \"1s\"\n";
    std::fs::write(&file, text).unwrap();
    let name = file.to_str().unwrap();
    let err = run(&["check", name]).await.failed(6);
    assert_eq!(err.matches("error: ").count(), 3, "{err}");
    assert!(err.contains(&format!("{name}:2:")) && err.contains(":3:7") && err.contains(":6:1"), "{err}");
    assert!(err.contains("^^^^^^") && !err.contains('\u{1b}'), "{err}");
    let served = run(&["serve", "--config", name]).await.failed(6);
    assert_eq!(served, err);
    let missing = run(&["check", "no-such-file.toml"]).await.failed(6);
    assert!(missing.contains("create one with `eclusa init`"), "{missing}");
}

#[tokio::test]
async fn check_can_connect_to_the_upstreams() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let dir = tempdir().unwrap();
    let file = dir.path().join("probe.toml");
    let name = file.to_str().unwrap();
    let (here, gone) = (upstream.url(), format!("http://127.0.0.1:{}/secret-token", free_port()));
    let config = |second: &str| {
        format!(
            "[lanes.a]\nchain = [\"one\", \"two\"]\n[upstreams.one]\nurl = \"{here}\"\n\
             [upstreams.two]\nurl = \"{second}\"\n"
        )
    };
    std::fs::write(&file, config(&here)).unwrap();
    let out = run(&["check", name, "--probe"]).await.ok();
    assert_eq!(out.matches("  reachable\n").count(), 2, "{out}");
    std::fs::write(&file, config(&gone)).unwrap();
    let ran = run(&["check", name, "--probe"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (1, "error: 1 of 2 upstreams cannot be reached from here\n"));
    assert!(ran.out.contains("not reachable: Connection refused") && !ran.out.contains("secret"), "{ran:?}");
    let ran = run(&["check", name, "--probe", "-o", "json"]).await;
    let said: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&said["upstreams"][0]["reachable"], &said["upstreams"][1]["reachable"]),
        (&true.into(), &false.into())
    );
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn schema_is_json_schema() {
    let schema = run(&["schema"]).await.json();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
}

#[tokio::test]
async fn completions_are_for_the_shell_that_was_named() {
    assert!(run(&["completions", "bash"]).await.ok().contains("_eclusa()"));
    assert!(run(&["completions", "zsh"]).await.ok().starts_with("#compdef eclusa"));
    run(&["completions", "cmd"]).await.failed(2);
}

#[tokio::test]
async fn help_and_version_go_to_standard_output() {
    let help = run(&["--help"]).await.ok();
    assert!(help.contains("Exit codes:") && help.contains("ECLUSA_KEY"), "{help}");
    assert!(run(&["--version"]).await.ok().starts_with("eclusa 0."));
    assert!(run(&[]).await.failed(2).contains("Usage: eclusa"));
}

#[tokio::test]
async fn a_closed_pipe_ends_the_command_quietly() {
    for arguments in [["schema", "-o", "text"], ["completions", "bash", "-o=json"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = eclusa().args(arguments).stdout(writer).output().await.unwrap();
        assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]));
    }
}

#[tokio::test]
async fn check_warns_of_what_cannot_work_also_in_json() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("warned.toml");
    let name = file.to_str().unwrap();
    std::fs::write(&file, "").unwrap();
    let ran = run(&["check", name]).await;
    assert_eq!(ran.code, 0);
    assert!(ran.err.starts_with("warning: the file has no lanes and no upstreams"), "{ran:?}");
    let ran = run(&["check", name, "-o", "json"]).await;
    assert_eq!(ran.err, "");
    assert_eq!(ran.json()["warnings"][0]["key"], "");

    std::fs::write(
        &file,
        "[lanes.a]\nchian = [\"up\", \"hunter2\"]\n[upstreams.up]\nurl = \"http://127.0.0.1:9\"\n",
    )
    .unwrap();
    let ran = run(&["check", name, "-o", "json"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (6, ""));
    let said: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&said["ok"], &said["file"]), (&false.into(), &name.into()));
    let unknown = &said["errors"][1];
    assert_eq!((&unknown["line"], &unknown["column"]), (&2.into(), &1.into()), "{said}");
    assert_eq!(unknown["problem"], "unknown key `chian` in `lanes.a`");
    assert_eq!(unknown["help"], "did you mean `chain`?");
    let err = run(&["check", name]).await.failed(6);
    assert!(err.contains("chian = [\"up\", \"*******\"]"), "names of the file are no secrets: {err}");
}

#[tokio::test]
async fn variables_come_from_the_environment_then_from_a_file() {
    let dir = tempdir().unwrap();
    let (file, variables) = (dir.path().join("eclusa.toml"), dir.path().join(".env"));
    std::fs::write(&file, "[lanes.a]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"${UP_URL:?set it}\"\n")
        .unwrap();
    std::fs::write(&variables, "# the upstream\nexport UP_URL=\"http://127.0.0.1:9\"\n").unwrap();
    let (file, variables) = (file.to_str().unwrap(), variables.to_str().unwrap());
    assert!(run(&["check", file]).await.failed(6).contains("`UP_URL`, which is not set"));
    let said = run(&["check", file, "--env-file", variables]).await.ok();
    assert!(said.contains("http://127.0.0.1:9"), "{said}");
    let said = run_with(&["check", file, "--env-file", variables], &[("UP_URL", "http://127.0.0.1:8")], "")
        .await
        .ok();
    assert!(said.contains("http://127.0.0.1:8"), "{said}");
    std::fs::write(variables, "UP_URL=http://127.0.0.1:9\nhunter2\n").unwrap();
    let err = run(&["serve", "--config", file, "--env-file", variables]).await.failed(6);
    assert!(err.contains(".env:2: has no `=`") && !err.contains("hunter2"), "{err}");
    for (path, place) in [(variables, Value::from(2)), ("no-such-file", Value::Null)] {
        let ran = run(&["check", file, "--env-file", path, "-o", "json"]).await;
        assert_eq!((ran.code, ran.err.as_str()), (6, ""));
        let reported: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!((&reported["ok"], &reported["file"]), (&false.into(), &path.into()));
        assert_eq!(reported["errors"][0]["line"], place, "{reported}");
        assert!(!ran.out.contains("hunter2"), "{reported}");
    }
}
