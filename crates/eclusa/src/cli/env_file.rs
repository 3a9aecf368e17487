//! `--env-file`: variables for the config, in the format of `.env` files.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use crate::config::ConfigErrors;

/// The largest file.
const MAX_BYTES: u64 = 1 << 20;

/// The variables in `path`.
pub(super) fn read(path: &Path) -> Result<BTreeMap<String, String>, ConfigErrors> {
    let name = path.display().to_string();
    let size = std::fs::metadata(path).map(|found| found.len()).unwrap_or_default();
    if size > MAX_BYTES {
        return Err(ConfigErrors::without_source(&name, None, "is larger than 1 MiB", ""));
    }
    let text = std::fs::read_to_string(path).map_err(|error| {
        let help = "create it, or correct the path after `--env-file`";
        let help = if error.kind() == ErrorKind::NotFound { help } else { "" };
        ConfigErrors::without_source(&name, None, &format!("cannot be read: {error}"), help)
    })?;
    parse(&text).map_err(|(line, problem)| {
        let help = "a line is `NAME=value`, `NAME=\"value\"` or `# comment`";
        ConfigErrors::without_source(&name, Some(line), problem, help)
    })
}

/// Parses `NAME=value` lines; the error is the number of the first invalid line and what is wrong with it. A value in single
/// quotes is literal; in double quotes, `\n`, `\"` and `\\` are escapes; without quotes, it ends before ` #`. Variables are
/// not expanded.
fn parse(text: &str) -> Result<BTreeMap<String, String>, (usize, &'static str)> {
    let mut found = BTreeMap::new();
    for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let wrong = |problem| (at + 1, problem);
        let (name, written) = line.split_once('=').ok_or_else(|| wrong("has no `=`"))?;
        let name = name.trim_end();
        let usual = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(usual) {
            return Err(wrong("does not begin with a variable name"));
        }
        let value = value(written.trim_start())
            .ok_or_else(|| wrong("has a quote that is not closed, or text after it"))?;
        found.insert(name.to_owned(), value);
    }
    Ok(found)
}

fn value(written: &str) -> Option<String> {
    let quote = written.chars().next().filter(|c| matches!(c, '"' | '\''));
    let Some(quote) = quote else {
        let plain = written.split_once(" #").map_or(written, |(before, _)| before);
        return Some(plain.trim_end().to_owned());
    };
    let mut value = String::new();
    let mut rest = written[1..].chars();
    loop {
        match rest.next()? {
            c if c == quote => break,
            '\\' if quote == '"' => match rest.next()? {
                'n' => value.push('\n'),
                c @ ('"' | '\\' | '$') => value.push(c),
                c => value.extend(['\\', c]),
            },
            c => value.push(c),
        }
    }
    let after = rest.as_str().trim_start();
    (after.is_empty() || after.starts_with('#')).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_people_write_them() {
        let text = "\u{feff}# the bureau\n\nA=1\n B = two words # and a comment\nexport C=\"a \\\"b\\\" \\n#c\" # d\nD='a \\n'\nE=\n\
                    F=a=b#c\nA=2\r\n";
        let found = parse(text).unwrap();
        let expected = [
            ("A", "2"),
            ("B", "two words"),
            ("C", "a \"b\" \n#c"),
            ("D", "a \\n"),
            ("E", ""),
            ("F", "a=b#c"),
        ];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn the_first_invalid_line_is_reported_without_its_value() {
        for (text, at) in
            [("A=1\nhunter2", 2), ("=hunter2", 1), ("2A=hunter2", 1), ("A B=hunter2", 1), ("A=\"hunter2", 1)]
        {
            let (line, problem) = parse(text).unwrap_err();
            assert_eq!(line, at, "{text}");
            assert!(!problem.contains("hunter2"));
        }
        assert!(parse("A='a' b").is_err());
    }
}
