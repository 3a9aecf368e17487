//! `[lanes.NAME.accept]`: which requests callers may send.

use super::policies::{MethodText, PathPattern};
use super::read::Table;

/// Which requests a lane accepts; an empty list is no restriction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accept {
    /// The allowed methods.
    pub methods: Vec<String>,
    /// The allowed paths.
    pub paths: Vec<PathPattern>,
}

pub(super) fn accept(t: &mut Table<'_>) -> Accept {
    let methods: Option<Vec<MethodText>> = t.get("methods", "The allowed methods; any if not given.");
    let paths: Option<Vec<PathPattern>> = t.get(
        "paths",
        "The allowed paths, with `{NAME}` for any one segment: `/entries/{key}`; any if not given. `/` is the upstream's `url` itself.",
    );
    Accept {
        methods: methods.into_iter().flatten().map(|method| method.0).collect(),
        paths: paths.unwrap_or_default(),
    }
}
