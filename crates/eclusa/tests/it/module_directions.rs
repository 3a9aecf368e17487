//! The top-level modules of the program depend on each other in one direction.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The user, the used module, and a file with such a use.
type Edges = BTreeMap<(String, String), String>;

#[test]
fn there_is_no_cycle() {
    let mut edges = edges(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(edges.contains_key(&("serve".into(), "server".into())), "uses in braces are found: {edges:?}");
    assert!(edges.contains_key(&("store".into(), "config".into())), "uses in subdirectories are found");
    // Only an edge in a cycle, or between two of them, keeps both a user and a used module.
    loop {
        let users: BTreeSet<String> = edges.keys().map(|(user, _)| user.clone()).collect();
        let used: BTreeSet<String> = edges.keys().map(|(_, used)| used.clone()).collect();
        let before = edges.len();
        edges.retain(|(from, to), _| used.contains(from) && users.contains(to));
        if edges.len() == before {
            break;
        }
    }
    let left = edges.iter().map(|((from, to), file)| format!("{from} → {to} ({file})"));
    assert!(edges.is_empty(), "modules form a cycle:\n{}", left.collect::<Vec<_>>().join("\n"));
}

fn edges(source: &Path) -> Edges {
    let mut edges = Edges::new();
    for file in rust_files(source) {
        let shown = file.strip_prefix(source).unwrap().display().to_string();
        let module = shown.split('/').next().unwrap().trim_end_matches(".rs").to_owned();
        if ["lib", "main"].contains(&module.as_str()) || shown.contains("/tests") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let code: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap()).collect();
        for used in code.join("\n").split("crate::").skip(1).flat_map(first_names) {
            let exists = source.join(&used).is_dir() || source.join(format!("{used}.rs")).is_file();
            if used != module && exists {
                edges.entry((module.clone(), used)).or_insert_with(|| shown.clone());
            }
        }
    }
    edges
}

/// The first names of the paths after `crate::`: one, or those of a list in braces.
fn first_names(path: &str) -> Vec<String> {
    let name = |text: &str| {
        text.trim_start()
            .chars()
            .take_while(|char| char.is_alphanumeric() || *char == '_')
            .collect::<String>()
    };
    let Some(list) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut names, mut depth) = (vec![name(list)], 0_usize);
    for (at, char) in list.char_indices() {
        match char {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(name(&list[at + 1..])),
            _ => {}
        }
    }
    names
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|kind| kind == "rs")).collect()
}
