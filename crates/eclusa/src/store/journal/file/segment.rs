//! One file of the log: frames one after another, named after the first.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::error::{JournalError, damaged, io_error};
use super::frame::{self, Frame, FrameFault, HEADER};
use super::{MAX_CHUNK_BYTES, private, sync_dir};

/// The largest segment in bytes, unless a single chunk is larger. Disk space is released in whole segments, and with
/// [`Ack::Write`](super::Ack::Write) it is the most that is written between fsyncs.
pub(super) const SEGMENT_BYTES: u64 = 32 * 1024 * 1024;

const LONGEST_BYTES: u64 = (HEADER + MAX_CHUNK_BYTES) as u64;

pub(super) struct Segment {
    /// The number of the first chunk, whether it is there yet or not. Never 0.
    pub first: u64,
    pub path: PathBuf,
    pub len: u64,
    /// Where each chunk begins. Empty until the segment is read.
    pub offsets: Vec<u64>,
}

/// The valid part of a segment.
#[derive(Default)]
pub(super) struct Walk {
    pub offsets: Vec<u64>,
    /// Where the valid frames end.
    pub end: u64,
    /// `keep_from` of the last valid frame, if there is one.
    pub keep_from: Option<u64>,
    /// What is wrong with the bytes from `end` on, if there are any.
    pub fault: Option<String>,
}

impl Segment {
    /// All segments in `dir`, oldest first.
    pub(super) fn list(dir: &Path) -> Result<Vec<Self>, JournalError> {
        let mut segments = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(io_error("list", dir))? {
            let entry = entry.map_err(io_error("list", dir))?;
            let name = entry.file_name();
            let digits = name.to_str().and_then(|name| name.strip_suffix(".log"));
            let number = digits.filter(|digits| digits.len() == 20).and_then(|digits| digits.parse().ok());
            let Some(first) = number.filter(|first| *first > 0) else { continue };
            let path = entry.path();
            let len = entry.metadata().map_err(io_error("look at", &path))?.len();
            if len > LONGEST_BYTES {
                return Err(damaged(dir, first, format!("is in {}, which is too long", path.display())));
            }
            segments.push(Self { first, path, len, offsets: Vec::new() });
        }
        segments.sort_unstable_by_key(|segment| segment.first);
        Ok(segments)
    }

    /// Begins the segment whose first chunk will be `first`.
    pub(super) fn create(dir: &Path, first: u64) -> Result<(Self, File), JournalError> {
        let path = dir.join(format!("{first:020}.log"));
        let file = private().append(true).create_new(true).open(&path).map_err(io_error("create", &path))?;
        sync_dir(dir)?;
        Ok((Self { first, path, len: 0, offsets: Vec::new() }, file))
    }

    /// The number after the last chunk known.
    pub(super) fn next(&self) -> u64 {
        self.first + self.offsets.len() as u64
    }

    /// Notes a frame that was appended to the file.
    pub(super) fn grow(&mut self, frame_bytes: usize) {
        self.offsets.push(self.len);
        self.len += frame_bytes as u64;
    }

    /// Reads one chunk back, verified.
    pub(super) fn read(&self, dir: &Path, number: u64) -> Result<Vec<u8>, JournalError> {
        let missing = || damaged(dir, number, format!("is not in {}", self.path.display()));
        let at = in_memory(number.checked_sub(self.first).ok_or_else(missing)?);
        let start = *self.offsets.get(at).ok_or_else(missing)?;
        let end = self.offsets.get(at + 1).copied().unwrap_or(self.len);
        let mut bytes = vec![0; in_memory(end - start)];
        let file = File::open(&self.path).map_err(io_error("open", &self.path))?;
        file.read_exact_at(&mut bytes, start).map_err(io_error("read", &self.path))?;
        match frame::decode(&bytes) {
            Ok(frame) if frame.number == number => Ok(bytes.split_off(HEADER)),
            Ok(frame) => Err(damaged(dir, number, format!("gave way to chunk {}", frame.number))),
            Err(fault) => Err(self.refuse(dir, number, fault)),
        }
    }

    /// Passes the frames of the first `until` bytes to `visit`, as long as they are valid and in order.
    pub(super) fn walk(
        &self,
        dir: &Path,
        until: u64,
        mut visit: impl FnMut(&Frame<'_>) -> Result<(), JournalError>,
    ) -> Result<Walk, JournalError> {
        let file = File::open(&self.path).map_err(io_error("open", &self.path))?;
        let mut file = BufReader::new(file);
        let (mut walk, mut bytes, mut number) = (Walk::default(), Vec::new(), self.first);
        while walk.end < until {
            let read = fill(&mut file, until - walk.end, &mut bytes).map_err(io_error("read", &self.path))?;
            let fault = match read.and_then(|()| frame::decode(&bytes)) {
                Ok(frame) if frame.number == number => {
                    visit(&frame)?;
                    walk.keep_from = Some(frame.keep_from);
                    walk.offsets.push(walk.end);
                    walk.end += bytes.len() as u64;
                    number += 1;
                    continue;
                }
                Ok(frame) => format!("gave way to chunk {}", frame.number),
                Err(FrameFault::Bad(what)) => what,
                Err(newer) => return Err(self.refuse(dir, number, newer)),
            };
            walk.fault = Some(format!("{fault} ({}, byte {})", self.path.display(), walk.end));
            break;
        }
        Ok(walk)
    }

    /// The number of any valid frame after `from`, where no frame could be read, that is not older than `wanted`. Older
    /// ones may be leftovers in reused blocks of the filesystem.
    pub(super) fn frame_behind(&self, from: u64, wanted: u64) -> Result<Option<u64>, JournalError> {
        let mut bytes = vec![0; in_memory(self.len.saturating_sub(from))];
        let file = File::open(&self.path).map_err(io_error("open", &self.path))?;
        file.read_exact_at(&mut bytes, from).map_err(io_error("read", &self.path))?;
        let found = (1..bytes.len()).filter(|at| bytes[*at..].starts_with(&frame::MAGIC)).find_map(|at| {
            let len = frame::len(bytes[at..].first_chunk()?).ok()?;
            let frame = frame::decode(bytes.get(at..at + len)?).ok()?;
            Some(frame.number).filter(|number| *number >= wanted)
        });
        Ok(found)
    }

    fn refuse(&self, dir: &Path, number: u64, fault: FrameFault) -> JournalError {
        match fault {
            FrameFault::Bad(what) => damaged(dir, number, format!("{what} ({})", self.path.display())),
            FrameFault::Newer(found) => JournalError::NewerVersion {
                what: format!("chunk {number}"),
                dir: dir.to_owned(),
                found,
                known: frame::VERSION,
            },
        }
    }
}

/// Converts a length on disk to one in memory: segments are far smaller than the range of either.
fn in_memory(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

/// Reads what should be one frame, of at most `room` bytes.
fn fill(file: &mut impl Read, room: u64, bytes: &mut Vec<u8>) -> io::Result<Result<(), FrameFault>> {
    let cut_short = Ok(Err(FrameFault::Bad("is cut short".to_owned())));
    let mut header = [0; HEADER];
    if room < HEADER as u64 {
        return cut_short;
    }
    file.read_exact(&mut header)?;
    let len = match frame::len(&header) {
        Ok(len) if len as u64 <= room => len,
        Ok(_) => return cut_short,
        Err(fault) => return Ok(Err(fault)),
    };
    bytes.resize(len, 0);
    bytes[..HEADER].copy_from_slice(&header);
    file.read_exact(&mut bytes[HEADER..])?;
    Ok(Ok(()))
}
