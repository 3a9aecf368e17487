//! The dashboard's sources (`ui/`): their checks, their build, and the tests in a real browser against the real binary.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::tools::{repository, succeeds};

fn sources() -> PathBuf {
    repository().join("ui")
}

/// A Node program of the sources' packages.
fn node(program: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(sources().join("node_modules").join(program)).current_dir(sources()).env("NO_COLOR", "1");
    command
}

/// Every file below a directory.
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(root).unwrap().to_owned(), std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[tokio::test]
async fn the_sources_are_formatted_and_typed() {
    succeeds(Command::new("npm").args(["run", "check"]).current_dir(sources())).await;
}

#[tokio::test]
async fn the_unit_tests_pass() {
    succeeds(node("vitest/vitest.mjs").arg("run")).await;
}

#[tokio::test]
async fn what_is_served_is_what_the_sources_build() {
    let folder = tempfile::tempdir().unwrap();
    let mut build = node("vite/bin/vite.js");
    build.args(["build", "--emptyOutDir", "--logLevel", "warn", "--outDir"]).arg(folder.path());
    succeeds(&mut build).await;
    let (built, served) = (files(folder.path()), files(&repository().join("crates/eclusa/src/web/dist")));
    let hint = "crates/eclusa/src/web/dist is not what ui/ builds: run `npm --prefix ui run build` and commit the result";
    assert_eq!(built.keys().collect::<Vec<_>>(), served.keys().collect::<Vec<_>>(), "{hint}");
    for (path, bytes) in &built {
        assert!(served[path] == *bytes, "{}: {hint}", path.display());
    }
}

/// Runs one file of `ui/browser`.
async fn in_browser(name: &str) {
    let mut run = node("vitest/vitest.mjs");
    run.args(["run", "--config", "browser/vitest.config.ts", &format!("{name}.test.ts")]);
    succeeds(run.env("ECLUSA_BIN", env!("CARGO_BIN_EXE_eclusa"))).await;
}

/// A test for each file, so that they run side by side and fail one by one.
macro_rules! in_browser {
    ($($name:ident)*) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(#[tokio::test]
        async fn $name() {
            super::in_browser(stringify!($name)).await;
        })*
    };
}

mod browser {
    use super::*;

    in_browser!(accessibility actions first keyboard languages layout many pages past restart roles speed tabs);

    #[test]
    fn every_file_has_a_test_here() {
        let listed = std::fs::read_dir(sources().join("browser")).unwrap();
        let listed = listed.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
        let found: BTreeSet<_> =
            listed.filter_map(|name| name.strip_suffix(".test.ts").map(ToOwned::to_owned)).collect();
        assert_eq!(found, NAMES.iter().map(|name| (*name).to_owned()).collect());
    }
}
