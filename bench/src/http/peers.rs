//! Servers to compare with, each in a process of its own.

use std::net::SocketAddr;

use axum::extract::Path;
use axum::routing::{get, post};
use axum::{Json, Router};
use eclusa::api::JobRequest;
use eclusa::api::model::Accepted;
use http::StatusCode;
use tokio::net::TcpListener;

use crate::Failed;

/// Reads the same JSON as Eclusa does and answers 202, without doing anything.
pub(crate) fn serve_bare() -> Result<(), Failed> {
    serve(Router::new().route("/v1/lanes/{lane}/jobs", post(accept)))
}

async fn accept(Path(lane): Path<String>, Json(job): Json<JobRequest>) -> (StatusCode, Json<Accepted>) {
    let accepted = Accepted {
        job_id: job.id.unwrap_or_else(|| "00000000-0000-0000-0000-000000000000".into()),
        status: "queued".into(),
        lane,
        position: Some(0),
        eta: Some("2026-01-01T00:00:00.000Z".into()),
        expires_at: None,
    };
    (StatusCode::ACCEPTED, Json(accepted))
}

/// Answers at once with a little JSON.
pub(crate) fn serve_upstream() -> Result<(), Failed> {
    serve(Router::new().route("/score", get(async || Json(serde_json::json!({ "score": 700 })))))
}

fn serve(router: Router) -> Result<(), Failed> {
    tokio::runtime::Runtime::new()?.block_on(async {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        println!("{}", listener.local_addr()?);
        Ok(axum::serve(listener, router).await?)
    })
}
