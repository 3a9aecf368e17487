//! The audit log: what an operator changed, and with which key. Written at every `log.level` except `off`.

/// Writes one line: the action (`audit`), the name of the key (`by`), and the fields given.
macro_rules! audit {
    ($caller:expr, $action:expr, $($fields:tt)*) => {
        tracing::info!(target: "audit", audit = $action, by = $caller.name(), $($fields)*)
    };
}

pub(super) use audit;
