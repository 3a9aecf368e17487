//! After the server may have lost data: nobody appends or takes over for one term, in which processes with state claim it.

use eclusa_core::Time;

use crate::command::{Claim, Look};
use crate::ownership::Ownership;
use crate::settings::Settings;
use crate::term::{Position, RunId};

/// So many looks must be answered in the time that counts: a server that hung gave nobody a chance to claim.
const LOOKS: u32 = 4;

/// The settling as one process sees it.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Settling {
    since: Time,
    /// Looks that were answered since then.
    looks: u32,
    /// The run of the server that is settled on.
    run: Option<RunId>,
    /// When a claim above this process's own was last seen.
    higher_at: Option<Time>,
    /// When to claim or look again.
    pub(crate) next_at: Time,
    /// Whether to look next; else to claim.
    pub(crate) look: bool,
}

impl Settling {
    pub(crate) fn begin(now: Time) -> Self {
        Self { since: now, looks: 0, run: None, higher_at: None, next_at: now, look: false }
    }

    /// The same after a claim. Whether it is still there is looked at later, before it is claimed again.
    pub(crate) fn claimed(self, settings: &Settings, now: Time) -> Self {
        let next_at = if self.looks == 0 { now } else { now + settings.probe() };
        Self { look: true, next_at, ..self }
    }

    /// The same after a look.
    pub(crate) fn looked(self, now: Time) -> Self {
        Self { look: false, next_at: now, ..self }
    }

    /// The server may not be there for the others either: the time begins anew.
    pub(crate) fn restart(&mut self, now: Time) {
        (self.since, self.looks) = (now, 0);
    }

    /// Takes note of a look. `own` is what this process claims.
    pub(crate) fn see(&mut self, look: &Look, own: &Claim, now: Time) {
        // On another run the server may have lost more. Without this process's claim it was emptied since, and somebody may
        // have owned it before that.
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

    /// Whether this process may take over now. Whoever claims more goes first, unless it was silent for a term.
    pub(crate) fn may_take(&self, settings: &Settings, now: Time) -> bool {
        let wait = |since: Time| now >= since + settings.term + settings.patience;
        self.looks >= LOOKS && wait(self.since) && self.higher_at.is_none_or(wait)
    }
}

/// Whether it can subscribe to the questions of a term that it would take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Subscribing {
    Works,
    /// The last time it could not.
    FailedOnce,
    /// The last two times it could not, with a settling between them, in which the server answered everything else.
    Fails,
}

impl Subscribing {
    /// The same after a command without a reply. Other commands than `Listen` tell that the server is not there, or was not.
    pub(crate) fn unanswered(self, listened: bool) -> Self {
        match self {
            _ if !listened => Subscribing::Works,
            Subscribing::Works => Subscribing::FailedOnce,
            _ => Subscribing::Fails,
        }
    }
}

impl Ownership {
    /// What this process claims. Without state it claims nothing, only to see that the server is not emptied again. Nor does
    /// it if it cannot subscribe: it could not take over, and the others would wait for it.
    pub(crate) fn claim(&self) -> Claim {
        let tenure = self.tenure.as_ref().filter(|_| self.subscribing != Subscribing::Fails);
        let position = tenure.map_or_else(Position::default, |tenure| tenure.claimed);
        Claim { process: self.settings.process, position }
    }
}
