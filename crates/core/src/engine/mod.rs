//! The rules as a deterministic state machine.
//!
//! Every verb gets the time as an argument and is atomic: it is done completely or not at all, and then the answer says
//! why. Its cost for each job, lease or entry it touches is at most one lookup in a search tree, regardless of the
//! number of jobs, tenants or leases. Each verb has its own file; this one holds the state they share.

mod admit;
mod ages;
pub(crate) mod alerts;
mod buckets;
mod budget;
pub(crate) mod bulk;
mod cache;
mod callback;
mod calls;
mod cancel;
mod catch_up;
mod changes;
mod coalesce;
pub(crate) mod codes;
mod complete;
mod configure;
mod correct;
mod credit;
pub(crate) mod debits;
mod dispatch;
mod ending;
mod enqueue;
mod eta;
mod fallback;
mod families;
pub(crate) mod history;
mod jobs;
mod keys;
mod leases;
mod letters;
mod observe;
mod outlook;
mod park;
mod poll;
mod public;
mod quota;
mod ready;
pub(crate) mod record;
mod redrive;
pub(crate) mod refresh;
mod replay;
mod reset;
mod restore;
mod rules;
mod salvage;
mod save;
mod schedule;
mod search;
mod settle;
pub(crate) mod submission;
mod sweep;
pub(crate) mod tenant_limits;
mod view;
mod why;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use buckets::{MAX_SEEN_BUCKETS, SeenBucket, SeenBuckets, TokensTaken};
pub use callback::{CALLBACKS, Callback};
pub use catch_up::{BucketOf, FallbackCall, FallbackLog, FallbackReport};
pub use fallback::{LastSeen, StartCounts};
use hashbrown::HashMap;
pub use public::PublicChange;
pub use refresh::Mentions;
pub use restore::{RestoreError, Restorer};
pub use rules::{ProcessId, Registration, RegistrationView, SILENCE};
pub use save::SaveError;
pub use tenant_limits::tenant_bucket_keys;

use self::alerts::Alerts;
use self::buckets::Buckets;
use self::bulk::Bulks;
use self::calls::Calls;
use self::codes::Codes;
use self::debits::Debits;
use self::history::MinuteHistory;
use self::jobs::{Job, Jobs, Phase};
use self::leases::Leases;
use self::observe::Observation;
use self::rules::Rules;
use self::schedule::Schedules;
use self::submission::SubmissionIndex;
use crate::ended::Ended;
use crate::gate::{GateChange, GateSpecs, Gates, NotUntil, PublicGates, Reason, Share};
use crate::ids::Name;
use crate::lane::{Lane, LineKey, Parked, Rank};
use crate::policy::HashKey;
use crate::spec::{LaneSpec, Spec};
use crate::table::{BucketIx, JobIx, LaneIx, LineIx, UpstreamIx};
use crate::time::{SteadyTime, Time};

/// About how many bytes the record of a thing takes, its payload not included.
const PER_THING: u64 = 128;

/// Removes the job with this number from its line.
type Pull = fn(&mut Lane, LineIx, u64) -> Option<(BucketIx, Parked)>;

#[derive(Debug)]
struct Upstream {
    name: Name,
    /// If this is a key: the upstream it belongs to. A call with the key takes from the gates of both.
    key_of: Option<UpstreamIx>,
    /// Its keys, in the order of their first registration.
    keys: Vec<UpstreamIx>,
    /// Its last rules; `None` if no registration has named it yet.
    spec: Option<GateSpecs>,
    /// No current registration names it: jobs that need it wait.
    gone: bool,
    gates: Gates,
    dirty: bool,
    /// The last published view; see `public.rs`.
    public: Option<PublicGates>,
    public_dirty: bool,
    /// See `calls.rs`.
    calls: Calls,
}

/// All state of one basin: lanes and upstreams that are decided together.
#[derive(Debug, Default)]
pub struct Engine {
    lanes: Vec<Lane>,
    lane_by_name: HashMap<Name, LaneIx, foldhash::fast::FixedState>,
    upstreams: Vec<Upstream>,
    upstream_by_name: HashMap<Name, UpstreamIx, foldhash::fast::FixedState>,
    jobs: Jobs,
    submissions: SubmissionIndex,
    leases: Leases,
    buckets: Buckets,
    debits: Debits,
    schedules: Schedules,
    alerts: Alerts,
    bulks: Bulks,
    codes: Codes,
    history: MinuteHistory,
    /// This engine's share of every scoped bucket; `None` for the whole. See `fallback.rs`.
    share: Option<Share>,
    hash_key: Option<HashKey>,
    hash_key_unsaved: bool,
    rules: Rules,
    /// Upstreams whose public view may have changed.
    public_changes: Vec<UpstreamIx>,
    /// Transitions to be logged; see `changes.rs`.
    gate_changes: Vec<GateChange>,
    time: SteadyTime,
    /// Keys with waiting jobs that must still get a newly stored answer, by the entry's number.
    owed: BTreeMap<(LaneIx, u64), Arc<str>>,
    /// Jobs that ended in the current verb; moved into its answer.
    ended: Vec<Ended>,
    /// Transitions for observers; `None` while there are none.
    observation: Option<Box<Observation>>,
    /// Lanes that may be able to start jobs; see [`Engine::take_ready_lanes`].
    ready_lanes: BTreeSet<LaneIx>,
    /// How far engine time is ahead of the clock, as last saved; `None` if it must be saved again.
    saved_ahead_ms: Option<i64>,
}

impl Engine {
    /// Creates an engine without jobs, with the rules of an embedded store.
    pub fn new(spec: &Spec) -> Self {
        let mut engine = Self::default();
        let (process, spec) = (ProcessId::EMBEDDED, Arc::new(spec.clone()));
        engine.register(Registration { process, stamp: 0, about: "".into(), spec }, Time::default());
        engine
    }

    /// The time to pass to verbs when the clock shows `clock`. It never goes back and does not stop when the clock is
    /// set back, even across a restart. A minute of the history that is over by then is closed.
    pub fn now(&mut self, clock: Time) -> Time {
        let now = self.time.at(clock);
        self.close_minute(now);
        now
    }

    /// Continues with another clock, which now shows `clock`. Time starts no earlier than the journal says and no later
    /// than `most`: a clock that is far ahead would expire every lease and job at once.
    pub fn start_at(&mut self, clock: Time, most: Time) {
        self.time.start_at(clock, most);
    }

    /// The store's secret for hashing scope values and correlation ids: the existing one, or else `offer`.
    pub fn hash_key(&mut self, offer: HashKey) -> HashKey {
        *self.hash_key.get_or_insert_with(|| {
            self.hash_key_unsaved = true;
            offer
        })
    }

    fn add_upstream(&mut self, name: &Name) -> UpstreamIx {
        let key_of = name.key().map(|_| self.add_upstream(&name.without_key()));
        let next = UpstreamIx(u32::try_from(self.upstreams.len()).unwrap_or(u32::MAX));
        let found = *self.upstream_by_name.entry(name.clone()).or_insert(next);
        if found == next {
            if let Some(upstream) = key_of {
                self.upstreams[upstream.0 as usize].keys.push(found);
            }
            self.upstreams.push(Upstream {
                name: name.clone(),
                key_of,
                keys: Vec::new(),
                spec: None,
                gone: true,
                gates: Gates::default(),
                dirty: true,
                public: None,
                public_dirty: true,
                calls: Calls::default(),
            });
            self.history.add_upstream();
            self.public_changes.push(found);
        }
        found
    }

    fn add_lane(&mut self, name: &Name) -> LaneIx {
        let next = LaneIx(u32::try_from(self.lanes.len()).unwrap_or(u32::MAX));
        let found = *self.lane_by_name.entry(name.clone()).or_insert(next);
        if found == next {
            self.lanes.push(Lane::new(name.clone()));
            self.history.add_lane();
        }
        found
    }

    fn lane(&self, lane: LaneIx) -> &Lane {
        &self.lanes[lane.0 as usize]
    }

    fn lane_mut(&mut self, lane: LaneIx) -> &mut Lane {
        &mut self.lanes[lane.0 as usize]
    }

    fn lane_of(&mut self, job: JobIx) -> &mut Lane {
        let lane = self.jobs[job].lane;
        self.lane_mut(lane)
    }

    /// The lane with `name` and its rules, if a registration names it.
    fn configured_lane(&self, name: &Name) -> Option<(LaneIx, &LaneSpec)> {
        let lane = *self.lane_by_name.get(name)?;
        let state = self.lane(lane);
        state.spec.as_ref().filter(|_| !state.gone).map(|spec| (lane, spec))
    }

    fn upstream(&self, upstream: UpstreamIx) -> &Upstream {
        &self.upstreams[upstream.0 as usize]
    }

    fn upstream_mut(&mut self, upstream: UpstreamIx) -> &mut Upstream {
        let state = &mut self.upstreams[upstream.0 as usize];
        state.dirty = true;
        if !std::mem::replace(&mut state.public_dirty, true) {
            self.public_changes.push(upstream);
        }
        state
    }

    /// The upstreams a job has not tried in this attempt.
    fn untried(&self, job: &Job) -> impl Iterator<Item = UpstreamIx> + Clone + use<'_> {
        let (chain, tried) = (self.lane(job.lane).chain(job.chain).iter().enumerate(), job.tried);
        chain.filter(move |(place, _)| tried & (1 << place) == 0).map(|(_, upstream)| *upstream)
    }

    /// The rank with which a job asks at its buckets.
    fn rank(&self, job: &Job) -> Rank {
        match job.phase {
            Phase::Queued { line } => self.lane(job.lane).lines[line].rank(),
            _ => (job.level, 0),
        }
    }

    /// The first untried upstream of a job's chain that admits it, or the denial that ends first.
    fn first_admitting(&self, job: &Job, now: Time) -> Result<UpstreamIx, (Option<UpstreamIx>, NotUntil)> {
        let (holds, rank) = (job.holds().map_or([].as_slice(), |holds| holds), self.rank(job));
        let mut earliest = (None, NotUntil::new(Reason::NoWorker, Time::NEVER));
        for upstream in self.untried(job) {
            let scoped =
                || self.denied_hold(holds, upstream, rank, now).map_or(Ok(()), |(_, denial)| Err(denial));
            match self.upstream_admits(upstream, now).and_then(|()| scoped()) {
                Ok(()) => return Ok(upstream),
                Err(denial) if denial.at <= earliest.1.at => earliest = (Some(upstream), denial),
                Err(_) => {}
            }
        }
        Err(earliest)
    }

    /// Puts a waiting job into the line it belongs to, by its number.
    fn join_line(&mut self, index: JobIx) {
        if self.jobs[index].tried != 0 && self.untried(&self.jobs[index]).next().is_none() {
            // The whole chain had failed when its worker vanished or released it: that attempt is over.
            self.jobs[index].tried = 0;
        }
        let (lane, seq) = (self.jobs[index].lane, self.jobs[index].seq);
        let key = self.line_key(index);
        let place = self.lane_mut(lane).push(key, seq, index);
        self.jobs[index].phase = Phase::Queued { line: place };
        self.arrived(lane, place);
    }

    /// The line that a job belongs to.
    fn line_key(&mut self, index: JobIx) -> LineKey {
        let job = &self.jobs[index];
        let (lane, level, tenant, holds) = (job.lane, job.level, job.tenant, job.holds().cloned());
        let group = if job.tried == 0 {
            job.chain
        } else {
            let untried: Vec<_> = self.untried(job).collect();
            self.lanes[lane.0 as usize].group(&untried)
        };
        let state = self.lane_mut(lane);
        let (tenant, limited) = (state.turn_of(tenant), state.limited(tenant));
        LineKey { level, group, tenant, limited, holds }
    }

    /// Counts a job among the waiting ones and puts it into its line, or holds it back until `due`.
    fn wait(&mut self, index: JobIx, due: Option<Time>) {
        let waiter = self.jobs[index].waiter(index);
        self.lane_of(index).enter(&waiter);
        if let Some(due) = due {
            self.jobs[index].phase = Phase::Pending { due };
            self.lane_of(index).due.insert((due, waiter.seq), index);
        } else {
            self.join_line(index);
        }
        self.join_equals(index);
        self.jobs.touch(index);
    }

    /// Removes a job from everything that holds waiting jobs; the opposite of [`Engine::wait`].
    fn stop_waiting(&mut self, index: JobIx) {
        self.stop_waiting_by(index, Lane::pull);
    }

    /// Like [`Engine::stop_waiting`], with a given way to remove it from its line.
    fn stop_waiting_by(&mut self, index: JobIx, pull: Pull) {
        self.leave_equals(index);
        let job = &self.jobs[index];
        let (seq, waiter, phase) = (job.seq, job.waiter(index), job.phase);
        let lane = self.lane_of(index);
        match phase {
            Phase::Pending { due } => {
                lane.due.remove(&(due, seq));
            }
            Phase::HeldBack { .. } => lane.held_back.remove(seq),
            Phase::Queued { line } => {
                if let Some((bucket, parked)) = pull(lane, line, seq) {
                    self.buckets.unpark(bucket, &parked);
                }
            }
            Phase::Coalesced => lane.levels[waiter.level as usize].aside -= 1,
            Phase::Processing { .. } | Phase::Finished { .. } => return,
        }
        self.lane_of(index).exit(&waiter);
    }

    /// The approximate size of the journal in bytes if it held each record once.
    pub fn footprint(&self) -> u64 {
        let things = |lane: &Lane| lane.tenants.len() + lane.dead.len() + lane.keys.len() + lane.cache.len();
        let things = self.jobs.len()
            + self.buckets.len()
            + self.debits.len()
            + self.codes.len()
            + self.lanes.iter().map(things).sum::<usize>()
            + 1;
        let kept: u64 = self.lanes.iter().map(|lane| lane.dead.bytes() + lane.cache.bytes()).sum();
        self.jobs.bytes + kept + self.history.footprint() + things as u64 * PER_THING
    }
}
