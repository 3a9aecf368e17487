//! Errors in rules and arguments.

use thiserror::Error;

/// An invalid rule: the field, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {problem}")]
pub struct SpecError {
    /// The field as the config names it, such as `breaker.failures`.
    pub field: String,
    /// What is wrong with it and what is valid.
    pub problem: String,
}

impl SpecError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }

    /// Prefixes the field: `rate` within `upstreams.bureau` becomes `upstreams.bureau.rate`.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Self {
        self.field = format!("{outer}.{}", self.field);
        self
    }
}

/// Returns `value` if it is positive: a limit of zero would never let anything pass.
pub(crate) fn positive<T: Copy + Default + PartialOrd>(field: &str, value: T) -> Result<T, SpecError> {
    if value > T::default() { Ok(value) } else { Err(SpecError::new(field, "must be greater than zero")) }
}
