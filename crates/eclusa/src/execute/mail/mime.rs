//! Writes a message in the format that is sent (RFC 5322, MIME).

use std::time::{Duration, UNIX_EPOCH};

use eclusa_core::Time;
use lettre::message::header::{ContentTransferEncoding, ContentType, HeaderName, HeaderValue};
use lettre::message::{Attachment as File, Body, Mailbox as Named, Message, MultiPart, SinglePart};
use lettre::{Address, message::MessageBuilder};

use crate::request::{Attachment, Mail, Mailbox};

/// The message as it is sent at `now`: all lines end in CRLF and are ASCII. Bcc is in no header. `Err` says what cannot
/// be sent, without quoting it.
pub fn to_mime(mail: &Mail, now: Time) -> Result<Vec<u8>, String> {
    let mut builder = Message::builder()
        .message_id(Some(format!("<{}>", mail.message_id)))
        .date(UNIX_EPOCH + Duration::from_millis(now.as_millis()))
        .from(named(&mail.from)?)
        .subject(mail.subject.as_str());
    for mailbox in &mail.to {
        builder = builder.to(named(mailbox)?);
    }
    for mailbox in &mail.cc {
        builder = builder.cc(named(mailbox)?);
    }
    for mailbox in &mail.reply_to {
        builder = builder.reply_to(named(mailbox)?);
    }
    for (name, value) in &mail.headers {
        let name = HeaderName::new_from_ascii(name.clone()).map_err(|_| "a header has no valid name")?;
        builder = builder.raw_header(HeaderValue::new(name, value.clone()));
    }
    // The headers do not determine the recipients: they are passed to the upstream one by one.
    let sender = address(&mail.from.address)?;
    let envelope = lettre::address::Envelope::new(Some(sender.clone()), vec![sender]);
    let message = with_body(builder.envelope(envelope.map_err(|error| error.to_string())?), mail)?;
    Ok(message.formatted())
}

fn address(text: &str) -> Result<Address, String> {
    text.parse().map_err(|_| "an address is invalid".to_owned())
}

fn named(mailbox: &Mailbox) -> Result<Named, String> {
    Ok(Named::new(mailbox.name.clone(), address(&mailbox.address)?))
}

/// Text and HTML are alternatives; files that the HTML refers to are related to it, the others are attached to the
/// whole.
fn with_body(builder: MessageBuilder, mail: &Mail) -> Result<Message, String> {
    let (inline, beside): (Vec<_>, Vec<_>) =
        mail.attachments.iter().partition(|file| file.content_id.is_some());
    let text = mail.text.as_deref().map(lines).map(SinglePart::plain);
    let html = mail.html.as_deref().map(lines).map(SinglePart::html);
    let related = match (html, inline.is_empty()) {
        (Some(html), true) => Some(MimePart::Single(html)),
        (Some(html), false) => {
            let related = MultiPart::related().singlepart(html);
            Some(MimePart::Multi(with_files(related, &inline)?))
        }
        (None, _) => None,
    };
    let body = match (text, related) {
        (Some(text), None) => MimePart::Single(text),
        (None, Some(html)) => html,
        (Some(text), Some(MimePart::Single(html))) => {
            MimePart::Multi(MultiPart::alternative().singlepart(text).singlepart(html))
        }
        (Some(text), Some(MimePart::Multi(html))) => {
            MimePart::Multi(MultiPart::alternative().singlepart(text).multipart(html))
        }
        (None, None) => return Err("the message has no body".into()),
    };
    // Without HTML nothing refers to a file, so all are plain attachments.
    let beside = if mail.html.is_none() { mail.attachments.iter().collect() } else { beside };
    let built = match (body, beside.is_empty()) {
        (MimePart::Single(body), true) => builder.singlepart(body),
        (MimePart::Multi(body), true) => builder.multipart(body),
        (MimePart::Single(body), false) => {
            builder.multipart(with_files(MultiPart::mixed().singlepart(body), &beside)?)
        }
        (MimePart::Multi(body), false) => {
            builder.multipart(with_files(MultiPart::mixed().multipart(body), &beside)?)
        }
    };
    built.map_err(|error| format!("the message cannot be written: {error}"))
}

/// Normalises line breaks to CRLF: to some servers, any other line break may end a message.
fn lines(text: &str) -> String {
    text.replace("\r\n", "\n").replace(['\r', '\n'], "\r\n")
}

enum MimePart {
    Single(SinglePart),
    Multi(MultiPart),
}

fn with_files(mut parts: MultiPart, files: &[&Attachment]) -> Result<MultiPart, String> {
    for file in files {
        let kind = ContentType::parse(&file.content_type).map_err(|_| "a file has no valid media type")?;
        let name = file.filename.clone();
        let made = match &file.content_id {
            Some(id) => File::new_inline_with_name(id.clone(), name),
            None => File::new(name),
        };
        // Base64 protects the line breaks of a file in transit.
        let body = Body::new_with_encoding(file.content.clone(), ContentTransferEncoding::Base64);
        let body = body.map_err(|_| "a file cannot be encoded")?;
        parts = parts.singlepart(made.body(body, kind));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests;
