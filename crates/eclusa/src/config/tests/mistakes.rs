//! Files that are wrong, and exactly what is said about them.

mod elsewhere;
mod lanes;
mod policies;

use super::read;

/// Asserts what is said about `text`, in which `SECRET` is `hunter2`.
fn said(text: &str, expected: &str) {
    let errors = read(text.trim_start(), &[("SECRET", "hunter2")]).map(|_| ()).unwrap_err();
    let said = errors.to_string();
    assert_eq!(said, expected.trim(), "got:\n{said}\n");
    assert!(!said.contains("hunter2"), "{said}");
}
