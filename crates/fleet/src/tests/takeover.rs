//! Following, settling, taking over and reading.

use super::*;

#[test]
fn what_was_read_from_another_run_is_not_claimed() {
    let mut process = Process::new(Ack::Write);
    process.take(&gone("a", 5, 1), 5);
    process.read(5);
    assert!(!process.machine.owns());
    process.refused_append(Refusal::Regressed);
    assert!(process.machine.events().contains(&Event::Lost));
    assert_eq!(process.send(), Command::Look);
    process.looked(&restarted(3));
    let nothing = Claim { process: ME, position: Position::default() };
    assert_eq!(process.send(), Command::Claim(nothing));
}

#[test]
fn a_journal_shorter_than_its_term_is_read_again() {
    let mut process = Process::new(Ack::Write);
    process.take(&gone("a", 5, 1), 5);
    process.read(3);
    process.read(5);
    assert!(process.renews());
}

#[test]
fn settling_restarts_when_the_server_restarts_again_or_does_not_answer() {
    let mut process = Process::owner(Ack::Write, 5);
    process.refused_append(Refusal::Regressed);
    let claims = vec![Claim { process: OTHER, position: Position::default() }];
    let look = |run: &str| Look { claims: claims.clone(), run: run.into(), ..restarted(4) };
    let begun = process.now;
    for _ in 0..3 {
        let Command::Claim(claim) = process.send() else { panic!("it does not claim") };
        process.claimed(claim);
        assert_eq!(process.send(), Command::Look);
        process.looked(&look("b"));
    }
    assert!(process.now > begun + TERM / 4);
    process.take(&look("c"), 4);
    let since_another_run = begun + 3 * TERM / 4 + TERM;
    assert!(process.now >= since_another_run, "{} {since_another_run}", process.now);
}

#[test]
fn a_live_process_with_more_state_goes_first_however_long_it_takes() {
    let mut process = Process::owner(Ack::Write, 5);
    process.refused_append(Refusal::Regressed);
    let more = Claim { process: OTHER, position: Position { epoch: u64::MAX, number: 1 } };
    let look = Look { claims: vec![more], ..restarted(4) };
    for _ in 0..40 {
        match process.send() {
            Command::Claim(claim) => process.claimed(claim),
            Command::Look => process.looked(&look),
            other => panic!("{other:?}"),
        }
    }
    let silent_since = process.now;
    process.take(&restarted(4), 4);
    assert!(process.now >= silent_since + TERM);
}

#[test]
fn a_process_that_cannot_subscribe_does_not_block_others() {
    let mut process = Process::owner(Ack::Write, 5);
    process.refused_append(Refusal::Regressed);
    let mut claims = Vec::new();
    for _ in 0..60 {
        match process.send() {
            Command::Claim(claim) => {
                claims.push((process.now, claim.position.number));
                process.claimed(claim);
            }
            Command::Look => process.looked(&restarted(4)),
            Command::Listen(_) => {
                claims.push((process.now, u64::MAX));
                process.lost();
            }
            other => panic!("{other:?}"),
        }
    }
    let mut failed = claims.iter().filter(|(_, number)| *number == u64::MAX).map(|(at, _)| *at);
    let (first, second) = (failed.next().unwrap(), failed.next().unwrap());
    assert!(second >= first + TERM, "it tries again at once");
    for (at, number) in claims.iter().filter(|(_, number)| *number != u64::MAX) {
        assert_eq!(*number, if *at <= second { 5 } else { 0 }, "at {at}, {first} {second}");
    }
    process.take(&restarted(4), 4);
    assert!(process.machine.holds().is_some(), "it takes over with what it has once it can subscribe");
    assert_eq!(process.send(), Command::Tail);
}

#[test]
fn a_process_that_cannot_read_the_journal_does_not_take_it_after_a_restart() {
    let mut process = Process::new(Ack::Write);
    let mut look = restarted(4);
    look.term.as_mut().unwrap().reader = 2;
    for _ in 0..40 {
        match process.send() {
            Command::Claim(claim) => process.claimed(claim),
            Command::Look => process.looked(&look),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_owner_is_not_silent_because_its_follower_or_the_server_was_paused() {
    let mut process = Process::new(Ack::Write);
    let look = Look { listeners: 1, ..gone("a", 5, 1) };
    assert_eq!(process.send(), Command::Look);
    process.reply(Reply::Looked(look.clone()));
    process.now += 10 * TERM;
    assert_eq!(process.send(), Command::Look);
    process.reply(Reply::Looked(look));
    assert_eq!(process.send(), Command::Look);
}

#[test]
fn an_empty_server_is_taken_at_once_only_by_a_process_that_never_saw_a_term() {
    let empty = Look { term: None, listeners: 0, connected: 1, ..gone("a", 0, 1) };
    let mut fresh = Process::new(Ack::Write);
    let begun = fresh.now;
    fresh.take(&empty, 0);
    assert!((begun + 200..begun + TERM).contains(&fresh.now));

    let mut knowing = Process::new(Ack::Write);
    let begun = knowing.now;
    assert_eq!(knowing.send(), Command::Look);
    knowing.reply(Reply::Looked(Look { listeners: 1, ..gone("a", 5, 1) }));
    assert_eq!(knowing.send(), Command::Look);
    knowing.lost();
    knowing.take(&empty, 0);
    assert!(knowing.now >= begun + TERM);
}

#[test]
fn an_old_owner_does_not_overwrite_a_journal_that_continued_without_it() {
    let mut process = Process::owner(Ack::Write, 5);
    process.refused_append(Refusal::Regressed);
    assert!(matches!(process.send(), Command::Claim(_)));
    process.reply(Reply::Claimed(true));
    assert_eq!(process.send(), Command::Look);
    process.reply(Reply::Looked(Look { run: "b".into(), ..gone("a", 9, u64::MAX) }));
    assert!(process.machine.events().contains(&Event::Lost));
    assert!(process.machine.holds().is_none());
}

#[test]
fn an_outdated_look_does_not_lead_to_a_take() {
    for answered in [true, false] {
        let mut process = Process::new(Ack::Write);
        let empty = Look { term: None, listeners: 0, connected: 1, ..gone("a", 0, 1) };
        while process.send() == Command::Look {
            process.reply(Reply::Looked(empty.clone()));
        }
        process.now += TERM / 4;
        if answered {
            process.reply(Reply::Listening);
        } else {
            process.lost();
        }
        assert_eq!(process.send(), Command::Look);
    }
}

#[test]
fn settling_restarts_when_the_server_is_emptied_again() {
    let mut process = Process::new(Ack::Write);
    let empty = Look { term: None, ..gone("a", 0, 1) };
    for _ in 0..8 {
        match process.send() {
            Command::Look => process.looked(&empty),
            Command::Claim(claim) => process.claimed(claim),
            other => panic!("{other:?}"),
        }
    }
    while process.send() != Command::Look {
        process.reply(Reply::Claimed(true));
    }
    process.claim = None;
    process.looked(&empty);
    let emptied = process.now;
    process.take(&empty, 0);
    assert!(process.now >= emptied + TERM);
}

#[test]
fn settling_restarts_when_the_server_is_emptied_between_a_look_and_a_claim() {
    let mut process = Process::new(Ack::Write);
    let empty = Look { term: None, ..gone("a", 0, 1) };
    let mut looks = 0;
    while looks < 4 {
        match process.send() {
            Command::Look => {
                looks += 1;
                process.looked(&empty);
            }
            Command::Claim(claim) => process.claimed(claim),
            other => panic!("{other:?}"),
        }
    }
    process.claim = None;
    let emptied = process.now;
    process.take(&empty, 0);
    assert!(process.now >= emptied + TERM);
}

#[test]
fn a_tenure_that_ends_before_its_chunks_are_restored_misses_them() {
    let mut process = Process::owner(Ack::Write, 5);
    process.changes = vec![13, 12, 11];
    for _ in 0..3 {
        process.appends();
        process.stored();
    }
    process.refused_append(Refusal::Regressed);
    process.take(&restarted(6), 6);
    let Some((term, _)) = process.machine.holds() else { panic!("it holds the term") };
    assert_eq!(process.send(), Command::Tail);
    process.reply(Reply::Tail(Some((6, 11))));
    process.appends();
    process.stored();
    process.refused_append(Refusal::Fenced);
    process.machine.events();
    assert_eq!(process.send(), Command::Look);
    let mut look = Look { listeners: 1, ..gone("b", 7, 9) };
    look.term.as_mut().unwrap().from = vec![(term, 6), (TermId(99), 7)];
    process.looked(&look);
    assert!(process.machine.events().contains(&Event::Superseded { missing: true }));
}

#[test]
fn settling_restarts_when_the_server_does_not_answer() {
    let mut process = Process::new(Ack::Write);
    let empty = Look { term: None, ..gone("a", 0, 1) };
    for _ in 0..8 {
        match process.send() {
            Command::Look => process.looked(&empty),
            Command::Claim(claim) => process.claimed(claim),
            other => panic!("{other:?}"),
        }
    }
    process.send();
    process.lost();
    let lost = process.now;
    process.take(&empty, 0);
    assert!(process.now >= lost + TERM);
}

#[test]
fn a_process_paused_during_settling_looks_again_before_it_takes() {
    let mut process = Process::new(Ack::Write);
    let empty = Look { term: None, ..gone("a", 0, 1) };
    assert_eq!(process.send(), Command::Look);
    process.looked(&empty);
    process.now += 10 * TERM;
    let woken = process.now;
    process.take(&empty, 0);
    assert!(process.now > woken + TERM / 4);
}

#[test]
fn an_owner_that_repairs_the_journal_is_not_superseded_because_its_connection_broke() {
    let mut look = gone("a", 5, 1);
    look.term.as_mut().unwrap().repairing = true;
    let mut process = Process::new(Ack::Write);
    let begun = process.now;
    process.take(&look, 5);
    assert!(process.now >= begun + TERM);
}

#[test]
fn an_owner_reports_when_the_journal_has_everything() {
    let mut process = Process::owner(Ack::Write, 5);
    process.changes = vec![12, 11];
    assert!(process.appends().whole);
    process.stored();
    process.refused_append(Refusal::Regressed);
    process.take(&restarted(5), 5);
    assert_eq!(process.send(), Command::Tail);
    process.reply(Reply::Tail(None));
    process.parts = vec![21];
    assert!(!process.appends().whole, "a part of a snapshot");
    process.stored();
    assert!(process.appends().whole);
}

/// The next take of a process, which looks as often as needed.
fn asks_for(process: &mut Process, look: &Look) -> Take {
    for _ in 0..20 {
        match process.send() {
            Command::Look => process.looked(look),
            Command::Claim(claim) => process.claimed(claim),
            Command::Listen(_) => process.reply(Reply::Listening),
            Command::Take(take) => return take,
            other => panic!("{other:?}"),
        }
    }
    panic!("it does not take over");
}

/// What a look shows after `process` has taken `term` on the server that `look` showed.
fn taken(look: &Look, term: TermId) -> Look {
    let mut look = Look { listeners: 1, ..look.clone() };
    let run = look.run.clone();
    let view = look.term.as_mut().unwrap();
    view.from.push((term, view.number));
    (view.term, view.owner, view.run, view.epoch) = (term, ME, run, 77);
    look
}

#[test]
fn a_take_that_the_server_runs_after_another_try_is_resumed() {
    let mut process = Process::new(Ack::Write);
    let look = gone("a", 5, 1);
    let first = asks_for(&mut process, &look).term;
    process.lost();
    let second = asks_for(&mut process, &look).term;
    assert_ne!(first, second);
    // The server ran the first take just before.
    process.reply(Reply::NotTaken);
    assert_eq!(process.send(), Command::Look);
    process.looked(&taken(&look, first));
    assert_eq!(process.machine.holds(), Some((first, 77)));
    process.read(5);
    assert!(process.renews());
    process.stored();
    process.step();
    assert!(process.machine.owns());
}

#[test]
fn a_process_with_state_keeps_it_when_its_take_is_run_after_another_try() {
    let mut process = Process::owner(Ack::Write, 5);
    process.changes = vec![11];
    process.appends();
    process.stored();
    process.refused_append(Refusal::Regressed);
    let look = restarted(5);
    let first = asks_for(&mut process, &look).term;
    process.lost();
    asks_for(&mut process, &look);
    process.reply(Reply::NotTaken);
    process.machine.events();
    while let Command::Claim(claim) = process.send() {
        process.claimed(claim);
    }
    process.looked(&taken(&look, first));
    assert_eq!(process.machine.holds(), Some((first, 77)));
    assert_eq!(process.machine.events(), [], "nothing is lost, and nothing is read again");
    assert_eq!(process.send(), Command::Tail);
    process.reply(Reply::Tail(None));
    process.parts = vec![21];
    assert!(process.appends().chunk.is_some(), "it writes what it has");
}

#[test]
fn a_take_names_the_term_under_which_the_process_wrote_its_state() {
    let mut without = Process::new(Ack::Write);
    assert_eq!(asks_for(&mut without, &restarted(4)).own, None);
    let mut process = Process::owner(Ack::Write, 5);
    for run in ["b", "c"] {
        let Some((own, _)) = process.machine.holds() else { panic!("it holds a term") };
        process.refused_append(Refusal::Regressed);
        let take = asks_for(&mut process, &Look { run: run.into(), ..restarted(4) });
        assert_eq!(take.own, Some(own));
        process.reply(Reply::Taken { epoch: process.now, number: 4 });
        assert_eq!(process.machine.holds(), Some((take.term, process.now)));
        assert_eq!(process.send(), Command::Tail);
        process.reply(Reply::Tail(None));
        process.parts = vec![21];
    }
}

#[test]
fn a_tenure_that_the_journal_does_not_list_misses_its_chunks() {
    for listed in [true, false] {
        let mut process = Process::owner(Ack::Write, 5);
        let Some((term, _)) = process.machine.holds() else { panic!("it holds a term") };
        process.changes = vec![11];
        process.appends();
        process.stored();
        process.refused_append(Refusal::Fenced);
        assert_eq!(process.send(), Command::Look);
        let mut look = Look { listeners: 1, ..gone("a", 7, 9) };
        let from = [(term, 5), (TermId(98), 6), (TermId(99), 7)];
        look.term.as_mut().unwrap().from = from[usize::from(!listed)..].to_vec();
        process.looked(&look);
        assert!(process.machine.events().contains(&Event::Superseded { missing: !listed }));
    }
}
