//! The format of a chunk in the stream.
//!
//! | at | bytes | what, numbers big-endian |
//! |---|---|---|
//! | 0 | 1 | format version |
//! | 1 | 1 | flags: 1 the records are compressed (LZ4), 2 a snapshot begins, 4 it continues, 8 it ends |
//! | 2 | 8 | epoch of the term that made it; after a repair it differs from the epoch in its id |
//! | 10 | 8 | xxh3 over the chunk's number, the epoch, the flags and what follows |
//! | 18 | … | records |

use std::borrow::Cow;

use eclusa_fleet::Position;
use xxhash_rust::xxh3::Xxh3;

/// The version this release writes, and the newest it reads.
const VERSION: u8 = 1;

/// The format of the journal: rises with the version of chunks and with that of anything in them.
pub(in crate::store) const FORMAT: u16 = VERSION as u16 + eclusa_core::layout::FORMAT;

const HEADER: usize = 18;
const COMPRESSED: u8 = 1;

/// Below this many bytes compression does not pay.
const WORTH_COMPRESSING: usize = 256;
/// The most bytes that are compressed. Much more than a chunk ever has.
const MAX_RECORDS: usize = 64 << 20;

/// Which part of a snapshot a chunk is, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Mark {
    /// Not part of a snapshot: changes.
    None = 0,
    /// The first part of a snapshot.
    Begin = 2,
    /// A further part.
    Part = 4,
    /// The end of a snapshot, without records: everything before its beginning is replaced.
    End = 8,
}

/// A chunk that passed all checks.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store) struct Decoded<'a> {
    pub(in crate::store) mark: Mark,
    pub(in crate::store) records: Cow<'a, [u8]>,
    pub(in crate::store) checksum: u64,
}

/// Why bytes are not a chunk.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(in crate::store) enum ChunkError {
    #[error("has format version {0}, but this release knows versions up to {VERSION}: use a newer one")]
    Newer(u8),
    #[error("is damaged: it {0}")]
    Damaged(&'static str),
}

/// The bytes of chunk `position` and their checksum.
pub(in crate::store) fn encode(position: Position, mark: Mark, records: &[u8]) -> (Vec<u8>, u64) {
    let packed = compress(records);
    let flags = mark as u8 | if packed.is_some() { COMPRESSED } else { 0 };
    let body = packed.as_deref().unwrap_or(records);
    let sum = checksum(position, flags, body);
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend([VERSION, flags]);
    bytes.extend(position.epoch.to_be_bytes());
    bytes.extend(sum.to_be_bytes());
    bytes.extend(body);
    (bytes, sum)
}

/// Checks and unpacks chunk `number`.
pub(in crate::store) fn decode(number: u64, bytes: &[u8]) -> Result<Decoded<'_>, ChunkError> {
    let Some((header, body)) = bytes.split_first_chunk::<HEADER>() else {
        return Err(ChunkError::Damaged("is cut short"));
    };
    let [version, flags, ..] = *header;
    let field = |at: usize| u64::from_be_bytes(std::array::from_fn(|byte| header[at + byte]));
    if version > VERSION {
        return Err(ChunkError::Newer(version));
    }
    if version < VERSION {
        return Err(ChunkError::Damaged("has a version that never existed"));
    }
    let (epoch, sum) = (field(2), field(10));
    if checksum(Position { epoch, number }, flags, body) != sum {
        return Err(ChunkError::Damaged("does not match its checksum"));
    }
    let mark = match flags & !COMPRESSED {
        0 => Mark::None,
        2 => Mark::Begin,
        4 => Mark::Part,
        8 => Mark::End,
        _ => return Err(ChunkError::Damaged("has unknown flags")),
    };
    let records = if flags & COMPRESSED == 0 { Cow::Borrowed(body) } else { Cow::Owned(decompress(body)?) };
    Ok(Decoded { mark, records, checksum: sum })
}

fn compress(records: &[u8]) -> Option<Vec<u8>> {
    if !(WORTH_COMPRESSING..=MAX_RECORDS).contains(&records.len()) {
        return None;
    }
    let packed = lz4_flex::compress_prepend_size(records);
    (packed.len() < records.len() / 10 * 9).then_some(packed)
}

fn decompress(body: &[u8]) -> Result<Vec<u8>, ChunkError> {
    let size = body.first_chunk::<4>().map_or(0, |size| u32::from_le_bytes(*size) as usize);
    if size > MAX_RECORDS {
        return Err(ChunkError::Damaged("claims to be too long"));
    }
    lz4_flex::decompress_size_prepended(body).map_err(|_| ChunkError::Damaged("cannot be unpacked"))
}

fn checksum(made_as: Position, flags: u8, body: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&made_as.number.to_be_bytes());
    hasher.update(&made_as.epoch.to_be_bytes());
    hasher.update(&[flags]);
    hasher.update(body);
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Position = Position { epoch: 3, number: 7 };

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let hex = hex.trim();
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn chunks_match_the_golden_files() {
        let golden = include_str!("golden/chunk.hex");
        assert_eq!(hex(&encode(AT, Mark::Begin, b"records").0), golden.trim());
        let read = bytes(golden);
        let chunk = decode(7, &read).unwrap();
        assert_eq!((chunk.mark, &*chunk.records), (Mark::Begin, b"records".as_slice()));
        // Another release may compress the same records to other bytes, but must unpack these.
        let read = bytes(include_str!("golden/chunk-compressed.hex"));
        let chunk = decode(7, &read).unwrap();
        assert_eq!((chunk.mark, &*chunk.records), (Mark::None, &*b"the same again ".repeat(100)));
    }

    #[test]
    fn a_chunk_round_trips_compressed_or_not() {
        let long = b"the same again ".repeat(100);
        for records in [b"short".as_slice(), b"", &long] {
            let (bytes, sum) = encode(AT, Mark::Part, records);
            let decoded = decode(7, &bytes).unwrap();
            assert_eq!((decoded.mark, &*decoded.records, decoded.checksum), (Mark::Part, records, sum));
        }
        assert!(encode(AT, Mark::None, &long).0.len() < long.len() / 2);
    }

    #[test]
    fn flipped_bits_cuts_and_wrong_numbers_are_detected() {
        let (good, _) = encode(AT, Mark::None, &b"some body ".repeat(50));
        assert!(decode(8, &good).is_err());
        let elsewhere = encode(Position { epoch: 4, ..AT }, Mark::None, &b"some body ".repeat(50));
        assert_ne!(encode(AT, Mark::None, &b"some body ".repeat(50)).1, elsewhere.1, "made in another term");
        for bit in 0..good.len() * 8 {
            let mut flipped = good.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(7, &flipped).is_err(), "bit {bit}");
            assert!(decode(7, &good[..bit / 8]).is_err(), "cut at {}", bit / 8);
        }
    }

    #[test]
    fn a_newer_version_is_reported_as_such() {
        let (mut bytes, _) = encode(AT, Mark::None, b"body");
        bytes[0] = 9;
        let error = decode(7, &bytes).unwrap_err();
        assert_eq!(error, ChunkError::Newer(9));
        assert!(error.to_string().contains("version 9, but this release knows versions up to 1"), "{error}");
    }
}
