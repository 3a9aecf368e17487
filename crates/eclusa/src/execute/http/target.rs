//! The target of a request: a path that stays below the upstream's base, however it is decoded.
//!
//! Servers and proxies disagree on what is decoded when, so a path that any of them could read as another one is
//! refused, not repaired. What passes is sent unchanged: the upstream gets what was checked and routed.

use http::Method;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};
use thiserror::Error;

/// The longest path, and the longest query, in bytes as sent.
pub const MAX_TARGET: usize = 16 * 1024;

/// Why a method, a path or a query is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadPath {
    /// Longer than [`MAX_TARGET`].
    #[error("is longer than {MAX_TARGET} bytes")]
    TooLong,
    /// `http://host/…` where a path belongs.
    #[error("must be a path below the upstream's address, not a whole address")]
    Absolute,
    /// `.` or `..`, in any encoding.
    #[error("must not contain a segment `.` or `..`, encoded or not")]
    DotSegment,
    /// `//`.
    #[error("must not contain an empty segment (`//`)")]
    EmptySegment,
    /// `%2f`, `%5c` or `\`, also encoded twice.
    #[error("must not contain a backslash, nor a slash or backslash that is percent-encoded")]
    HiddenSlash,
    /// A control character.
    #[error("must not contain control characters, encoded or not")]
    Control,
    /// `%` without two hexadecimal digits.
    #[error("holds a `%` that is not followed by two hexadecimal digits")]
    BadEscape,
    /// An overlong encoding of a character, which some decoders take for a dot or a slash.
    #[error("holds percent-encoded bytes that are an overlong form of another character")]
    Overlong,
    /// `?` or `#`.
    #[error("must not contain `?` or `#`: the query is a separate field")]
    QueryInPath,
    /// A method that is invalid, or about the connection.
    #[error("is not a method that can be passed on")]
    Method,
}

/// The characters that are escaped in a path. `%` is not among them: existing escapes are kept.
const ESCAPED_IN_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'[')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The characters that are escaped in a query: those that would end it or cannot be sent.
const ESCAPED_IN_QUERY: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'#');

/// A path as it is sent: it starts with `/` or is empty, which means the base itself, and no way of decoding it leads
/// out of the base.
pub fn normalise(path: &str) -> Result<String, BadPath> {
    if path.is_empty() {
        return Ok(String::new());
    }
    if path.len() > MAX_TARGET {
        return Err(BadPath::TooLong);
    }
    if is_plain(path) {
        return Ok(path.to_owned());
    }
    let relative = path.strip_prefix('/').unwrap_or(path);
    refuse_absolute(path)?;
    if relative.contains(['?', '#']) {
        return Err(BadPath::QueryInPath);
    }
    if relative.starts_with('/') || relative.contains("//") {
        return Err(BadPath::EmptySegment);
    }
    for segment in relative.split('/') {
        refuse_bad_segment(segment)?;
    }
    let sent = format!("/{}", utf8_percent_encode(relative, ESCAPED_IN_PATH));
    if sent.len() > MAX_TARGET { Err(BadPath::TooLong) } else { Ok(sent) }
}

/// A query as it is sent, without its `?`. It is unchanged, except for characters that cannot be sent.
pub fn query(query: &str) -> Result<String, BadPath> {
    if query.len() > MAX_TARGET {
        return Err(BadPath::TooLong);
    }
    if query.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(BadPath::Control);
    }
    let sent = utf8_percent_encode(query, ESCAPED_IN_QUERY).to_string();
    if sent.len() > MAX_TARGET { Err(BadPath::TooLong) } else { Ok(sent) }
}

/// A method that may be passed on.
pub fn method(method: &str) -> Result<Method, BadPath> {
    Method::from_bytes(method.as_bytes()).ok().filter(may_be_sent).ok_or(BadPath::Method)
}

/// Whether a method may be passed on. `CONNECT` and `TRACE` are about the connection, not about a resource. Unknown
/// methods pass if they look like methods. The longest registered one, `UPDATEREDIRECTREF`, has 17 letters.
pub(crate) fn may_be_sent(method: &Method) -> bool {
    const LONGEST: usize = 20;
    match *method {
        Method::GET
        | Method::POST
        | Method::PUT
        | Method::DELETE
        | Method::HEAD
        | Method::OPTIONS
        | Method::PATCH => true,
        Method::CONNECT | Method::TRACE => false,
        ref other => {
            let name = other.as_str();
            name.len() <= LONGEST && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-')
        }
    }
}

/// Whether nothing in a path has a special meaning to any decoder, as in most paths.
fn is_plain(path: &str) -> bool {
    let segments = path.strip_prefix('/').map(|rest| rest.split('/'));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~');
    segments.is_some_and(|mut all| all.all(|segment| !segment.is_empty() && segment.bytes().all(plain)))
}

fn refuse_absolute(path: &str) -> Result<(), BadPath> {
    let scheme = path.split_once("://").map(|(scheme, _)| scheme.strip_prefix('/').unwrap_or(scheme));
    let is_scheme = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if scheme.is_some_and(is_scheme) { Err(BadPath::Absolute) } else { Ok(()) }
}

fn refuse_bad_segment(segment: &str) -> Result<(), BadPath> {
    refuse_bad_escapes(segment.as_bytes())?;
    let once: Vec<u8> = percent_decode(segment.as_bytes()).collect();
    let twice: Vec<u8> = percent_decode(&once).collect();
    for decoded in [&once, &twice] {
        if decoded.iter().any(u8::is_ascii_control) {
            return Err(BadPath::Control);
        }
        if decoded.contains(&b'/') || decoded.contains(&b'\\') {
            return Err(BadPath::HiddenSlash);
        }
        if decoded.windows(2).any(is_overlong) || decoded.iter().any(|byte| matches!(byte, 0xC0 | 0xC1)) {
            return Err(BadPath::Overlong);
        }
        // Java servers cut a segment at `;` before they look at its dots.
        let name = decoded.split(|byte| *byte == b';').next().unwrap_or_default();
        if matches!(name, b"." | b"..") {
            return Err(BadPath::DotSegment);
        }
    }
    Ok(())
}

fn refuse_bad_escapes(segment: &[u8]) -> Result<(), BadPath> {
    let is_escape = |at: usize| {
        segment.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let escapes = segment.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    if escapes.map(|(at, _)| at).all(is_escape) { Ok(()) } else { Err(BadPath::BadEscape) }
}

/// Whether these are the first two bytes of an overlong UTF-8 sequence of three or four bytes.
fn is_overlong(pair: &[u8]) -> bool {
    matches!(pair, [0xE0, 0x80..=0x9F] | [0xF0, 0x80..=0x8F])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_paths_pass_unchanged() {
        for path in [
            "/",
            "/score",
            "/score/",
            "/v1/charges/ch_1",
            "/entries/%2B5511987654321",
            "/entries/joao%40example.com",
            "/a/...",
            "/.well-known/x",
            "/a/..b",
            "/a;v=1/b",
            "/50%25",
            "/a:b@c!$&'()*+,=~-_",
            "/%E9",
            "/caf%C3%A9",
            "/a%3Fb%23c",
            "/%253F",
        ] {
            assert_eq!(normalise(path).as_deref(), Ok(path));
        }
        assert_eq!(normalise("").as_deref(), Ok(""), "the base itself");
        assert_eq!(normalise("score/1").as_deref(), Ok("/score/1"));
    }

    #[test]
    fn characters_that_cannot_be_sent_are_escaped() {
        assert_eq!(normalise("/café/a b").as_deref(), Ok("/caf%C3%A9/a%20b"));
        assert_eq!(normalise("/a[0]{x}|^`\"<>").as_deref(), Ok("/a%5B0%5D%7Bx%7D%7C%5E%60%22%3C%3E"));
    }

    #[test]
    fn tricks_are_refused_with_their_reason() {
        use BadPath::*;
        for (path, reason) in [
            ("/..", DotSegment),
            ("/.", DotSegment),
            ("..", DotSegment),
            ("/a/../b", DotSegment),
            ("/a/./b", DotSegment),
            ("/a/%2e%2e/b", DotSegment),
            ("/a/%2E%2e", DotSegment),
            ("/a/.%2e/b", DotSegment),
            ("/a/%2e./b", DotSegment),
            ("/a/%2e", DotSegment),
            ("/a/%252e%252e/b", DotSegment),
            ("/a/%252e%2e/b", DotSegment),
            ("/a/..;/b", DotSegment),
            ("/a/..;x=1/b", DotSegment),
            ("/a/..%3b/b", DotSegment),
            ("/a/%2e%2e%253bx/b", DotSegment),
            ("/a%2fb", HiddenSlash),
            ("/a%2Fb", HiddenSlash),
            ("/a%252fb", HiddenSlash),
            ("/a%5cb", HiddenSlash),
            ("/a%255Cb", HiddenSlash),
            ("/a\\b", HiddenSlash),
            ("\\..\\b", HiddenSlash),
            ("/..%2f..%2fetc", HiddenSlash),
            ("/a%00", Control),
            ("/a\0", Control),
            ("/a%0d%0aHost:x", Control),
            ("/a\r\nb", Control),
            ("/a%7f", Control),
            ("/a%2500", Control),
            ("//", EmptySegment),
            ("//evil.example/a", EmptySegment),
            ("/a//b", EmptySegment),
            ("http://evil.example/a", Absolute),
            ("/https://evil.example/a", Absolute),
            ("HTTPS://evil.example", Absolute),
            ("/a%", BadEscape),
            ("/a%2", BadEscape),
            ("/a%zz", BadEscape),
            ("/a%%2e", BadEscape),
            ("/%c0%ae%c0%ae/", Overlong),
            ("/%c0%af", Overlong),
            ("/%e0%80%ae", Overlong),
            ("/%f0%80%80%ae", Overlong),
            ("/%25c0%25ae", Overlong),
            ("/a?b=1", QueryInPath),
            ("/a#b", QueryInPath),
        ] {
            assert_eq!(normalise(path), Err(reason), "{path:?}");
        }
    }

    #[test]
    fn length_is_bounded_also_after_escaping() {
        assert!(normalise(&"a".repeat(MAX_TARGET - 1)).is_ok());
        assert_eq!(normalise(&"a".repeat(MAX_TARGET)), Err(BadPath::TooLong));
        assert_eq!(normalise(&" ".repeat(MAX_TARGET / 2)), Err(BadPath::TooLong));
        assert_eq!(query(&"a".repeat(MAX_TARGET + 1)), Err(BadPath::TooLong));
        assert_eq!(query(&"é".repeat(MAX_TARGET / 2)), Err(BadPath::TooLong));
    }

    #[test]
    fn queries_pass_unchanged() {
        for text in ["", "cpf=1", "a=%2e%2e%2f&b=c+d", "u=http://x/../y", "a=%zz", "x={1}|2"] {
            assert_eq!(query(text).as_deref(), Ok(text));
        }
        assert_eq!(query("q=josé silva#1").as_deref(), Ok("q=jos%C3%A9%20silva%231"));
        for text in ["a\nb", "a\0", "a\r", "\x7f"] {
            assert_eq!(query(text), Err(BadPath::Control), "{text:?}");
        }
    }

    #[test]
    fn every_result_is_a_target_that_can_be_sent_unchanged() {
        for byte in 0..=127_u8 {
            let text = format!("/a{}b", char::from(byte));
            if let Ok(path) = normalise(&text) {
                assert_eq!(normalise(&path).as_deref(), Ok(path.as_str()));
                assert_eq!(path.parse::<http::uri::PathAndQuery>().unwrap().as_str(), path, "{text:?}");
            }
            if let Ok(sent) = query(&text) {
                assert_eq!(query(&sent).as_deref(), Ok(sent.as_str()));
                let target = format!("/?{sent}");
                assert_eq!(target.parse::<http::uri::PathAndQuery>().unwrap().as_str(), target, "{text:?}");
            }
        }
    }

    #[test]
    fn methods_are_words_about_resources() {
        assert_eq!(method("GET"), Ok(Method::GET));
        assert_eq!(method("PURGE").unwrap().as_str(), "PURGE");
        for text in ["", "GE T", "CONNECT", "TRACE", "GET\r\n", "É", "get", "G'T", &"A".repeat(21)] {
            assert_eq!(method(text), Err(BadPath::Method), "{text:?}");
        }
    }
}
