//! The limits that lanes and upstreams have in common: `rpm`, `rate`, `burst` and concurrency.

use std::num::NonZeroU32;

use eclusa_core::gate::{BucketSpec, GateSpecs, WindowSpec};

use super::read::Table;
use super::units::RateValue;

/// Reads the limits; `slots` is the key of the concurrency limit.
pub(super) fn gates(t: &mut Table<'_>, slots: &'static str, slots_doc: &'static str) -> GateSpecs {
    let rpm: Option<NonZeroU32> =
        t.get("rpm", "The most requests in any 60 seconds, as the upstream counts them.");
    let rate: Option<RateValue> =
        t.get("rate", "The refill rate of a token bucket; each call takes one token.");
    let burst: Option<NonZeroU32> =
        t.get("burst", "The capacity of the bucket; the number in `rate` if not given.");
    let slots_at_once: Option<NonZeroU32> = t.get(slots, slots_doc);
    if t.has("burst") && !t.has("rate") {
        t.misplaced("burst", "needs `rate`", "add `rate = \"10/s\"`, or remove `burst`");
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
