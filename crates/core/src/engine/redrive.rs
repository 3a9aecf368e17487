//! Redrive: dead letters that are replayed automatically after a while.
//!
//! Letters of a lane with the same chain wait together. When the first is due and not every breaker of the chain is
//! open, it is replayed as a canary. If it succeeds, the others follow, a few at a time; if one fails, all wait again.
//! Which letters wait or are being replayed follows from the letters; only the state of a chain has its own record.

use super::Engine;
use super::bulk::RECHECK_AFTER;
use crate::dead_letter::DeadLetter;
use crate::gate::BreakerState;
use crate::ids::{JobId, Name};
use crate::job::Status;
use crate::lane::Lane;
use crate::spec::RedriveSpec;
use crate::table::LaneIx;
use crate::time::{Span, Time};
use crate::verbs::{MAX_BATCH, Replay, Replayed, ReplayedLetter};

/// When to check again whether a breaker has closed or a canary has ended.
const CANARY_RECHECK: Span = Span::from_secs(1);

impl Engine {
    /// Replays letters of a lane that are due. Returns when to do so again.
    pub(super) fn redrive(&mut self, lane: LaneIx, replayed: &mut Vec<ReplayedLetter>, now: Time) -> Time {
        let state = self.lane_mut(lane);
        let rule = state.spec.as_ref().and_then(|spec| spec.dead_letters.as_ref()?.redrive.clone());
        state.dead.follow_redrive(rule);
        if state.gone {
            return Time::NEVER;
        }
        let chains = state.dead.redrive_chains();
        let next = chains.iter().map(|chain| self.redrive_chain(lane, chain, replayed, now));
        next.min().unwrap_or(Time::NEVER)
    }

    fn redrive_chain(
        &mut self,
        lane: LaneIx,
        chain: &[Name],
        replayed: &mut Vec<ReplayedLetter>,
        now: Time,
    ) -> Time {
        for _ in 0..MAX_BATCH {
            let state = self.lane(lane).dead.wave(chain);
            let Some((due, letter)) = state.first.filter(|(due, _)| *due <= now) else {
                if state.running == 0 {
                    // The wave is over; the next one starts with its own canary.
                    self.lane_mut(lane).dead.update_chain_state(chain, |state| state.proven = false, now);
                }
                return state.first.map_or(Time::NEVER, |(due, _)| due.max(state.held_until));
            };
            if state.held_until > now {
                return state.held_until.max(due);
            }
            let bytes = self.lane(lane).dead.get(letter).map_or(0, |letter| letter.payload.len());
            if !self.can_ever_hold(lane, bytes) {
                // It can never fit into the lane and must not block the others: use up its turn.
                self.lane_mut(lane).dead.begin_redrive(letter);
                continue;
            }
            if !state.proven && state.running > 0 {
                return now + CANARY_RECHECK;
            }
            if state.running >= self.replay_window(lane) || !self.has_room(lane, bytes) {
                return now + RECHECK_AFTER;
            }
            if !self.some_breaker_lets(chain, now) {
                return now + CANARY_RECHECK;
            }
            replayed.extend(self.redrive_one(lane, letter, now));
        }
        now
    }

    fn redrive_one(&mut self, lane: LaneIx, letter: JobId, now: Time) -> Option<ReplayedLetter> {
        let state = self.lane_mut(lane);
        let job = state.dead.begin_redrive(letter)?;
        let name = state.name.clone();
        match self.replay_one(Replay { lane: name.clone(), letter, id: job, edit: None }, now) {
            Replayed::As(job, _) => Some(ReplayedLetter { lane: name, letter, job, bulk: None }),
            Replayed::Unknown | Replayed::QueueFull | Replayed::IdTaken | Replayed::Invalid(_) => None,
        }
    }

    /// When a letter is replayed automatically, at the earliest.
    pub(super) fn next_redrive(lane: &Lane, letter: &DeadLetter) -> Option<Time> {
        let rule = lane.spec.as_ref().and_then(|spec| spec.dead_letters.as_ref()?.redrive.as_ref())?;
        rule.due(letter).map(|due| due.max(lane.dead.chain_state(&letter.chain).held_until))
    }

    /// Whether an upstream of the chain has no open breaker. A half-open breaker needs a call to close; the canary may
    /// be that call.
    fn some_breaker_lets(&self, chain: &[Name], now: Time) -> bool {
        chain.iter().filter_map(|name| self.upstream_by_name.get(name)).any(|index| {
            let upstream = self.upstream(*index);
            let breaker = upstream.spec.as_ref().filter(|_| !upstream.gone);
            breaker.is_some_and(|spec| {
                let view = upstream.gates.breaker_view(spec, now);
                view.is_none_or(|view| view.state != BreakerState::Open)
            })
        })
    }

    /// Notes that the replay of `letter` by `job` is about to end with `status`. Call it while the letter still refers
    /// to the job.
    pub(super) fn note_redrive_end(
        &mut self,
        lane: LaneIx,
        letter: JobId,
        job: JobId,
        status: Status,
        now: Time,
    ) {
        let state = self.lane_mut(lane);
        let Some(chain) = state.dead.redriven_by(letter, job) else { return };
        let rule = state.spec.as_ref().and_then(|spec| spec.dead_letters.as_ref()?.redrive.as_ref());
        let after = rule.map_or(Span::ZERO, RedriveSpec::after);
        let dead = &mut state.dead;
        if status == Status::Completed {
            dead.update_chain_state(&chain, |state| state.proven = true, now);
        } else {
            dead.update_chain_state(
                &chain,
                |state| (state.proven, state.held_until) = (false, now + after),
                now,
            );
        }
    }
}
