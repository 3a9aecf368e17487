//! What is wrong with a rule somebody wrote.

use thiserror::Error;

/// A rule that cannot be: which field, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {problem}")]
pub struct SpecError {
    /// The field as the config names it, such as `breaker.failures`.
    pub field: String,
    /// What is wrong with it and what would be right.
    pub problem: String,
}

impl SpecError {
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }

    /// The same error seen from outside: `rate` of `upstreams.bureau` is `upstreams.bureau.rate`.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Self {
        self.field = format!("{outer}.{}", self.field);
        self
    }
}

/// `value`, or an error that names the field: a limit of zero would let nothing pass, ever.
pub(crate) fn positive<T: Copy + Default + PartialOrd>(field: &str, value: T) -> Result<T, SpecError> {
    if value > T::default() { Ok(value) } else { Err(SpecError::new(field, "must be greater than zero")) }
}
