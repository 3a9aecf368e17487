//! What a journal must find when it is opened. Nothing here changes a file.
//!
//! The newest chunk says which is the oldest that must exist, so the end of the log is read first. An unreadable end
//! that was not promised durable is an append that was torn by a crash of the process or the machine; it may be cut
//! off. Anything else that is missing or wrong is damage, and the journal is left unchanged for a human to judge.

use std::path::Path;

use super::Ack;
use super::error::{JournalError, damaged};
use super::segment::Segment;

/// Where the log begins and ends.
pub(super) struct Extent {
    /// The oldest chunk that must exist; one past `last` when there is none.
    pub first: u64,
    /// The newest chunk; 0 when there was never one.
    pub last: u64,
    /// The length of the valid part of the newest segment. A torn append may follow.
    pub end: u64,
}

/// Reads the end of the log, which must reach `mark`.
pub(super) fn find_extent(
    dir: &Path,
    segments: &[Segment],
    mark: u64,
    ack: Ack,
) -> Result<Extent, JournalError> {
    let less = |found| JournalError::LessThanPromised { found, promised: mark, dir: dir.to_owned() };
    let Some((newest, older)) = segments.split_last() else {
        return if mark > 0 { Err(less(0)) } else { Ok(Extent { first: 1, last: 0, end: 0 }) };
    };
    let walk = newest.walk(dir, newest.len, |_| Ok(()))?;
    let last = newest.first - 1 + walk.offsets.len() as u64;
    if let Some(fault) = walk.fault {
        if last < mark {
            return Err(damaged(dir, last + 1, format!("{fault}, though chunk {mark} was promised durable")));
        }
        // Each append was fsynced before the next, so a torn one has no successor. Without that the
        // operating system may have written the next one first, and a power cut may take either.
        if ack == Ack::Fsync
            && let Some(successor) = newest.frame_behind(walk.end, last + 1)?
        {
            let hint =
                "if a power cut tore it while it was written without fsync, open it once more without fsync";
            return Err(damaged(
                dir,
                last + 1,
                format!("{fault}, though chunk {successor} follows it ({hint})"),
            ));
        }
    }
    if last < mark {
        return Err(less(last));
    }
    let first = match (walk.keep_from, older.last()) {
        (Some(keep_from), _) => keep_from,
        (None, None) if last == 0 => 1,
        (None, None) => return Err(damaged(dir, last, "is missing")),
        // The newest segment has no chunk yet: the one before has the newest chunk.
        (None, Some(before)) => {
            let keep_from = before.walk(dir, before.len, |_| Ok(()))?.keep_from;
            keep_from.ok_or_else(|| damaged(dir, last, format!("is not in {}", before.path.display())))?
        }
    };
    Ok(Extent { first, last, end: walk.end })
}

/// Reads and verifies all chunks that must exist, and passes them to `replay`. Segments that are entirely older are
/// ignored: they may be in any state.
pub(super) fn replay<E>(
    dir: &Path,
    segments: &mut [Segment],
    extent: &Extent,
    mut replay: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), JournalError>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let begun = segments.partition_point(|segment| segment.first <= extent.first);
    let Some((newest, older)) = segments.get_mut(begun.saturating_sub(1)..).and_then(<[_]>::split_last_mut)
    else {
        return Ok(());
    };
    let mut next = if begun == 0 { extent.first } else { older.first().unwrap_or(newest).first };
    newest.len = extent.end;
    for segment in older.iter_mut().chain([newest]) {
        if segment.first != next {
            return Err(damaged(dir, next, format!("is missing before {}", segment.path.display())));
        }
        let walk = segment.walk(dir, segment.len, |frame| {
            if frame.number < extent.first {
                return Ok(());
            }
            replay(frame.number, frame.body).map_err(|error| JournalError::Replay {
                number: frame.number,
                dir: dir.to_owned(),
                source: error.into(),
            })
        })?;
        segment.offsets = walk.offsets;
        next = segment.next();
        if let Some(fault) = walk.fault {
            return Err(damaged(dir, next, fault));
        }
    }
    Ok(())
}
