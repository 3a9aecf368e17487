//! Bodies that are held while they are received, bounded over all connections: a bound on each of them alone allows as many as
//! there are connections.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use thiserror::Error;

/// Bytes of all bodies that are being received.
#[derive(Debug, Default)]
pub(crate) struct Uploads(AtomicUsize);

/// There is no room for more bodies now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("`server.max_bodies` is used up")]
pub(crate) struct NoRoom;

/// A body as far as it has come. Its bytes count until it is whole or given up.
#[derive(Debug)]
pub(crate) struct Received<'a> {
    all: &'a Uploads,
    /// Bytes that all of them may have together.
    max: usize,
    /// Mostly a body comes in one part, which need not be copied.
    only: Bytes,
    joined: BytesMut,
}

impl Uploads {
    /// Nothing of a body yet, where all bodies together may have `max` bytes.
    pub(crate) fn begin(&self, max: usize) -> Received<'_> {
        Received { all: self, max, only: Bytes::new(), joined: BytesMut::new() }
    }
}

impl Received<'_> {
    pub(crate) fn len(&self) -> usize {
        self.only.len() + self.joined.len()
    }

    /// Adds the next part.
    pub(crate) fn add(&mut self, part: Bytes) -> Result<(), NoRoom> {
        let before = self.all.0.fetch_add(part.len(), Ordering::Relaxed);
        if before.saturating_add(part.len()) > self.max {
            self.all.0.fetch_sub(part.len(), Ordering::Relaxed);
            return Err(NoRoom);
        }
        if self.len() == 0 {
            self.only = part;
        } else {
            self.joined.extend_from_slice(&std::mem::take(&mut self.only));
            self.joined.extend_from_slice(&part);
        }
        Ok(())
    }

    /// All that has come.
    pub(crate) fn finish(mut self) -> Bytes {
        // Dropping it gives back what is counted, so nothing is taken out before that is done.
        self.release();
        let (only, joined) = (std::mem::take(&mut self.only), std::mem::take(&mut self.joined));
        if joined.is_empty() { only } else { joined.freeze() }
    }

    fn release(&self) {
        if self.len() > 0 {
            self.all.0.fetch_sub(self.len(), Ordering::Relaxed);
        }
    }
}

impl Drop for Received<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bodies_together_have_no_more_than_they_may() {
        let uploads = Uploads::default();
        let (mut first, mut second) = (uploads.begin(10), uploads.begin(10));
        assert_eq!((first.add("abc".into()), first.add("def".into())), (Ok(()), Ok(())));
        assert_eq!(second.add("12345".into()), Err(NoRoom));
        assert_eq!((second.add("1234".into()), second.len()), (Ok(()), 4));
        assert_eq!(first.finish(), "abcdef");
        assert_eq!(second.add("567890".into()), Ok(()), "a body that is whole makes room");
        drop(second);
        assert_eq!(uploads.0.into_inner(), 0, "one that is given up too");
    }
}
