//! What the server stores for the fleet, and what each script does with it: the product's Lua scripts, line by line,
//! with what the client does around them. Atomic and pure, so that the worlds and the search run the same code.

use std::collections::{BTreeMap, VecDeque};

use eclusa_core::Span;
use eclusa_fleet::{
    Append, Claim, Look, Position, ProcessId, Refusal, Reply, RunId, Take, TakeReason, TermId, TermView,
};

use crate::bugs::Bug;

/// The number of terms that are kept.
const FROM: usize = 16;

/// A chunk in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    /// Its id.
    pub(crate) at: Position,
    /// Its checksum, which identifies the contents.
    pub(crate) checksum: u64,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Keys {
    /// The term.
    pub(crate) term: Option<TermView>,
    /// The journal.
    pub(crate) stream: VecDeque<Entry>,
    /// The id of the last chunk that was ever added.
    pub(crate) last: Position,
    /// Claims and when they were made.
    claims: BTreeMap<ProcessId, (Position, u64)>,
    /// When all claims expire.
    claims_until: u64,
}

/// What a script and its caller know in addition to the keys.
pub(crate) struct ScriptCall<'a> {
    /// The caller.
    pub(crate) process: ProcessId,
    /// The journal format that it writes.
    pub(crate) format: u16,
    /// The server's run, as learned at connection time.
    pub(crate) run: &'a RunId,
    /// The server's clock.
    pub(crate) time: u64,
    /// The clock that epochs are derived from; the search uses a counter.
    pub(crate) least_epoch: u64,
    /// The number of subscribers to the questions of a term.
    pub(crate) listeners: &'a dyn Fn(TermId) -> u64,
    /// The planted bug.
    pub(crate) bug: Option<Bug>,
}

impl ScriptCall<'_> {
    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// A planted bug hides that the run has changed.
    fn run_hidden(&self) -> bool {
        self.has(Bug::NoSettling) || self.has(Bug::RunIgnored)
    }
}

impl Keys {
    /// `look.lua`. Claims that were made `live_ms` ago do not count.
    pub(crate) fn look(&self, call: &ScriptCall<'_>, uptime_ms: u64, connected: u64, live_ms: u64) -> Look {
        let mut term = self.term.clone();
        if let Some(view) = &mut term
            && call.run_hidden()
        {
            view.run = call.run.clone();
        }
        let listeners = term.as_ref().map_or(0, |view| (call.listeners)(view.term));
        let claims = self.claims.iter().filter(|(_, (_, made))| {
            call.time < self.claims_until && (made + live_ms > call.time || call.has(Bug::ClaimNeverEnds))
        });
        let claims = claims.map(|(process, (position, _))| Claim { process: *process, position: *position });
        let first = term.is_none() && call.has(Bug::EmptiedTakenAsFirst);
        Look {
            run: call.run.clone(),
            uptime: Span::from_millis(if first { u64::MAX } else { uptime_ms }),
            listeners,
            connected: if first { 1 } else { connected },
            claims: claims.collect(),
            term,
        }
    }

    /// `take.lua`.
    pub(crate) fn take(&mut self, call: &ScriptCall<'_>, take: &Take) -> Reply {
        if take.run != *call.run || !self.may_take(call, take) {
            return Reply::NotTaken;
        }
        let old = self.term.as_ref();
        let stored = old.map_or(0, |view| view.epoch);
        let epoch = if call.has(Bug::EpochStoredPlusOne) {
            stored + 1
        } else {
            (stored + 1).max(take.epoch_above + 1).max(call.least_epoch)
        };
        let number = old.map_or(0, |view| view.number);
        let mut from = old.map_or_else(Vec::new, |view| view.from.clone());
        if take.own.is_some_and(|own| from.iter().all(|(term, _)| *term != own)) {
            from.clear();
        }
        from.push((take.term, number));
        if from.len() > FROM {
            from.remove(0);
        }
        self.term = Some(TermView {
            term: take.term,
            epoch,
            run: take.run.clone(),
            number,
            beat: 0,
            reader: old.map_or(0, |view| view.reader),
            from,
            owner: call.process,
            repairing: take.reason == TakeReason::Settled,
            released: false,
            successor: None,
        });
        Reply::Taken { epoch, number }
    }

    /// Whether term and beat are unchanged since the look, and the reason holds as far as the server can check.
    fn may_take(&self, call: &ScriptCall<'_>, take: &Take) -> bool {
        let view = self.term.as_ref();
        if view.map(|view| view.term) != take.saw.map(|(term, _)| term) {
            return false;
        }
        if view.map(|view| view.beat) != take.saw.map(|(_, beat)| beat) && !call.has(Bug::BeatNotCompared) {
            return false;
        }
        if (call.listeners)(take.term) == 0 && !call.has(Bug::SubscribeAfterTake) {
            return false;
        }
        let same_run = view.is_none_or(|view| view.run == take.run) || call.run_hidden();
        match take.reason {
            TakeReason::Released => same_run && view.is_some_and(|view| view.released),
            TakeReason::Settled => call.time < self.claims_until && self.claims.contains_key(&call.process),
            TakeReason::NobodyListens => {
                same_run && take.saw.is_none_or(|(term, _)| (call.listeners)(term) == 0)
            }
            TakeReason::Silent | TakeReason::First => same_run,
        }
    }

    /// `append.lua`, without publishing. Returns the id of the chunk if it was added.
    pub(crate) fn append(
        &mut self,
        call: &ScriptCall<'_>,
        append: &Append,
    ) -> Result<Option<Position>, Refusal> {
        if let Some(refusal) = self.refusal(call, append) {
            return Err(refusal);
        }
        let Some(view) = &mut self.term else { return Err(Refusal::Empty) };
        view.beat += 1;
        view.repairing &= !append.whole;
        let Some(chunk) = append.chunk.as_ref().filter(|_| append.number != view.number) else {
            return Ok(None);
        };
        (view.number, view.reader) = (append.number, call.format);
        let at = Position { epoch: append.epoch, number: append.number };
        self.last = at;
        self.stream.push_back(Entry { at, checksum: chunk.checksum });
        self.stream.retain(|entry| entry.at >= chunk.keep_from);
        Ok(Some(at))
    }

    fn refusal(&self, call: &ScriptCall<'_>, append: &Append) -> Option<Refusal> {
        let by_epoch = call.has(Bug::FenceOnEpochOnly);
        let stored_run = self.term.as_ref().map_or(&append.run, |view| &view.run);
        let other_run = append.run != *call.run || append.run != *stored_run;
        let regressed = other_run && !by_epoch && !call.has(Bug::RunIgnored);
        if regressed && !(call.has(Bug::TermBeforeRun) && self.term.is_some()) {
            return Some(Refusal::Regressed);
        }
        let Some(view) = &self.term else { return Some(Refusal::Empty) };
        let fenced = if by_epoch { append.epoch < view.epoch } else { append.term != view.term };
        if fenced {
            return Some(Refusal::Fenced);
        }
        if regressed {
            return Some(Refusal::Regressed);
        }
        let next = append.chunk.is_some() && append.number == view.number + 1;
        (append.number != view.number && !next).then_some(Refusal::Number(view.number))
    }

    /// `claim.lua`. All claims live for `lives_ms` from now on.
    pub(crate) fn claim(&mut self, call: &ScriptCall<'_>, claim: &Claim, lives_ms: u64) -> Reply {
        if call.time >= self.claims_until {
            self.claims.clear();
        }
        let renewed = self.claims.insert(claim.process, (claim.position, call.time)).is_some();
        self.claims_until = call.time + lives_ms;
        Reply::Claimed(renewed)
    }

    /// `release.lua`, which answers `done`: `Released`, or `Named` if the term continues.
    pub(crate) fn release(
        &mut self,
        call: &ScriptCall<'_>,
        term: TermId,
        successor: Option<ProcessId>,
        done: Reply,
    ) -> Reply {
        let ignored = call.has(Bug::RunIgnored);
        let Some(view) = &mut self.term else { return Reply::Refused(Refusal::Empty) };
        if view.run != *call.run && !ignored {
            return Reply::Refused(Refusal::Regressed);
        }
        if view.term != term {
            return Reply::Refused(Refusal::Fenced);
        }
        (view.released, view.successor) = (done == Reply::Released, successor);
        view.beat += 1;
        done
    }

    /// Removes all claims.
    pub(crate) fn forget_claims(&mut self) {
        self.claims.clear();
        self.claims_until = 0;
    }

    /// The process with the highest claim.
    pub(crate) fn highest_claimant(&self) -> Option<ProcessId> {
        self.claims.iter().max_by_key(|(_, (position, _))| *position).map(|(process, _)| *process)
    }

    /// The last chunk of the stream.
    pub(crate) fn tail(&self) -> Reply {
        Reply::Tail(self.stream.back().map(|entry| (entry.at.number, entry.checksum)))
    }

    /// A page of the stream. It ends where a page is empty.
    pub(crate) fn page(&self, after: Position, chunks: usize) -> Vec<Entry> {
        self.stream.iter().filter(|entry| entry.at > after).take(chunks).copied().collect()
    }
}
