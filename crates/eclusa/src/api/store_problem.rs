//! What callers are answered when the store fails.

use eclusa_core::StoreError;

use super::problem::{Kind, Problem};

/// The problem for a failed read.
pub(super) fn unavailable(error: &StoreError) -> Problem {
    Problem::new(Kind::StoreUnavailable, format!("The store could not be read: {error}")).retry_after(5)
}

/// The problem for a failed write.
pub(super) fn unconfirmed(error: &StoreError) -> Problem {
    let detail = match error {
        StoreError::Unavailable { .. } => format!("Nothing was accepted: {error}. Try again later"),
        StoreError::Stopped { .. } | StoreError::Unconfirmed { .. } => format!(
            "Not confirmed: {error}. It may have been stored; send it again with the same `Idempotency-Key` or `id`, and it is stored once"
        ),
    };
    Problem::new(Kind::StoreUnavailable, detail).retry_after(5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_says_whether_it_may_have_been_stored() {
        let stopped = StoreError::Stopped { cause: "no space".into() };
        let said = |problem: Problem| problem.into_json()["detail"].as_str().unwrap_or_default().to_owned();
        let (read, enqueued) = (said(unavailable(&stopped)), said(unconfirmed(&stopped)));
        let away = said(unconfirmed(&StoreError::Unavailable { cause: "Redis is unreachable".into() }));
        let silent = said(unconfirmed(&StoreError::Unconfirmed { cause: "Redis is unreachable".into() }));
        assert!(away.starts_with("Nothing was accepted: "), "{away}");
        assert!(
            silent.contains("It may have been stored; send it again with the same `Idempotency-Key`"),
            "{silent}"
        );
        assert!(enqueued.starts_with("Not confirmed: the store has stopped: no space"), "{enqueued}");
        assert!(read.starts_with("The store could not be read: the store has stopped: no space"), "{read}");
    }
}
