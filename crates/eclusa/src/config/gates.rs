//! The limits that lanes and upstreams share: `rpm`, `rate`, `burst` and calls at the same time.

use std::num::NonZeroU32;

use eclusa_core::gate::{BucketSpec, GateSpecs, WindowSpec};

use super::read::Table;
use super::units::RateValue;

/// Reads them; `slots` is the key of calls at the same time.
pub(super) fn gates(t: &mut Table<'_>, slots: &'static str, slots_doc: &'static str) -> GateSpecs {
    let rpm: Option<NonZeroU32> =
        t.get("rpm", "At most so many requests in any 60 seconds, as the upstream counts them.");
    let rate: Option<RateValue> = t.get("rate", "Tokens that a bucket gains; each start takes one.");
    let burst: Option<NonZeroU32> =
        t.get("burst", "Tokens that the bucket holds when full; the number in `rate` if not given.");
    let slots_at_once: Option<NonZeroU32> = t.get(slots, slots_doc);
    if t.has("burst") && !t.has("rate") {
        t.misplaced("burst", "needs `rate` beside it", "add `rate = \"10/s\"`, or remove `burst`");
    }
    let bucket = rate.and_then(|rate| {
        let capacity = burst.map_or(rate.count, NonZeroU32::get);
        t.rule(BucketSpec::new(capacity, rate.count, rate.per))
    });
    let mut gates = GateSpecs::default();
    gates.window = rpm.and_then(|rpm| t.rule(WindowSpec::per_minute(rpm.get())));
    gates.bucket = bucket;
    match slots_at_once {
        Some(limit) => t.rule(gates.clone().with_slots(slots, limit.get())).unwrap_or(gates),
        None => gates,
    }
}
