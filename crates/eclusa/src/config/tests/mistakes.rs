//! Invalid files and their exact error messages.

mod elsewhere;
mod lanes;
mod policies;

use super::read;

/// Asserts the error message for `text`; the variable `SECRET` is `hunter2`.
fn said(text: &str, expected: &str) {
    let errors = read(text.trim_start(), &[("SECRET", "hunter2")]).map(|_| ()).unwrap_err();
    let said = errors.to_string();
    assert_eq!(said, expected.trim(), "got:\n{said}\n");
    assert!(!said.contains("hunter2"), "{said}");
}
