//! The life of the process: what runs, and how it is told to end.

use std::future::Future;

use eclusa_core::StoreError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clients::Uploads;
use crate::to_the_end::ToTheEnd;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// Calls under way, and what must be told of them.
    pub(crate) running: TaskTracker,
    /// Bodies of requests that are being received.
    pub(crate) uploads: Uploads,
    /// Set when nothing new is to be begun.
    pub(crate) stopping: CancellationToken,
    /// Set when calls under way can be waited for no longer.
    pub(crate) aborting: CancellationToken,
    /// Set when nothing runs any more.
    pub(crate) finished: CancellationToken,
    /// Set when the process cannot go on.
    pub(crate) broken: CancellationToken,
}

impl Life {
    /// Does `work` to its end even if whoever asked for it goes away meanwhile: what a verb did must be told and undone in
    /// any case.
    pub(crate) async fn to_the_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        ToTheEnd::new(self.running.track_future(work)).await
    }

    /// The process can keep no promise any more, so it ends.
    pub(crate) fn fail(&self) {
        self.broken.cancel();
        self.stopping.cancel();
    }
}
