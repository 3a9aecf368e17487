//! Balances in the XML format of the DICT API (`listBucketStates`, `getBucketState`), for its clients.

use super::{BucketState, PolicyList};
use crate::api::problem::escaped;

/// What precedes the policies.
pub(super) struct XmlHead {
    /// Time of the response.
    pub(super) at: Option<String>,
    /// The participant's category.
    pub(super) category: Option<String>,
}

pub(super) fn list(head: &XmlHead, list: &PolicyList) -> String {
    let policies: String = list.policies.iter().map(policy).collect();
    let cursor = list.cursor.map(|cursor| element("Cursor", &cursor.to_string())).unwrap_or_default();
    document("ListPoliciesResponse", head, &format!("<Policies>{policies}</Policies>{cursor}"))
}

pub(super) fn one(head: &XmlHead, state: &BucketState) -> String {
    document("GetPolicyResponse", head, &policy(state))
}

fn document(root: &str, head: &XmlHead, content: &str) -> String {
    let category = head.category.as_deref().map(|category| element("Category", category)).unwrap_or_default();
    let at = head.at.as_deref().map(|at| element("ResponseTime", at)).unwrap_or_default();
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{root}>{at}{category}{content}</{root}>\n")
}

fn policy(state: &BucketState) -> String {
    let members = [
        ("AvailableTokens", state.available_tokens.to_string()),
        ("Capacity", state.capacity.to_string()),
        ("RefillTokens", state.refill_tokens.to_string()),
        ("RefillPeriodSec", state.refill_period_sec.to_string()),
        ("Name", state.name.clone()),
    ];
    let members: String = members.iter().map(|(name, value)| element(name, value)).collect();
    format!("<Policy>{members}</Policy>")
}

fn element(name: &str, text: &str) -> String {
    format!("<{name}>{}</{name}>", escaped(text))
}
