//! Log lines about gates, written by the process whose engine decided, so once for the whole fleet.

use eclusa_core::gate::{GateChange, GateChangeKind};

/// Which engine decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decided {
    /// The engine behind the journal; its decisions are durable.
    Here,
    /// The fallback engine of a process that cannot ask the owner, with its share of the limits.
    WithoutOwner,
}

/// Writes one line for each change.
pub(super) fn log_changes(changes: &[GateChange], decided: Decided) {
    for change in changes {
        log(change, decided);
    }
}

fn log(change: &GateChange, decided: Decided) {
    let upstream = &change.upstream.without_key();
    let (key, policy) = (change.upstream.key(), change.policy.as_ref().map(eclusa_core::Name::as_str));
    let local = (decided == Decided::WithoutOwner).then_some(true);
    match change.kind {
        GateChangeKind::BreakerOpened { failures, lasts } => {
            let ms = lasts.as_millis();
            tracing::warn!(%upstream, key, failures, lastsMs = ms, local, "Breaker opened for {lasts}");
        }
        GateChangeKind::BreakerHalfOpened => {
            tracing::info!(%upstream, key, local, "Breaker half-open: a probe starts");
        }
        GateChangeKind::BreakerClosed => tracing::info!(%upstream, key, local, "Breaker closed"),
        GateChangeKind::CooldownBegan { errors, lasts } => {
            let ms = lasts.as_millis();
            tracing::warn!(%upstream, key, errors, lastsMs = ms, local, "Cooldown for {lasts}");
        }
        GateChangeKind::CooldownEnded => tracing::info!(%upstream, key, local, "Cooldown ended"),
        GateChangeKind::Reopened => tracing::info!(%upstream, key, local, "Calls are allowed again"),
        GateChangeKind::Closed { lasts } => {
            let ms = lasts.as_millis();
            tracing::warn!(%upstream, key, policy, lastsMs = ms, local, "The upstream asked for no calls for {lasts}");
        }
    }
}
