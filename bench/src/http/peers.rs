//! Servers to compare with, each in its own process.

use std::net::SocketAddr;

use axum::extract::Path;
use axum::routing::{get, post};
use axum::{Json, Router};
use eclusa::model::Accepted;
use eclusa::model::JobRequest;
use http::header::{CONNECTION, HOST};
use http::{Request, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
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

/// Passes everything on to `upstream` and does nothing else: what the HTTP library that Eclusa uses can do.
pub(crate) fn serve_proxy(upstream: &str) -> Result<(), Failed> {
    let upstream = upstream.to_owned();
    tokio::runtime::Runtime::new()?.block_on(async {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        println!("{}", listener.local_addr()?);
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(128).build_http();
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (client, upstream) = (client.clone(), upstream.clone());
            let pass_on = service_fn(move |mut request: Request<Incoming>| {
                let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
                let uri = Uri::builder().scheme("http").authority(upstream.as_str()).path_and_query(path);
                let client = client.clone();
                if let Ok(uri) = uri.build() {
                    *request.uri_mut() = uri;
                }
                request.headers_mut().remove(HOST);
                request.headers_mut().remove(CONNECTION);
                async move { client.request(request).await }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), pass_on));
        }
    })
}
