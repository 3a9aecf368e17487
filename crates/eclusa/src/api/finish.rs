//! Changes made by an operator are finished and audited even if the client disconnects.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use crate::life::Life;
use crate::run_to_completion::RunToCompletion;

/// Runs the rest of a request to completion.
pub(super) async fn finish(State(life): State<Arc<Life>>, request: Request, next: Next) -> Response {
    RunToCompletion::new(life.running.track_future(next.run(request))).await
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::routing::post;
    use futures_util::FutureExt;
    use tokio::sync::Notify;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn a_change_is_finished_after_its_client_disconnects() {
        let (go_on, finished) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (change, changed) = (go_on.clone(), finished.clone());
        let handler = move || async move {
            change.notified().await;
            changed.notify_one();
        };
        let life = Arc::<Life>::default();
        let router = Router::new().route("/", post(handler)).layer(from_fn_with_state(life.clone(), finish));
        let request = Request::post("/").body(Body::empty()).unwrap();
        assert!(
            router.oneshot(request).now_or_never().is_none(),
            "it waits, and its client has disconnected"
        );
        assert_eq!(life.running.len(), 1);
        go_on.notify_one();
        finished.notified().await;
    }
}
