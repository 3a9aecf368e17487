//! A call in progress, and its response as it is streamed.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body as HttpBody;
use axum::response::Response;
use bytes::Bytes;
use eclusa_core::Span;
use http::{HeaderName, Version};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::super::headers::header;
use super::super::problem::Problem;
use super::super::refusal::left;
use crate::clients::Download;
use crate::decide::Permit;
use crate::execute::http::{AnswerBody, BodyError, Streamed};
use crate::execute::{CallEnd, Called, Judged};
use crate::leases::Hold;
use crate::policy::UsageMeter;
use crate::rules::Rules;
use crate::telemetry::Metrics;

/// A problem with the caller's own body, which is not the upstream's fault.
pub(super) type BodyFault = Arc<Mutex<Option<Problem>>>;

/// A call in progress.
pub(super) struct Call {
    pub(super) permit: Permit,
    /// The rules in force when it began; it also ends under them.
    pub(super) rules: Arc<Rules>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) asked: Instant,
    /// The status of the response being streamed, and how long the upstream asked to stop sending.
    pub(super) head: Option<(u16, Option<Span>)>,
    pub(super) fault: BodyFault,
    /// Holds the slots until the response has ended.
    pub(super) _hold: Hold,
    /// Counts it among the calls under way.
    pub(super) _running: TaskTrackerToken,
}

impl Call {
    /// The call ended, or its response began.
    pub(super) fn settle_as(&mut self, end: CallEnd, close: Option<Span>) -> Judged {
        let mut judged = self.report(&Called { close, ..end.into() });
        let took = self.asked.elapsed();
        judged.report.took = Some(took.into());
        self.permit.set_report(judged.report.clone());
        self.permit.set_answered();
        self.metrics.count_call(&judged.upstream, &judged.judgement, close.is_some());
        self.metrics.time_call(&judged.upstream, took);
        judged
    }

    /// The response broke off. What its headers said about limits still counts.
    fn break_off(&mut self, error: BodyError) {
        let Some((status, close)) = self.head else { return };
        if self.fault.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return;
        }
        let end = CallEnd::from(error).after_head(status);
        // Otherwise it was counted when the response began.
        let uncounted = end != CallEnd::Answered(status);
        let judged = self.report(&Called { close, ..end.into() });
        if uncounted {
            self.metrics.count_call(&judged.upstream, &judged.judgement, false);
        }
    }

    /// Sets what is reported to the gates when the lease ends.
    pub(super) fn report(&mut self, called: &Called) -> Judged {
        let judged = self.rules.judge(&self.permit.upstream, called);
        self.permit.set_report(judged.report.clone());
        judged
    }
}

/// The upstream's response, with its body streamed.
pub(super) fn streamed(answer: Streamed, call: Call, version: Version) -> Response {
    let upstream = header("eclusa-upstream", call.permit.upstream.as_str());
    let limit = call.permit.quota.as_ref().map(|quota| left(quota, answer.close, call.permit.granted_at));
    let client = call.rules.config.server.client;
    let sources = call.rules.usage_sources(&call.permit.upstream);
    let meter = UsageMeter::new(sources, &answer.headers);
    let flow = Flow { body: answer.body, meter, call };
    // With HTTP/1 the connection itself shows whether the client reads.
    let by_itself = version == Version::HTTP_2;
    let body = if by_itself { HttpBody::new(Download::new(flow, client)) } else { HttpBody::new(flow) };
    let mut response = Response::new(body);
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    // The body is framed again, and so is its length.
    response.headers_mut().remove(HeaderName::from_static("content-length"));
    response.headers_mut().extend(upstream);
    // These describe the limits here; the upstream's own are kept if nothing limits calls here.
    for (name, value) in limit.into_iter().flatten() {
        response.headers_mut().insert(name, value);
    }
    response
}

/// A body that holds its call open until it has been streamed.
struct Flow {
    body: AnswerBody,
    /// Reads the usage that the response reports.
    meter: UsageMeter,
    call: Call,
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.call.permit.set_usage(self.meter.usage());
    }
}

impl Body for Flow {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Err(error))) = &frame {
            self.call.break_off(error.clone());
        }
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.meter.feed(data);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
