//! What an owner appends and reports.

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
fn an_unfinished_snapshot_is_started_again_and_not_repeated() {
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
fn a_repeated_append_reports_no_unreceived_answers() {
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
fn replicated_batches_are_reported_after_the_term_was_verified() {
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

#[test]
fn the_term_is_renewed_while_the_engine_is_built() {
    let mut process = Process::new(Ack::Write);
    process.take(&gone("a", 5, 1), 5);
    process.send();
    process.reply(Reply::Read { last: Position { epoch: 1, number: 5 }, end: true });
    for _ in 0..10 {
        while let Command::Build { .. } = process.send() {
            process.now += TERM / 20;
            process.reply(Reply::Built(false));
        }
        assert!(process.renews());
        process.stored();
        assert!(!process.machine.owns());
    }
    assert!(matches!(process.send(), Command::Build { .. }));
    process.reply(Reply::Built(true));
    assert!(process.renews(), "it makes sure that what was read is of its term");
    process.stored();
    process.step();
    assert!(process.machine.owns());
}

#[test]
fn a_journal_that_cannot_be_used_is_read_again() {
    let mut process = Process::new(Ack::Write);
    process.take(&gone("a", 5, 1), 5);
    process.send();
    process.reply(Reply::Read { last: Position { epoch: 1, number: 5 }, end: true });
    assert!(matches!(process.send(), Command::Build { .. }));
    process.reply(Reply::Read { last: Position::default(), end: true });
    process.read(5);
    assert!(process.renews());
}

/// Appends without a subscription until it looks for other processes; returns when it lost the subscription. A replica
/// rarely has everything.
fn goes_deaf(process: &mut Process) -> u64 {
    let since = process.now;
    let mut confirms = 0;
    for _ in 0..300 {
        match process.send() {
            Command::Append(_) => process.reply(Reply::Appended { listeners: 0, unheard: Vec::new() }),
            Command::Confirm => {
                confirms += 1;
                process.reply(Reply::Confirmed(confirms % 4 == 0));
            }
            Command::Look => return since,
            other => panic!("{other:?}"),
        }
        process.now += 10;
        // It is never idle, so only the missing subscription can make it release the term.
        process.changes = vec![11];
    }
    panic!("it never looks");
}

#[test]
fn an_owner_without_subscription_for_a_term_releases_it() {
    for ack in [Ack::Write, Ack::Fsync, Ack::Replicate] {
        let mut process = Process::owner(ack, 5);
        process.changes = vec![11];
        let since = goes_deaf(&mut process);
        assert!(process.now >= since + TERM, "it had time to subscribe again");
        let times = process.machine.events().into_iter().filter(|event| *event == Event::Deaf).count();
        assert!((2..=5).contains(&times), "it was asked to subscribe {times} times");
        process.reply(Reply::Looked(Look { connected: 1, ..gone("a", 5, 1) }));
        if ack != Ack::Write {
            let append = process.appends();
            assert_eq!(append.chunk, None);
            assert!(append.answers.contains(&answer(11)), "what is durable is answered first");
            process.reply(Reply::Appended { listeners: 0, unheard: Vec::new() });
        }
        assert!(matches!(process.send(), Command::Release { successor: None, .. }));
        process.machine.events();
        process.reply(Reply::Released);
        assert_eq!(process.machine.events(), [Event::Released, Event::Lost]);
        assert_eq!(process.send(), Command::Look, "it follows");
    }
}

#[test]
fn an_owner_without_subscription_stays_while_no_other_is_connected_or_once_it_is_subscribed_again() {
    let mut process = Process::owner(Ack::Write, 5);
    goes_deaf(&mut process);
    process.reply(Reply::Looked(Look { connected: 0, ..gone("a", 5, 1) }));
    process.appends();
    process.stored();
    for _ in 0..20 {
        process.appends();
        process.stored();
    }
}

#[test]
fn an_owner_that_takes_back_its_released_term_misses_nothing() {
    let mut process = Process::owner(Ack::Write, 5);
    goes_deaf(&mut process);
    let (term, number) = (process.machine.holds().unwrap().0, 5 + 300);
    process.reply(Reply::Looked(Look { connected: 1, ..gone("a", 5, 1) }));
    assert!(matches!(process.send(), Command::Release { .. }));
    process.reply(Reply::Released);
    let mut look = gone("a", number, 1);
    let view = look.term.as_mut().unwrap();
    (view.term, view.owner, view.released) = (term, ME, true);
    process.take(&look, number);
    assert!(process.machine.events().contains(&Event::Superseded { missing: false }));
}
