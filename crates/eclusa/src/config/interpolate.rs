//! Replaces `${VAR}` inside strings, after parsing, so that a variable's value is never parsed as TOML.

use std::collections::BTreeSet;

/// A string with its variables replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Interpolated {
    pub(super) text: String,
    /// Whether the string was one variable and nothing else. Then it may represent a number or a boolean.
    pub(super) whole: bool,
}

/// A variable that cannot be replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VariableError {
    /// The variable as written, to find its location.
    pub(super) written: String,
    pub(super) problem: String,
    pub(super) help: String,
}

/// A part of a string.
enum Piece<'a> {
    Text(&'a str),
    Variable(Variable<'a>),
}

struct Variable<'a> {
    written: &'a str,
    name: &'a str,
    otherwise: Otherwise<'a>,
}

/// What to do if the variable is not set.
enum Otherwise<'a> {
    Fail,
    FailSaying(&'a str),
    Take(&'a str),
}

/// Replaces every variable in `text` with its value from `env`.
pub(super) fn interpolate(
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Interpolated, Vec<VariableError>> {
    let pieces = pieces(text);
    let whole = matches!(pieces.as_slice(), [Ok(Piece::Variable(_))]);
    let mut errors = Vec::new();
    let mut done = String::with_capacity(text.len());
    for piece in pieces {
        let value = piece.and_then(|piece| match piece {
            Piece::Text(text) => Ok(text.to_owned()),
            Piece::Variable(variable) => variable.value(env),
        });
        match value {
            Ok(value) => done.push_str(&value),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(Interpolated { text: done, whole }) } else { Err(errors) }
}

/// The names of the variables in `text`, each once.
pub(super) fn variables(text: &str) -> BTreeSet<String> {
    let name = |piece| match piece {
        Ok(Piece::Variable(variable)) => Some(variable.name.to_owned()),
        _ => None,
    };
    pieces(text).into_iter().filter_map(name).collect()
}

impl Variable<'_> {
    /// As in a shell, an empty value counts as unset if there is a default or a message.
    fn value(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<String, VariableError> {
        let name = self.name;
        let error =
            |problem: String, help: String| VariableError { written: self.written.to_owned(), problem, help };
        match (env(name), &self.otherwise) {
            (Some(value), Otherwise::Fail) => Ok(value),
            (Some(value), _) if !value.is_empty() => Ok(value),
            (_, Otherwise::Take(default)) => Ok((*default).to_owned()),
            (_, Otherwise::FailSaying(message)) => {
                let problem = format!("needs the environment variable `{name}`, which is not set: {message}");
                Err(error(problem, format!("set `{name}` before starting eclusa")))
            }
            (None, Otherwise::Fail) => {
                let problem = format!("needs the environment variable `{name}`, which is not set");
                Err(error(problem, format!("set `{name}`, or give a default: `${{{name}:-…}}`")))
            }
        }
    }
}

/// Text and variables in order. `$$` is a literal `$`, and so is a `$` without a brace.
fn pieces(text: &str) -> Vec<Result<Piece<'_>, VariableError>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("$$").into_iter().chain(rest.find("${")).min() {
        if rest[at..].starts_with("$$") {
            pieces.push(Ok(Piece::Text(&rest[..=at])));
            rest = &rest[at + 2..];
            continue;
        }
        if at > 0 {
            pieces.push(Ok(Piece::Text(&rest[..at])));
        }
        let Some(end) = rest[at..].find('}') else {
            pieces.push(Err(malformed(&rest[at..], "has `${` without a closing `}`")));
            return pieces;
        };
        let written = &rest[at..=at + end];
        pieces.push(variable(written).map(Piece::Variable));
        rest = &rest[at + end + 1..];
    }
    if !rest.is_empty() {
        pieces.push(Ok(Piece::Text(rest)));
    }
    pieces
}

/// Parses `written`, which is `${…}`.
fn variable(written: &str) -> Result<Variable<'_>, VariableError> {
    let inside = &written[2..written.len() - 1];
    let end = inside.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(inside.len());
    let (name, after) = inside.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(malformed(written, "has no variable name after `${`"));
    }
    if after.contains("${") {
        return Err(malformed(written, "has a variable inside a variable"));
    }
    let otherwise = match (after, after.get(..2)) {
        ("", _) => Otherwise::Fail,
        (_, Some(":-")) => Otherwise::Take(&after[2..]),
        (_, Some(":?")) => Otherwise::FailSaying(&after[2..]),
        _ => return Err(malformed(written, "has unexpected text after a variable name")),
    };
    Ok(Variable { written, name, otherwise })
}

fn malformed(written: &str, problem: &str) -> VariableError {
    let help = "write `${VAR}`, `${VAR:-default}` or `${VAR:?message}`; `$$` is a literal `$`".to_owned();
    VariableError { written: written.to_owned(), problem: problem.to_owned(), help }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "A" => Some("1".into()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    fn text(input: &str) -> String {
        interpolate(input, &env).unwrap().text
    }

    fn problem(input: &str) -> String {
        let errors = interpolate(input, &env).unwrap_err();
        let said: Vec<String> =
            errors.into_iter().map(|error| format!("{} {}", error.written, error.problem)).collect();
        said.join("; ")
    }

    #[test]
    fn variables_defaults_and_dollars() {
        assert_eq!(text("a${A}b${A:-2}"), "a1b1");
        assert_eq!(text("${NONE:-2}${NONE:-}"), "2");
        assert_eq!(text("[${EMPTY}${EMPTY:-2}]"), "[2]");
        assert_eq!(text("$$ $ a$ $${A} $$$$"), "$ $ a$ ${A} $$");
        assert_eq!(text(r"^\d{11}$"), r"^\d{11}$");
    }

    #[test]
    fn only_a_string_that_is_one_variable_may_represent_a_number() {
        let whole = |input| interpolate(input, &env).unwrap().whole;
        assert!(whole("${A}") && whole("${NONE:-7}"));
        assert!(!whole("${A}s") && !whole("${A}${A}") && !whole("7") && !whole("$${A}"));
    }

    #[test]
    fn all_unset_variables_are_reported() {
        assert_eq!(problem("${X}"), "${X} needs the environment variable `X`, which is not set");
        assert_eq!(
            problem("${X:?ask Ana}"),
            "${X:?ask Ana} needs the environment variable `X`, which is not set: ask Ana"
        );
        assert!(problem("${EMPTY:?say}").contains("`EMPTY`"));
        assert_eq!(interpolate("${X} ${Y}", &env).unwrap_err().len(), 2);
    }

    #[test]
    fn malformed_variables_are_refused() {
        assert_eq!(problem("a${A"), "${A has `${` without a closing `}`");
        assert_eq!(problem("${}"), "${} has no variable name after `${`");
        assert_eq!(problem("${1}"), "${1} has no variable name after `${`");
        assert_eq!(problem("${A-b}"), "${A-b} has unexpected text after a variable name");
        assert!(problem("${A:-${B}}").contains("a variable inside a variable"));
    }

    #[test]
    fn variable_names_are_collected() {
        assert_eq!(variables("${B:-1}x${A}${B}$${C}${D"), ["A", "B"].map(String::from).into());
    }
}
