//! Parses server-sent events.

use std::mem::take;

/// The largest event; a snapshot of a thousand lanes has about two megabytes.
const MAX_EVENT: usize = 32 << 20;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::cli) struct Event {
    /// Its type.
    pub(in crate::cli) name: String,
    /// Its data; lines are separated by line feeds.
    pub(in crate::cli) data: String,
    /// Its id, if it has one.
    pub(in crate::cli) id: Option<String>,
}

/// The server sent an event larger than [`MAX_EVENT`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server sent an event larger than {} MiB", MAX_EVENT >> 20)]
pub(super) struct TooLarge;

/// Turns the bytes of a stream into events, however they are split. Lines end with CR, LF or CRLF.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// The line that has not ended yet.
    line: Vec<u8>,
    /// The last byte was a CR: a LF after it belongs to the same line end.
    after_cr: bool,
    /// The event that has not ended yet.
    name: String,
    data: String,
    id: Option<String>,
}

impl Parser {
    /// Reads the next piece and adds the events that end in it to `events`.
    pub(super) fn feed(&mut self, piece: &[u8], events: &mut impl Extend<Event>) -> Result<(), TooLarge> {
        let mut rest = piece;
        if take(&mut self.after_cr) {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            self.extend_line(&rest[..end])?;
            events.extend(self.end_line());
            let is_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if is_cr && rest.is_empty() {
                self.after_cr = true;
            } else if is_cr {
                rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            }
        }
        self.extend_line(rest)
    }

    fn extend_line(&mut self, part: &[u8]) -> Result<(), TooLarge> {
        if self.line.len() + self.data.len() + part.len() > MAX_EVENT {
            return Err(TooLarge);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    /// Reads a line; the event, if the line ends one.
    fn end_line(&mut self) -> Option<Event> {
        let line = take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        if line.is_empty() {
            return self.end_event();
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "id" => self.id = Some(value.to_owned()),
            // A comment (no field name), `retry`, or something unknown.
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<Event> {
        let (name, mut data, id) = (take(&mut self.name), take(&mut self.data), self.id.take());
        // The line feed after the last line is not part of the data. Without data there is no event.
        data.pop()?;
        Some(Event { name, data, id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: &str, id: Option<&str>) -> Event {
        Event { name: name.into(), data: data.into(), id: id.map(ToOwned::to_owned) }
    }

    fn parsed(pieces: &[&[u8]]) -> Vec<Event> {
        let (mut parser, mut events) = (Parser::default(), Vec::new());
        for piece in pieces {
            parser.feed(piece, &mut events).unwrap();
        }
        events
    }

    #[test]
    fn an_event_has_a_name_data_and_an_id() {
        let events = parsed(&[b"event: jobs\ndata: [1]\nid: 7-1\n\nevent:lanes\ndata:[]\n\n"]);
        assert_eq!(events, [event("jobs", "[1]", Some("7-1")), event("lanes", "[]", None)]);
    }

    #[test]
    fn events_do_not_depend_on_how_the_stream_is_split() {
        let text = "event: jobs\r\ndata: é [1]\r\nid: 7\r\n\r\n: beat\r\n\r\nevent: gap\r\ndata: {}\r\n\r\n";
        let all = [event("jobs", "é [1]", Some("7")), event("gap", "{}", None)];
        assert_eq!(parsed(&[text.as_bytes()]), all);
        for at in 0..text.len() {
            let (first, second) = text.as_bytes().split_at(at);
            assert_eq!(parsed(&[first, second]), all, "split at {at}");
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(parsed(&bytes), all);
    }

    #[test]
    fn lines_end_with_cr_lf_or_both() {
        let expected = [event("a", "1\n2", None)];
        for end in ["\n", "\r", "\r\n"] {
            let text = ["event: a", "data: 1", "data: 2", "", ""].join(end);
            assert_eq!(parsed(&[text.as_bytes()]), expected, "{end:?}");
        }
    }

    #[test]
    fn comments_unknown_fields_and_events_without_data_are_skipped() {
        assert_eq!(parsed(&[b":\n\n: beat\n\nretry: 5\n\nevent: a\n\ndata\n\n"]), [event("", "", None)]);
        assert_eq!(parsed(&[b"event: a\ndata: 1\n"]), [], "it has not ended");
    }

    #[test]
    fn an_event_that_is_too_large_is_an_error() {
        let (mut parser, mut events) = (Parser::default(), Vec::new());
        let piece = vec![b'x'; MAX_EVENT / 2];
        parser.feed(b"data: ", &mut events).unwrap();
        parser.feed(&piece, &mut events).unwrap();
        parser.feed(b"\ndata: ", &mut events).unwrap();
        assert_eq!(parser.feed(&piece, &mut events), Err(TooLarge), "lines of one event count together");
    }
}
