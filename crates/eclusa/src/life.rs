//! The life cycle of the process: what runs, and how it is asked to end.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use eclusa_core::{Settled, Status, StoreError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clients::Uploads;
use crate::run_to_completion::RunToCompletion;

/// How long the end may wait for threads that cannot be stopped, such as one that looks up a name.
pub(crate) const LAST_THREADS_WAIT: Duration = Duration::from_secs(3);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// Calls in progress, and the reporting of their results.
    pub(crate) running: TaskTracker,
    /// Cancelled when the process is asked to stop. It serves as usual for `server.drain`, but is no longer ready.
    pub(crate) draining: CancellationToken,
    /// Limits request bodies being received.
    pub(crate) uploads: Uploads,
    /// Limits webhook bodies, which need no key.
    pub(crate) webhooks: Uploads,
    /// Cancelled when nothing new may begin.
    pub(crate) stopping: CancellationToken,
    /// Cancelled when calls in progress are no longer waited for.
    pub(crate) aborting: CancellationToken,
    /// Direct calls in progress; each holds a token.
    pub(crate) direct: TaskTracker,
    /// Jobs whose calls were ended because they could no longer be waited for.
    pub(crate) let_go: AtomicUsize,
    /// Those that returned to their line.
    pub(crate) handed_back: AtomicUsize,
    /// Those that became dead letters, because their lane does not send twice.
    pub(crate) dead_lettered: AtomicUsize,
    /// Cancelled when nothing runs any more.
    pub(crate) finished: CancellationToken,
    /// Cancelled when the process cannot continue.
    pub(crate) broken: CancellationToken,
    /// Whether a failure was already reported.
    failed: AtomicBool,
}

impl Life {
    /// Runs `work` to completion even if its caller goes away: the effects of a verb must be reported or undone in any
    /// case.
    pub(crate) async fn run_to_completion<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        RunToCompletion::new(self.running.track_future(work)).await
    }

    /// Counts the result of a job whose call was ended because the process stops.
    pub(crate) fn count_let_go(&self, settled: Option<Settled>) {
        match settled {
            Some(Settled::Requeued) => self.handed_back.fetch_add(1, Ordering::Relaxed),
            Some(Settled::Ended(Status::Failed)) => self.dead_lettered.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// Ends the process, because it can keep no promise any more. Returns whether this is the first call.
    pub(crate) fn fail(&self) -> bool {
        let new = !self.failed.swap(true, Ordering::Relaxed);
        self.broken.cancel();
        self.stopping.cancel();
        new
    }
}
