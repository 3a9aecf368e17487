//! Taking the time.

use std::time::{Duration, Instant};

/// Each figure is the median of this many rounds, because the machine may be doing other things.
const ROUNDS: usize = 5;

/// The shortest round.
pub(crate) const ROUND: Duration = Duration::from_millis(200);

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The median of the results of `round`.
pub(crate) fn median<E>(mut round: impl FnMut() -> Result<f64, E>) -> Result<f64, E> {
    let mut results = (0..ROUNDS).map(|_| round()).collect::<Result<Vec<_>, _>>()?;
    results.sort_by(f64::total_cmp);
    Ok(results[ROUNDS / 2])
}

/// How often per second `step`, which returns how long it took, can run.
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
