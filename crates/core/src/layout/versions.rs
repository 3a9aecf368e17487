//! The versions of the layouts that a journal holds, and the number that stands for all of them.

/// Declares the version of each stored layout, and [`FORMAT`], which is their sum: it cannot be forgotten when one of
/// them is raised.
macro_rules! stored_versions {
    ($($(#[$doc:meta])+ $name:ident = $version:literal;)+) => {
        $($(#[$doc])+ pub(crate) const $name: u8 = $version;)+

        /// The format of a journal's records. A program can read journals whose format is at most its own: versions
        /// only rise, and this rises with each of them.
        pub const FORMAT: u16 = 0 $(+ $name as u16)+;
    };
}

stored_versions! {
    /// The version of the records of a chunk, stored in its first byte.
    ///
    /// Version 2 adds the records from `Terms` on; the others are the same as in version 1.
    RECORD_VERSION = 2;
    /// The version of a process's complete rules, which are also sent. Version 2 adds `partial`, version 3 `in_time`.
    SPEC_VERSION = 3;
    /// The version of the rules of one lane. Version 2 adds `in_time`.
    LANE_VERSION = 2;
    /// The version of the rules of one upstream.
    UPSTREAM_VERSION = 1;
}
