//! The layout of the state of gates. Slots, window places and tokens in use are not stored: they are counted again from
//! the leases.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::gate::{Adaptive, Batch, Breaker, Bucket, Cooldown, Gates, Pace, Pass, Tally};
use crate::layout::LayoutError;
use crate::layout::convert::{Layout, layout_struct};
use crate::layout::shared::LeaseIdLayout;
use crate::time::Span;
use crate::tokens::Tokens;

#[derive(Serialize, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(in crate::layout) struct GatesLayout<'a> {
    breaker: BreakerLayout,
    cooldown: CooldownLayout,
    window: TallyLayout<'a>,
    bucket: Option<BucketLayout>,
    pace: Option<PaceLayout>,
    closed_until: u64,
    starts: TallyLayout<'a>,
}

impl<'a> Layout<'a, Gates> for GatesLayout<'a> {
    fn from_domain(gates: &'a Gates) -> Self {
        Self {
            breaker: Layout::from_domain(&gates.breaker),
            cooldown: Layout::from_domain(&gates.cooldown),
            window: Layout::from_domain(gates.window.answered()),
            bucket: Layout::from_domain(&gates.bucket),
            pace: Layout::from_domain(&gates.pace),
            closed_until: Layout::from_domain(&gates.closed_until),
            starts: Layout::from_domain(gates.starts.tally()),
        }
    }

    fn into_domain(self) -> Result<Gates, LayoutError> {
        Ok(Gates {
            breaker: self.breaker.into_domain()?,
            cooldown: self.cooldown.into_domain()?,
            window: Layout::<Tally>::into_domain(self.window)?.into(),
            bucket: self.bucket.into_domain()?,
            pace: self.pace.into_domain()?,
            closed_until: self.closed_until.into_domain()?,
            starts: Layout::<Tally>::into_domain(self.starts)?.into(),
            in_flight: 0,
        })
    }
}

layout_struct!(
    BreakerLayout = Breaker {
        failures: u32,
        generation: u32,
        turned_at: u64,
        open_until: Option<u64>,
        probes: Vec<(LeaseIdLayout, u64)>,
        opened: u64,
        half_opened: u64,
        closed: u64,
    }
);

layout_struct!(CooldownLayout = Cooldown { errors: u32, last_error: u64, hot_until: u64 });

#[derive(Serialize, Deserialize)]
pub(in crate::layout) struct BucketLayout {
    balance: i64,
    at: u64,
    remainder: u64,
    closed_until: u64,
}

impl Layout<'_, Bucket> for BucketLayout {
    fn from_domain(bucket: &Bucket) -> Self {
        Self {
            balance: Layout::from_domain(&bucket.balance),
            at: Layout::from_domain(&bucket.at),
            remainder: bucket.remainder,
            closed_until: Layout::from_domain(&bucket.closed_until),
        }
    }

    fn into_domain(self) -> Result<Bucket, LayoutError> {
        Ok(Bucket {
            balance: self.balance.into_domain()?,
            at: self.at.into_domain()?,
            remainder: self.remainder,
            closed_until: self.closed_until.into_domain()?,
            held: Tokens::ZERO,
        })
    }
}

layout_struct!(PaceLayout = Pace { interval_us: u64, next_at: u64, learned: Option<AdaptiveLayout> });

layout_struct!(
    AdaptiveLayout = Adaptive {
        rate: u64,
        knee: Option<u64>,
        slowed_at: u64,
        strikes: u32,
        grown_at: u64,
        used: bool,
        owed_us: u64,
        floor_us: Option<u64>,
        batch: BatchLayout,
    }
);

layout_struct!(BatchLayout = Batch { calls: u32, failed: u32, timed: u32, total_us: u64 });

layout_struct!(PassLayout = Pass { generation: u32, answered: bool });

/// Each time as the milliseconds since the previous one, which are small numbers.
enum TallyLayout<'a> {
    Written(&'a Tally),
    Read(Vec<(u64, u32)>),
}

impl Serialize for TallyLayout<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            TallyLayout::Written(tally) => {
                serializer.collect_seq(tally.steps().map(|(step, count)| (step.as_millis(), count)))
            }
            TallyLayout::Read(steps) => steps.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for TallyLayout<'_> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(TallyLayout::Read)
    }
}

impl<'a> Layout<'a, Tally> for TallyLayout<'a> {
    fn from_domain(tally: &'a Tally) -> Self {
        TallyLayout::Written(tally)
    }

    fn into_domain(self) -> Result<Tally, LayoutError> {
        Ok(match self {
            TallyLayout::Written(tally) => tally.clone(),
            TallyLayout::Read(steps) => {
                Tally::from_steps(steps.into_iter().map(|(ms, count)| (Span::from_millis(ms), count)))
            }
        })
    }
}
