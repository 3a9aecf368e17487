use serde_json::json;

use super::*;

fn read(message: Value) -> Result<Mail, Vec<Fault>> {
    serde_json::from_value::<Message>(message).unwrap().into_mail()
}

fn faults(message: Value) -> Vec<String> {
    read(message).unwrap_err().into_iter().map(|fault| fault.field).collect()
}

fn whole() -> Value {
    json!({
        "from": "Loja do Zé <loja@example.com>",
        "to": ["Ana <ana@example.com>", "bob@bücher.example"],
        "cc": "cy@example.com",
        "bcc": ["di@example.com"],
        "replyTo": "sac@example.com",
        "subject": "Promoção",
        "text": "Olá",
        "html": "<p>Olá</p>",
        "headers": { "List-Unsubscribe": "<https://example.com/u>" },
        "attachments": [{ "filename": "nota.pdf", "contentType": "application/pdf", "content": "JVBERg==" }],
    })
}

#[test]
fn a_message_is_read_and_shown_again() {
    let mail = read(whole()).unwrap();
    assert_eq!(
        mail.recipients(),
        ["ana@example.com", "bob@xn--bcher-kva.example", "cy@example.com", "di@example.com"]
    );
    assert_eq!(mail.attachments[0].content, b"%PDF");
    let mut shown = serde_json::to_value(Message::from(&mail)).unwrap();
    assert_eq!(shown["to"], json!(["Ana <ana@example.com>", "bob@xn--bcher-kva.example"]));
    assert_eq!(shown["from"], "Loja do Zé <loja@example.com>");
    shown["cc"] = json!("cy@example.com");
    assert_eq!(read(shown).unwrap(), mail);
}

#[test]
fn recipients_that_have_it_are_not_shown() {
    let mut mail = read(whole()).unwrap();
    mail.progress.accepted = vec!["ana@example.com".into(), "di@example.com".into()];
    let shown = serde_json::to_value(Message::from(&mail)).unwrap();
    assert_eq!(shown["to"], json!(["bob@xn--bcher-kva.example"]));
    assert_eq!(shown.get("bcc"), None);
}

#[test]
fn all_faults_are_reported_with_their_fields() {
    let bad = json!({
        "from": "loja",
        "to": ["ana@example.com", "bob"],
        "cc": 7,
        "subject": "a\r\nBcc: x@example.com",
        "headers": { "From": "x@example.com", "X-A": "a\nB: c", "content-type": "x/y", "a b": "" },
        "attachments": [{ "filename": "", "contentType": "pdf", "content": "!" }, { "filename": "b" }],
    });
    assert_eq!(
        faults(bad),
        [
            "message.from",
            "message.to[1]",
            "message.cc",
            "message",
            "message.subject",
            "message.headers.From",
            "message.headers.X-A",
            "message.headers",
            "message.headers.content-type",
            "message.attachments[0].filename",
            "message.attachments[0].contentType",
            "message.attachments[0].content",
            "message.attachments[1].content",
        ]
    );
}

#[test]
fn recipients_are_at_least_one_and_at_most_fifty() {
    let to = |count: usize| {
        let to: Vec<String> = (0..count).map(|at| format!("a{at}@example.com")).collect();
        json!({ "from": "x@example.com", "to": to, "text": "x" })
    };
    assert_eq!(faults(to(0)), ["message.to"]);
    assert_eq!(read(to(50)).unwrap().recipients().len(), 50);
    assert_eq!(faults(to(51)), ["message.to"]);
}

#[test]
fn a_message_is_bounded_as_a_whole() {
    let of =
        |bytes: usize| json!({ "from": "x@example.com", "to": "y@example.com", "text": "x".repeat(bytes) });
    assert!(read(of(MAX_MESSAGE)).is_ok());
    assert_eq!(faults(of(MAX_MESSAGE + 1)), ["message"]);
}
