//! What became of a message for each of its recipients, and what that means for the job.

use eclusa_core::retry::Verdict;
use serde_json::{Value, json};

use crate::execute::{CallEnd, Called};
use crate::request::{Mail, Refusal, Response};

/// What an upstream said of one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It has the message for it.
    Accepted,
    /// It does not take it.
    Refused {
        /// Its code.
        code: String,
        /// Its words, without addresses.
        reason: String,
        /// Whether trying again may help.
        verdict: Verdict,
    },
}

/// What became of the recipients of one call.
#[derive(Debug, Default)]
pub struct Delivery {
    /// By address. Those of which nothing was said are missing, and still left to send to.
    pub fates: Vec<(String, Fate)>,
    /// What the upstream calls the message, if it gives it a name.
    pub upstream_id: Option<String>,
}

impl Delivery {
    /// The call as the job sees it. `end` is how the call ended as a whole: badly, or well for all recipients that were not
    /// refused. A call that went well is none while recipients were refused for good, in earlier attempts too; then they,
    /// and those that are left, are what remains of the message.
    pub fn into_called(self, mail: &Mail, end: CallEnd, went_well: bool) -> Called {
        let mut left = mail.clone();
        for (address, fate) in &self.fates {
            match fate {
                Fate::Accepted => left.progress.accepted.push(address.clone()),
                Fate::Refused { code, reason, verdict: Verdict::Permanent } => {
                    let (address, code, reason) = (address.clone(), code.clone(), reason.clone());
                    left.progress.refused.push(Refusal { address, code, reason });
                }
                Fate::Refused { verdict: Verdict::Retryable, .. } => {}
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

    /// What is kept with the job: what became of each recipient, over all attempts. Nothing if the upstream said nothing.
    fn answer(&self, mail: &Mail, end: &CallEnd) -> Option<Response> {
        let said = self.fates.iter().find_map(|(_, fate)| match fate {
            Fate::Refused { code, .. } => code.parse().ok(),
            Fate::Accepted => None,
        });
        let status = match end {
            CallEnd::Answered(status) | CallEnd::Replied { code: status, .. } => Some(*status),
            CallEnd::RecipientRefused { code, .. } => code.parse().ok(),
            _ => None,
        };
        let status = status.or(said)?;
        let recipient = |address: &str| -> Value {
            let refused = mail.progress.refused.iter().find(|known| known.address == address);
            let fate = self.fates.iter().find(|(known, _)| known == address);
            match (refused, fate) {
                _ if mail.progress.accepted.iter().any(|known| known == address) => {
                    json!({ "address": address, "status": "accepted" })
                }
                (Some(Refusal { code, reason, .. }), _) => {
                    json!({ "address": address, "status": "refused", "code": code, "reason": reason })
                }
                (None, Some((_, Fate::Refused { code, reason, .. }))) => {
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

/// How many of several recipients it is about.
pub(super) fn counted(reason: &str, these: usize, all: usize) -> String {
    if all == 1 { reason.to_owned() } else { format!("{reason} ({these} of {all} recipients)") }
}

#[cfg(test)]
mod tests;
