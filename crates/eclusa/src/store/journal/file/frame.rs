//! The format of a chunk on disk: a header with which it can be verified on its own, then the body.
//!
//! | at | bytes | what, numbers big-endian |
//! |---|---|---|
//! | 0 | 3 | magic |
//! | 3 | 1 | format version |
//! | 4 | 4 | length of the body |
//! | 8 | 8 | the chunk's number, which reveals a frame in the wrong place |
//! | 16 | 8 | the oldest chunk that must exist along with it |
//! | 24 | 8 | xxh3 over all of the above and the body |
//! | 32 | … | the body |

use xxhash_rust::xxh3::Xxh3;

use super::MAX_CHUNK_BYTES;

/// The version this release writes, and the newest it reads.
pub(super) const VERSION: u8 = 1;

/// Not text, so that it is rare inside bodies.
pub(super) const MAGIC: [u8; 3] = [0xEC, 0x1A, 0xF7];

pub(super) const HEADER: usize = 32;
const SUM_AT: usize = 24;

/// A chunk that passed all checks.
pub(super) struct Frame<'a> {
    pub number: u64,
    pub keep_from: u64,
    pub body: &'a [u8],
}

/// Why bytes are not a frame.
pub(super) enum FrameFault {
    /// They may be a frame of a later release.
    Newer(u8),
    /// They are not; continues the text after "chunk 7".
    Bad(String),
}

pub(super) fn encode(number: u64, keep_from: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend(MAGIC);
    bytes.push(VERSION);
    // Fits: the journal accepts no chunk over MAX_CHUNK_BYTES.
    bytes.extend(u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend(number.to_be_bytes());
    bytes.extend(keep_from.to_be_bytes());
    let sum = checksum(&bytes, body);
    bytes.extend(sum.to_be_bytes());
    bytes.extend(body);
    bytes
}

/// The length of the whole frame, if the rest of its header is valid.
pub(super) fn len(header: &[u8; HEADER]) -> Result<usize, FrameFault> {
    let [m0, m1, m2, version, l0, l1, l2, l3, ..] = *header;
    let body = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
    if [m0, m1, m2] != MAGIC {
        return bad("does not begin as a chunk does");
    }
    // Before the checksum, because a later version may place it elsewhere.
    if version > VERSION {
        return Err(FrameFault::Newer(version));
    }
    if version != VERSION || body > MAX_CHUNK_BYTES {
        return bad("has an impossible header");
    }
    Ok(HEADER + body)
}

/// Decodes the bytes of one whole frame.
pub(super) fn decode(bytes: &[u8]) -> Result<Frame<'_>, FrameFault> {
    let Some((header, body)) = bytes.split_first_chunk::<HEADER>() else { return bad("is cut short") };
    if len(header)? != bytes.len() {
        return bad("is cut short");
    }
    let field = |at: usize| u64::from_be_bytes(std::array::from_fn(|byte| header[at + byte]));
    if checksum(&header[..SUM_AT], body) != field(SUM_AT) {
        return bad("does not match its checksum");
    }
    let (number, keep_from) = (field(8), field(16));
    if keep_from == 0 || keep_from > number {
        return bad(&format!("claims that chunk {keep_from} is the oldest"));
    }
    Ok(Frame { number, keep_from, body })
}

fn bad<T>(what: &str) -> Result<T, FrameFault> {
    Err(FrameFault::Bad(what.to_owned()))
}

fn checksum(fields: &[u8], body: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(fields);
    hasher.update(body);
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
    }

    #[test]
    fn a_frame_matches_the_golden_file() {
        // The next test reads what is written.
        assert_eq!(hex(&encode(7, 3, b"body")), include_str!("golden/frame.hex").trim());
    }

    #[test]
    fn a_frame_round_trips() {
        for body in [b"body".as_slice(), b""] {
            let bytes = encode(7, 3, body);
            let Ok(frame) = decode(&bytes) else { panic!("refused") };
            assert_eq!((frame.number, frame.keep_from, frame.body), (7, 3, body));
        }
    }

    #[test]
    fn flipped_bits_and_cuts_are_detected() {
        let good = encode(7, 3, b"some body");
        for bit in 0..good.len() * 8 {
            let mut flipped = good.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped).is_err(), "bit {bit}");
            assert!(decode(&good[..bit / 8]).is_err(), "cut at {}", bit / 8);
        }
    }

    #[test]
    fn a_newer_version_is_reported_as_such() {
        let mut bytes = encode(7, 3, b"body");
        bytes[3] = 9;
        assert!(matches!(decode(&bytes), Err(FrameFault::Newer(9))));
    }
}
