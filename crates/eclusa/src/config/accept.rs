//! `[lanes.NAME.accept]`: which requests callers may send.

use super::policies::{MethodText, PathPattern};
use super::read::Table;

/// Which requests a lane takes; an empty list is no restriction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accept {
    /// One of these methods.
    pub methods: Vec<String>,
    /// A path that fits one of these.
    pub paths: Vec<PathPattern>,
}

pub(super) fn accept(t: &mut Table<'_>) -> Accept {
    let methods: Option<Vec<MethodText>> = t.get("methods", "These methods; any if not given.");
    let paths: Option<Vec<PathPattern>> = t.get(
        "paths",
        "These paths, with `{NAME}` for any one part: `/entries/{key}`; any if not given. `/` is the upstream's address itself.",
    );
    Accept {
        methods: methods.into_iter().flatten().map(|method| method.0).collect(),
        paths: paths.unwrap_or_default(),
    }
}
