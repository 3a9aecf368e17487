//! The clients of this repository, against the real binary.

use std::path::Path;

use tokio::process::Command;

use super::{Server, node_package, python, repository, succeeds};

/// Builds the TypeScript client below `folder`, laid out like its package.
async fn build_typescript(folder: &Path) {
    let package = repository().join("clients/typescript");
    for file in ["package.json", "README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        std::fs::copy(package.join(file), folder.join(file)).unwrap();
    }
    let mut tsc = Command::new("node");
    tsc.arg(node_package("typescript/bin/tsc"))
        .arg("-p")
        .arg(&package)
        .arg("--outDir")
        .arg(folder.join("dist"));
    succeeds(&mut tsc).await;
}

#[tokio::test]
async fn the_typescript_client_works_with_the_server() {
    let (server, folder) = (Server::start().await, tempfile::tempdir().unwrap());
    build_typescript(folder.path()).await;
    let mut test = server.command("node");
    test.arg("--test").arg(repository().join("clients/typescript/test/client.test.mjs"));
    test.env("ECLUSA_CLIENT", folder.path().join("dist/index.js"));
    succeeds(&mut test).await;
    let packed = succeeds(
        Command::new("npm")
            .args(["pack", "--ignore-scripts", "--json", "--dry-run"])
            .current_dir(folder.path()),
    )
    .await;
    let packed = String::from_utf8(packed.stdout).unwrap();
    for file in ["dist/index.js", "dist/index.d.ts", "dist/openapi.d.ts", "README.md", "LICENSE-MIT"] {
        assert!(packed.contains(file), "{file} is not in the package: {packed}");
    }
}

/// `ECLUSA_WRITE_GOLDEN=1` writes the file instead.
#[tokio::test]
async fn the_typescript_types_are_made_from_the_document() {
    let (server, folder) = (Server::start().await, tempfile::tempdir().unwrap());
    let (document, made) = (server.save_document(folder.path()).await, folder.path().join("openapi.ts"));
    let mut generate = Command::new("node");
    generate.arg(node_package("openapi-typescript/bin/cli.js")).arg(document).arg("--output").arg(&made);
    succeeds(&mut generate).await;
    let kept = repository().join("clients/typescript/src/openapi.ts");
    if std::env::var_os("ECLUSA_WRITE_GOLDEN").is_some() {
        std::fs::copy(&made, &kept).unwrap();
    }
    let (made, kept) = (std::fs::read_to_string(made).unwrap(), std::fs::read_to_string(kept).unwrap());
    let hint = "clients/typescript/src/openapi.ts is not that of the API: ECLUSA_WRITE_GOLDEN=1 writes it";
    assert!(made == kept, "{hint}");
}

#[tokio::test]
async fn the_python_client_works_with_the_server() {
    let (server, package) = (Server::start().await, repository().join("clients/python"));
    let folder = tempfile::tempdir().unwrap();
    let mut check = Command::new(python());
    check.args(["-m", "mypy", "--strict", "--cache-dir"]).arg(folder.path()).arg("src").current_dir(&package);
    succeeds(&mut check).await;
    let mut test = server.command(python());
    test.args(["-m", "unittest", "discover", "-s", "tests"]).env("PYTHONPATH", "src").current_dir(&package);
    succeeds(&mut test).await;
}

#[tokio::test]
async fn the_python_package_can_be_built() {
    let folder = tempfile::tempdir().unwrap();
    let mut build = Command::new(python());
    build.args(["-m", "build", "--no-isolation", "--outdir"]).arg(folder.path());
    build.arg(repository().join("clients/python")).env("PYTHONDONTWRITEBYTECODE", "1");
    succeeds(&mut build).await;
    let built = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let mut kinds: Vec<_> = built.filter_map(|file| Some(file.extension()?.to_owned())).collect();
    kinds.sort();
    assert_eq!(kinds, ["gz", "whl"]);
}
