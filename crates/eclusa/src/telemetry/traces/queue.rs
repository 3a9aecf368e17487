//! Ended spans that wait for export: a bounded queue that never blocks.

use std::sync::Arc;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::span::Ended;
use crate::telemetry::Metrics;

/// Maximum spans that wait; more are dropped and counted.
const MAX_WAITING: usize = 8_192;

/// A reason why spans were dropped.
pub(super) const QUEUE_FULL: &str = "queue_full";

/// Receives ended spans.
pub(crate) struct Queue {
    spans: Sender<Ended>,
    metrics: Arc<Metrics>,
}

impl Queue {
    pub(super) fn new(metrics: Arc<Metrics>) -> (Arc<Self>, Receiver<Ended>) {
        let (spans, waiting) = channel(MAX_WAITING);
        (Arc::new(Self { spans, metrics }), waiting)
    }

    /// Queues a span if there is room.
    pub(super) fn put(&self, span: Ended) {
        if let Err(TrySendError::Full(_)) = self.spans.try_send(span) {
            self.metrics.count_dropped_spans(QUEUE_FULL, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::span::SpanKind;
    use super::*;
    use crate::telemetry::{Exposition, Snapshot};

    #[test]
    fn spans_beyond_the_bound_are_dropped_and_counted() {
        let metrics = Arc::<Metrics>::default();
        let (queue, mut waiting) = Queue::new(metrics.clone());
        let span = Ended {
            trace: 1,
            id: 1,
            parent: None,
            name: "intake",
            kind: SpanKind::Server,
            from: 1,
            to: 2,
            attributes: Vec::new(),
            error: None,
        };
        (0..MAX_WAITING + 5).for_each(|_| queue.put(span.clone()));
        let text = metrics.encode(Snapshot::default(), Exposition::Prometheus).unwrap();
        assert!(text.contains("eclusa_spans_dropped_total{reason=\"queue_full\"} 5"), "{text}");
        let kept = std::iter::from_fn(|| waiting.try_recv().ok()).count();
        assert_eq!(kept, MAX_WAITING);
    }
}
