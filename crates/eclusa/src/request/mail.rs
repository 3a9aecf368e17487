//! A message, and how far sending it has come.

use std::fmt;

use eclusa_core::JobId;
use serde::{Deserialize, Serialize};

/// A message to send. What it holds was checked at intake.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// Its `Message-ID` without brackets: the same in every attempt, so that receivers can tell a repeated message.
    pub message_id: String,
    /// Who sends it; also the envelope's sender.
    pub from: Mailbox,
    /// `To`.
    pub to: Vec<Mailbox>,
    /// `Cc`.
    pub cc: Vec<Mailbox>,
    /// Recipients that no header names.
    pub bcc: Vec<Mailbox>,
    /// `Reply-To`.
    pub reply_to: Vec<Mailbox>,
    /// `Subject`.
    pub subject: String,
    /// The body as text.
    pub text: Option<String>,
    /// The body as HTML.
    pub html: Option<String>,
    /// Other headers.
    pub headers: Vec<(String, String)>,
    /// Files.
    pub attachments: Vec<Attachment>,
    /// How far it has come.
    pub progress: Progress,
}

/// A name and an address.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mailbox {
    /// The name that is shown.
    pub name: Option<String>,
    /// `local@domain` in ASCII; an international domain is in its ASCII form.
    pub address: String,
}

/// A file that goes with a message.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// What it is called.
    pub filename: String,
    /// Its media type.
    pub content_type: String,
    /// Its bytes.
    #[serde(with = "serde_bytes")]
    pub content: Vec<u8>,
    /// What HTML refers to it by (`cid:…`); such a file is shown in the text, not beside it.
    pub content_id: Option<String>,
}

/// How far sending a message has come over the attempts.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Addresses that an upstream has accepted the message for: it is never sent to them again.
    pub accepted: Vec<String>,
    /// The job under which recipients were refused. A replay is another job and tries them again.
    pub job: u128,
    /// Recipients that were refused for good.
    pub refused: Vec<Refusal>,
}

/// A recipient that was refused for good.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Its address.
    pub address: String,
    /// The upstream's code.
    pub code: String,
    /// The upstream's words.
    pub reason: String,
}

impl Mail {
    /// The message of job `id`, which has its `Message-ID` from it.
    #[must_use]
    pub fn with_id(mut self, id: JobId) -> Self {
        let domain = self.from.address.rsplit('@').next().unwrap_or_default();
        self.message_id = format!("{id}@{domain}");
        self
    }

    /// Begins, or goes on, as this job.
    pub fn resume(&mut self, job: JobId) {
        if self.progress.job != job.0 {
            self.progress.job = job.0;
            self.progress.refused.clear();
        }
    }

    /// All it was or is to be sent to, each address once.
    pub fn recipients(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for Mailbox { address, .. } in self.to.iter().chain(&self.cc).chain(&self.bcc) {
            if !all.contains(&address.as_str()) {
                all.push(address);
            }
        }
        all
    }

    /// Those that it is still to be sent to.
    pub fn left(&self) -> Vec<String> {
        let Progress { accepted, refused, .. } = &self.progress;
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

/// Addresses and texts are personal data: they are not for logs.
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
