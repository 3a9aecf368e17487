//! A mail message, and the progress of sending it.

use std::fmt;

use eclusa_core::JobId;
use serde::{Deserialize, Serialize};

/// A message to send. Its content was validated at intake.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// Its `Message-ID` without brackets: the same in every attempt, so that receivers recognise a repeated message.
    pub message_id: String,
    /// The sender; also the envelope sender.
    pub from: Mailbox,
    /// `To`.
    pub to: Vec<Mailbox>,
    /// `Cc`.
    pub cc: Vec<Mailbox>,
    /// Recipients not named in any header.
    pub bcc: Vec<Mailbox>,
    /// `Reply-To`.
    pub reply_to: Vec<Mailbox>,
    /// `Subject`.
    pub subject: String,
    /// The plain-text body.
    pub text: Option<String>,
    /// The HTML body.
    pub html: Option<String>,
    /// Additional headers.
    pub headers: Vec<(String, String)>,
    /// The attached files.
    pub attachments: Vec<Attachment>,
    /// The progress of sending it.
    pub progress: MailProgress,
}

/// A name and an address.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mailbox {
    /// The display name.
    pub name: Option<String>,
    /// `local@domain` in ASCII; an international domain is in its ASCII form.
    pub address: String,
}

/// An attached file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The file name.
    pub filename: String,
    /// Its media type.
    pub content_type: String,
    /// Its bytes.
    #[serde(with = "serde_bytes")]
    pub content: Vec<u8>,
    /// The id by which the HTML refers to it (`cid:…`); such a file is displayed inline.
    pub content_id: Option<String>,
}

/// The progress of sending a message, over all attempts.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailProgress {
    /// Addresses for which an upstream has accepted the message: it is never sent to them again.
    pub accepted: Vec<String>,
    /// The job under which recipients were refused. A replay is another job and tries them again.
    pub job: u128,
    /// Recipients that were refused permanently.
    pub refused: Vec<Refusal>,
}

/// A recipient that was refused permanently.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Its address.
    pub address: String,
    /// The upstream's code.
    pub code: String,
    /// The upstream's text.
    pub reason: String,
}

impl Mail {
    /// Sets the `Message-ID`, derived from the job's id.
    #[must_use]
    pub fn with_id(mut self, id: JobId) -> Self {
        let domain = self.from.address.rsplit('@').next().unwrap_or_default();
        self.message_id = format!("{id}@{domain}");
        self
    }

    /// Starts or resumes sending as this job.
    pub fn resume(&mut self, job: JobId) {
        if self.progress.job != job.0 {
            self.progress.job = job.0;
            self.progress.refused.clear();
        }
    }

    /// All recipients, each address once.
    pub fn recipients(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for Mailbox { address, .. } in self.to.iter().chain(&self.cc).chain(&self.bcc) {
            if !all.contains(&address.as_str()) {
                all.push(address);
            }
        }
        all
    }

    /// Recipients that have not received it.
    pub fn left(&self) -> Vec<String> {
        let MailProgress { accepted, refused, .. } = &self.progress;
        let done = |address: &str| {
            accepted.iter().any(|known| known == address)
                || refused.iter().any(|known| known.address == address)
        };
        self.recipients().into_iter().filter(|address| !done(address)).map(ToOwned::to_owned).collect()
    }

    /// Whether an upstream has accepted it for this recipient.
    pub fn is_accepted(&self, mailbox: &Mailbox) -> bool {
        self.progress.accepted.contains(&mailbox.address)
    }
}

impl fmt::Display for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} <{}>", self.address),
            None => f.write_str(&self.address),
        }
    }
}

/// Addresses and texts are personal data and must not be logged.
impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailbox(…)")
    }
}

impl fmt::Debug for Mail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a message … ({} recipients, {} files)", self.recipients().len(), self.attachments.len())
    }
}
