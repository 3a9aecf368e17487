//! The audit line: what an operator changed, and with which key. Written whatever `log.level` says, but for `off`.

/// One line: what was done (`audit`), with the name of the key that did it (`by`), to what, and how much of it.
macro_rules! audit {
    ($caller:expr, $action:expr, $($fields:tt)*) => {
        tracing::info!(target: "audit", audit = $action, by = $caller.name(), $($fields)*)
    };
}

pub(super) use audit;
