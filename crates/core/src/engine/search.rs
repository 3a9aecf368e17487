//! Search: jobs that match a query, newest first; and cancelling all that match.

use super::Engine;
use super::jobs::Job;
use crate::ids::JobId;
use crate::table::{JobIx, LaneIx};
use crate::time::Time;
use crate::verbs::{CancelAll, Cancelled, CancelledAll, MAX_BATCH};
use crate::views::{JobCursor, JobPage, JobQuery};

/// Jobs that one search examines.
const MAX_SCANNED: usize = 10_000;
/// Bytes of payloads and results on one page. The job that exceeds it is the last of its page.
const MAX_BYTES: usize = 4 << 20;

/// The progress of a search in a lane.
struct Head {
    lane: LaneIx,
    /// The number of positions by age that are left.
    end: usize,
    /// When the newest of the remaining jobs was created.
    newest: Option<Time>,
}

impl Head {
    fn new(lane: LaneIx, end: usize, engine: &Engine) -> Self {
        let mut head = Self { lane, end, newest: None };
        head.peek(engine);
        head
    }

    fn peek<'a>(&mut self, engine: &'a Engine) -> Option<(usize, &'a Job)> {
        let last = engine.jobs.last_before(self.lane, self.end);
        self.newest = last.map(|(_, job)| job.created_at);
        last
    }

    /// Takes the jobs created at `time`, if these are the newest ones left.
    fn take(&mut self, time: Time, engine: &Engine, taken: &mut Vec<JobId>) {
        if self.newest != Some(time) {
            return;
        }
        while let Some((place, job)) = self.peek(engine).filter(|(_, job)| job.created_at == time) {
            taken.push(job.id);
            self.end = place;
        }
    }
}

/// A page being filled.
struct Found<'a> {
    query: &'a JobQuery,
    /// Only jobs that have not ended.
    alive: bool,
    jobs: Vec<JobId>,
    bytes: usize,
    scanned: usize,
}

impl Found<'_> {
    /// Adds a job to the page if it matches. Returns whether to continue.
    fn examine(&mut self, engine: &Engine, id: JobId) -> bool {
        self.scanned += 1;
        let Some(job) = engine.jobs.find(id).map(|job| &engine.jobs[job]) else { return true };
        if engine.fits(job, self.query) && !(self.alive && job.status().is_final()) {
            self.jobs.push(id);
            let result = job.rare.as_ref().and_then(|rare| rare.result.as_ref());
            self.bytes += job.payload.len() + result.map_or(0, |result| result.len());
        }
        self.jobs.len() < self.query.max.min(MAX_BATCH)
            && self.bytes < MAX_BYTES
            && self.scanned < MAX_SCANNED
    }
}

impl Engine {
    /// A page of the jobs that match `query`, newest first. It examines a bounded number of jobs, even if few match.
    /// Jobs of the same millisecond are ordered by id.
    pub fn jobs(&mut self, query: &JobQuery) -> JobPage {
        let (found, next) = self.search(query, false);
        let found = found.into_iter().filter_map(|id| self.job(id));
        JobPage { jobs: found.collect(), next }
    }

    /// Cancels, or only counts, one page of the jobs that match and have not ended.
    pub fn cancel_all(&mut self, ask: &CancelAll, now: Time) -> CancelledAll {
        let (found, next) = self.search(&ask.query, true);
        let mut answer = CancelledAll { matched: found.len() as u64, ended: Vec::new(), next };
        if !ask.dry_run {
            let cancelled = found.into_iter().map(|id| self.cancel(id, now));
            let ended = |cancelled| if let Cancelled::Yes(ended) = cancelled { Some(*ended) } else { None };
            answer.ended = cancelled.filter_map(ended).collect();
        }
        answer
    }

    fn search(&mut self, query: &JobQuery, alive: bool) -> (Vec<JobId>, Option<JobCursor>) {
        let mut found = Found { query, alive, jobs: Vec::new(), bytes: 0, scanned: 0 };
        if query.max == 0 {
            return (found.jobs, Some(query.after.unwrap_or(JobCursor::START)));
        }
        if let Some(known) = self.direct_lookup(query) {
            return (self.newest_first(known, found), None);
        }
        self.jobs.sort_by_age();
        let start = query.after.unwrap_or(JobCursor::START);
        let until = query.until.map_or(start.created_at, |until| until.min(start.created_at));
        let head = |lane| Head::new(lane, self.jobs.places_until(lane, until), self);
        let mut heads: Vec<Head> = self.lanes_of(query).into_iter().map(head).collect();
        let mut group = Vec::new();
        while let Some(created_at) = heads.iter().filter_map(|head| head.newest).max() {
            if query.since.is_some_and(|since| created_at < since) {
                break;
            }
            heads.iter_mut().for_each(|head| head.take(created_at, self, &mut group));
            group.sort_unstable();
            while let Some(job) = group.pop() {
                let place = JobCursor { created_at, job };
                if place < start && !found.examine(self, job) {
                    return (found.jobs, Some(place));
                }
            }
        }
        (found.jobs, None)
    }

    /// The jobs that the query names by an id, if it does.
    fn direct_lookup(&self, query: &JobQuery) -> Option<Vec<JobId>> {
        let lanes = self.lanes_of(query);
        let reached = |job: &JobIx| lanes.contains(&self.jobs[*job].lane);
        match (&query.key, &query.external) {
            (Some(key), _) => {
                let own = key.parse().ok().filter(|id| self.jobs.find(*id).as_ref().is_some_and(reached));
                // A key lasts as long as its job.
                let given = lanes.iter().filter_map(|lane| self.lane(*lane).keys.get(key.as_ref()));
                Some(given.map(|entry| entry.job).chain(own).collect())
            }
            (None, Some(external)) => {
                let called = self.submissions.called(external).filter(reached);
                Some(called.map(|job| self.jobs[job].id).collect())
            }
            (None, None) => None,
        }
    }

    fn newest_first(&self, mut ids: Vec<JobId>, mut found: Found<'_>) -> Vec<JobId> {
        let created_at = |id: JobId| self.jobs.find(id).map(|job| self.jobs[job].created_at);
        ids.sort_unstable_by_key(|id| std::cmp::Reverse((created_at(*id), *id)));
        ids.dedup();
        ids.into_iter().take_while(|id| found.examine(self, *id)).for_each(drop);
        found.jobs
    }

    fn lanes_of(&self, query: &JobQuery) -> Vec<LaneIx> {
        match &query.lane {
            Some(name) => self.lane_by_name.get(name).copied().into_iter().collect(),
            None => (0..u32::MAX).map(LaneIx).take(self.lanes.len()).collect(),
        }
    }

    fn fits(&self, job: &Job, query: &JobQuery) -> bool {
        query.tenant.as_ref().is_none_or(|tenant| self.lane(job.lane).tenants[job.tenant].name == *tenant)
            && query.status.is_none_or(|status| job.status() == status)
            && query.since.is_none_or(|since| job.created_at >= since)
            && query.until.is_none_or(|until| job.created_at <= until)
            && query.external.as_ref().is_none_or(|external| {
                job.submission().and_then(|submission| submission.external.as_ref()) == Some(external)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Restorer;
    use crate::gate::GateSpecs;
    use crate::ids::Name;
    use crate::job::{NewJob, Status};
    use crate::spec::{Chain, Keep, LaneSpec, Spec, UpstreamSpec};
    use crate::time::Span;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn engine() -> Engine {
        let lane = |text: &str| {
            let mut lane = LaneSpec::new(name(text), Chain::new(vec![name("up")]).unwrap());
            lane.keep = Keep { span: Span::from_secs(3_600), max: 3 };
            lane
        };
        let upstream = UpstreamSpec::new(name("up"), GateSpecs::default());
        Engine::new(&Spec::new(vec![lane("a"), lane("b")], vec![upstream]).unwrap())
    }

    fn add(engine: &mut Engine, id: u128, lane: &str, now: u64) {
        let job = NewJob::new(JobId(id), name(lane), "acme", *b"x");
        engine.enqueue(vec![job], Time::from_millis(now));
    }

    /// All pages of at most `max`.
    fn pages(engine: &mut Engine, query: &JobQuery) -> Vec<u128> {
        let (mut found, mut query) = (Vec::new(), query.clone());
        loop {
            let page = engine.jobs(&query);
            found.extend(page.jobs.iter().map(|job| job.id.0));
            query.after = page.next;
            if page.next.is_none() {
                return found;
            }
        }
    }

    fn restored(engine: &Engine) -> Engine {
        let mut restorer = Restorer::default();
        let mut chunk = Engine::begin_chunk();
        engine.snapshot().unwrap().iter().for_each(|record| chunk.extend(record));
        restorer.apply(&chunk).unwrap();
        restorer.finish(7).unwrap()
    }

    #[test]
    fn search_returns_jobs_newest_first_as_jobs_come_and_go() {
        let mut engine = engine();
        let mut known: Vec<(u64, u128, &str)> = Vec::new();
        let mut random = 1_u64;
        for step in 0..3_000_u64 {
            random = crate::ids::mix(&[random]);
            let (now, lane) = (step / 3, if random.is_multiple_of(5) { "a" } else { "b" });
            let id = u128::from(random);
            add(&mut engine, id, lane, now);
            known.push((now, id, lane));
            if random % 7 < 3 {
                let gone = known[usize::try_from(random % known.len() as u64).unwrap()].1;
                engine.cancel(JobId(gone), Time::from_millis(now));
            }
            known.retain(|(_, id, _)| engine.job(JobId(*id)).is_some());
            if step % 250 == 249 {
                known.sort_unstable_by_key(|(at, id, _)| std::cmp::Reverse((*at, *id)));
                let ids = |fits: &dyn Fn(u64, &str) -> bool| -> Vec<u128> {
                    let known = known.iter().filter(|(at, _, lane)| fits(*at, lane));
                    known.map(|(_, id, _)| *id).collect()
                };
                let all = JobQuery { max: 7, ..JobQuery::default() };
                let ms = Time::from_millis;
                let (since, until) = (now / 3, now / 2);
                let lane = Some(name("a"));
                let part = JobQuery { since: Some(ms(since)), until: Some(ms(until)), lane, ..all.clone() };
                for engine in [&mut restored(&engine), &mut engine] {
                    assert_eq!(pages(engine, &all), ids(&|_, _| true));
                    let fits = |at: u64, lane: &str| (since..=until).contains(&at) && lane == "a";
                    assert_eq!(pages(engine, &part), ids(&fits));
                }
            }
        }
        assert!(known.len() > 500 && known.len() < 2_000, "{} jobs are left", known.len());
    }

    #[test]
    fn a_page_is_bounded_in_examined_jobs_and_in_bytes() {
        let mut engine = engine();
        (0..2 * MAX_SCANNED as u64).for_each(|at| add(&mut engine, u128::from(at), "a", at));
        let nothing = JobQuery { max: 1, status: Some(Status::Failed), ..JobQuery::default() };
        let page = engine.jobs(&nothing);
        let last = MAX_SCANNED as u64;
        assert_eq!((page.jobs.len(), page.next.map(|next| next.created_at.as_millis())), (0, Some(last)));

        let big = |id: u128| NewJob::new(JobId(id), name("b"), "acme", vec![0; MAX_BYTES / 2]);
        engine.enqueue((1..=5).map(|id| big(id << 64)).collect(), Time::from_millis(1));
        let page = engine.jobs(&JobQuery { max: 5, lane: Some(name("b")), ..JobQuery::default() });
        assert_eq!((page.jobs.len(), page.next.is_some()), (2, true));
    }
}
