//! Settling: after the server may have lost data, nobody appends or takes over for one term, in which processes with
//! state claim it.

use eclusa_core::Time;

use crate::command::{Claim, Look};
use crate::ownership::Ownership;
use crate::settings::Settings;
use crate::term::{Position, RunId};

/// The number of looks that must be answered during settling: while the server hangs, nobody can claim.
const LOOKS: u32 = 4;

/// The settling as one process sees it.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Settling {
    since: Time,
    /// Looks that were answered since then.
    looks: u32,
    /// The run of the server.
    run: Option<RunId>,
    /// When a higher claim than this process's own was last seen.
    higher_at: Option<Time>,
    /// When to claim or look again.
    pub(crate) next_at: Time,
    /// Whether to look next; otherwise claim.
    pub(crate) look: bool,
}

impl Settling {
    pub(crate) fn begin(now: Time) -> Self {
        Self { since: now, looks: 0, run: None, higher_at: None, next_at: now, look: false }
    }

    /// Continues after a claim. If the server did not have this process's earlier one, it was emptied since the last
    /// look.
    pub(crate) fn claimed(mut self, renewed: bool, settings: &Settings, now: Time) -> Self {
        if !renewed {
            self.restart(now);
        }
        let next_at = if self.looks == 0 { now } else { now + settings.probe() };
        Self { look: true, next_at, ..self }
    }

    /// Continues after a look.
    pub(crate) fn looked(self, now: Time) -> Self {
        Self { look: false, next_at: now, ..self }
    }

    /// Restarts settling: the server may be unreachable for the other processes too.
    pub(crate) fn restart(&mut self, now: Time) {
        (self.since, self.looks) = (now, 0);
    }

    /// Records a look. `own` is this process's claim.
    pub(crate) fn see(&mut self, look: &Look, own: &Claim, now: Time) {
        // On another run the server may have lost more. If this process's claim is missing, the server was emptied
        // since, and another process may have been the owner before that.
        let claims = look.claims.iter().any(|claim| claim.process == own.process);
        if self.run.as_ref() != Some(&look.run) || !claims {
            self.restart(now);
            self.run = Some(look.run.clone());
        }
        self.looks += 1;
        let rank = |claim: &Claim| (claim.position, claim.process);
        let nothing = Position::default();
        let mut states = look.claims.iter().filter(|claim| claim.position > nothing);
        if states.any(|claim| rank(claim) > rank(own)) {
            self.higher_at = Some(now);
        }
    }

    /// Whether this process may take over now. A process with a higher claim goes first, unless it was silent for a
    /// term.
    pub(crate) fn may_take(&self, settings: &Settings, now: Time) -> bool {
        let wait = |since: Time| now >= since + settings.term + settings.patience;
        self.looks >= LOOKS && wait(self.since) && self.higher_at.is_none_or(wait)
    }
}

/// Whether this process can subscribe to the questions of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Subscribing {
    Works,
    /// The last attempt failed.
    FailedOnce,
    /// The last two attempts failed, with a settling in between during which the server answered everything else.
    Fails,
}

impl Subscribing {
    /// Continues after a command without a reply. If that was not `Listen`, the server itself is or was unreachable.
    pub(crate) fn unanswered(self, listened: bool) -> Self {
        match self {
            _ if !listened => Subscribing::Works,
            Subscribing::Works => Subscribing::FailedOnce,
            _ => Subscribing::Fails,
        }
    }
}

impl Ownership {
    /// This process's claim. Without state it claims position zero, only to detect that the server is emptied again. If
    /// it cannot subscribe it also claims zero: it could not take over, and the others would wait for it.
    pub(crate) fn claim(&self) -> Claim {
        let tenure = self.tenure.as_ref().filter(|_| self.subscribing != Subscribing::Fails);
        let position = tenure.map_or_else(Position::default, |tenure| tenure.claimed);
        Claim { process: self.settings.process, position }
    }
}
