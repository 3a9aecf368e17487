//! Whether a policy applies to a request.
//!
//! Requests that differ only in spelling (percent-encoding, doubled slashes) match alike: a spelling must not get
//! around a limit.

use crate::config::{Field, Policy, Presence, RequestMatch};
use crate::intake::Fields;

impl Policy {
    /// Whether the policy applies to a request.
    pub(super) fn applies_to(&self, fields: &Fields<'_>) -> bool {
        self.matches.is_empty() || self.matches.iter().any(|one| fits(one, fields))
    }
}

fn fits(wanted: &RequestMatch, fields: &Fields<'_>) -> bool {
    let Some(request) = fields.request() else { return false };
    let method = wanted.methods.is_empty() || wanted.methods.iter().any(|method| method == request.method);
    method
        && path_fits(wanted, request.path)
        && wanted.query.iter().all(|(name, wanted)| presence(wanted, fields.get(&Field::Query(name.clone()))))
        && wanted
            .headers
            .iter()
            .all(|(name, wanted)| presence(wanted, fields.get(&Field::Header(name.clone()))))
}

fn presence(wanted: &Presence, value: Option<String>) -> bool {
    match (wanted, value) {
        (Presence::There, value) => value.is_some(),
        (Presence::Absent, value) => value.is_none(),
        (Presence::Fits(pattern), Some(value)) => pattern.fits(&value),
        (Presence::Fits(_), None) => false,
    }
}

fn path_fits(wanted: &RequestMatch, path: &str) -> bool {
    let Some(pattern) = &wanted.path else { return true };
    let Some(vars) = pattern.variables(path) else { return false };
    wanted
        .vars
        .iter()
        .all(|(name, pattern)| vars.iter().any(|(var, value)| *var == name && pattern.fits(value)))
}
