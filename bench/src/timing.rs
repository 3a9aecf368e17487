//! How time is taken.

use std::time::{Duration, Instant};

/// Each figure is the median of so many rounds, because the machine may do other things meanwhile.
const ROUNDS: usize = 5;

/// How long a round lasts at least.
pub(crate) const ROUND: Duration = Duration::from_millis(200);

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The median of what `round` says.
pub(crate) fn median<E>(mut round: impl FnMut() -> Result<f64, E>) -> Result<f64, E> {
    let mut results = (0..ROUNDS).map(|_| round()).collect::<Result<Vec<_>, _>>()?;
    results.sort_by(f64::total_cmp);
    Ok(results[ROUNDS / 2])
}

/// How often a second `step`, which says how long it took, can be done.
pub(crate) fn per_second<E>(mut step: impl FnMut() -> Result<Duration, E>) -> Result<f64, E> {
    median(|| {
        let (mut steps, mut spent) = (0.0, Duration::ZERO);
        while spent < ROUND {
            spent += step()?;
            steps += 1.0;
        }
        Ok(steps / spent.as_secs_f64())
    })
}
