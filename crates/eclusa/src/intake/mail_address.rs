//! Mail addresses, as callers write them.

use crate::request::Mailbox;

/// Maximum bytes of a display name.
const MAX_NAME: usize = 256;
/// Maximum bytes before the `@`, and of a domain (RFC 5321).
const MAX_LOCAL: usize = 64;
const MAX_DOMAIN: usize = 253;

/// Parses `local@domain` or `Name <local@domain>`. Errors never repeat the text, which is personal.
pub(crate) fn mailbox(text: &str) -> Result<Mailbox, String> {
    let text = text.trim();
    if text.chars().any(char::is_control) {
        return Err("must not contain line breaks or control characters".into());
    }
    let (name, address) = match text.strip_suffix('>').and_then(|text| text.rsplit_once('<')) {
        Some((name, address)) => (display_name(name)?, address),
        None => (None, text),
    };
    Ok(Mailbox { name, address: ascii_address(address)? })
}

/// The name before `<`, without quotes.
fn display_name(text: &str) -> Result<Option<String>, String> {
    let text = text.trim();
    let name = match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\\\"", "\"").replace("\\\\", "\\"),
        None => text.to_owned(),
    };
    if name.len() > MAX_NAME {
        return Err(format!("has a name of more than {MAX_NAME} bytes"));
    }
    if name.contains(['<', '>']) {
        return Err("must be one address: `Name <a@example.com>`".into());
    }
    Ok(Some(name).filter(|name| !name.is_empty()))
}

/// The address with its domain in ASCII.
fn ascii_address(text: &str) -> Result<String, String> {
    let Some((local, domain)) = text.rsplit_once('@') else {
        return Err("must be an address: `a@example.com` or `Name <a@example.com>`".into());
    };
    // Other characters would need SMTPUTF8 all the way to the recipient.
    let atom = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte);
    let is_local = local.split('.').all(|part| !part.is_empty() && part.bytes().all(atom));
    if local.len() > MAX_LOCAL || !is_local {
        return Err(format!("must have 1 to {MAX_LOCAL} ASCII letters, digits or symbols before the `@`"));
    }
    let bad_domain = || "must have a domain after the `@`, such as example.com".to_owned();
    let domain = idna::domain_to_ascii(domain).map_err(|_| bad_domain())?;
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if domain.len() > MAX_DOMAIN || !domain.split('.').all(label) {
        return Err(bad_domain());
    }
    Ok(format!("{local}@{domain}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_names() {
        let read = |text: &str| mailbox(text).map(|found| (found.name, found.address)).unwrap();
        let named = |name: &str, address: &str| (Some(name.to_owned()), address.to_owned());
        assert_eq!(read(" a.b+c@example.com "), (None, "a.b+c@example.com".into()));
        assert_eq!(read("<a@example.com>"), (None, "a@example.com".into()));
        assert_eq!(read("José da Silva <j@example.com>"), named("José da Silva", "j@example.com"));
        assert_eq!(read("\"Silva, \\\"Zé\\\"\" <j@example.com>"), named("Silva, \"Zé\"", "j@example.com"));
        assert_eq!(read("a@bücher.example"), (None, "a@xn--bcher-kva.example".into()));
        assert_eq!(read("root@localhost").1, "root@localhost");
    }

    #[test]
    fn an_invalid_address_is_refused_without_repeating_it() {
        let bad = [
            "",
            "secret",
            "secret@",
            "@secret.example",
            "secret..x@example.com",
            ".secret@example.com",
            "secret x@example.com",
            "secret@exa mple.com",
            "secret@-example.com",
            "secret@example..com",
            "secret@example.com, b@example.com",
            "A <secret@example.com> <b@example.com>",
            "secret@example.com\r\nBcc: c@example.com",
            "secret\u{e9}@example.com",
            "secret@[127.0.0.1]",
        ];
        for text in bad.into_iter().chain([format!("{}@example.com", "s".repeat(65)).as_str()]) {
            let problem = mailbox(text).unwrap_err();
            assert!(!problem.contains("secret"), "{text}: {problem}");
        }
    }
}
