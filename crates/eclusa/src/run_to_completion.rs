//! Work that runs to completion, even if its caller stops waiting.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// A future that continues in its own task if it is dropped before its end. Until then it needs no task: callers rarely
/// go away.
pub(crate) struct RunToCompletion<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    /// `None` once it has ended.
    work: Option<Pin<Box<F>>>,
}

impl<F: Future<Output: Send> + Send + 'static> RunToCompletion<F> {
    pub(crate) fn new(work: F) -> Self {
        Self { work: Some(Box::pin(work)) }
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for RunToCompletion<F> {
    type Output = F::Output;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // Taken out, so that work that panics is not continued.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for RunToCompletion<F> {
    fn drop(&mut self) {
        if let (Some(work), Ok(runtime)) = (self.work.take(), Handle::try_current()) {
            runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn dropped_work_continues_from_where_it_was() {
        let (steps, go_on, ended) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()), Arc::new(Notify::new()));
        let work = {
            let (steps, go_on, ended) = (steps.clone(), go_on.clone(), ended.clone());
            async move {
                steps.fetch_add(1, Ordering::SeqCst);
                go_on.notified().await;
                steps.fetch_add(1, Ordering::SeqCst);
                ended.notify_one();
            }
        };
        let mut work = RunToCompletion::new(work);
        let begun = poll_fn(|context| Poll::Ready(Pin::new(&mut work).poll(context))).await;
        assert!(begun.is_pending());
        drop(work);
        go_on.notify_one();
        ended.notified().await;
        assert_eq!(steps.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_caller_that_waits_gets_the_result() {
        assert_eq!(RunToCompletion::new(async { 7 }).await, 7);
    }
}
