//! The time, and how long things last, for people.

use eclusa_core::Clock;
use jiff::{SignedDuration, Timestamp};

use crate::SystemClock;

/// The time.
pub(super) fn now() -> Timestamp {
    let millis = i64::try_from(SystemClock.now().as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX)
}

/// An age or a countdown in whole seconds and at most two units: `14s`, `2m05s`, `1h10m`, `3d04h`.
pub(super) fn span(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_at_most_two_units() {
        let shown = [-5, 0, 59, 60, 125, 3_599, 4_200, 86_399, 273_600];
        let shown = shown.map(|seconds| span(SignedDuration::from_secs(seconds)));
        assert_eq!(shown, ["0s", "0s", "59s", "1m00s", "2m05s", "59m59s", "1h10m", "23h59m", "3d04h"]);
    }
}
