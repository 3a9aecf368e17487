//! Failures to start have a clear message and an exit code for scripts.

use std::net::TcpListener;

use super::super::program::Program;

const RULES: &str = "[lanes.work]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"http://127.0.0.1:9\"\n";

async fn refused(more: &str, env: &[(&str, &str)]) -> (Option<i32>, String) {
    Program::refused(&tempfile::tempdir().unwrap(), &format!("{more}\n{RULES}"), env).await
}

#[tokio::test]
async fn a_port_in_use_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let (code, reported) = refused(&format!("[server]\nlisten = \"{address}\""), &[]).await;
    assert_eq!(code, Some(1));
    assert!(reported.contains(&address.to_string()) && reported.contains("server.listen"), "{reported}");
}

/// Nobody can write to a path below a file, not even root.
#[tokio::test]
async fn an_unwritable_data_directory_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let config = format!("[store]\nurl = \"embedded:./file/data\"\n{RULES}");
    let (code, reported) = Program::refused(&dir, &config, &[]).await;
    assert_eq!(code, Some(1));
    assert!(reported.contains("file/data"), "{reported}");
}

#[tokio::test]
async fn two_processes_cannot_share_a_data_directory() {
    let first = Program::start(RULES, &[]).await;
    let (code, reported) = Program::refused(&first.dir, RULES, &[]).await;
    assert_eq!(code, Some(1));
    assert!(reported.contains("data") && reported.contains("another process"), "{reported}");
    assert_eq!(first.get("/readyz").await.status, 200);
    // Once the first has ended, the second can start.
    let (status, dir) = first.stop().await;
    assert_eq!(status.code(), Some(0));
    Program::start_in(dir, RULES, &[]).await;
}

#[tokio::test]
async fn an_unset_variable_is_reported_with_its_location() {
    let keys = "[[auth.keys]]\nname = \"app\"\nrole = \"admin\"\nkey = \"${APP_KEY}\"";
    let (code, reported) = refused(keys, &[]).await;
    assert_eq!(code, Some(6));
    assert!(reported.contains("APP_KEY") && reported.contains("eclusa.toml:4"), "{reported}");
}

/// All errors at once, each with its location; no secret among them.
#[tokio::test]
async fn all_errors_of_a_config_are_reported_at_once() {
    let more = "[server]\nlisten = \"nowhere\"\nport = 1\ndrain = \"0s\"\n[[auth.keys]]\nname = \"a\"\nrole = \"king\"\nkey = \"0123456789-secret\"";
    let (code, reported) = refused(more, &[]).await;
    assert_eq!(code, Some(6));
    for place in ["eclusa.toml:2", "eclusa.toml:3", "eclusa.toml:7"] {
        assert!(reported.contains(place), "{place} in {reported}");
    }
    assert!(!reported.contains("0123456789-secret"), "{reported}");
}

/// Without keys, anybody who can reach the port may do everything.
#[tokio::test]
async fn without_keys_only_this_machine_can_be_served() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:192.0.2.1]:0"] {
        let (code, reported) = refused(&format!("[server]\nlisten = \"{address}\""), &[]).await;
        assert_eq!(code, Some(6), "{address}: {reported}");
        assert!(reported.contains("[[auth.keys]]"), "{reported}");
    }
    let keys = "[[auth.keys]]\nname = \"app\"\nrole = \"admin\"\nkey = \"0123456789abcdef\"\n[server]\nlisten = \"0.0.0.0:0\"";
    let program = Program::start(&format!("{keys}\n{RULES}"), &[]).await;
    assert_eq!(program.get("/livez").await.status, 200);
    assert_eq!(program.get("/v1/lanes").await.status, 401);
}
