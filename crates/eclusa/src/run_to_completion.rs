//! Work that is done to its end, whoever stops waiting for it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// A future that goes on in a task of its own when it is dropped before its end. Until then it costs no task: hardly
/// anybody goes away.
pub(crate) struct RunToCompletion<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    /// Absent once it has ended.
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
        // Taken out, so that work that panics is not gone on with.
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
    async fn work_that_nobody_waits_for_any_more_goes_on_from_where_it_was() {
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
    async fn who_waits_gets_what_came_of_it() {
        assert_eq!(RunToCompletion::new(async { 7 }).await, 7);
    }
}
