//! Cuts and flipped bits, everywhere. The one rule: all acknowledged chunks, or a refusal.

use super::super::Ack;

use super::support::{Chunks, Image, expected, fill, frames_len, open, scratch, segment, split};

/// How many places are tried in one file, for the sake of a fast run. Set
/// `JOURNAL_TEST_PLACES=1000000` to try every byte.
fn places_per_file() -> usize {
    std::env::var("JOURNAL_TEST_PLACES").map_or(300, |places| places.parse().unwrap())
}

/// Chunks 26 to 40, in one segment and in several.
fn images() -> Vec<(&'static str, Image)> {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), Ack::Fsync).unwrap();
    fill(&mut journal, 40, 15);
    drop(journal);
    let one = Image::of(dir.path());
    split(dir.path(), 1, 21);
    split(dir.path(), 21, 31);
    split(dir.path(), 31, 38);
    let four = Image::of(dir.path());
    std::fs::remove_file(dir.path().join(segment(1))).unwrap();
    std::fs::write(dir.path().join(segment(41)), "").unwrap();
    let begun = Image::of(dir.path());
    vec![("one segment", one), ("four segments", four), ("one just begun", begun)]
}

/// Tries every file of every image, spoilt by `spoil` at many places. Returns how many openings
/// gave everything and how many were refused.
fn try_all(spoil: impl Fn(&mut Vec<u8>, usize)) -> (usize, usize) {
    let (mut whole, mut refused) = (0, 0);
    let chunks = expected(26..=40);
    for (name, image) in images() {
        for file in 0..image.files.len() {
            let (path, bytes) = &image.files[file];
            // Odd, so that the places do not line up with the fields of anything.
            let step = (bytes.len() / places_per_file()) | 1;
            for at in (0..bytes.len()).step_by(step) {
                let mut bad = image.clone();
                spoil(&mut bad.files[file].1, at);
                let place = format!("{name}, {path:?} at {at} of {}", bytes.len());
                if holds_the_rule(&bad, &chunks, &place) { whole += 1 } else { refused += 1 }
            }
        }
    }
    println!("whole {whole}, refused {refused}");
    (whole, refused)
}

fn holds_the_rule(image: &Image, chunks: &Chunks, place: &str) -> bool {
    let dir = image.write();
    let found = match open(dir.path(), Ack::Fsync) {
        Err(error) => {
            assert!(error.to_string().contains(&dir.path().display().to_string()), "{place}: {error}");
            assert_eq!(Image::of(dir.path()), *image, "{place}: refused, but changed");
            return false;
        }
        Ok((_, found)) => found,
    };
    assert!(found == *chunks, "{place}: silently other chunks");
    let (mut journal, again) =
        open(dir.path(), Ack::Fsync).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert!(again == *chunks, "{place}: second opening");
    fill(&mut journal, 41, 15);
    drop(journal);
    let (_, after) = open(dir.path(), Ack::Fsync).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert!(after == expected(27..=41), "{place}: after one more append");
    true
}

#[test]
fn every_cut_gives_all_or_refuses() {
    let (whole, refused) = try_all(Vec::truncate);
    assert!(whole > 100 && refused > 500, "whole {whole}, refused {refused}");
}

#[test]
fn every_zeroed_end_gives_all_or_refuses() {
    // What a power cut leaves of pages that were never written: the length is right.
    let (whole, refused) = try_all(|bytes, at| bytes[at..].fill(0));
    assert!(whole > 100 && refused > 500, "whole {whole}, refused {refused}");
}

#[test]
fn every_flipped_bit_gives_all_or_refuses() {
    let (whole, refused) = try_all(|bytes, at| bytes[at] ^= 1 << (at % 8));
    assert!(whole > 100 && refused > 500, "whole {whole}, refused {refused}");
}

#[test]
fn every_missing_file_gives_all_or_refuses() {
    for (name, image) in images() {
        for file in 0..image.files.len() {
            let mut bad = image.clone();
            let (gone, _) = bad.files.remove(file);
            // Not by `holds_the_rule`: even a refusal brings back the lock.
            let dir = bad.write();
            match open(dir.path(), Ack::Fsync) {
                Ok((_, found)) => assert_eq!(found, expected(26..=40), "{name}, without {gone:?}"),
                Err(error) => {
                    assert!(gone != *"lock", "{name}: {error}");
                    assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
                }
            }
        }
    }
}

/// Chunk 41 on top of an image, beyond the mark. Returns also where it begins, and in which file.
fn unpromised(image: &Image) -> (Image, usize, std::path::PathBuf) {
    let dir = image.write();
    let (mut journal, _) = open(dir.path(), Ack::Write).unwrap();
    fill(&mut journal, 41, 15);
    drop(journal);
    let image = Image::of(dir.path());
    let (name, bytes) = image.files.iter().rfind(|(_, bytes)| !bytes.is_empty() && bytes[0] == 0xEC).unwrap();
    let from = bytes.len() - frames_len(41..42);
    let name = name.clone();
    (image, from, name)
}

/// A process that dies in the middle of an append leaves the beginning of it.
#[test]
fn an_append_cut_anywhere_costs_no_acknowledged_chunk_and_no_opening() {
    for (name, image) in images() {
        let (torn, from, segment) = unpromised(&image);
        for len in from..from + frames_len(41..42) {
            let mut bad = torn.clone();
            bad.file(&segment).truncate(len);
            let place = format!("{name}, cut at {len} after {from}");
            assert!(holds_the_rule(&bad, &expected(26..=40), &place), "{place}: refused");
        }
    }
}

/// A power cut in the middle of an append leaves some pages of it and not others.
#[test]
fn a_torn_append_costs_no_acknowledged_chunk_and_no_opening() {
    for (name, image) in images() {
        let (torn, from, segment) = unpromised(&image);
        let to = from + frames_len(41..42);
        for (at, width) in (from..to).flat_map(|at| [(at, 1), (at, 16), (at, 64)]) {
            let mut bad = torn.clone();
            bad.file(&segment)[at..(at + width).min(to)].fill(0);
            let place = format!("{name}, {width} bytes at {at} of {from} to {to}");
            let dir = bad.write();
            let (_, found) = open(dir.path(), Ack::Fsync).unwrap_or_else(|error| panic!("{place}: {error}"));
            // Not acknowledged, so it may be there; but then it is whole.
            assert!(found == expected(26..=40) || found == expected(27..=41), "{place}");
        }
    }
}
