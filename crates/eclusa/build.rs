//! Lists the files of the built dashboard, for the program to embed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

const DIST: &str = "src/web/dist";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={DIST}");
    let dist = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join(DIST);
    let mut paths = files(&dist)?;
    paths.sort();
    let mut list = String::from("&[\n");
    for path in paths {
        let [name, path] = [path.strip_prefix(&dist)?, &path].map(Path::to_str);
        let (name, path) = name.zip(path).ok_or("the path of a file is not UTF-8")?;
        writeln!(list, "({name:?}, include_bytes!({path:?})),")?;
    }
    list.push(']');
    Ok(fs::write(Path::new(&env::var("OUT_DIR")?).join("dashboard.rs"), list)?)
}

fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}
