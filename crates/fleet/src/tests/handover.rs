//! Planned changes of owner: the successor reads the journal ahead.

use super::*;
use crate::TakeReason;

/// A live owner on run `a` that named a successor.
fn stopping(number: u64, successor: ProcessId, released: bool) -> Look {
    let mut look = Look { listeners: 1, ..gone("a", number, 1) };
    let view = look.term.as_mut().unwrap();
    (view.successor, view.released) = (Some(successor), released);
    look
}

/// What an owner sees when its successor has an engine up to `number`; `None` if the successor claims nothing.
fn seen(process: &Process, number: Option<u64>) -> Look {
    let (term, epoch) = process.machine.holds().unwrap();
    let mut look = Look { listeners: 1, ..gone("a", 5, epoch) };
    look.term.as_mut().unwrap().term = term;
    let position = |number| Position { epoch: 1, number };
    look.claims.extend(number.map(|number| Claim { process: OTHER, position: position(number) }));
    look
}

#[test]
fn an_owner_that_stops_stays_owner_until_its_successor_has_read_the_journal() {
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
fn an_owner_waits_for_a_live_successor_but_not_forever() {
    const AT_MOST: u64 = 10_000;
    for (claims, waits, successor) in [(None, TERM, None), (Some(3), AT_MOST, Some(OTHER))] {
        let mut owner = Process::owner(Ack::Write, 5);
        owner.machine.stop(Some(OTHER));
        owner.send();
        owner.reply(Reply::Named);
        let (named, (term, _)) = (owner.now, owner.machine.holds().unwrap());
        let released = loop {
            match owner.send() {
                Command::Look => {
                    let look = seen(&owner, claims);
                    owner.reply(Reply::Looked(look));
                }
                Command::Append(_) => owner.stored(),
                other => break other,
            }
        };
        assert_eq!(released, Command::Release { term, successor }, "without one anybody may follow");
        assert!((named + waits..named + waits + TERM / 4).contains(&owner.now), "{}", owner.now - named);
    }
}

#[test]
fn an_owner_that_stops_releases_its_term_although_something_is_always_staged() {
    for ack in [Ack::Write, Ack::Fsync, Ack::Replicate] {
        let mut owner = Process::owner(ack, 5);
        owner.machine.stop(None);
        let (stopped, mut confirms) = (owner.now, 0);
        loop {
            owner.changes = vec![11];
            match owner.send() {
                Command::Append(_) => owner.stored(),
                Command::Confirm => {
                    confirms += 1;
                    owner.reply(Reply::Confirmed(confirms % 4 == 0));
                }
                other => {
                    assert!(matches!(other, Command::Release { successor: None, .. }), "{other:?}");
                    break;
                }
            }
            owner.now += 10;
            assert!(owner.now < stopped + TERM, "it stays the owner");
        }
        assert!(owner.now >= stopped + TERM / 4, "what is staged goes first");
    }
}

#[test]
fn another_successor_is_named_if_the_first_one_stops() {
    let mut owner = Process::owner(Ack::Write, 5);
    owner.machine.stop(Some(OTHER));
    owner.send();
    owner.reply(Reply::Named);
    owner.machine.stop(Some(ProcessId(3)));
    assert!(matches!(owner.send(), Command::Name { successor: ProcessId(3), .. }));
}

/// An owner that has renewed its term.
fn owning() -> Process {
    let mut owner = Process::owner(Ack::Write, 5);
    assert!(owner.renews());
    owner.stored();
    owner.machine.events();
    owner
}

#[test]
fn an_owner_that_steps_down_follows_its_successor() {
    let mut owner = owning();
    owner.machine.step_down(OTHER);
    let (term, _) = owner.machine.holds().unwrap();
    assert_eq!(owner.send(), Command::Name { term, successor: OTHER });
    owner.reply(Reply::Named);
    assert_eq!(owner.send(), Command::Look);
    let ready = seen(&owner, Some(5));
    owner.reply(Reply::Looked(ready));
    assert_eq!(owner.send(), Command::Release { term, successor: Some(OTHER) });
    owner.reply(Reply::Released);
    assert_eq!(owner.machine.events(), [Event::Released, Event::Lost]);
    assert_eq!(owner.send(), Command::Look, "it reads which process owns");
    let mut next = Look { listeners: 1, ..gone("a", 5, 2) };
    let view = next.term.as_mut().unwrap();
    (view.term, view.from) = (TermId(98), vec![(term, 0), (TermId(98), 5)]);
    owner.looked(&next);
    let events = owner.machine.events();
    assert!(matches!(&events[..], [Event::Superseded { missing: false }, Event::Follows(_)]), "{events:?}");
    assert!(!owner.machine.is_stopped());
}

#[test]
fn an_owner_that_steps_down_stays_owner_if_nobody_gets_ready() {
    for claims in [None, Some(3)] {
        let mut owner = owning();
        owner.machine.step_down(OTHER);
        owner.send();
        owner.reply(Reply::Named);
        let named = owner.now;
        while owner.now < named + 20_000 {
            match owner.send() {
                Command::Look => {
                    let look = seen(&owner, claims);
                    owner.reply(Reply::Looked(look));
                }
                Command::Append(_) => owner.stored(),
                other => panic!("{other:?}"),
            }
        }
        assert!(owner.machine.owns());
    }
}

fn claim(number: u64) -> Command {
    let epoch = u64::from(number > 0);
    Command::Claim(Claim { process: ME, position: Position { epoch, number } })
}

const AHEAD: Command = Command::Build { epoch: None };

/// A successor whose engine has chunk `number`, about to look.
fn prepared(number: u64) -> Process {
    let mut process = Process::new(Ack::Write);
    assert_eq!(process.send(), Command::Look);
    process.reply(Reply::Looked(stopping(number, ME, false)));
    assert!(process.machine.events().contains(&Event::ReadsAhead));
    assert_eq!(process.send(), claim(0));
    process.reply(Reply::Claimed(true));
    assert_eq!(process.send(), Command::Read { after: Position::default() });
    process.reply(Reply::Read { last: Position { epoch: 1, number }, end: true });
    for built in [false, true] {
        assert_eq!(process.send(), AHEAD);
        assert_eq!(process.machine.events(), []);
        process.reply(Reply::Built(built));
    }
    assert_eq!(process.machine.events(), [Event::Ready]);
    assert_eq!(process.send(), claim(number), "not before");
    process.reply(Reply::Claimed(true));
    assert_eq!(process.send(), Command::Look);
    process
}

#[test]
fn a_successor_reads_only_the_rest_after_the_release() {
    let mut process = prepared(5);
    process.reply(Reply::Looked(stopping(6, ME, false)));
    let (fifth, sixth) = (Position { epoch: 1, number: 5 }, Position { epoch: 1, number: 6 });
    assert_eq!(process.send(), Command::Read { after: fifth }, "it keeps up");
    process.reply(Reply::Read { last: sixth, end: false });
    assert_eq!(process.send(), AHEAD, "that is as far as the journal was");
    process.reply(Reply::Built(true));
    assert!(!process.machine.events().contains(&Event::Ready), "it is reported once");
    assert_eq!(process.send(), claim(6));
    process.reply(Reply::Claimed(true));
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
    assert_eq!(process.send(), Command::Build { epoch: Some(9) });
    process.reply(Reply::Built(true));
    assert!(process.renews());
    process.stored();
    process.step();
    assert!(process.machine.owns() && process.now < asked + TERM / 4);
}

/// The owner may append faster than the successor reads, and may have cleaned the journal before the first page was
/// read.
#[test]
fn a_successor_reads_up_to_a_chunk_it_saw_after_its_first_page() {
    let mut process = Process::new(Ack::Write);
    process.send();
    process.reply(Reply::Looked(stopping(5, ME, false)));
    process.send();
    process.reply(Reply::Claimed(true));
    let page = |number| Reply::Read { last: Position { epoch: 1, number }, end: false };
    let read = |number| Command::Read { after: Position { epoch: u64::from(number > 0), number } };
    for number in [0, 5] {
        assert_eq!(process.send(), read(number));
        process.reply(page(number + 5));
    }
    process.now += 20;
    assert_eq!(process.send(), Command::Look, "also while it reads");
    process.reply(Reply::Looked(stopping(12, ME, false)));
    assert_eq!(process.send(), read(10));
    process.reply(page(15));
    assert_eq!(process.send(), AHEAD);
    process.reply(Reply::Read { last: Position::default(), end: true });
    process.now += 20;
    assert_eq!(process.send(), Command::Look);
    process.reply(Reply::Looked(stopping(16, ME, false)));
    assert_eq!(process.send(), read(0), "what was read could not be used");
    process.reply(page(16));
    assert_eq!(process.send(), read(16), "it is not known whether that is whole");
}

#[test]
fn a_successor_that_is_not_ready_continues_after_the_release() {
    let mut process = Process::new(Ack::Write);
    process.send();
    process.reply(Reply::Looked(stopping(5, ME, false)));
    process.send();
    process.reply(Reply::Claimed(true));
    let fifth = Position { epoch: 1, number: 5 };
    assert_eq!(process.send(), Command::Read { after: Position::default() });
    process.reply(Reply::Read { last: fifth, end: true });
    let mut claims = 0;
    while process.now < 10_000 + TERM {
        match process.send() {
            AHEAD => {
                process.now += 5;
                process.reply(Reply::Built(false));
            }
            Command::Look => process.reply(Reply::Looked(stopping(5, ME, false))),
            command => {
                assert_eq!(command, claim(0), "it has no engine yet");
                claims += 1;
                process.reply(Reply::Claimed(true));
            }
        }
    }
    assert_eq!(claims, 3, "it is heard");
    let released = stopping(5, ME, true);
    process.take(&released, 5);
    assert!(process.machine.events().contains(&Event::Loading { epoch: process.now, after: fifth }));
    assert!(matches!(process.send(), Command::Build { epoch: Some(_) }));
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
