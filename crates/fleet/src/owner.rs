//! What the holder of a term does: read the journal, repair it, append to it, release the term.

use std::collections::VecDeque;

use eclusa_core::Time;

use crate::command::{Append, Command, Refusal, Reply};
use crate::follower::Follower;
use crate::handover::Stopping;
use crate::ownership::{LostTenure, Ownership, RETRY, State};
use crate::settings::Ack;
use crate::step::{Event, Step, Wanted, Work};
use crate::tenure::{InFlight, Journal};
use crate::term::Position;

impl Ownership {
    pub(crate) fn next_of_owner(&mut self, now: Time, work: Work<'_>) -> Step {
        if matches!(self.state, State::Loading(_) | State::Building | State::Verifying) && self.stops() {
            self.state = State::Releasing;
            return self.release();
        }
        let probe = self.settings.probe();
        let Some(tenure) = &mut self.tenure else {
            self.state = State::Follower(Follower::default());
            return Step::Idle(now);
        };
        if let Some(InFlight { append, .. }) = &tenure.in_flight {
            return Step::Send(Command::Append(append.clone()));
        }
        if matches!(self.state, State::Releasing) && !tenure.has_answers() {
            return self.release();
        }
        let confirm = tenure.unconfirmed.is_some() && now >= self.confirm_at;
        if confirm && !tenure.write_to_confirm {
            return Step::Send(Command::Confirm);
        }
        if let (State::Owning, Some(stopping)) = (&self.state, &self.stopping)
            && let Some(command) = stopping.next(tenure, now)
        {
            return Step::Send(command);
        }
        if matches!(self.state, State::Owning) && tenure.unconfirmed.is_none() {
            if self.stopping.is_none() && tenure.is_to_be_left(now) {
                return Step::Send(Command::Look);
            }
            if self.stopping.as_mut().is_some_and(|stopping| stopping.is_overdue(probe, now)) {
                self.state = State::Releasing;
                return self.next_of_owner(now, work);
            }
        }
        let renew = now >= tenure.renewed_at + probe || confirm;
        let number = tenure.number + 1;
        let append: Append = match &mut self.state {
            State::Loading(_) | State::Building | State::Comparing if renew => tenure.renewal(self.handed),
            State::Loading(after) => return Step::Send(Command::Read { after: *after }),
            State::Building => return Step::Send(Command::Build { epoch: Some(tenure.epoch) }),
            State::Verifying | State::Releasing => tenure.renewal(self.handed),
            State::Comparing => return Step::Send(Command::Tail),
            State::Repeating(chunks) => match chunks.pop_front() {
                Some(chunk) => tenure.append_again(chunk, self.handed),
                None => return self.own(now, work),
            },
            State::Rewriting(first) => {
                match work(Wanted::Snapshot { number, first: std::mem::take(first) }) {
                    Some(batch) => {
                        self.handed += 1;
                        tenure.append(batch, self.handed, self.settings.ack)
                    }
                    None => return self.own(now, work),
                }
            }
            _ => match work(Wanted::Changes { number }) {
                Some(batch) => {
                    self.handed += 1;
                    tenure.append(batch, self.handed, self.settings.ack)
                }
                None if renew || tenure.has_answers() => tenure.renewal(self.handed),
                None => return self.rest(now + probe),
            },
        };
        tenure.renewed_at = now;
        Step::Send(Command::Append(append))
    }

    /// Everything is sent. A process that stops or steps down releases its term now, unless it waits for its successor.
    fn rest(&mut self, until: Time) -> Step {
        let Some(tenure) = &self.tenure else { return Step::Idle(until) };
        let waits_until = self.stopping.as_ref().and_then(Stopping::waits_until);
        if self.stopping.is_some() && waits_until.is_none() && tenure.unconfirmed.is_none() {
            self.state = State::Releasing;
            return self.release();
        }
        let until = waits_until.map_or(until, |at| until.min(at));
        let until = until.min(tenure.renewed_at + self.settings.probe());
        Step::Idle(if tenure.unconfirmed.is_some() { until.min(self.confirm_at) } else { until })
    }

    fn release(&self) -> Step {
        let successor = self.stopping.and_then(|stopping| stopping.successor);
        match &self.tenure {
            Some(tenure) => Step::Send(Command::Release { term: tenure.term, successor }),
            None => Step::Idle(Time::NEVER),
        }
    }

    /// The journal has everything that this process has: verbs may run.
    fn own(&mut self, now: Time, work: Work<'_>) -> Step {
        // A request to step down belongs to the previous tenure.
        self.stopping.take_if(|stopping| stopping.stays);
        if let Some(tenure) = &mut self.tenure {
            tenure.complete(self.handed, self.settings.ack);
            self.events.push(Event::Owns { term: tenure.term, epoch: tenure.epoch });
            if tenure.unconfirmed.is_none() {
                self.events.push(Event::Durable { batches: self.handed });
            }
        }
        self.state = State::Owning;
        self.next_of_owner(now, work)
    }

    /// Handles a reply during a handover: the successor is named, or a look shows its progress. Or an owner without
    /// subscription has looked whether other processes are connected.
    pub(crate) fn hand_over(&mut self, reply: &Reply, now: Time) {
        let Some(tenure) = &mut self.tenure else { return };
        match (reply, &mut self.stopping) {
            (Reply::Looked(look), Some(stopping)) => {
                stopping.see(look, &self.settings, now);
                // The successor does not get ready, so this process stays the owner.
                self.stopping.take_if(|stopping| stopping.stays && stopping.successor.is_none());
            }
            (_, Some(stopping)) => stopping.named(tenure.number, &self.settings, now),
            // A connected process could be asked; `connected` does not include this process while it is not subscribed.
            (Reply::Looked(look), None) if look.connected > 0 => self.state = State::Releasing,
            _ => tenure.stay(self.settings.probe(), now),
        }
    }

    /// Reads the journal after what was read ahead, or from its beginning.
    pub(crate) fn load(&mut self, epoch: u64, after: Position) {
        self.state = State::Loading(after);
        self.events.push(Event::Loading { epoch, after });
    }

    pub(crate) fn read(&mut self, last: Position, end: bool, now: Time) {
        let Some(tenure) = &self.tenure else { return };
        let epoch = tenure.epoch;
        if last.number >= tenure.number {
            self.state = State::Building;
        } else if end {
            // It is shorter than when the term was taken: the next renewal shows why.
            self.retry_at = now + RETRY;
            self.load(epoch, Position::default());
        } else {
            self.state = State::Loading(last);
        }
    }

    pub(crate) fn compare(&mut self, tail: Option<(u64, u64)>) {
        let Some(tenure) = &mut self.tenure else { return };
        let (number, checksum) = tail.map_or((0, None), |(number, checksum)| (number, Some(checksum)));
        self.state = match tenure.missing_after(number, checksum) {
            Some(missing) if number == tenure.number => State::Repeating(missing),
            _ => {
                tenure.begin_snapshot();
                State::Rewriting(true)
            }
        };
    }

    pub(crate) fn appended(&mut self, listeners: u64, unheard: &[usize], now: Time) {
        let Some(tenure) = &mut self.tenure else { return };
        let Some(InFlight { append, later, batches, confirmed, repeated }) = tenure.acknowledge() else {
            return;
        };
        if matches!(self.state, State::Verifying) {
            tenure.journal = Journal::Behind;
            self.state = State::Repeating(VecDeque::new());
        }
        let unheard: Vec<_> = unheard.iter().filter_map(|at| append.answers.get(*at).cloned()).collect();
        // If the append was run before, the answers may have been received then.
        if !unheard.is_empty() && !repeated {
            self.events.push(Event::Unheard(unheard));
        }
        if tenure.hears(listeners > 0, &self.settings, now) {
            self.events.push(Event::Deaf);
        }
        if tenure.journal != Journal::Whole {
            return;
        }
        self.events.extend(confirmed.map(|batches| Event::Durable { batches }));
        if self.settings.ack == Ack::Replicate && append.chunk.is_some() {
            let (_, mut answers) = tenure.unconfirmed.take().unwrap_or_default();
            answers.extend(later);
            tenure.unconfirmed = Some((batches, answers));
            return;
        }
        if let Some((unconfirmed, answers)) = &mut tenure.unconfirmed {
            // What a read saw may not be on the replica yet.
            *unconfirmed = batches;
            answers.extend(later);
        } else {
            tenure.held.extend(later);
            self.events.push(Event::Durable { batches });
        }
    }

    pub(crate) fn confirmed(&mut self, confirmed: bool, now: Time) {
        let Some(tenure) = &mut self.tenure else { return };
        if confirmed && let Some((batches, answers)) = tenure.unconfirmed.take() {
            tenure.held.extend(answers);
            tenure.confirmed = Some(batches);
        } else {
            self.confirm_at = now + RETRY;
        }
    }

    pub(crate) fn refused(&mut self, refusal: Refusal, now: Time) {
        let unread = self.tenure.as_ref().is_some_and(|tenure| tenure.journal == Journal::Unread);
        match refusal {
            Refusal::Fenced => self.lose(now),
            _ if unread => self.lose(now),
            Refusal::Regressed | Refusal::Empty => {
                self.events.push(Event::InDoubt);
                self.state = self.watch(now);
            }
            // This process still holds the term on the same run, so nobody else can have appended.
            Refusal::Number(number) => {
                self.events.push(Event::InDoubt);
                if let Some(tenure) = &mut self.tenure {
                    let (term, epoch, run) = (tenure.term, tenure.epoch, tenure.run.clone());
                    tenure.move_to(term, epoch, run, number, now);
                }
                self.state = State::Comparing;
            }
        }
    }

    pub(crate) fn lose(&mut self, now: Time) {
        if let Some(tenure) = self.tenure.take() {
            self.events.push(Event::Lost);
            if tenure.journal == Journal::Unread {
                self.events.push(Event::Superseded { missing: false });
            } else {
                let whole = tenure.journal == Journal::Whole;
                self.lost = Some(LostTenure { term: tenure.term, number: tenure.claimed.number, whole });
            }
        }
        self.state = State::Follower(Follower::looking_at(now));
    }
}
