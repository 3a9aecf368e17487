//! When the journal refuses to open, and whether the message helps.

use std::path::Path;

use super::super::{Ack, FileJournal, JournalError};

use super::support::{Image, expected, fill, frames_len, open, scratch, segment, split};

/// A journal with chunks 1 to 5, closed.
fn filled() -> tempfile::TempDir {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), Ack::Fsync).unwrap();
    fill(&mut journal, 5, 100);
    dir
}

/// The refusal, which has to name the place and must not change it.
fn refusal(dir: &Path) -> JournalError {
    let before = dir.is_dir().then(|| Image::of(dir));
    let error = open(dir, Ack::Fsync).map(|_| ()).expect_err("opened");
    assert!(error.to_string().contains(&dir.display().to_string()), "{error}");
    assert_eq!(dir.is_dir().then(|| Image::of(dir)), before);
    error
}

/// Writes past the journal, straight into its only segment.
fn tamper(dir: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let path = dir.join(segment(1));
    let mut bytes = std::fs::read(&path).unwrap();
    change(&mut bytes);
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn a_second_opening_is_refused() {
    let dir = filled();
    let (first, _) = open(dir.path(), Ack::Fsync).unwrap();
    let error = refusal(dir.path());
    assert!(matches!(error, JournalError::Locked { .. }), "{error}");
    drop(first);
    open(dir.path(), Ack::Fsync).unwrap();
}

#[test]
fn a_deleted_lock_lets_nobody_else_in() {
    let dir = filled();
    let (mut first, _) = open(dir.path(), Ack::Fsync).unwrap();
    std::fs::remove_file(dir.path().join("lock")).unwrap();
    let error = refusal(dir.path());
    assert!(matches!(error, JournalError::Locked { .. }), "{error}");
    // Another process may have made a new one.
    std::fs::write(dir.path().join("lock"), "").unwrap();
    assert!(matches!(refusal(dir.path()), JournalError::Locked { .. }));
    let error = first.append(b"x", 1).unwrap_err();
    assert!(matches!(error, JournalError::TakenAway { what: "replaced", .. }), "{error}");
    drop(first);
    open(dir.path(), Ack::Fsync).unwrap();
}

#[test]
fn a_new_journal_whose_lock_is_deleted_lets_nobody_else_in() {
    let dir = scratch();
    let (_first, _) = open(dir.path(), Ack::Fsync).unwrap();
    std::fs::remove_file(dir.path().join("lock")).unwrap();
    assert!(matches!(refusal(dir.path()), JournalError::Locked { .. }));
}

#[test]
fn a_journal_that_is_taken_away_stops() {
    type Take = fn(&Path);
    let lock: Take = |dir| std::fs::remove_file(dir.join("lock")).unwrap();
    let mark: Take = |dir| std::fs::remove_file(dir.join("high-water")).unwrap();
    let newest: Take = |dir| std::fs::remove_file(dir.join(segment(1))).unwrap();
    let all: Take = |dir| std::fs::remove_dir_all(dir).unwrap();
    let moved: Take = |dir| std::fs::rename(dir, dir.with_extension("moved")).unwrap();
    for take in [lock, mark, newest, all, moved] {
        // Without an fsync an append does not look; the next sync comes within a second.
        for (ack, append) in [(Ack::Fsync, true), (Ack::Fsync, false), (Ack::Write, false)] {
            let above = scratch();
            let dir = above.path().join("data");
            let (mut journal, _) = open(&dir, ack).unwrap();
            fill(&mut journal, 5, 100);
            journal.sync().unwrap();
            take(&dir);
            let stopped = if append { journal.append(b"x", 1).map(drop) } else { journal.sync() };
            let error = stopped.unwrap_err();
            assert!(matches!(error, JournalError::TakenAway { what: "removed", .. }), "{error}");
            assert!(error.to_string().contains(&dir.display().to_string()), "{error}");
            assert!(matches!(journal.append(b"x", 1), Err(JournalError::Stopped { .. })));
        }
    }
}

#[test]
fn a_newer_chunk_is_refused() {
    for number in [1, 3, 5] {
        let dir = filled();
        tamper(dir.path(), |bytes| bytes[frames_len(1..number) + 3] = 2);
        let error = refusal(dir.path());
        assert!(matches!(error, JournalError::NewerVersion { found: 2, known: 1, .. }), "{error}");
        assert!(error.to_string().contains(&format!("chunk {number}")), "{error}");
    }
}

#[test]
fn a_newer_chunk_that_nobody_was_promised_is_not_cut_off() {
    let dir = filled();
    tamper(dir.path(), |bytes| {
        let mut newer = bytes[..frames_len(1..2)].to_vec();
        newer[3] = 2;
        bytes.extend(newer);
    });
    assert!(matches!(refusal(dir.path()), JournalError::NewerVersion { found: 2, .. }));
}

#[test]
fn a_hole_is_refused_and_named() {
    let dir = filled();
    tamper(dir.path(), |bytes| {
        bytes.drain(frames_len(1..3)..frames_len(1..4));
    });
    let error = refusal(dir.path());
    assert!(matches!(error, JournalError::Damaged { chunk: 3, .. }), "{error}");
    assert!(error.to_string().contains("chunk 3 gave way to chunk 4"), "{error}");
}

#[test]
fn a_segment_that_is_missing_is_refused_and_named() {
    // Without the first, the middle or all but the last; the last is a lost end.
    for (gone, missing) in [(vec![1], 1), (vec![2], 2), (vec![1, 2], 1)] {
        let dir = filled();
        split(dir.path(), 1, 2);
        split(dir.path(), 2, 4);
        gone.iter().for_each(|first| std::fs::remove_file(dir.path().join(segment(*first))).unwrap());
        let error = refusal(dir.path());
        assert!(matches!(error, JournalError::Damaged { chunk, .. } if chunk == missing), "{error}");
    }
}

#[test]
fn a_segment_that_lost_its_end_is_refused() {
    let dir = filled();
    split(dir.path(), 1, 4);
    tamper(dir.path(), |bytes| bytes.truncate(frames_len(1..3)));
    let error = refusal(dir.path());
    assert!(matches!(error, JournalError::Damaged { chunk: 3, .. }), "{error}");
}

#[test]
fn bytes_between_two_segments_are_refused() {
    let dir = filled();
    split(dir.path(), 1, 4);
    tamper(dir.path(), |bytes| bytes.extend(b"torn"));
    let error = refusal(dir.path());
    assert!(matches!(error, JournalError::Damaged { chunk: 4, .. }), "{error}");
}

#[test]
fn a_promised_chunk_that_is_bad_is_refused_with_its_place() {
    let dir = filled();
    tamper(dir.path(), |bytes| bytes[frames_len(1..5) + 40] ^= 1);
    let error = refusal(dir.path());
    assert!(matches!(error, JournalError::Damaged { chunk: 5, .. }), "{error}");
    let place = format!("{}, byte {}", segment(1).display(), frames_len(1..5));
    assert!(error.to_string().contains(&place), "{error}");
}

#[test]
fn a_lost_end_is_refused() {
    let dir = filled();
    tamper(dir.path(), |bytes| bytes.truncate(frames_len(1..5)));
    let error = refusal(dir.path());
    assert!(matches!(error, JournalError::LessThanPromised { found: 4, promised: 5, .. }), "{error}");
}

#[test]
fn a_bad_chunk_that_nobody_was_promised_is_refused_with_fsync_if_others_follow() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), Ack::Write).unwrap();
    fill(&mut journal, 5, 100);
    drop(journal);
    let image = Image::of(dir.path());
    for at in frames_len(1..4)..frames_len(1..5) {
        let mut bad = image.clone();
        // Any other bit of the version would make it a newer one, which is another refusal.
        bad.file(&segment(1))[at] ^= 1;
        let error = refusal(bad.write().path());
        assert!(matches!(error, JournalError::Damaged { chunk: 4, .. }), "byte {at}: {error}");
        assert!(error.to_string().contains("chunk 5 follows it"), "byte {at}: {error}");
        // Without fsync the operating system may have written chunk 5 first.
        assert_eq!(open(bad.write().path(), Ack::Write).unwrap().1, expected(1..=3), "byte {at}");
    }
    // The last one has nothing behind it, so it may have been torn.
    for at in frames_len(1..5)..frames_len(1..6) {
        let mut bad = image.clone();
        bad.file(&segment(1))[at] ^= 1;
        assert_eq!(open(bad.write().path(), Ack::Write).unwrap().1, expected(1..=4), "byte {at}");
    }
}

#[test]
fn a_segment_that_was_begun_and_torn_is_gone_on_with() {
    for torn in [b"".as_slice(), b"to", &[0; 500]] {
        let dir = filled();
        std::fs::write(dir.path().join(segment(6)), torn).unwrap();
        let (mut journal, chunks) = open(dir.path(), Ack::Fsync).unwrap();
        assert_eq!(chunks, expected(1..=5));
        fill(&mut journal, 7, 100);
        drop(journal);
        assert_eq!(open(dir.path(), Ack::Fsync).unwrap().1, expected(1..=7));
    }
}

#[test]
fn a_segment_in_the_wrong_place_is_refused() {
    let dir = filled();
    std::fs::write(dir.path().join(segment(8)), b"").unwrap();
    assert!(matches!(refusal(dir.path()), JournalError::Damaged { chunk: 6, .. }));
}

#[test]
fn segments_before_the_first_are_removed_unread() {
    let dir = scratch();
    let (mut journal, _) = open(dir.path(), Ack::Fsync).unwrap();
    fill(&mut journal, 9, 3);
    drop(journal);
    split(dir.path(), 1, 6);
    tamper(dir.path(), |bytes| *bytes = b"left over".to_vec());
    assert_eq!(open(dir.path(), Ack::Fsync).unwrap().1, expected(7..=9));
    assert!(!dir.path().join(segment(1)).exists());
}

#[test]
fn a_missing_high_water_file_is_refused() {
    let dir = filled();
    std::fs::remove_file(dir.path().join("high-water")).unwrap();
    let error = refusal(dir.path());
    assert!(matches!(error, JournalError::NoHighWater { what: "missing", .. }), "{error}");
}

#[test]
fn a_spoilt_high_water_file_is_refused() {
    let dir = filled();
    std::fs::write(dir.path().join("high-water"), "nothing to see").unwrap();
    let error = refusal(dir.path());
    assert!(matches!(error, JournalError::NoHighWater { .. }), "{error}");
}

#[test]
fn a_creation_that_was_cut_short_is_begun_again() {
    let dir = scratch();
    std::fs::write(dir.path().join("high-water.new"), "half").unwrap();
    std::fs::write(dir.path().join("lock"), "").unwrap();
    let (mut journal, _) = open(dir.path(), Ack::Fsync).unwrap();
    fill(&mut journal, 3, 9);
    drop(journal);
    assert_eq!(open(dir.path(), Ack::Fsync).unwrap().1.len(), 3);
}

#[test]
fn a_log_without_chunks_gets_its_missing_mark_or_segment() {
    for missing in [Path::new("high-water"), &segment(1)] {
        let dir = scratch();
        drop(open(dir.path(), Ack::Fsync).unwrap());
        std::fs::remove_file(dir.path().join(missing)).unwrap();
        open(dir.path(), Ack::Fsync).unwrap();
        assert!(dir.path().join(missing).exists());
    }
}

#[test]
fn a_file_in_place_of_the_directory_is_named() {
    let dir = scratch();
    let path = dir.path().join("file");
    std::fs::write(&path, "").unwrap();
    for place in [path.clone(), path.join("below")] {
        assert!(matches!(refusal(&place), JournalError::Io { .. }));
    }
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    // Of all places, this one is read-only for root too.
    let place = Path::new("/proc/self/journal");
    let error = FileJournal::open(place, Ack::Fsync, |_, _| Ok::<_, String>(())).err().unwrap();
    assert!(matches!(error, JournalError::Io { what: "create the directory", .. }), "{error}");
}
