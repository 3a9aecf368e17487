//! The result of a message for each of its recipients, and what that means for the job.

use eclusa_core::retry::Verdict;
use serde_json::{Value, json};

use crate::execute::{CallEnd, Called};
use crate::request::{Mail, Refusal, Response};

/// The result for one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecipientResult {
    /// The upstream accepted the message for this recipient.
    Accepted,
    /// The upstream refused it.
    Refused {
        /// The upstream's code.
        code: String,
        /// The upstream's text, without addresses.
        reason: String,
        /// Whether a retry may help.
        verdict: Verdict,
    },
}

/// The results of one call.
#[derive(Debug, Default)]
pub struct Delivery {
    /// By address. Recipients without a result are missing and still left to send to.
    pub results: Vec<(String, RecipientResult)>,
    /// The upstream's id for the message, if it gives one.
    pub upstream_id: Option<String>,
}

impl Delivery {
    /// The call as the job sees it. `end` is how the call ended as a whole, and `went_well` whether it succeeded for
    /// all recipients that were not refused. The call still counts as failed if recipients were refused permanently,
    /// now or in earlier attempts; they, and the recipients that are left, then remain of the message.
    pub fn into_called(self, mail: &Mail, end: CallEnd, went_well: bool) -> Called {
        let mut left = mail.clone();
        for (address, result) in &self.results {
            match result {
                RecipientResult::Accepted => left.progress.accepted.push(address.clone()),
                RecipientResult::Refused { code, reason, verdict: Verdict::Permanent } => {
                    let (address, code, reason) = (address.clone(), code.clone(), reason.clone());
                    left.progress.refused.push(Refusal { address, code, reason });
                }
                RecipientResult::Refused { verdict: Verdict::Retryable, .. } => {}
            }
        }
        let end = match left.progress.refused.as_slice() {
            [first, others @ ..] if went_well && left.left().is_empty() => CallEnd::RecipientRefused {
                code: first.code.clone(),
                reason: counted(&first.reason, 1 + others.len(), mail.recipients().len()),
                verdict: Verdict::Permanent,
            },
            _ => end,
        };
        let done = went_well && left.left().is_empty() && left.progress.refused.is_empty();
        let answer = self.answer(&left, &end);
        let changed = !done && left.progress != mail.progress;
        Called { answer, left: changed.then(|| Box::new(left)), ..end.into() }
    }

    /// The answer kept with the job: the result for each recipient, over all attempts. `None` if the upstream gave no
    /// result.
    fn answer(&self, mail: &Mail, end: &CallEnd) -> Option<Response> {
        let said = self.results.iter().find_map(|(_, result)| match result {
            RecipientResult::Refused { code, .. } => code.parse().ok(),
            RecipientResult::Accepted => None,
        });
        let status = match end {
            CallEnd::Answered(status) | CallEnd::Replied { code: status, .. } => Some(*status),
            CallEnd::RecipientRefused { code, .. } => code.parse().ok(),
            _ => None,
        };
        let status = status.or(said)?;
        let recipient = |address: &str| -> Value {
            let refused = mail.progress.refused.iter().find(|known| known.address == address);
            let result = self.results.iter().find(|(known, _)| known == address);
            match (refused, result) {
                _ if mail.progress.accepted.iter().any(|known| known == address) => {
                    json!({ "address": address, "status": "accepted" })
                }
                (Some(Refusal { code, reason, .. }), _) => {
                    json!({ "address": address, "status": "refused", "code": code, "reason": reason })
                }
                (None, Some((_, RecipientResult::Refused { code, reason, .. }))) => {
                    json!({ "address": address, "status": "deferred", "code": code, "reason": reason })
                }
                (None, _) => json!({ "address": address, "status": "deferred" }),
            }
        };
        let mut body = json!({
            "messageId": format!("<{}>", mail.message_id),
            "recipients": mail.recipients().into_iter().map(recipient).collect::<Vec<_>>(),
        });
        if let Some(id) = &self.upstream_id {
            body["upstreamId"] = id.as_str().into();
        }
        let headers = vec![("content-type".to_owned(), b"application/json".to_vec())];
        Some(Response { status, headers, body: body.to_string().into_bytes() })
    }
}

/// Adds to a reason how many of several recipients it concerns.
pub(super) fn counted(reason: &str, these: usize, all: usize) -> String {
    if all == 1 { reason.to_owned() } else { format!("{reason} ({these} of {all} recipients)") }
}

#[cfg(test)]
mod tests;
