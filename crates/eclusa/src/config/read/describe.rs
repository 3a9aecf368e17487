//! Descriptions of keys, collected from the readers.

/// The description of one key.
#[derive(Debug, Clone)]
pub(in super::super) struct KeyDoc {
    pub(in super::super) name: &'static str,
    pub(in super::super) kind: ValueKind,
    /// In the config's notation.
    pub(in super::super) default: Option<String>,
    pub(in super::super) required: bool,
    pub(in super::super) doc: &'static str,
}

/// The kind of value that a key takes.
#[derive(Debug, Clone)]
pub(in super::super) enum ValueKind {
    /// `"10s"`.
    Duration,
    /// `"1MiB"`, or a number of bytes.
    Size,
    /// `"10/s"`.
    Rate,
    /// A whole number, at least this one.
    Integer(u64),
    /// A number from 0 to 1.
    Fraction,
    /// `true` or `false`.
    Boolean,
    /// `false`, as an alternative to another kind.
    Off,
    /// Any JSON value.
    Json,
    /// A string; says what it is, with its article.
    Text(&'static str),
    /// One of these words.
    Words(Vec<&'static str>),
    /// A list of values of this kind.
    List(Box<ValueKind>),
    /// A table with any keys and values of this kind.
    Map(Box<ValueKind>),
    /// A table with these keys.
    Table(Vec<KeyDoc>),
    /// `false`, or a table with these keys.
    Switch(Vec<KeyDoc>),
    /// A table of tables with these keys, under names that the user chooses.
    Named(Vec<KeyDoc>),
    /// A list of tables with these keys.
    Tables(Vec<KeyDoc>),
    /// A table with these keys, or a list of such tables.
    OneOrMore(Vec<KeyDoc>),
    /// One or the other.
    Either(Box<ValueKind>, Box<ValueKind>),
}
