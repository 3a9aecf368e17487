//! What a key is, as the readers tell it.

/// One key.
#[derive(Debug, Clone)]
pub(in super::super) struct KeyDoc {
    pub(in super::super) name: &'static str,
    pub(in super::super) kind: ValueKind,
    /// As it would be written.
    pub(in super::super) default: Option<String>,
    pub(in super::super) required: bool,
    pub(in super::super) doc: &'static str,
}

/// What may stand behind a key.
#[derive(Debug, Clone)]
pub(in super::super) enum ValueKind {
    /// `"10s"`.
    Duration,
    /// `"1MiB"`, or a number of bytes.
    Size,
    /// `"10/s"`.
    Rate,
    /// A whole number from this one on.
    Integer(u64),
    /// A number from 0 to 1.
    Fraction,
    /// `true` or `false`.
    Boolean,
    /// `false`, beside something else.
    Off,
    /// Anything that JSON has.
    Json,
    /// A string; what it is, with its article.
    Text(&'static str),
    /// One of these.
    Words(Vec<&'static str>),
    /// A list of these.
    List(Box<ValueKind>),
    /// A table with any keys and values like this.
    Map(Box<ValueKind>),
    /// A table with these keys.
    Table(Vec<KeyDoc>),
    /// `false`, or a table with these keys.
    Switch(Vec<KeyDoc>),
    /// A table of tables with these keys, each under a name of the user's.
    Named(Vec<KeyDoc>),
    /// A list of tables with these keys.
    Tables(Vec<KeyDoc>),
    /// A table with these keys, or a list of such.
    OneOrMore(Vec<KeyDoc>),
    /// One or the other.
    Either(Box<ValueKind>, Box<ValueKind>),
}
