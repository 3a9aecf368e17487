//! Restoring: from records back to the engine's state.
//!
//! Records are applied in the order in which they were written; the newest of each thing wins (`changes`). What can be
//! derived (lines, orders, counts of calls in flight) is not in the records and is rebuilt.
//!
//! An engine can be built before everything is read; later records then change it in place. Every thing they mention is
//! removed together with all that was derived from it (`detach`) and added again in its new state. A cold start is the
//! same with nothing to remove. So a process that follows another has only the last records left to apply.

mod changes;
mod detach;
mod jobs;

use hashbrown::HashMap;
use thiserror::Error;

use self::changes::Changes;
use self::jobs::{restore_jobs, restore_leases};
use super::record::{Record, TenantRecord};
use super::rules::{ProcessId, Registration};
use super::{Engine, Upstream};
use crate::dead_letter::Kept;
use crate::job::Level;
use crate::lane::Tenant;
use crate::layout::{LayoutError, decode_gates, decode_lane, decode_spec, read_records};
use crate::policy::HashKey;
use crate::spec::LaneSpec;
use crate::table::{LaneIx, TenantIx};
use crate::time::{SteadyTime, Time};

/// The records cannot be read.
#[derive(Debug, Error)]
pub enum RestoreError {
    /// Unreadable, or written by a newer version.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Readable, but inconsistent.
    #[error("the records are inconsistent: {0}")]
    Inconsistent(String),
}

/// Collects records and builds an engine from them.
#[derive(Debug, Default)]
pub struct Restorer {
    epoch: u64,
    next_lease: u64,
    time: SteadyTime,
    hash_key: Option<HashKey>,
    /// Records since the engine was last built.
    changes: Changes,
    engine: Engine,
    tenants: TenantsByArrival,
}

/// Tenants by lane number and arrival number.
type TenantsByArrival = HashMap<(u32, u64), TenantIx, foldhash::fast::FixedState>;

impl Restorer {
    /// Applies the records of one chunk. Chunks must be applied in the order in which they were written.
    pub fn apply(&mut self, chunk: &[u8]) -> Result<(), RestoreError> {
        Ok(read_records(chunk, |record| self.apply_one(record))?)
    }

    fn apply_one(&mut self, record: Record) {
        match record {
            Record::Meta { epoch, next_lease, time } => {
                self.epoch = self.epoch.max(epoch);
                self.next_lease = self.next_lease.max(next_lease);
                if time.last() >= self.time.last() {
                    self.time = time;
                }
            }
            Record::HashKey(key) => self.hash_key = Some(key),
            record => self.changes.gather(record, &self.engine),
        }
    }

    /// An epoch in which no lease was issued yet, for a store whose journal only ever has one owner.
    pub fn next_epoch(&self) -> u64 {
        self.epoch + 1
    }

    /// Builds the engine that wrote the records, with the rules it had. It issues leases of `epoch`, in which none may
    /// have been issued before.
    pub fn finish(mut self, epoch: u64) -> Result<Engine, RestoreError> {
        self.build()?;
        let mut engine = self.engine;
        engine.leases.epoch = epoch;
        engine.leases.next_number = self.next_lease;
        engine.time = self.time;
        engine.saved_ahead_ms = Some(self.time.ahead_ms());
        engine.hash_key = self.hash_key;
        Ok(engine)
    }

    /// Builds an engine from what was applied, which must be consistent. [`Restorer::finish`] then only has to apply
    /// later records. After an error the restorer must not be used.
    pub fn build(&mut self) -> Result<(), RestoreError> {
        let mut changes = std::mem::replace(&mut self.changes, Changes::of_an_engine());
        let lane_rules = decode_lanes(&mut changes)?;
        changes.add_dependents(&self.engine, &lane_rules);
        let engine = &mut self.engine;
        engine.detach(&changes);
        let named = (engine.lanes.len(), engine.upstreams.len());
        restore_gates(engine, &mut changes)?;
        let more = named != (engine.lanes.len(), engine.upstreams.len());
        restore_rules(engine, &mut changes, lane_rules, more)?;
        restore_tenants(engine, &mut changes, &mut self.tenants)?;
        restore_turns(engine, &changes, &self.tenants)?;
        restore_policies(engine, &mut changes)?;
        restore_alerts(engine, &mut changes);
        restore_history(engine, &mut changes)?;
        for (name, last) in changes.schedules {
            engine.schedules.restore(name, last);
        }
        for (id, bulk) in changes.bulks {
            engine.bulks.restore(id, bulk);
        }
        for ((lane, chain), state) in changes.chain_states {
            lane_at(engine, lane)?.dead.restore_chain_state(chain, state);
        }
        for (lane, holds) in changes.holds {
            lane_at(engine, lane)?.holds = holds;
        }
        for (upstream, failure) in changes.failures {
            upstream_at(engine, upstream)?.calls.restore_failure(failure);
        }
        for (code, count) in changes.codes {
            engine.codes.restore(code, count);
        }
        for ((lane, number), letter) in changes.dead {
            let correlation = changes.dead_correlations.get(&(lane, number)).copied();
            let kept = letter.map(|(job, letter)| Kept { job, letter: *letter, correlation });
            lane_at(engine, lane)?.dead.restore(number, kept);
        }
        for ((lane, key), entry) in changes.keys {
            lane_at(engine, lane)?.keys.restore(key, entry);
        }
        for ((lane, key), entry) in changes.cache {
            lane_at(engine, lane)?.cache.restore(key, entry);
        }
        let jobs = changes.jobs.into_values().flatten().collect();
        restore_jobs(engine, jobs, &self.tenants, &changes.job_correlations)?;
        restore_leases(engine, changes.leases, &changes.lease_correlations)?;
        engine.forget_what_is_not_owed();
        // What was read from the records need not be saved again.
        engine.jobs.drain_changes(|_| {});
        Ok(())
    }
}

fn decode_lanes(changes: &mut Changes) -> Result<Vec<(u32, LaneSpec)>, RestoreError> {
    let rules = std::mem::take(&mut changes.lane_rules).into_iter();
    rules.map(|(number, rules)| Ok((number, decode_lane(&rules)?))).collect()
}

/// Sets the rules without adjusting any state: the records were written under these rules. `more`: lanes or upstreams
/// were added.
fn restore_rules(
    engine: &mut Engine,
    changes: &mut Changes,
    lane_rules: Vec<(u32, LaneSpec)>,
    more: bool,
) -> Result<(), RestoreError> {
    let changed = !changes.upstream_rules.is_empty() || !lane_rules.is_empty();
    if !more && !changed && changes.registrations.is_empty() {
        return Ok(());
    }
    for (number, rules) in std::mem::take(&mut changes.upstream_rules) {
        upstream_at(engine, number)?.spec = Some(decode_gates(&rules)?);
    }
    for (number, rules) in lane_rules {
        let lane = lane_at(engine, number)?;
        if rules.fairness.is_some() {
            lane.tenants.release_everyone();
        }
        lane.spec = Some(rules.clone());
        engine.set_default_chain(LaneIx(number), &rules);
    }
    for (process, record) in std::mem::take(&mut changes.registrations) {
        let process = ProcessId(process);
        match record {
            Some((stamp, about, spec)) => {
                let spec = decode_spec(&spec)?.into();
                engine.rules.restore(Registration { process, stamp, about, spec });
            }
            None => engine.rules.restore_ended(process),
        }
    }
    engine.follow_rules(Time::default());
    Ok(())
}

fn restore_gates(engine: &mut Engine, changes: &mut Changes) -> Result<(), RestoreError> {
    for (number, (name, gates)) in std::mem::take(&mut changes.upstreams) {
        let index = engine.add_upstream(&name);
        expect(index.0 == number, || format!("upstream {name} has number {number}"))?;
        engine.upstreams[number as usize].gates.restore(gates);
        engine.upstreams[number as usize].dirty = false;
    }
    for (number, record) in &changes.lanes {
        let index = engine.add_lane(&record.name);
        expect(index.0 == *number, || format!("lane {} has number {number}", record.name))?;
        let lane = engine.lane_mut(index);
        lane.paused = record.paused;
        lane.next_seq = record.next_seq;
        lane.gates.restore(record.gates.clone());
        lane.totals = record.totals;
        lane.tempo = record.tempo;
        lane.budget.clone_from(&record.budget);
        lane.dead.ages = record.letter_ages;
        lane.dirty = false;
    }
    Ok(())
}

fn restore_tenants(
    engine: &mut Engine,
    changes: &mut Changes,
    known: &mut TenantsByArrival,
) -> Result<(), RestoreError> {
    for (at, record) in std::mem::take(&mut changes.tenants) {
        let lane = lane_at(engine, at.0)?;
        match (record, known.get(&at).copied()) {
            (Some(record), Some(tenant)) => lane.restore_tenant(tenant, |state| fill_tenant(state, &record)),
            (Some(record), None) => {
                let mut tenant = Tenant::new(record.name.clone(), record.arrival);
                fill_tenant(&mut tenant, &record);
                known.insert(at, lane.tenants.add(tenant));
            }
            (None, Some(tenant)) => {
                let idle = lane.restore_tenant_gone(tenant);
                expect(idle, || format!("a tenant of lane {} is gone but has jobs", lane.name))?;
                known.remove(&at);
            }
            (None, None) => {}
        }
    }
    Ok(())
}

fn fill_tenant(tenant: &mut Tenant, record: &TenantRecord) {
    tenant.processed = record.processed;
    tenant.last_processed = record.last_processed;
    for (level, (last_turn, place)) in Level::ALL.into_iter().zip(record.levels) {
        if tenant.level(level).is_some() || last_turn.is_some() || place.is_some() {
            let state = tenant.level_mut(level);
            (state.last_turn, state.place) = (last_turn, place);
        }
    }
}

fn restore_turns(
    engine: &mut Engine,
    changes: &Changes,
    known: &TenantsByArrival,
) -> Result<(), RestoreError> {
    for (number, record) in &changes.lanes {
        let lane = lane_at(engine, *number)?;
        for (level, turns) in lane.levels.iter_mut().zip(record.turns) {
            level.turns.turn = turns.turn;
            level.turns.in_a_row = turns.in_a_row;
            level.turns.current = turns.current.and_then(|arrival| known.get(&(*number, arrival)).copied());
        }
    }
    Ok(())
}

fn restore_policies(engine: &mut Engine, changes: &mut Changes) -> Result<(), RestoreError> {
    for (family, terms) in std::mem::take(&mut changes.terms) {
        engine.buckets.families_mut().restore(&family, terms);
    }
    for (correlation, debit) in std::mem::take(&mut changes.debits) {
        engine.debits.restore(correlation, debit);
    }
    for (key, state) in std::mem::take(&mut changes.buckets) {
        if let Some((spec, bucket)) = state {
            engine.buckets.restore(key, spec, bucket);
        } else {
            let unused = engine.buckets.restore_gone(&key);
            expect(unused, || format!("bucket {key:?} is gone but in use"))?;
        }
    }
    Ok(())
}

fn restore_alerts(engine: &mut Engine, changes: &mut Changes) {
    let (alerts, read) = (&mut engine.alerts, std::mem::take(&mut changes.alerts));
    for (key, state) in read.watched {
        alerts.restore(key, state);
    }
    for (lane, history) in read.histories {
        alerts.restore_history(lane, history);
    }
    if let Some(resolved) = read.resolved {
        alerts.restore_resolved(resolved);
    }
    if let Some(meters) = read.meters {
        alerts.restore_meters(meters);
    }
}

fn restore_history(engine: &mut Engine, changes: &mut Changes) -> Result<(), RestoreError> {
    let read = std::mem::take(&mut changes.history);
    let mut lanes: Vec<_> = read.lanes.into_iter().map(|((lane, _), point)| (lane, point)).collect();
    // In the order in which they were added, each goes to the end of its series.
    lanes.sort_by_key(|(_, point)| point.minute);
    for (lane, point) in lanes {
        lane.map_or(Ok(()), |lane| lane_at(engine, lane).map(|_| ()))?;
        engine.history.restore_lane(lane, point);
    }
    let mut upstreams: Vec<_> = read.upstreams.into_iter().collect();
    upstreams.sort_by_key(|(_, point)| point.minute);
    for ((upstream, _), point) in upstreams {
        upstream_at(engine, upstream)?;
        engine.history.restore_upstream(upstream, point);
    }
    let mut transitions: Vec<_> = read.transitions.into_iter().collect();
    transitions.sort_by_key(|(_, (number, _))| *number);
    for ((upstream, _), (number, change)) in transitions {
        upstream_at(engine, upstream)?;
        upstream_at(engine, change.of)?;
        engine.history.restore_transition(upstream, number, change);
    }
    if let Some(running) = read.running {
        engine.history.restore_running(running);
    }
    engine.history.drop_old();
    Ok(())
}

fn expect(fits: bool, problem: impl FnOnce() -> String) -> Result<(), RestoreError> {
    if fits { Ok(()) } else { Err(RestoreError::Inconsistent(problem())) }
}

fn lane_at(engine: &mut Engine, number: u32) -> Result<&mut crate::lane::Lane, RestoreError> {
    let problem = || RestoreError::Inconsistent(format!("lane number {number} is unknown"));
    engine.lanes.get_mut(number as usize).ok_or_else(problem)
}

fn upstream_at(engine: &mut Engine, number: u32) -> Result<&mut Upstream, RestoreError> {
    let problem = || RestoreError::Inconsistent(format!("upstream number {number} is unknown"));
    engine.upstreams.get_mut(number as usize).ok_or_else(problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{JobId, Name};
    use crate::layout::RECORD_VERSION;

    #[test]
    fn newer_and_unreadable_records_are_refused() {
        let mut restorer = Restorer::default();
        assert!(matches!(
            restorer.apply(&[RECORD_VERSION + 1]),
            Err(RestoreError::Layout(LayoutError::NewerVersion { found: 3, known: 2 }))
        ));
        let unreadable = restorer.apply(&[RECORD_VERSION, 0xff, 0xff]);
        assert!(matches!(unreadable, Err(RestoreError::Layout(LayoutError::Unreadable(_)))));
        assert!(restorer.apply(&[RECORD_VERSION]).is_ok());
    }

    #[test]
    fn a_job_without_its_tenant_is_refused() {
        let mut engine = Engine::new(&spec(|_| {}));
        let job = crate::NewJob::new(JobId(1), Name::new("work").unwrap(), "acme", *b"x");
        engine.enqueue(vec![job], crate::Time::from_millis(1));
        let mut restorer = Restorer::default();
        restorer.apply(&saved(&mut engine)).unwrap();
        restorer.changes.tenants.clear();
        assert!(matches!(restorer.finish(1), Err(RestoreError::Inconsistent(_))));
    }

    fn spec(change: impl FnOnce(&mut crate::LaneSpec)) -> crate::Spec {
        let upstream = crate::UpstreamSpec::new(Name::new("api").unwrap(), crate::gate::GateSpecs::default());
        let chain = crate::Chain::new(vec![upstream.name.clone()]).unwrap();
        let mut lane = crate::LaneSpec::new(Name::new("work").unwrap(), chain);
        change(&mut lane);
        crate::Spec::new(vec![lane], vec![upstream]).unwrap()
    }

    fn saved(engine: &mut Engine) -> Vec<u8> {
        let mut chunk = Engine::begin_chunk();
        engine.save_changes(&mut chunk).unwrap();
        chunk
    }

    #[test]
    fn the_tenant_of_shared_lines_becomes_idle_with_them() {
        for fair in [false, true] {
            let rules = |fair: bool| {
                spec(|lane| lane.fairness = fair.then(|| lane.fairness.clone().unwrap_or_default()))
            };
            let now = Time::from_millis(1);
            let mut engine = Engine::new(&rules(fair));
            let job = crate::NewJob::new(JobId(1), Name::new("work").unwrap(), "acme", *b"x");
            engine.enqueue(vec![job], now);
            let first = saved(&mut engine);
            let spec = rules(!fair).into();
            let process = ProcessId::EMBEDDED;
            engine.register(Registration { process, stamp: 0, about: "".into(), spec }, now);
            let chunks = [first, saved(&mut engine)];
            let [cold, followed] = [false, true].map(|follows| {
                let mut restorer = Restorer::default();
                for chunk in &chunks {
                    restorer.apply(chunk).unwrap();
                    if follows {
                        restorer.build().unwrap();
                    }
                }
                let tenants = format!("{:#?}", restorer.finish(1).unwrap().lanes[0].tenants);
                tenants.split_once("idle: ").unwrap().1.to_owned()
            });
            assert_eq!(cold, followed);
        }
    }

    #[test]
    fn no_answer_is_owed_when_no_job_waits() {
        let span = crate::Span::from_secs(60);
        let now = Time::from_millis(1);
        let mut engine =
            Engine::new(&spec(|lane| lane.cache = Some(crate::CacheSpec::new(span, span).unwrap())));
        let lane = Name::new("work").unwrap();
        let new = |id| crate::NewJob {
            cache_key: Some("same".into()),
            ..crate::NewJob::new(JobId(id), lane.clone(), "acme", *b"x")
        };
        engine.enqueue((1..=250).map(new).collect(), now);
        let ask = crate::Dispatch {
            lane: lane.clone(),
            max: 1,
            lease: span,
            nonce: 1,
            wait: crate::Span::ZERO,
            denied: None,
        };
        let lease = engine.dispatch(&ask, now).grants[0].lease;
        let (report, answer) = (crate::gate::CallResult::Success.into(), Some(b"700"[..].into()));
        let outcome = crate::Outcome::Done;
        engine.settle(vec![crate::Settlement { lease, report, outcome, answer, unsent: None }], now);
        let mut restorer = Restorer::default();
        restorer.apply(&saved(&mut engine)).unwrap();
        restorer.build().unwrap();
        assert_eq!(restorer.engine.owed.len(), 1);
        (0..3).for_each(|_| drop(engine.sweep(now)));
        restorer.apply(&saved(&mut engine)).unwrap();
        restorer.build().unwrap();
        assert_eq!(restorer.engine.owed.len(), 0);
    }
}
