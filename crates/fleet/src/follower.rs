//! When a process that is not the owner may take over.

use eclusa_core::{Span, Time};

use crate::command::{Look, TakeReason};
use crate::settings::Settings;
use crate::term::{TermId, TermView};

/// An owner without subscription must be seen twice, this far apart: its connection may just be reopening.
const DEAF_FOR: Span = Span::from_millis(200);

/// An owner is silent only if this many looks in a row showed the same beat: otherwise this process, or the server, may
/// have been paused.
const SILENT_LOOKS: u32 = 4;

/// The last seen beat of an owner.
#[derive(Debug, Clone, Hash)]
struct Seen {
    term: TermId,
    beat: u64,
    /// When it was first seen; every look since then was answered.
    since: Time,
    looks: u32,
}

/// What a process has seen of the owner.
#[derive(Debug, Clone, Default, Hash)]
pub(crate) struct Follower {
    beat: Option<Seen>,
    /// Since when the owner has no subscription or, without a term, no other process is connected.
    deaf_since: Option<Time>,
    /// When to look again.
    pub(crate) look_at: Time,
}

/// What a look leads to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Verdict {
    /// Look again at this time.
    Follow(Time),
    /// Take over.
    Take(TakeReason),
    /// The owner is about to stop and named this process as its successor: read the journal ahead.
    Prepare,
    /// The server may have lost data.
    Settle,
}

impl Follower {
    /// A follower that looks first at `look_at`.
    pub(crate) fn looking_at(look_at: Time) -> Self {
        Self { look_at, ..Self::default() }
    }

    /// A look was not answered: silence of the owner cannot be distinguished from silence of the server.
    pub(crate) fn unanswered(&mut self, retry_at: Time) {
        self.beat = None;
        self.deaf_since = None;
        self.look_at = retry_at;
    }

    /// Decides what a look leads to. `fresh`: this process has never seen a term.
    pub(crate) fn judge(&mut self, look: &Look, settings: &Settings, fresh: bool, now: Time) -> Verdict {
        let Some(view) = &look.term else { return self.judge_empty(look, settings, fresh, now) };
        if view.run != look.run {
            return Verdict::Settle;
        }
        self.see(view, now);
        let (since, looks) = self.beat.as_ref().map_or((now, 0), |beat| (beat.since, beat.looks));
        if view.reader > settings.format {
            return Verdict::Follow(now + settings.probe());
        }
        if view.released {
            return Self::released(view, settings, since, now);
        }
        let deaf = look.listeners == 0;
        if !deaf {
            self.deaf_since = None;
        }
        let deaf_since = deaf.then(|| *self.deaf_since.get_or_insert(now));
        // Only this owner can restore what the server lost, so it gets more time until that is done.
        let deaf_for = if view.repairing { settings.term } else { DEAF_FOR };
        if deaf_since.is_some_and(|since| now >= since + deaf_for + settings.patience) {
            return Verdict::Take(TakeReason::NobodyListens);
        }
        if looks >= SILENT_LOOKS && now >= since + settings.term + settings.patience {
            return Verdict::Take(TakeReason::Silent);
        }
        if view.successor == Some(settings.process) && !deaf {
            return Verdict::Prepare;
        }
        Verdict::Follow(if deaf { now + DEAF_FOR } else { now + settings.probe() })
    }

    /// There is no term. If this process has never seen one and no other process is connected that could have, there
    /// never was one. It must be seen twice, because an owner's connection may just be reopening.
    fn judge_empty(&mut self, look: &Look, settings: &Settings, fresh: bool, now: Time) -> Verdict {
        if !fresh || look.connected > 1 || look.uptime <= settings.term {
            return Verdict::Settle;
        }
        if now >= *self.deaf_since.get_or_insert(now) + DEAF_FOR {
            return Verdict::Take(TakeReason::First);
        }
        Verdict::Follow(now + DEAF_FOR)
    }

    fn released(view: &TermView, settings: &Settings, since: Time, now: Time) -> Verdict {
        let chosen = match view.successor {
            Some(successor) => successor == settings.process,
            None => settings.patience.is_zero(),
        };
        let late = now >= since + settings.probe() + settings.patience;
        if chosen || late {
            return Verdict::Take(TakeReason::Released);
        }
        Verdict::Follow(now + DEAF_FOR)
    }

    /// Records term and beat.
    fn see(&mut self, view: &TermView, now: Time) {
        match &mut self.beat {
            Some(seen) if (seen.term, seen.beat) == (view.term, view.beat) => seen.looks += 1,
            _ => {
                self.beat = Some(Seen { term: view.term, beat: view.beat, since: now, looks: 1 });
                self.deaf_since = None;
            }
        }
    }
}
