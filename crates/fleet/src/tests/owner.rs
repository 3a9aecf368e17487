//! What an owner appends and tells.

use super::*;

#[test]
fn answers_wait_until_what_the_server_lost_is_appended_again() {
    for ack in [Ack::Write, Ack::Fsync, Ack::Replicate] {
        let mut process = Process::owner(ack, 5);
        if ack == Ack::Replicate {
            assert_eq!(process.send(), Command::Confirm);
            process.reply(Reply::Confirmed(true));
        }
        process.changes = vec![12, 11];
        process.appends();
        process.stored();
        if ack == Ack::Replicate {
            assert_eq!(process.send(), Command::Confirm);
            process.reply(Reply::Confirmed(true));
        }
        assert_eq!(process.appends().chunk, Some(chunk(7, 12)));
        process.refused(Refusal::Regressed);
        process.take(&restarted(6), 6);
        assert_eq!(process.send(), Command::Tail);
        process.now += TERM;
        process.lost();
        let renewal = process.appends();
        assert!(renewal.chunk.is_none() && renewal.answers.is_empty());
        process.stored();
        assert_eq!(process.send(), Command::Tail);
        process.reply(Reply::Tail(Some((6, 11))));
        let again = process.appends();
        assert_eq!((again.chunk, again.answers.len()), (Some(chunk(7, 12)), 0));
        process.stored();
        if ack == Ack::Replicate {
            assert_eq!(process.send(), Command::Confirm);
            process.reply(Reply::Confirmed(true));
        }
        assert!(process.appends().answers.contains(&answer(12)));
    }
}

#[test]
fn answers_wait_for_the_end_of_a_snapshot() {
    let mut process = Process::owner(Ack::Write, 5);
    process.changes = vec![11];
    process.appends();
    process.refused(Refusal::Empty);
    process.take(&Look { term: None, ..gone("a", 0, 1) }, 0);
    assert_eq!(process.send(), Command::Tail);
    process.reply(Reply::Tail(None));
    process.parts = vec![22, 21];
    for byte in [21, 22] {
        let part = process.appends();
        assert_eq!((part.chunk.map(|chunk| chunk.bytes[0]), part.answers.len()), (Some(byte), 0));
        process.stored();
    }
    assert_eq!(&*process.appends().answers, [answer(11), answer(21), answer(22)]);
}

#[test]
fn an_unfinished_snapshot_is_begun_again_and_not_repeated() {
    let mut process = Process::owner(Ack::Write, 5);
    process.changes = vec![11];
    process.appends();
    process.refused(Refusal::Empty);
    process.take(&Look { term: None, ..gone("a", 0, 1) }, 0);
    assert_eq!(process.send(), Command::Tail);
    process.reply(Reply::Tail(None));
    process.parts = vec![22, 21];
    process.appends();
    process.stored();
    process.refused_append(Refusal::Regressed);
    process.take(&restarted(1), 1);
    assert_eq!(process.send(), Command::Tail);
    process.reply(Reply::Tail(Some((1, 21))));
    process.parts = vec![23];
    assert_eq!(process.appends().chunk, Some(chunk(2, 23)));
}

#[test]
fn stopping_while_loading_leaves_nothing_to_claim() {
    let mut process = Process::new(Ack::Write);
    process.take(&gone("a", 5, 1), 5);
    process.machine.stop(None);
    assert!(matches!(process.send(), Command::Release { .. }));
    process.refused(Refusal::Regressed);
    process.step();
    assert!(process.machine.is_stopped());
}

#[test]
fn a_process_that_stops_saves_what_the_server_lost_first() {
    let mut process = Process::owner(Ack::Write, 5);
    process.refused_append(Refusal::Regressed);
    process.machine.stop(None);
    process.take(&restarted(4), 4);
    assert_eq!(process.send(), Command::Tail);
}

#[test]
fn a_repeated_append_tells_of_no_unheard_answers() {
    let mut process = Process::owner(Ack::Write, 5);
    process.changes = vec![11];
    process.appends();
    process.lost();
    process.appends();
    process.reply(Reply::Appended { listeners: 1, unheard: vec![0] });
    assert!(!process.machine.events().iter().any(|event| matches!(event, Event::Unheard(_))));
    process.changes = vec![12];
    process.appends();
    process.reply(Reply::Appended { listeners: 1, unheard: vec![0] });
    assert!(process.machine.events().contains(&Event::Unheard(vec![answer(12)])));
}

#[test]
fn a_replica_is_waited_for_only_after_a_write_on_the_same_connection() {
    let mut process = Process::owner(Ack::Replicate, 5);
    assert_eq!(process.send(), Command::Confirm);
    process.lost();
    assert!(process.renews());
    process.stored();
    assert_eq!(process.send(), Command::Confirm);
}

#[test]
fn what_a_replica_has_is_told_after_the_term_was_found_to_hold() {
    let mut process = Process::owner(Ack::Replicate, 5);
    process.changes = vec![11];
    assert_eq!(process.send(), Command::Confirm);
    process.reply(Reply::Confirmed(true));
    process.appends();
    process.stored();
    process.machine.events();
    assert_eq!(process.send(), Command::Confirm);
    process.reply(Reply::Confirmed(true));
    assert_eq!(process.machine.events(), []);
    assert_eq!(&*process.appends().answers, [answer(11)]);
    process.stored();
    assert!(process.machine.events().contains(&Event::Durable { batches: 1 }));
}
