//! A mail message as JSON, and its validation.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::object;
use crate::intake::{Fault, mail_address};
use crate::request::{Attachment, Mail, MailProgress, Mailbox};

/// Maximum recipients in `to`, `cc` and `bcc` together.
const MAX_RECIPIENTS: usize = 50;
/// Maximum additional headers, and maximum attachments.
const MAX_PARTS: usize = 50;
/// Maximum bytes of texts and attachments together. Encoding adds a third.
pub(crate) const MAX_MESSAGE: usize = 6 << 20;
/// Maximum bytes of a subject or header value: with its name it must fit one line of a message (998 bytes).
const MAX_LINE: usize = 900;
/// Headers that are generated from other fields, or added by mail servers.
const OWN_HEADERS: [&str; 14] = [
    "from",
    "sender",
    "to",
    "cc",
    "bcc",
    "reply-to",
    "subject",
    "date",
    "message-id",
    "mime-version",
    "return-path",
    "received",
    "dkim-signature",
    "apparently-to",
];

/// A message to send.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Message {
    /// The sender: `a@example.com`, or `Name <a@example.com>`.
    #[serde(default)]
    pub from: String,
    /// Recipients: one address, or a list.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub to: OneOrMany,
    /// Recipients of a copy.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub cc: OneOrMany,
    /// Recipients not visible to the others.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub bcc: OneOrMany,
    /// Where replies go.
    #[serde(default, skip_serializing_if = "OneOrMany::is_empty")]
    pub reply_to: OneOrMany,
    /// The subject line.
    #[serde(default)]
    pub subject: String,
    /// The plain-text body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The HTML body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// Additional headers, such as `List-Unsubscribe`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Attached files.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "object::list")]
    pub attachments: Vec<MessageAttachment>,
}

/// An attached file.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct MessageAttachment {
    /// The file name.
    #[serde(default)]
    pub filename: String,
    /// Its media type; defaults to `application/octet-stream`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The content in base64.
    #[serde(default)]
    pub content: Option<String>,
    /// The id by which `html` refers to it: `<img src="cid:logo">`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_id: Option<String>,
}

/// One address, or a list of them.
#[derive(Debug, Clone, Deserialize, Serialize, ToSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One address.
    One(String),
    /// Several addresses.
    Many(Vec<String>),
    /// Any other value; refused with the name of its field.
    Other(Value),
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl OneOrMany {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Many(list) if list.is_empty())
    }

    /// Parses the mailboxes, adding a fault for each invalid one.
    fn read(&self, field: &str, faults: &mut Vec<Fault>) -> Vec<Mailbox> {
        let mut read = |field: String, text: &str| match mail_address::mailbox(text) {
            Ok(mailbox) => Some(mailbox),
            Err(problem) => {
                faults.push(Fault::new(field, problem));
                None
            }
        };
        match self {
            Self::One(text) => read(field.to_owned(), text).into_iter().collect(),
            Self::Many(list) => {
                let each = list.iter().enumerate();
                each.filter_map(|(at, text)| read(format!("{field}[{at}]"), text)).collect()
            }
            Self::Other(_) => {
                faults.push(Fault::new(field, "must be an address, or a list of addresses"));
                Vec::new()
            }
        }
    }
}

impl Message {
    /// Converts to a message without a `Message-ID`, or reports everything that is wrong.
    pub(crate) fn into_mail(self) -> Result<Mail, Vec<Fault>> {
        let mut faults = Vec::new();
        let from = match self.from.as_str() {
            "" => Err("is missing: the sender".into()),
            from => mail_address::mailbox(from),
        };
        let from = from.map_err(|problem| faults.push(Fault::new("message.from", problem))).ok();
        let lists = [("to", &self.to), ("cc", &self.cc), ("bcc", &self.bcc), ("replyTo", &self.reply_to)];
        let [to, cc, bcc, reply_to] =
            lists.map(|(field, list)| list.read(&format!("message.{field}"), &mut faults));
        self.check_recipients(&mut faults);
        if self.text.is_none() && self.html.is_none() {
            faults.push(Fault::new("message", "has no body: send `text`, `html` or both"));
        }
        line("message.subject", &self.subject, &mut faults);
        let headers = headers(self.headers, &mut faults);
        let attachments = attachments(self.attachments, &mut faults);
        let bytes = [&self.text, &self.html].into_iter().flatten().map(String::len).sum::<usize>()
            + attachments.iter().map(|file| file.content.len()).sum::<usize>();
        if bytes > MAX_MESSAGE {
            let problem = format!("is too large: texts and files may have {MAX_MESSAGE} bytes together");
            faults.push(Fault::new("message", problem));
        }
        match from {
            Some(from) if faults.is_empty() => {
                let (message_id, progress) = (String::new(), MailProgress::default());
                let Self { subject, text, html, .. } = self;
                Ok(Mail {
                    message_id,
                    from,
                    to,
                    cc,
                    bcc,
                    reply_to,
                    subject,
                    text,
                    html,
                    headers,
                    attachments,
                    progress,
                })
            }
            _ => Err(faults),
        }
    }

    fn check_recipients(&self, faults: &mut Vec<Fault>) {
        let count = |list: &OneOrMany| match list {
            OneOrMany::One(_) | OneOrMany::Other(_) => 1,
            OneOrMany::Many(list) => list.len(),
        };
        match [&self.to, &self.cc, &self.bcc].map(count).iter().sum() {
            0 => faults.push(Fault::new("message.to", "is missing: a message needs a recipient")),
            1..=MAX_RECIPIENTS => {}
            _ => {
                let problem =
                    format!("has too many recipients: at most {MAX_RECIPIENTS} over to, cc and bcc");
                faults.push(Fault::new("message.to", problem));
            }
        }
    }
}

/// Checks a header value: a line break would start another header.
fn line(field: &str, text: &str, faults: &mut Vec<Fault>) {
    if text.chars().any(|c| c.is_control() && c != '\t') {
        faults.push(Fault::new(field, "must not contain line breaks or control characters"));
    } else if text.len() > MAX_LINE {
        faults.push(Fault::new(field, format!("must have at most {MAX_LINE} bytes")));
    }
}

fn headers(headers: BTreeMap<String, String>, faults: &mut Vec<Fault>) -> Vec<(String, String)> {
    if headers.len() > MAX_PARTS {
        faults.push(Fault::new("message.headers", format!("has more than {MAX_PARTS} entries")));
    }
    for (name, value) in &headers {
        let field = format!("message.headers.{name}");
        let lower = name.to_ascii_lowercase();
        let is_name = |byte: u8| byte.is_ascii_graphic() && byte != b':';
        if name.is_empty() || name.len() > 64 || !name.bytes().all(is_name) {
            // The name itself may be the attack, so it is not repeated.
            faults.push(Fault::new("message.headers", "has an invalid header name"));
            continue;
        }
        if OWN_HEADERS.contains(&lower.as_str())
            || lower.starts_with("content-")
            || lower.starts_with("resent-")
        {
            faults.push(Fault::new(&field, "cannot be set: it is generated from the other fields"));
        }
        line(&field, value, faults);
    }
    headers.into_iter().collect()
}

fn attachments(files: Vec<MessageAttachment>, faults: &mut Vec<Fault>) -> Vec<Attachment> {
    if files.len() > MAX_PARTS {
        faults.push(Fault::new("message.attachments", format!("has more than {MAX_PARTS} entries")));
    }
    let mut read = Vec::new();
    for (at, file) in files.into_iter().enumerate() {
        let field = |name: &str| format!("message.attachments[{at}].{name}");
        let MessageAttachment { filename, content_type, content, content_id } = file;
        line(&field("filename"), &filename, faults);
        if filename.is_empty() {
            faults.push(Fault::new(field("filename"), "must not be empty"));
        }
        let content_type = content_type.unwrap_or_else(|| "application/octet-stream".into());
        line(&field("contentType"), &content_type, faults);
        if lettre::message::header::ContentType::parse(&content_type).is_err() {
            faults.push(Fault::new(field("contentType"), "is not a media type, such as application/pdf"));
        }
        let id_char = |byte: u8| byte.is_ascii_alphanumeric() || b".-_@+".contains(&byte);
        if content_id.as_ref().is_some_and(|id| id.is_empty() || id.len() > 256 || !id.bytes().all(id_char)) {
            faults.push(Fault::new(field("contentId"), "must be letters, digits and . - _ @ +"));
        }
        match content.map(|content| STANDARD.decode(content)) {
            Some(Ok(content)) => read.push(Attachment { filename, content_type, content, content_id }),
            Some(Err(_)) => faults.push(Fault::new(field("content"), "is not base64")),
            None => faults.push(Fault::new(field("content"), "is missing: the content in base64")),
        }
    }
    read
}

/// A message as it is shown: without recipients that have already received it.
impl From<&Mail> for Message {
    fn from(mail: &Mail) -> Self {
        let left = |list: &[Mailbox]| {
            let left = list.iter().filter(|mailbox| !mail.is_accepted(mailbox));
            OneOrMany::Many(left.map(ToString::to_string).collect())
        };
        let file = |file: &Attachment| MessageAttachment {
            filename: file.filename.clone(),
            content_type: Some(file.content_type.clone()),
            content: Some(STANDARD.encode(&file.content)),
            content_id: file.content_id.clone(),
        };
        Self {
            from: mail.from.to_string(),
            to: left(&mail.to),
            cc: left(&mail.cc),
            bcc: left(&mail.bcc),
            reply_to: OneOrMany::Many(mail.reply_to.iter().map(ToString::to_string).collect()),
            subject: mail.subject.clone(),
            text: mail.text.clone(),
            html: mail.html.clone(),
            headers: mail.headers.iter().cloned().collect(),
            attachments: mail.attachments.iter().map(file).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
