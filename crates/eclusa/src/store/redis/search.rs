//! Looking through all jobs, page by page.

use eclusa_core::{JobPage, JobQuery, StoreError};

use super::connection::DEADLINE;
use super::wire::{JobRecord, job_id};
use super::{MAX_ITEMS, RedisStore};

/// A field of a hash and what it holds.
type Field = (Vec<u8>, Vec<u8>);

/// A scan may bring more than a page holds: then the next page begins within what the same step of the scan brings.
struct Cursor {
    step: u64,
    skip: usize,
}

impl Cursor {
    const SKIP_BITS: u32 = 20;

    fn read(after: u64) -> Self {
        let skip = after & ((1 << Self::SKIP_BITS) - 1);
        Self { step: after >> Self::SKIP_BITS, skip: usize::try_from(skip).unwrap_or_default() }
    }

    fn write(&self) -> u64 {
        self.step << Self::SKIP_BITS | self.skip as u64
    }
}

impl RedisStore {
    /// A page of the jobs that fit. Jobs that come or go meanwhile may be missed, or seen twice.
    pub(super) async fn search(&self, query: &JobQuery) -> Result<JobPage, StoreError> {
        let from = Cursor::read(query.after);
        let max = query.max.min(MAX_ITEMS);
        let mut commands = redis::pipe();
        commands.cmd("HSCAN").arg(self.server.keys.jobs()).arg(from.step).arg("COUNT").arg(max.max(1));
        let ((step, found),): ((u64, Vec<Field>),) =
            self.server.connection.query(&commands, DEADLINE).await?;
        let mut page =
            JobPage { jobs: Vec::new(), next: (step != 0).then(|| Cursor { step, skip: 0 }.write()) };
        for (at, (id, record)) in found.into_iter().enumerate().skip(from.skip) {
            if page.jobs.len() == max {
                page.next = Some(Cursor { step: from.step, skip: at }.write());
                break;
            }
            if fits(&JobRecord::read(&record)?, query) {
                page.jobs.push(self.view(job_id(&id)?, &record).await?);
            }
        }
        Ok(page)
    }
}

fn fits(job: &JobRecord, query: &JobQuery) -> bool {
    query.lane.as_ref().is_none_or(|lane| lane.as_str() == job.lane())
        && query.tenant.as_ref().is_none_or(|tenant| **tenant == *job.tenant())
        && query.status.is_none_or(|status| status == job.status())
}
