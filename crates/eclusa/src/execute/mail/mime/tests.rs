use super::*;
use crate::request::MailProgress;

fn mailbox(name: Option<&str>, address: &str) -> Mailbox {
    Mailbox { name: name.map(Into::into), address: address.into() }
}

pub(crate) fn mail() -> Mail {
    Mail {
        message_id: "1@example.com".into(),
        from: mailbox(Some("Loja do Zé"), "loja@example.com"),
        to: vec![mailbox(Some("Silva, Ana"), "ana@example.com"), mailbox(None, "bob@example.com")],
        cc: vec![],
        bcc: vec![mailbox(None, "secret@example.com")],
        reply_to: vec![mailbox(None, "sac@example.com")],
        subject: "Promoção de março".into(),
        text: Some("Olá\n.\nfim".into()),
        html: None,
        headers: vec![("X-Campaign".into(), "verão".into())],
        attachments: vec![],
        progress: MailProgress::default(),
    }
}

fn file(id: Option<&str>) -> Attachment {
    Attachment {
        filename: "relatório.pdf".into(),
        content_type: "application/pdf".into(),
        content: b"%PDF\xff".to_vec(),
        content_id: id.map(Into::into),
    }
}

fn written(mail: &Mail) -> String {
    String::from_utf8(to_mime(mail, Time::from_millis(1_700_000_000_000)).unwrap()).unwrap()
}

/// The value of a header, with its lines joined.
fn header(text: &str, name: &str) -> String {
    let head = text.split("\r\n\r\n").next().unwrap().replace("\r\n ", " ").replace("\r\n\t", " ");
    let line = head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")).map(ToOwned::to_owned));
    line.unwrap_or_else(|| panic!("{name} in {head}"))
}

#[test]
fn headers_match_the_message_and_never_contain_bcc() {
    let text = written(&mail());
    assert!(text.is_ascii());
    assert_eq!(header(&text, "Message-ID"), "<1@example.com>");
    assert_eq!(header(&text, "Date"), "Tue, 14 Nov 2023 22:13:20 +0000");
    assert_eq!(header(&text, "Reply-To"), "sac@example.com");
    // The comma of the name is encoded with it, and separates nothing.
    assert!(header(&text, "To").ends_with("?= <ana@example.com>, bob@example.com"), "{text}");
    assert!(header(&text, "Subject").starts_with("=?utf-8?"), "{text}");
    assert!(header(&text, "From").ends_with("<loja@example.com>"));
    assert!(header(&text, "X-Campaign").starts_with("=?utf-8?"));
    assert!(!text.contains("secret") && !text.to_lowercase().contains("bcc"), "{text}");
    assert!(text.split("\r\n").all(|line| line.len() <= 998 && !line.contains('\n')));
}

#[test]
fn a_body_has_no_line_break_except_crlf() {
    for text in ["a\n.\nb", "a\r.\rb", "a\r\n.\r\nb\n\r.\r\n"] {
        let text = written(&Mail { text: Some(text.into()), html: Some(text.into()), ..mail() });
        let plain = text.replace("\r\n", "");
        assert!(!plain.contains(['\r', '\n']), "{text:?}");
    }
}

#[test]
fn only_bcc_is_enough() {
    let text = written(&Mail { to: vec![], ..mail() });
    assert!(!text.contains("To: ana") && !text.contains("secret"));
}

#[test]
fn the_structure_follows_the_bodies_and_files() {
    let kind = |mail: &Mail| {
        let text = written(mail);
        let parts = text.matches("Content-Type: ").count();
        (header(&text, "Content-Type").split(';').next().unwrap().to_owned(), parts)
    };
    let plain = mail();
    let html = Mail { html: Some("<p>Olá</p>".into()), ..mail() };
    let only_html = Mail { text: None, ..html.clone() };
    let with = |mail: &Mail, files: Vec<Attachment>| Mail { attachments: files, ..mail.clone() };
    assert_eq!(kind(&plain), ("text/plain".into(), 1));
    assert_eq!(kind(&only_html), ("text/html".into(), 1));
    assert_eq!(kind(&html), ("multipart/alternative".into(), 3));
    assert_eq!(kind(&with(&plain, vec![file(None)])), ("multipart/mixed".into(), 3));
    assert_eq!(kind(&with(&html, vec![file(None)])), ("multipart/mixed".into(), 5));
    assert_eq!(kind(&with(&html, vec![file(Some("logo"))])), ("multipart/alternative".into(), 5));
    assert_eq!(kind(&with(&only_html, vec![file(Some("logo"))])), ("multipart/related".into(), 3));
    let inline = written(&with(&html, vec![file(Some("logo"))]));
    assert!(inline.contains("Content-ID: <logo>") && inline.contains("Content-Disposition: inline"));
    assert!(!inline.contains("relatório"));
}
