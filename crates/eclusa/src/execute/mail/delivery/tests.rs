use super::*;
use crate::request::{MailProgress, Mailbox};

fn mail(recipients: &[&str]) -> Mail {
    let mailbox = |address: &&str| Mailbox { name: None, address: (*address).into() };
    Mail {
        message_id: "1@x".into(),
        from: mailbox(&"f@x"),
        to: recipients.iter().map(mailbox).collect(),
        cc: vec![],
        bcc: vec![],
        reply_to: vec![],
        subject: String::new(),
        text: Some(String::new()),
        html: None,
        headers: vec![],
        attachments: vec![],
        progress: MailProgress::default(),
    }
}

fn ok() -> CallEnd {
    CallEnd::Replied { code: 250, enhanced: None, text: "ok".into() }
}

fn busy() -> CallEnd {
    CallEnd::Replied { code: 450, enhanced: None, text: "busy".into() }
}

fn refused(verdict: Verdict) -> RecipientResult {
    let code = if verdict == Verdict::Permanent { "550" } else { "450" };
    RecipientResult::Refused { code: code.into(), reason: "no".into(), verdict }
}

fn called(mail: &Mail, results: &[(&str, RecipientResult)], end: CallEnd, went_well: bool) -> Called {
    let results = results.iter().map(|(address, result)| ((*address).to_owned(), result.clone())).collect();
    Delivery { results, upstream_id: None }.into_called(mail, end, went_well)
}

fn states(called: &Called) -> Vec<String> {
    let body: Value = serde_json::from_slice(&called.answer.as_ref().unwrap().body).unwrap();
    let recipients = body["recipients"].as_array().unwrap().iter();
    recipients.map(|of| of["status"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn all_accepted_is_a_success_and_leaves_nothing() {
    let called = called(
        &mail(&["a", "b"]),
        &[("a", RecipientResult::Accepted), ("b", RecipientResult::Accepted)],
        ok(),
        true,
    );
    assert_eq!((called.end.clone(), called.left.is_none()), (ok(), true));
    assert_eq!(called.answer.as_ref().unwrap().status, 250);
    assert_eq!(states(&called), ["accepted", "accepted"]);
}

#[test]
fn temporarily_refused_recipients_are_left_and_permanently_refused_ones_are_not() {
    let all = [
        ("a", RecipientResult::Accepted),
        ("b", refused(Verdict::Retryable)),
        ("c", refused(Verdict::Permanent)),
    ];
    let first = called(&mail(&["a", "b", "c"]), &all, busy(), false);
    assert_eq!(
        (&first.end, states(&first)),
        (&busy(), vec!["accepted".into(), "deferred".into(), "refused".into()])
    );
    let left = first.left.unwrap();
    assert_eq!(left.left(), ["b"]);
    // The last one is accepted now, but the job has failed for one.
    let last = called(&left, &[("b", RecipientResult::Accepted)], ok(), true);
    let refused = CallEnd::RecipientRefused {
        code: "550".into(),
        reason: "no (1 of 3 recipients)".into(),
        verdict: Verdict::Permanent,
    };
    assert_eq!(
        (&last.end, states(&last)),
        (&refused, vec!["accepted".into(), "accepted".into(), "refused".into()])
    );
    let mut letter = *last.left.unwrap();
    assert_eq!(letter.left(), [""; 0]);
    // Replayed as another job, it goes to the refused recipient.
    letter.resume(eclusa_core::JobId(2));
    assert_eq!(letter.left(), ["c"]);
}

#[test]
fn a_call_that_broke_off_keeps_earlier_results() {
    let broken = CallEnd::CutShort { timed_out: false, why: "lost".into() };
    let called = called(&mail(&["a", "b"]), &[("a", refused(Verdict::Permanent))], broken.clone(), false);
    assert_eq!((called.end, called.left.unwrap().left()), (broken, vec!["b".to_owned()]));
}

#[test]
fn a_call_without_results_leaves_the_message_unchanged() {
    let called = called(&mail(&["a"]), &[], busy(), false);
    assert!(called.left.is_none());
}
