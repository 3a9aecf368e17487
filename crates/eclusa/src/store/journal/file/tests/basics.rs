//! What works on a healthy disk.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::super::{Ack, FileJournal, Journal, JournalError, MAX_CHUNK_BYTES};

use super::support::{Image, body, expected, fill, frames_len, open, scratch, segment, split};

#[test]
fn a_new_journal_is_empty() {
    let dir = scratch();
    let (journal, chunks) = open(&dir.path().join("new/and/deep"), Ack::Fsync).unwrap();
    assert_eq!((journal.first, journal.last(), chunks.len(), journal.bytes()), (1, 0, 0, 0));
    drop(journal);
    assert!(open(&dir.path().join("new/and/deep"), Ack::Fsync).unwrap().1.is_empty());
}

/// The journal holds the payloads of jobs.
#[test]
fn no_other_user_may_read_a_new_journal() {
    let dir = scratch();
    let parent = dir.path().join("new");
    let (mut journal, _) = open(&parent.join("data"), Ack::Fsync).unwrap();
    fill(&mut journal, 3, 100);
    journal.seal().unwrap();
    journal.append(&body(4), 1).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&parent), mode(&parent.join("data"))), (0o700, 0o700));
    let files: Vec<_> = std::fs::read_dir(parent.join("data")).unwrap().map(|file| file.unwrap()).collect();
    assert_eq!(files.len(), 4, "the lock, the mark and two segments: {files:?}");
    for file in files {
        assert_eq!(mode(&file.path()), 0o600, "{file:?}");
    }
}

#[test]
fn reopening_gives_the_same_chunks() {
    for ack in [Ack::Fsync, Ack::Write] {
        let dir = scratch();
        let (mut journal, _) = open(dir.path(), ack).unwrap();
        fill(&mut journal, 20, 100);
        drop(journal);
        let (journal, chunks) = open(dir.path(), ack).unwrap();
        assert_eq!(chunks, expected(1..=20));
        assert_eq!((journal.first, journal.last()), (1, 20));
        assert_eq!(journal.bytes(), frames_len(1..21) as u64);
        for number in 1..=20 {
            assert_eq!(journal.read(number).unwrap(), body(number));
        }
    }
}

#[test]
fn keep_from_holds_over_reopening() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), Ack::Fsync).unwrap();
    fill(&mut journal, 20, 5);
    assert_eq!((journal.first, journal.last()), (16, 20));
    drop(journal);
    let (mut journal, chunks) = open(dir.path(), Ack::Fsync).unwrap();
    assert_eq!(chunks, expected(16..=20));
    // An older keep_from brings nothing back.
    journal.append(&body(21), 3).unwrap();
    assert_eq!(journal.first, 16);
    drop(journal);
    assert_eq!(open(dir.path(), Ack::Fsync).unwrap().1, expected(16..=21));
}

#[test]
fn a_journal_may_keep_only_the_chunk_it_appends() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), Ack::Fsync).unwrap();
    fill(&mut journal, 9, 1);
    assert_eq!((journal.first, journal.last()), (9, 9));
    drop(journal);
    assert_eq!(open(dir.path(), Ack::Fsync).unwrap().1, expected(9..=9));
}

#[test]
fn several_segments_come_back_together() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), Ack::Fsync).unwrap();
    fill(&mut journal, 40, 15);
    drop(journal);
    for (first, at) in [(1, 11), (11, 21), (21, 36)] {
        split(dir.path(), first, at);
    }
    let (mut journal, chunks) = open(dir.path(), Ack::Fsync).unwrap();
    assert_eq!(chunks, expected(26..=40));
    assert_eq!([journal.read(26).unwrap(), journal.read(40).unwrap()], [body(26), body(40)]);
    // The two segments that were wholly let go are gone; the others go when their time comes.
    let there = || [1, 11, 21, 36].map(|first| dir.path().join(segment(first)).exists());
    assert_eq!(there(), [false, false, true, true]);
    fill(&mut journal, 49, 15);
    assert_eq!(there(), [false, false, true, true]);
    fill(&mut journal, 50, 15);
    assert_eq!(there(), [false, false, false, true]);
    assert_eq!(journal.bytes(), frames_len(36..51) as u64);
    drop(journal);
    assert_eq!(open(dir.path(), Ack::Fsync).unwrap().1, expected(36..=50));
}

#[test]
fn with_write_old_segments_wait_for_sync() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), Ack::Fsync).unwrap();
    fill(&mut journal, 20, 100);
    drop(journal);
    split(dir.path(), 1, 11);
    let (mut journal, _) = open(dir.path(), Ack::Write).unwrap();
    journal.append(&body(21), 15).unwrap();
    assert!(dir.path().join(segment(1)).exists());
    journal.sync().unwrap();
    assert!(!dir.path().join(segment(1)).exists());
    assert_eq!(journal.read(15).unwrap(), body(15));
}

#[test]
fn empty_chunks_are_chunks() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), Ack::Fsync).unwrap();
    journal.append(b"", 1).unwrap();
    drop(journal);
    assert_eq!(open(dir.path(), Ack::Fsync).unwrap().1, [(1, Vec::new())]);
}

#[test]
fn opening_twice_changes_nothing() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), Ack::Write).unwrap();
    fill(&mut journal, 20, 5);
    drop(journal);
    // A torn append and an old segment, so that the first opening has something to do.
    split(dir.path(), 1, 8);
    let mut image = Image::of(dir.path());
    image.file(&segment(8)).extend(b"torn");
    let dir = image.write();
    assert_eq!(open(dir.path(), Ack::Fsync).unwrap().1, expected(16..=20));
    let once = Image::of(dir.path());
    assert_ne!(once, image);
    assert_eq!(open(dir.path(), Ack::Fsync).unwrap().1, expected(16..=20));
    assert_eq!(Image::of(dir.path()), once);
}

#[test]
fn the_mark_follows_sync_with_write_and_every_append_with_fsync() {
    for (ack, promised) in [(Ack::Write, 3), (Ack::Fsync, 5)] {
        let dir = scratch();
        let (mut journal, _) = open(dir.path(), ack).unwrap();
        fill(&mut journal, 3, 100);
        journal.sync().unwrap();
        fill(&mut journal, 5, 100);
        drop(journal);
        std::fs::remove_file(dir.path().join(segment(1))).unwrap();
        let error = open(dir.path(), ack).err().unwrap();
        assert!(
            matches!(error, JournalError::LessThanPromised { found: 0, promised: p, .. } if p == promised),
            "{error}"
        );
    }
}

#[test]
fn a_bug_of_the_caller_is_reported_and_stops_nothing() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), Ack::Fsync).unwrap();
    fill(&mut journal, 5, 2);
    let ahead = journal.append(b"chunk", 7);
    assert!(matches!(ahead, Err(JournalError::KeepFromAhead { keep_from: 7, number: 6 })));
    let large = journal.append(&vec![0; MAX_CHUNK_BYTES + 1], 1);
    assert!(matches!(large, Err(JournalError::ChunkTooLarge { .. })));
    for gone in [0, 3, 6] {
        let read = journal.read(gone);
        assert!(matches!(read, Err(JournalError::NotHeld { first: 4, last: 5, .. })));
    }
    fill(&mut journal, 6, 2);
}

#[test]
fn an_error_of_the_replay_is_passed_on() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), Ack::Fsync).unwrap();
    fill(&mut journal, 5, 9);
    drop(journal);
    let refused = FileJournal::open(dir.path(), Ack::Fsync, |number, _| match number {
        3 => Err("no such record"),
        _ => Ok(()),
    });
    let error = refused.err().unwrap();
    assert!(matches!(error, JournalError::Replay { number: 3, .. }));
    assert!(error.to_string().contains("no such record"), "{error}");
}

#[test]
fn a_chunk_larger_than_a_segment_has_one_of_its_own() {
    let dir = scratch();
    let chunk = vec![7; 40 << 20];
    let (mut journal, _) = open(dir.path(), Ack::Write).unwrap();
    journal.append(b"small", 1).unwrap();
    journal.append(&chunk, 1).unwrap();
    journal.append(b"small", 1).unwrap();
    assert!(journal.read(2).unwrap() == chunk);
    drop(journal);
    let (journal, chunks) = open(dir.path(), Ack::Write).unwrap();
    assert!(chunks.len() == 3 && chunks[1].1 == chunk);
    assert!([1, 2, 3].iter().all(|first| dir.path().join(segment(*first)).exists()));
    assert_eq!(journal.bytes(), disk_used(dir.path()));
}

#[test]
fn disk_use_is_bounded_by_what_is_kept() {
    let dir = scratch();
    for ack in [Ack::Fsync, Ack::Write] {
        let mut chunk = vec![7; 1_000_000];
        let (mut journal, _) = open(dir.path(), ack).unwrap();
        let begun = journal.last();
        while journal.last() < begun + 150 {
            let number = journal.last() + 1;
            chunk[..8].copy_from_slice(&number.to_be_bytes());
            journal.append(&chunk, number.saturating_sub(19).max(1)).unwrap();
            let used = disk_used(dir.path());
            assert!(used < 20_000_000 + 2 * 34_000_000, "{used} bytes after chunk {number}");
            assert_eq!(used, journal.bytes());
        }
        assert!(journal.read(journal.first).unwrap().starts_with(&journal.first.to_be_bytes()));
        let last = journal.last();
        drop(journal);
        let (journal, chunks) = open(dir.path(), ack).unwrap();
        assert_eq!((journal.first, journal.last(), chunks.len()), (last - 19, last, 20));
        assert!(chunks.iter().all(|(number, body)| body.starts_with(&number.to_be_bytes())));
    }
}

fn disk_used(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let logs = entries.filter(|entry| entry.path().extension() == Some("log".as_ref()));
    logs.map(|log| log.metadata().unwrap().len()).sum()
}

#[test]
fn a_journal_can_be_moved_to_its_writer_thread() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), Ack::Fsync).unwrap();
    let journal = std::thread::spawn(move || {
        fill(&mut journal, 3, 9);
        journal
    });
    assert_eq!(journal.join().unwrap().last(), 3);
}
