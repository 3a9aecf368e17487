//! Filters for dead letters.

use std::fmt;
use std::sync::Arc;

use eclusa_core::{LetterFilter, Name, Time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::auth::Caller;
use super::super::problem::Problem;
use super::super::search::{moment, read};
use super::super::submit;
use crate::rules::CurrentRules;
use crate::words::iso;

/// Declares the query of a call that filters dead letters, with additional parameters.
macro_rules! letter_query {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default, serde::Deserialize, utoipa::IntoParams)]
        #[serde(deny_unknown_fields, rename_all = "camelCase")]
        #[into_params(rename_all = "camelCase")]
        pub(in super::super) struct $name {
            /// Letters of this lane.
            lane: Option<String>,
            /// Letters of this tenant.
            tenant: Option<String>,
            /// Letters whose last failure has this code, or a code of this class, such as `5xx`; `none` for letters
            /// without a code.
            code: Option<String>,
            /// Letters created at or after this time: ISO 8601, or an age such as `10m`.
            since: Option<String>,
            /// Letters created at or before this time: ISO 8601, or an age such as `7d`.
            until: Option<String>,
            $($(#[$field_doc])* $field: $type,)*
        }

        impl $name {
            /// Takes the filter out of the query.
            fn filter(&mut self) -> $crate::api::dead_letters::filter::FilterBody {
                $crate::api::dead_letters::filter::FilterBody {
                    lane: self.lane.take(),
                    tenant: self.tenant.take(),
                    code: self.code.take(),
                    since: self.since.take(),
                    until: self.until.take(),
                }
            }
        }
    };
}
pub(super) use letter_query;

/// Which dead letters; an absent field does not filter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct FilterBody {
    /// Letters of this lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// Letters of this tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Letters whose last failure has this code, or a code of this class, such as `5xx`; `none` for letters without a
    /// code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Letters created at or after this time: ISO 8601, or an age such as `10m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Letters created at or before this time: ISO 8601, or an age such as `7d`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

impl FilterBody {
    /// Whether it filters nothing.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The filter for the store, restricted to what the caller may access; or everything that is wrong with it.
    pub(super) fn read(
        self,
        rules: &CurrentRules,
        caller: &Caller,
        now: Time,
    ) -> Result<LetterFilter, Problem> {
        let lane = self.lane.as_deref().map(|lane| submit::lane(rules, caller, lane)).transpose()?;
        if let Some(tenant) = &self.tenant {
            caller.may_act_for(tenant)?;
        }
        let mut faults = Vec::new();
        let filter = LetterFilter {
            lanes: lane.map(|(lane, _)| vec![lane]).or_else(|| caller.lanes()),
            tenant: self.tenant.map(Into::into),
            tenants: caller.tenants(),
            code: self.code.map(Into::into),
            since: read("since", self.since, |text| moment(now, text), &mut faults),
            until: read("until", self.until, |text| moment(now, text), &mut faults),
        };
        if faults.is_empty() { Ok(filter) } else { Err(Problem::invalid(&faults)) }
    }

    /// Converts a filter back for display.
    pub(super) fn shown(filter: &LetterFilter) -> Self {
        let lane =
            filter.lanes.as_ref().map(|lanes| lanes.iter().map(Name::as_str).collect::<Vec<_>>().join(","));
        Self {
            lane,
            tenant: filter.tenant.as_deref().map(ToOwned::to_owned),
            code: filter.code.as_deref().map(ToOwned::to_owned),
            since: filter.since.and_then(iso),
            until: filter.until.and_then(iso),
        }
    }
}

/// JSON, for the log.
impl fmt::Display for FilterBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).unwrap_or_default())
    }
}

/// Whether the caller may access everything that the filter matches.
pub(super) fn reaches(caller: &Caller, filter: &LetterFilter) -> bool {
    let lanes = filter.lanes.as_ref().map_or_else(
        || caller.lanes().is_none(),
        |lanes| lanes.iter().all(|lane| caller.may_use(lane).is_ok()),
    );
    let own: Option<Vec<Arc<str>>> = caller.tenants();
    let tenants = own.is_none()
        || own == filter.tenants
        || filter.tenant.as_ref().is_some_and(|tenant| caller.may_act_for(tenant).is_ok());
    lanes && tenants
}
