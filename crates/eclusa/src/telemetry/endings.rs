//! Log lines about jobs and alerts. Field names are those of the older services; the content of jobs is never logged.

use std::time::Duration;

use eclusa_core::retry::Verdict;
use eclusa_core::{End, Ended, Grant};

use crate::execute::Judgement;
use crate::model::Alert;

/// Logs how a job ended.
pub(crate) fn log_end(ended: &Ended) {
    let (job, lane, tenant, priority) = (ended.job, &ended.lane, &ended.tenant, ended.level.as_str());
    let attempts = ended.attempts;
    match &ended.end {
        End::Completed => {
            tracing::debug!(jobId = %job, lane = %lane, companyId = %tenant, attempts, "Job completed");
        }
        End::Served(by) => {
            let from = crate::words::served(*by);
            tracing::info!(jobId = %job, lane = %lane, companyId = %tenant, reason = from, "Job answered from the cache");
        }
        End::Failed { failure, dead_letter } => {
            let (code, reason) = (failure.code.as_deref(), failure.reason.as_str());
            tracing::warn!(
                jobId = %job, lane = %lane, companyId = %tenant, attempts, errorCode = code, errorReason = reason,
                deadLetter = dead_letter, "Job failed permanently"
            );
        }
        End::Dropped(reason) => {
            let reason = reason.as_str();
            tracing::warn!(jobId = %job, lane = %lane, companyId = %tenant, reason, priority, "Job dropped");
        }
        End::Cancelled => tracing::info!(jobId = %job, lane = %lane, companyId = %tenant, "Job cancelled"),
    }
}

/// Logs a failed attempt that will be retried. The fields are fixed: consumers parse them.
pub(crate) fn log_retry(grant: &Grant, max_attempts: u32, judgement: &Judgement, delay: Duration) {
    tracing::warn!(
        jobId = %grant.job,
        companyId = %grant.tenant,
        attempt = grant.attempt,
        maxAttempts = max_attempts,
        errorCode = judgement.code.as_deref(),
        errorReason = judgement.reason,
        nextRetryDelay = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
        isRetryable = judgement.verdict == Some(Verdict::Retryable),
        "Job failed, scheduling retry"
    );
}

/// Logs that an alert fires or has resolved.
pub(crate) fn log_alert(alert: &eclusa_core::Alert) {
    let Alert { name, severity, lane, upstream, policy, tenant, value, threshold, text, .. } =
        Alert::from(alert);
    let (lane, upstream, policy) = (lane.as_deref(), upstream.as_deref(), policy.as_deref());
    let (tenant, what) = (tenant.as_deref(), text.trim_start_matches("Resolved: "));
    if alert.resolved.is_some() {
        tracing::info!(
            alert = name,
            severity,
            lane,
            upstream,
            policy,
            companyId = tenant,
            value,
            threshold,
            "Alert resolved: {what}"
        );
    } else {
        tracing::warn!(
            alert = name,
            severity,
            lane,
            upstream,
            policy,
            companyId = tenant,
            value,
            threshold,
            "Alert fires: {what}"
        );
    }
}
