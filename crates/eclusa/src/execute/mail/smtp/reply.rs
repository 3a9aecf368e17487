//! Replies of an SMTP server.

use std::io;

use eclusa_core::retry::{Ending, ExtraCodes, Verdict, classify};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

use crate::execute::CallEnd;

/// The most bytes of a line (RFC 5321 allows 512, servers send more), and lines of a reply.
const MAX_LINE: u64 = 2_048;
const MAX_LINES: usize = 100;
/// The most characters of a reply that are kept.
const MAX_TEXT: usize = 300;

/// One reply, of one or more lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) code: u16,
    /// Without codes and line breaks.
    pub(super) lines: Vec<String>,
}

impl Reply {
    /// Reads the next reply. An invalid reply is an error, like the end of the stream.
    pub(super) async fn read(from: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Self> {
        let (mut lines, mut first) = (Vec::new(), None);
        while lines.len() < MAX_LINES {
            let mut line = Vec::new();
            from.take(MAX_LINE).read_until(b'\n', &mut line).await?;
            if line.pop() != Some(b'\n') {
                let why =
                    if line.is_empty() { "the server closed the connection" } else { "the reply broke off" };
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
            }
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches('\r');
            let nonsense = || io::Error::other("the reply is invalid");
            let code: u16 = line.get(..3).and_then(|code| code.parse().ok()).ok_or_else(nonsense)?;
            if !(200..=599).contains(&code) || *first.get_or_insert(code) != code {
                return Err(nonsense());
            }
            lines.push(line.get(4..).unwrap_or_default().to_owned());
            match line.as_bytes().get(3) {
                Some(b'-') => {}
                None | Some(b' ') => return Ok(Self { code, lines }),
                Some(_) => return Err(nonsense()),
            }
        }
        Err(io::Error::other("the reply is too long"))
    }

    pub(super) const fn is_positive(&self) -> bool {
        self.code < 400
    }

    /// Whether the server is about to close the connection.
    pub(super) const fn is_closing(&self) -> bool {
        self.code == 421
    }

    /// The enhanced code, such as `4.7.0` (RFC 3463).
    pub(super) fn enhanced(&self) -> Option<&str> {
        let word = self.lines.first()?.split_ascii_whitespace().next()?;
        let digits =
            |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        let mut parts = word.split('.');
        let class = parts.next().is_some_and(|class| matches!(class, "2" | "4" | "5"));
        let rest = parts.clone().count() == 2 && parts.all(digits);
        (class && rest).then_some(word)
    }

    /// The text for people: bounded, and without addresses, which are personal.
    pub(super) fn text(&self) -> String {
        let enhanced = self.enhanced();
        let words = self.lines.iter().flat_map(|line| line.split_whitespace());
        let words = words.filter(|word| Some(*word) != enhanced);
        let words = words.map(|word| if word.contains('@') { "***" } else { word });
        let text: String = words.collect::<Vec<_>>().join(" ").chars().take(MAX_TEXT).collect();
        match enhanced {
            Some(enhanced) => format!("SMTP {} {enhanced}: {text}", self.code),
            None => format!("SMTP {}: {text}", self.code),
        }
    }

    /// Whether a retry may help; `None` if it is not a refusal.
    pub(super) fn verdict(&self, codes: &ExtraCodes) -> Option<Verdict> {
        classify(Ending::Smtp { code: self.code, enhanced: self.enhanced() }, codes).1
    }

    /// The end of a call that ended with this reply.
    pub(super) fn end(&self) -> CallEnd {
        let enhanced = self.enhanced().map(ToOwned::to_owned);
        CallEnd::Replied { code: self.code, enhanced, text: self.text() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(text: &str) -> io::Result<Reply> {
        Reply::read(&mut text.as_bytes()).await
    }

    #[tokio::test]
    async fn replies_of_one_and_more_lines_are_read() {
        let reply = read("250 ok\r\n").await.unwrap();
        assert_eq!((reply.code, reply.enhanced(), reply.text().as_str()), (250, None, "SMTP 250: ok"));
        let reply = read("450-4.7.0 Try\r\n450 4.7.0 later\r\nrest").await.unwrap();
        assert_eq!((reply.code, reply.enhanced()), (450, Some("4.7.0")));
        assert_eq!(reply.text(), "SMTP 450 4.7.0: Try later");
        assert_eq!(read("354\n").await.unwrap().lines, [""]);
    }

    #[tokio::test]
    async fn an_address_in_a_reply_is_masked() {
        let reply = read("550 5.1.1 <ana@example.com>: no such user\r\n").await.unwrap();
        assert_eq!(reply.text(), "SMTP 550 5.1.1: *** no such user");
    }

    #[tokio::test]
    async fn an_invalid_reply_is_an_error() {
        for bad in ["", "250 ok", "hello\r\n", "25\r\n", "100 x\r\n", "250-a\r\n251 b\r\n", "250+x\r\n"] {
            assert!(read(bad).await.is_err(), "{bad:?}");
        }
        assert!(read(&format!("250 {}\r\n", "x".repeat(3_000))).await.is_err());
        assert!(read(&"250-x\r\n".repeat(101)).await.is_err());
    }

    #[tokio::test]
    async fn lookalikes_of_enhanced_codes_are_not_taken_for_them() {
        for text in ["250 2.0\r\n", "250 3.0.0 x\r\n", "250 2.0.0.1\r\n", "250 2..0\r\n", "250\r\n"] {
            assert_eq!(read(text).await.unwrap().enhanced(), None, "{text}");
        }
    }
}
