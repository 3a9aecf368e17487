//! Programs that are not this one: what the tests need of them is installed by `scripts/setup.sh test`.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

/// How long one may take, on any machine.
const PATIENCE: Duration = Duration::from_mins(3);

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Runs a command that must succeed.
pub(crate) async fn succeeds(command: &mut Command) -> Output {
    let command = command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.unwrap();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}: run scripts/setup.sh test"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    output
}
