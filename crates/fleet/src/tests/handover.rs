//! An owner stops in order, and its successor reads the journal ahead.

use super::*;
use crate::TakeReason;

/// An owner that lives, on run `a`, and wants to be followed.
fn stopping(number: u64, successor: ProcessId, released: bool) -> Look {
    let mut look = Look { listeners: 1, ..gone("a", number, 1) };
    let view = look.term.as_mut().unwrap();
    (view.successor, view.released) = (Some(successor), released);
    look
}

/// What an owner sees when its successor has read up to `number`; `None` if it has not begun.
fn seen(process: &Process, number: Option<u64>) -> Look {
    let (term, epoch) = process.machine.holds().unwrap();
    let mut look = Look { listeners: 1, ..gone("a", 5, epoch) };
    look.term.as_mut().unwrap().term = term;
    let position = |number| Position { epoch: 1, number };
    look.claims.extend(number.map(|number| Claim { process: OTHER, position: position(number) }));
    look
}

#[test]
fn an_owner_that_stops_goes_on_until_its_successor_has_read_the_journal() {
    let mut owner = Process::owner(Ack::Write, 5);
    owner.machine.stop(Some(OTHER));
    let (term, _) = owner.machine.holds().unwrap();
    assert_eq!(owner.send(), Command::Name { term, successor: OTHER });
    owner.lost();
    assert_eq!(owner.send(), Command::Name { term, successor: OTHER });
    owner.reply(Reply::Named);
    owner.changes = vec![11];
    assert_eq!(owner.appends().chunk, Some(chunk(6, 11)), "it goes on deciding");
    owner.stored();
    for read in [None, Some(0), Some(3)] {
        assert_eq!(owner.send(), Command::Look);
        let look = seen(&owner, read);
        owner.reply(Reply::Looked(look));
        assert!(owner.machine.owns());
    }
    assert_eq!(owner.send(), Command::Look);
    let ready = seen(&owner, Some(5));
    owner.changes = vec![12];
    owner.reply(Reply::Looked(ready));
    assert_eq!(owner.appends().chunk, Some(chunk(7, 12)), "what is staged goes first");
    owner.stored();
    assert_eq!(owner.send(), Command::Release { term, successor: Some(OTHER) });
}

#[test]
fn an_owner_does_not_wait_for_a_successor_that_does_not_get_on() {
    for reads in [None, Some(3)] {
        let mut owner = Process::owner(Ack::Write, 5);
        owner.machine.stop(Some(OTHER));
        owner.send();
        owner.reply(Reply::Named);
        let named = owner.now;
        let released = loop {
            match owner.send() {
                Command::Look => {
                    let look = seen(&owner, reads);
                    owner.reply(Reply::Looked(look));
                }
                Command::Append(_) => owner.stored(),
                other => break other,
            }
        };
        assert!(
            matches!(released, Command::Release { successor: None, .. }),
            "anybody may follow: {released:?}"
        );
        assert!((named + TERM..named + TERM + TERM / 4).contains(&owner.now), "{}", owner.now - named);
    }
}

#[test]
fn another_successor_is_named_if_the_first_one_goes() {
    let mut owner = Process::owner(Ack::Write, 5);
    owner.machine.stop(Some(OTHER));
    owner.send();
    owner.reply(Reply::Named);
    owner.machine.stop(Some(ProcessId(3)));
    assert!(matches!(owner.send(), Command::Name { successor: ProcessId(3), .. }));
}

/// A successor that has read ahead up to `number`.
fn prepared(number: u64) -> Process {
    let mut process = Process::new(Ack::Write);
    assert_eq!(process.send(), Command::Look);
    process.reply(Reply::Looked(stopping(number, ME, false)));
    assert!(process.machine.events().contains(&Event::ReadsAhead));
    let claim = |number| {
        let epoch = u64::from(number > 0);
        Command::Claim(Claim { process: ME, position: Position { epoch, number } })
    };
    assert_eq!(process.send(), claim(0));
    process.reply(Reply::Claimed);
    process.read(number);
    assert_eq!(process.send(), claim(number));
    process.reply(Reply::Claimed);
    assert_eq!(process.send(), Command::Look);
    process
}

#[test]
fn a_successor_reads_only_the_rest_when_the_term_is_released() {
    let mut process = prepared(5);
    process.reply(Reply::Looked(stopping(6, ME, false)));
    let (fifth, sixth) = (Position { epoch: 1, number: 5 }, Position { epoch: 1, number: 6 });
    assert_eq!(process.send(), Command::Read { after: fifth }, "it keeps up");
    process.reply(Reply::Read { last: sixth, end: true });
    assert!(matches!(process.send(), Command::Claim(_)));
    process.reply(Reply::Claimed);
    let asked = process.now;
    assert_eq!(process.send(), Command::Look);
    process.reply(Reply::Looked(stopping(7, ME, true)));
    assert!(matches!(process.send(), Command::Listen(_)));
    process.reply(Reply::Listening);
    assert!(matches!(process.send(), Command::Take(take) if take.reason == TakeReason::Released));
    process.machine.events();
    process.reply(Reply::Taken { epoch: 9, number: 7 });
    assert_eq!(process.machine.events(), [Event::Loading { epoch: 9, after: sixth }]);
    assert_eq!(process.send(), Command::Read { after: sixth });
    process.reply(Reply::Read { last: Position { epoch: 1, number: 7 }, end: true });
    assert_eq!(process.send(), Command::Build { epoch: 9 });
    process.reply(Reply::Built(true));
    assert!(process.renews());
    process.stored();
    process.step();
    assert!(process.machine.owns() && process.now < asked + TERM / 4);
}

#[test]
fn what_was_read_ahead_of_another_term_or_run_is_read_again() {
    let other_run = Look { run: "b".into(), ..stopping(5, ME, true) };
    let mut other_term = stopping(5, ME, true);
    other_term.term.as_mut().unwrap().term = TermId(98);
    for look in [other_run, other_term] {
        let mut process = prepared(5);
        process.reply(Reply::Looked(look.clone()));
        assert!(process.machine.events().contains(&Event::ReadInVain));
        process.take(&look, 5);
        assert_eq!(process.send(), Command::Read { after: Position::default() });
    }
}

#[test]
fn a_successor_whose_owner_dies_takes_over_as_usual() {
    let mut process = prepared(5);
    let mut look = stopping(5, ME, false);
    look.listeners = 0;
    process.reply(Reply::Looked(look.clone()));
    process.take(&look, 5);
    assert_eq!(process.send(), Command::Read { after: Position::default() });
}
