//! Bodies held in memory while they are received. Their total is bounded over all connections, since a bound per body
//! would still grow with the number of connections.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use thiserror::Error;

/// The bytes of all bodies that are being received.
#[derive(Debug, Default)]
pub(crate) struct Uploads(AtomicUsize);

/// There is no room for more bytes now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("`server.max_bodies` is used up")]
pub(crate) struct NoRoom;

/// A body received so far. Its bytes count until it is complete or dropped.
#[derive(Debug)]
pub(crate) struct Received<'a> {
    all: &'a Uploads,
    /// The most bytes of all bodies in total.
    max: usize,
    /// Most bodies arrive in one part, which need not be copied.
    only: Bytes,
    joined: BytesMut,
}

impl Uploads {
    /// An empty body; all bodies may have `max` bytes in total.
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

    /// The whole body.
    pub(crate) fn finish(mut self) -> Bytes {
        // `release` counts the bytes that are still here, so it runs before they are taken out.
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
    fn the_total_of_all_bodies_is_bounded() {
        let uploads = Uploads::default();
        let (mut first, mut second) = (uploads.begin(10), uploads.begin(10));
        assert_eq!((first.add("abc".into()), first.add("def".into())), (Ok(()), Ok(())));
        assert_eq!(second.add("12345".into()), Err(NoRoom));
        assert_eq!((second.add("1234".into()), second.len()), (Ok(()), 4));
        assert_eq!(first.finish(), "abcdef");
        assert_eq!(second.add("567890".into()), Ok(()), "a complete body makes room");
        drop(second);
        assert_eq!(uploads.0.into_inner(), 0, "a dropped body too");
    }
}
